"""Access rules of the ledger: roles, places and client ids of a credential, its actor; and the audit trail.

A key that is used for another request than before is an error of a client: its audit line is written before the answer
is sent. Gaps are logged at most once in a while. An audit line has only the prefix of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from semel.kernel.errors import Refusal, Refused
from semel.kernel.keys import key_prefix
from semel.server.auth.principals import Principal, Principals, Role
from semel.server.ops.audit_log import AuditLog
from semel.surfaces.ledger.commands import (
    WriteCommand,
    WriteCommitted,
    WriteDeclined,
    WriteErrorCode,
    WriteReplayed,
)
from semel.surfaces.ledger.metrics import LedgerMetrics
from semel.surfaces.ledger.model import LedgerPlace

SURFACE = "ledger"
API_KEY = b"x-api-key"
"""A header that carries a token here, besides those of every surface."""
ANONYMOUS = "client:anonymous"
USER = "user"
"""The kind of callers with a JWT; no token has a name with this prefix."""


def actor_of(principals: Principals, principal: Principal, *, has_token: bool) -> str:
    """The actor that a caller writes as; without a credential it is anonymous, whatever it calls itself."""
    return principal.actor if principals.are_known and has_token else ANONYMOUS


def reaches(principal: Principal, role: Role, place: LedgerPlace) -> bool:
    """Whether a caller has a role in a place; a scope of the bare slug of an organization reaches all of it."""
    if principal.scopes is None:
        return principal.has(role)
    org = b"%d" % place.org
    name = b"%d/%d" % place if place.vault else org + b"/"
    return principal.may(role, SURFACE, name) or principal.may(role, SURFACE, org)


def check_role(principal: Principal, role: Role, place: LedgerPlace | None) -> None:
    """Refuse a caller without the role, or whose scopes do not reach the place; None is no place in particular."""
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
    """Refuse the client id of another caller: using it would use up that caller's sequences.

    `owner` is the name of the token that the id belongs to; None when it belongs to none.
    """
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
    """The client id that is a user's alone. A slash in the subject is escaped: `a/b` is no part of `a`."""
    return f"{USER}:{subject.replace('%', '%25').replace('/', '%2F')}"


def _is_of_user(principal: Principal, client: str, owner: str | None, subject: str) -> bool:
    if client == subject or client.startswith(f"{subject}/"):
        return True
    # What the claims say is taken as it is, but not for an id that is a token's or another user's.
    is_free = owner is None and not client.startswith(f"{USER}:")
    return is_free and client in (principal.name, principal.client_id)


COLLISION, GAP = "LEDGER_KEY_COLLISION", "LEDGER_SEQUENCE_GAP"


class LedgerAuditTrail:
    """Counts calls and writes audit log lines for one process."""

    def __init__(self, audit: AuditLog, metrics: LedgerMetrics) -> None:
        self._audit = audit
        self.metrics = metrics
        self.watchers = 0
        metrics.watchers = lambda: self.watchers

    async def judged(
        self, command: WriteCommand, answer: WriteCommitted | WriteReplayed | WriteDeclined, where: Mapping[str, str]
    ) -> None:
        """A write was decided."""
        counts = self.metrics.counts
        if isinstance(answer, WriteCommitted):
            counts["committed"] += 1
            counts["operations"] += len(command.write.operations)
        elif isinstance(answer, WriteReplayed):
            counts["replayed"] += 1
        else:
            counts["declined"] += 1
            self.metrics.declined[answer.code.name] += 1
            await self._declined(command, answer, where)

    async def _declined(self, command: WriteCommand, answer: WriteDeclined, where: Mapping[str, str]) -> None:
        if answer.code is WriteErrorCode.IDEMPOTENCY_KEY_REUSED:
            self._audit.note(COLLISION, _facts(command, answer, where))
            await self._audit.written()
        elif answer.code is WriteErrorCode.SEQUENCE_GAP:
            self._audit.note_rarely(GAP, _facts(command, answer, where))

    def refused(self, refusal: Refusal) -> None:
        """A call was refused before any rule."""
        self.metrics.refused[refusal.name] += 1

    def no_access(self, where: Mapping[str, str]) -> None:
        """An authenticated caller was refused for lack of rights."""
        self._audit.denied(where)

    def cut_off(self) -> None:
        """A watcher did not read."""
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
