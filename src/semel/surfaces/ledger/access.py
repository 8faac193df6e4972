"""Access rules of the ledger (roles, places, client ids and the actor of a credential), and the audit trail.

The reuse of a key for another request is an error of the client: its audit line is written before the answer is sent.
Lines about gaps are rate limited. An audit line has only the prefix of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from uuid import UUID

from semel.kernel.errors import Refusal, Refused
from semel.kernel.keys import key_prefix
from semel.server.auth.principals import Principal, Principals, Role
from semel.server.ops.audit_log import AuditLog
from semel.server.writes.retry_log import RetryLog
from semel.surfaces.ledger.commands import (
    WriteCommand,
    WriteDeclined,
    WriteErrorCode,
    WriteReplayed,
)
from semel.surfaces.ledger.metrics import LedgerMetrics
from semel.surfaces.ledger.model import SYSTEM, LedgerPlace

SURFACE = "ledger"
API_KEY = b"x-api-key"
"""A header of this surface that carries a token, besides the headers of every surface."""
ANONYMOUS = "client:anonymous"
USER = "user"
"""The prefix of callers with a JWT; the name of a token never has this prefix."""


def actor_of(principals: Principals, principal: Principal, *, has_token: bool) -> str:
    """The actor that a caller writes as; without a token it is anonymous, whatever name the caller gives."""
    return principal.actor if principals.are_known and has_token else ANONYMOUS


def reaches(principal: Principal, role: Role, place: LedgerPlace) -> bool:
    """Whether a caller has a role in a place. The slug of an organization alone is a scope for all its vaults."""
    if principal.scopes is None:
        return principal.has(role)
    org = b"%d" % place.org
    name = b"%d/%d" % place if place.vault else org + b"/"
    return principal.may(role, SURFACE, name) or principal.may(role, SURFACE, org)


def check_role(principal: Principal, role: Role, place: LedgerPlace | None) -> None:
    """Refuse a caller without the role, or without a scope for the place. None: the call is not about one place."""
    if not principal.has(role):
        raise Refused("ledger:permission_denied", f"This needs the role {role.value}.", {"role": role.value})
    if place is not None and not reaches(principal, role, place):
        where = f"vault {place.vault} of organization {place.org}" if place.vault else f"organization {place.org}"
        raise Refused("ledger:permission_denied", f"This credential does not reach {where}.")


def check_full_admin(principal: Principal) -> None:
    """Refuse a caller that is not an administrator of the whole ledger."""
    if not principal.has(Role.ADMIN) or (b"", True) not in principal.reach(SURFACE):
        message = "This needs the role admin over the whole ledger."
        raise Refused("ledger:permission_denied", message, {"role": Role.ADMIN.value})


def check_client_id(principal: Principal, client: str, owner: str | None) -> None:
    """Refuse the client id of another caller, since using it would use up that caller's sequences.

    `owner` is the name of the token that the id belongs to; None if it belongs to no token. The ids of the server's own
    transactions are nobody's, an administrator's neither.
    """
    if client.encode().startswith(SYSTEM):
        message = f"Client ids that begin with {SYSTEM.decode()} belong to the server: use another one."
        raise Refused("ledger:permission_denied", message, {"field": "clientId"})
    if principal.has(Role.ADMIN):
        return
    if principal.kind != USER:
        is_own, own = owner == principal.name, f"{principal.name!r} and those that begin with it and /"
    else:
        subject = user_client(principal.name)
        is_own, own = _is_of_user(principal, client, owner, subject), f"{subject!r} and those that begin with it and /"
    if not is_own:
        message = f"This credential may use the client ids {own}, unless another caller has claimed them."
        raise Refused("ledger:permission_denied", message, {"field": "clientId"})


def user_client(subject: str) -> str:
    """The client id that only this user may use. A slash in the subject is escaped, so that `a/b` is not below `a`."""
    return f"{USER}:{subject.replace('%', '%25').replace('/', '%2F')}"


def _is_of_user(principal: Principal, client: str, owner: str | None, subject: str) -> bool:
    if client == subject or client.startswith(f"{subject}/"):
        return True
    # Ids in the claims are accepted, unless they belong to a token or to another user.
    is_free = owner is None and not client.startswith(f"{USER}:")
    return is_free and client in (principal.name, principal.client_id)


COLLISION, GAP = "LEDGER_KEY_COLLISION", "LEDGER_SEQUENCE_GAP"


class LedgerAuditTrail:
    """Counts calls and writes audit log lines for one process."""

    def __init__(self, audit: AuditLog, metrics: LedgerMetrics, retries: RetryLog) -> None:
        self._audit = audit
        self._retries = retries
        self.metrics = metrics
        self.watchers = 0
        metrics.watchers = lambda: self.watchers

    def committed(self, command: WriteCommand) -> None:
        """Count a committed write."""
        counts = self.metrics.counts
        counts["committed"] += 1
        counts["operations"] += len(command.write.operations)

    async def judged(
        self, command: WriteCommand, answer: WriteReplayed | WriteDeclined, where: Mapping[str, str]
    ) -> None:
        """Count a write that committed nothing; write reused keys and gaps to the audit log."""
        counts = self.metrics.counts
        self._note_retry(command, answer, where)
        if isinstance(answer, WriteReplayed):
            counts["replayed"] += 1
        else:
            counts["declined"] += 1
            self.metrics.declined[answer.code.name] += 1
            await self._declined(command, answer, where)

    def _note_retry(
        self, command: WriteCommand, answer: WriteReplayed | WriteDeclined, where: Mapping[str, str]
    ) -> None:
        """Note a transaction that had been committed before."""
        if isinstance(answer, WriteReplayed):
            tx_id: bytes | None = answer.committed.transaction.id
        else:
            tx_id = answer.tx_id if answer.code is WriteErrorCode.ALREADY_COMMITTED else None
        if tx_id:
            self._retries.note(SURFACE, tx_id, monotonic(), command.actor.decode(), where.get("remote_addr", ""))

    async def _declined(self, command: WriteCommand, answer: WriteDeclined, where: Mapping[str, str]) -> None:
        if answer.code is WriteErrorCode.IDEMPOTENCY_KEY_REUSED:
            self._audit.note(COLLISION, _facts(command, answer, where))
            await self._audit.written()
        elif answer.code is WriteErrorCode.SEQUENCE_GAP:
            self._audit.note_rarely(GAP, _facts(command, answer, where))

    def refused(self, refusal: Refusal) -> None:
        """Count a call that was refused before any rule ran."""
        self.metrics.refused[refusal.name] += 1

    def no_access(self, where: Mapping[str, str]) -> None:
        """Write to the audit log that an authenticated caller lacked a right."""
        self._audit.denied(where)

    def cut_off(self) -> None:
        """Count a watch that was ended because the client did not read."""
        self.metrics.counts["slow_watchers"] += 1


def _facts(command: WriteCommand, answer: WriteDeclined, where: Mapping[str, str]) -> Mapping[str, object]:
    return {
        "organization": str(command.write.place.org),
        "vault": str(command.write.place.vault),
        "client_id": command.write.client.decode(),
        "sequence": command.write.sequence,
        "key_prefix": key_prefix(str(UUID(bytes=command.write.key))) if command.write.key else "",
        "rule": answer.row,
        "remote_addr": where.get("remote_addr", ""),
    }
