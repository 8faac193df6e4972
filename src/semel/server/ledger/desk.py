"""The service of the ledger: every call without a transport, authorized and executed by the engine.

Independent of HTTP and gRPC. Refusals are raised as `RefusedLedger`, errors of the engine as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from semel.contracts.ledger.commands import (
    CHANCE_BYTES,
    NO_QUOTA,
    ChangeOrg,
    ChangeVault,
    Command,
    Committed,
    Declined,
    Made,
    MakeOrg,
    MakeVault,
    Org,
    OrgSettings,
    PreparedWrite,
    Quota,
    Refusal,
    Replayed,
    Vault,
    WriteCommand,
    Written,
)
from semel.contracts.ledger.contract import Ledger
from semel.contracts.ledger.drafts import prepare, write_command
from semel.contracts.ledger.limits import Limits
from semel.contracts.ledger.model import Operation, Place, Status
from semel.contracts.ledger.orders import check_name, check_retention, check_settings
from semel.contracts.ledger.reading import check_head
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.engine.contract import EngineError, FaultError, NotStoredError, Write
from semel.engine.engine import Caller
from semel.engine.reading import Reading
from semel.kernel.keys import pack
from semel.server.context import Context
from semel.server.ledger.access import actor_of, needs, needs_client, needs_everything, reaches
from semel.server.ledger.hot import HotAnswers
from semel.server.ledger.journal import Journal
from semel.server.ledger.watching import BlockWatch
from semel.server.principals import Principal, Role

T = TypeVar("T")

_log = logging.getLogger("semel.ledger")

FIRST_SLUG, SLUGS_END = 10**15, 2**53
"""Slugs are random, too many to be guessed, and whole numbers in every language."""
_SLUGS_LIMIT = 2**63
"""The first slug that the wire can carry and a row cannot."""
_SLUG_TRIES = 4
_ROWS_AROUND = 8
"""Rows that a transaction touches besides those of its operations, and each operation besides its own."""


class Asked(NamedTuple):
    """A call's principal, its actor, its caller that waits for the answer, and its origin for the audit log."""

    principal: Principal
    actor: str
    caller: Caller
    where: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Desk:
    """The service of the ledger, made once; all transports call it."""

    context: Context
    ledger: Ledger
    limits: Limits
    hot: HotAnswers
    journal: Journal
    node: str
    """How this node is named in the headers of blocks."""

    def asked(self, principal: Principal, caller: Caller, where: Mapping[str, str], *, has_token: bool) -> Asked:
        """The call of an authenticated caller; without a token its actor is anonymous."""
        return Asked(principal, actor_of(self.context.principals, principal, has_token=has_token), caller, where)

    def prepare(
        self, place: Place, client: str, sequence: int | None, key: bytes, operations: tuple[Operation, ...]
    ) -> PreparedWrite:
        """Check and encode a transaction: for wires to do in a thread, when it is large."""
        return prepare(self.limits, place, _utf8(client, "client_id"), sequence, key, operations)

    async def write(
        self, asked: Asked, prepared: PreparedWrite, *, with_proof: bool = False
    ) -> Written | Replayed | Declined:
        """Commit one transaction, once. Nothing is waited for before it is admitted: a pipeline keeps its order."""
        self._enter(asked, Role.WRITE, prepared.place)
        chance = self.context.world.random_bytes(CHANCE_BYTES)
        leader, actor = self.node.encode(), asked.actor.encode()
        command = write_command(self.limits, prepared, actor, leader, chance, with_proof=with_proof)
        client = prepared.client.decode()
        self._permit(asked, needs_client, client, self.context.principals.owner_of(client))
        cost = _ROWS_AROUND * (1 + len(prepared.operations))
        answer = await self._carry_out(asked, command, len(prepared.encoded), cost)
        assert isinstance(answer, Written | Replayed | Declined)
        if isinstance(answer, Written):
            self.hot.tell(answer.committed.transaction.id)
        await self.journal.judged(command, answer, asked.where)
        return answer

    def is_hot(self, committed: Committed) -> bool:
        """Whether the replay cache has this answer; it is added."""
        return self.hot.tell(committed.transaction.id)

    async def make_org(self, asked: Asked, name: str, key: bytes, quota: Quota = NO_QUOTA) -> Made:
        """Create an organization; the same key of the same caller again gives the same one."""
        self._permit(asked, needs_everything)
        named = _utf8(name, "name")
        check_name(named)
        command = MakeOrg(named, self._slugs(), asked.actor.encode(), pack(key) if key else b"", quota)
        answer = await self._carry_out(asked, command)
        assert isinstance(answer, Made)
        return answer

    async def make_vault(self, asked: Asked, org: int, retain: int, key: bytes) -> Made:
        """Create a vault that keeps `retain` block bodies, or all of them with 0."""
        self._enter(asked, Role.ADMIN, Place(org))
        check_retention(retain)
        command = MakeVault(org, self._slugs(), retain, asked.actor.encode(), pack(key) if key else b"")
        answer = await self._carry_out(asked, command)
        assert isinstance(answer, Made)
        return answer

    async def change_org(self, asked: Asked, org: int, settings: OrgSettings) -> Org:
        """Change the settings that are not None."""
        self._enter(asked, Role.ADMIN, Place(org))
        check_settings(settings)
        answer = await self._carry_out(asked, ChangeOrg(org, settings))
        assert isinstance(answer, Org)
        return answer

    async def change_vault(self, asked: Asked, place: Place, status: Status) -> Vault:
        """Give a vault another status."""
        self._enter(asked, Role.ADMIN, place)
        answer = await self._carry_out(asked, ChangeVault(place, status))
        assert isinstance(answer, Vault)
        return answer

    async def look(self, asked: Asked, place: Place | None, function: Callable[[Reading], T]) -> T:
        """Read something of a place, or with None of no place in particular, as of one instant."""
        self._enter(asked, Role.READ, place)
        try:
            return await self.context.engine.read(function)
        except RefusedLedger as refused:
            raise self._with_error_id(refused) from None

    def sees(self, asked: Asked, place: Place) -> bool:
        """Whether something belongs into a list for this caller."""
        return reaches(asked.principal, Role.READ, place)

    def follow(self, asked: Asked, place: Place, start_height: int) -> BlockWatch:
        """The blocks of a place from a height on, page by page; what ends it from this side is raised."""
        self._enter(asked, Role.READ, place)
        return BlockWatch(self.context, self.journal, place, start_height, asked.principal, asked.caller)

    def _enter(self, asked: Asked, role: Role, place: Place | None) -> None:
        """Refuse a caller without the role in a place, and places that cannot exist."""
        self._permit(asked, needs, role, place)
        if place is not None and place.org >= _SLUGS_LIMIT:
            raise RefusedLedger("organization_not_found", "There is no such organization.")
        if place is not None and place.vault >= _SLUGS_LIMIT:
            raise RefusedLedger("vault_not_found", "There is no such vault in this organization.")

    def _permit(self, asked: Asked, rule: Callable[..., None], *arguments: Any) -> None:
        """Check an access rule; its refusal is written to the audit log."""
        try:
            rule(asked.principal, *arguments)
        except RefusedLedger:
            self.journal.no_access(asked.where)
            raise

    async def _carry_out(self, asked: Asked, command: Command, size: int = 0, cost: int = _ROWS_AROUND) -> Any:
        try:
            answer = await self.context.engine.submit(Write(self.ledger, command, size, cost), asked.caller)
        except (NotStoredError, FaultError):
            if isinstance(command, WriteCommand):
                await self._refuse_broken(command.write.place)
            raise
        if isinstance(answer, Refusal):
            raise self._with_error_id(RefusedLedger.of(answer))
        return answer

    async def _refuse_broken(self, place: Place) -> None:
        """A write that the store would not take: if its chain is broken, no retry will do better."""
        try:
            await self.context.engine.read(lambda reading: check_head(reading, place))
        except RefusedLedger as refused:
            raise self._with_error_id(refused) from None
        except EngineError:
            return

    def _with_error_id(self, refused: RefusedLedger) -> RefusedLedger:
        """Write a loss of data to the audit log, under an id that the caller gets too; other refusals are unchanged."""
        code, message, context, _ = refused.refusal
        if code != "data_loss":
            return refused
        error_id = self.context.world.random_bytes(8).hex()
        _log.error("%s", message, extra={"error_id": error_id})
        return RefusedLedger(code, f"{message} Error id {error_id}.", {**context, "error_id": error_id})

    def _slugs(self) -> tuple[int, ...]:
        draw = self.context.world.random_bytes
        span = SLUGS_END - FIRST_SLUG
        return tuple(FIRST_SLUG + int.from_bytes(draw(8), "big") % span for _ in range(_SLUG_TRIES))


def _utf8(value: str, field: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise invalid(f"The {field} holds half of a surrogate pair.", field) from None
