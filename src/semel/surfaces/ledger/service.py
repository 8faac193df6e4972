"""The ledger service: every call by value, authorized for its caller and executed by the engine.

The service is made from the settings and depends on neither HTTP nor gRPC. Refusals are raised as `Refused`,
engine failures as they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from semel.engine.caller import WaitingCaller
from semel.engine.contract import EngineError, FaultError, NotStoredError, Write
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal, Refused
from semel.kernel.keys import pack
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context
from semel.server.ops.log_facts import callers_facts
from semel.server.ops.traced_engine import TracedEngine
from semel.server.settings import settings_of
from semel.surfaces.ledger.access import (
    LedgerAuditTrail,
    actor_of,
    check_client_id,
    check_full_admin,
    check_role,
    reaches,
)
from semel.surfaces.ledger.block_watch import BlockWatch
from semel.surfaces.ledger.commands import (
    CHANCE_BYTES,
    NO_QUOTA,
    ChangeOrg,
    ChangeVault,
    CommittedTransaction,
    CreatedPlace,
    CreateOrg,
    CreateVault,
    LedgerCommand,
    Org,
    OrgQuota,
    OrgSettings,
    PreparedWrite,
    Vault,
    WriteCommand,
    WriteCommitted,
    WriteDeclined,
    WriteReplayed,
    invalid,
)
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerLimits, LedgerPolicy
from semel.surfaces.ledger.metrics import LedgerMetrics
from semel.surfaces.ledger.model import ExpireEntity, LedgerPlace, LedgerStatus, Operation
from semel.surfaces.ledger.reading import check_head
from semel.surfaces.ledger.settings import LedgerSettings
from semel.surfaces.ledger.traced_queue import TracedWriteQueue
from semel.surfaces.ledger.transaction_ids import ChancePool, ReplayCache
from semel.surfaces.ledger.validation import check_name, check_retention, check_settings, prepare, write_command
from semel.surfaces.ledger.verdicts import DraftedWrite, ManyVerdicts, OneVerdict, WriteVerdict
from semel.surfaces.ledger.write_queue import WriteQueue

T = TypeVar("T")

_log = logging.getLogger("semel.ledger")

FIRST_SLUG, SLUGS_END = 10**15, 2**53
"""The range of slugs: random, too large to be guessed, and exact as a number in every language."""
SLUGS_LIMIT = 2**63
"""The first slug that the wire can carry but a row cannot."""
_SLUG_TRIES = 4
HOT_MS = 86_400_000
"""How long the replay cache keeps an answer at most."""
_ROWS_AROUND = 8
"""Rows that a change of an organization or vault touches."""


_ADMITTED_AT_ONCE = 128
"""Transactions of one request that are queued before other requests get a turn."""


class LedgerCaller(NamedTuple):
    """The principal and actor of a call, the connection that waits for the answer, and the origin for the audit log."""

    principal: Principal
    actor: str
    caller: WaitingCaller
    where: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LedgerService:
    """The service of the ledger, made once; all transports call it."""

    context: Context
    ledger: LedgerContract
    queue: WriteQueue
    chances: ChancePool
    limits: LedgerLimits
    replay_cache: ReplayCache
    audit_trail: LedgerAuditTrail
    node: str
    """The name of this node in the headers of blocks."""

    def asked(
        self, principal: Principal, caller: WaitingCaller, where: Mapping[str, str], *, has_token: bool
    ) -> LedgerCaller:
        """The caller value of an authenticated principal; without a token its actor is anonymous."""
        return LedgerCaller(principal, actor_of(self.context.principals, principal, has_token=has_token), caller, where)

    def prepare(
        self, place: LedgerPlace, client: str, sequence: int | None, key: bytes, operations: tuple[Operation, ...]
    ) -> PreparedWrite:
        """Validate and encode a transaction; callers use a thread if it is large."""
        return prepare(self.limits, place, _utf8(client, "client_id"), sequence, key, operations)

    async def write(
        self, asked: LedgerCaller, prepared: PreparedWrite, *, with_proof: bool = False
    ) -> WriteCommitted | WriteReplayed | WriteDeclined:
        """Commit one transaction, once. It is admitted without a wait, so that a pipeline keeps its order."""
        return await self.admit_write(asked, prepared, with_proof=with_proof)

    def admit_write(
        self, asked: LedgerCaller, prepared: PreparedWrite, *, with_proof: bool = False
    ) -> Coroutine[Any, Any, WriteCommitted | WriteReplayed | WriteDeclined]:
        """Queue one transaction at once; the result waits for its verdict. `Refused` if it is not queued."""
        self._enter(asked, Role.WRITE, prepared.place)
        command = self._command(asked, prepared, self.chances.draw(), with_proof=with_proof)
        verdict = OneVerdict()
        self.queue.add(command, asked.caller.principal, verdict, origin=asked.caller.origin)
        return self._verdict_of(asked, command, verdict)

    async def _verdict_of(
        self, asked: LedgerCaller, command: WriteCommand, verdict: OneVerdict
    ) -> WriteCommitted | WriteReplayed | WriteDeclined:
        try:
            answer = await verdict.future
        except EngineError as error:
            await self.refuse(asked, command, error)
            raise
        return await self.noted(asked, command, answer)

    async def refuse(self, asked: LedgerCaller, command: WriteCommand, error: BaseException) -> None:
        """Raise the refusal of a transaction for an engine error, if there is a better one than the error itself."""
        if isinstance(error, NotStoredError | FaultError):
            await self._refuse_broken(asked, command.write.place)

    async def noted(
        self, asked: LedgerCaller, command: WriteCommand, answer: Any
    ) -> WriteCommitted | WriteReplayed | WriteDeclined:
        """Count and note a verdict before its answer is sent; raise it if it is a refusal."""
        answer = self._answered(asked, answer)
        await self._note(asked, command, answer)
        return answer  # type: ignore[no-any-return]

    async def write_many(
        self, asked: LedgerCaller, place: LedgerPlace, drafts: Sequence[DraftedWrite | Refused]
    ) -> list[WriteVerdict]:
        """Commit many transactions of one place in order, each once and with a verdict of its own.

        The order of admission is the order of the list. A draft that is a refusal, or that is refused here, takes
        nothing from the others.
        """
        self._enter(asked, Role.WRITE, place)
        verdicts = ManyVerdicts(len(drafts))
        chances = self.context.world.random_bytes(CHANCE_BYTES * len(drafts))
        commands: list[WriteCommand | None] = []
        permitted: dict[bytes, WriteCommand] = {}
        for number, draft in enumerate(drafts):
            start = CHANCE_BYTES * number
            command = self._drafted_command(asked, draft, chances[start : start + CHANCE_BYTES], permitted)
            if isinstance(command, Refused):
                verdicts.settle(number, command)
                commands.append(None)
            else:
                self.queue.add(command, asked.caller.principal, verdicts, number, asked.caller.origin)
                commands.append(command)
            if number % _ADMITTED_AT_ONCE == _ADMITTED_AT_ONCE - 1:
                await asyncio.sleep(0)
        await verdicts.future
        is_lost = False
        for sent, answer in zip(commands, verdicts.answers, strict=True):
            kind = answer.__class__
            if sent is None or kind is Refusal:
                continue
            if kind is WriteCommitted:
                self.count_committed(sent, answer)
            elif kind is WriteReplayed or kind is WriteDeclined:
                await self._note(asked, sent, answer)
            else:
                is_lost = is_lost or isinstance(answer, NotStoredError | FaultError)
        if is_lost:
            await self._refuse_broken(asked, place)
        return [
            self._with_error_id(asked, Refused.of(answer)) if answer.__class__ is Refusal else answer
            for answer in verdicts.answers
        ]

    def _drafted_command(
        self, asked: LedgerCaller, draft: DraftedWrite | Refused, chance: bytes, permitted: dict[bytes, WriteCommand]
    ) -> WriteCommand | Refused:
        """The command of one of many transactions; `permitted` has the first of each client id that was checked."""
        try:
            if isinstance(draft, Refused):
                raise draft
            prepared = draft.prepared
            first = permitted.get(prepared.client)
            if first is not None and ExpireEntity not in map(type, prepared.operations):
                return WriteCommand(prepared, first.actor, first.leader, chance, draft.wants_proof)
            command = self._command(asked, prepared, chance, with_proof=draft.wants_proof)
            permitted[prepared.client] = command
        except Refused as refused:
            self.audit_trail.refused(refused.refusal)
            return refused
        return command

    def _command(
        self, asked: LedgerCaller, prepared: PreparedWrite, chance: bytes, *, with_proof: bool
    ) -> WriteCommand:
        """The command of a transaction, for a caller that may use its client id."""
        leader, actor = self.node.encode(), asked.actor.encode()
        command = write_command(self.limits, prepared, actor, leader, chance, with_proof=with_proof)
        client = prepared.client.decode()
        self._permit(asked, check_client_id, client, self.context.principals.owner_of(client))
        return command

    async def _note(
        self, asked: LedgerCaller, command: WriteCommand, answer: WriteCommitted | WriteReplayed | WriteDeclined
    ) -> None:
        """Count a verdict, remember a committed answer, and write the audit log."""
        if isinstance(answer, WriteCommitted):
            self.count_committed(command, answer)
        else:
            await self.audit_trail.judged(command, answer, asked.where)

    def count_committed(self, command: WriteCommand, answer: WriteCommitted) -> None:
        """Count a committed transaction, and remember its answer."""
        self.replay_cache.tell(answer.committed.transaction.id)
        self.audit_trail.committed(command)

    def was_answered(self, committed: CommittedTransaction) -> bool:
        """Whether the replay cache has this answer; if not, it is added."""
        return self.replay_cache.tell(committed.transaction.id)

    async def make_org(self, asked: LedgerCaller, name: str, key: bytes, quota: OrgQuota = NO_QUOTA) -> CreatedPlace:
        """Create an organization; a retry with the same key by the same caller gets the same organization."""
        self._permit(asked, check_full_admin)
        named = _utf8(name, "name")
        check_name(named)
        command = CreateOrg(named, self._slugs(), asked.actor.encode(), pack(key) if key else b"", quota)
        answer = await self._carry_out(asked, command)
        assert isinstance(answer, CreatedPlace)
        return answer

    async def make_vault(self, asked: LedgerCaller, org: int, retain: int, key: bytes) -> CreatedPlace:
        """Create a vault that keeps `retain` block bodies; 0 keeps all."""
        self._enter(asked, Role.ADMIN, LedgerPlace(org))
        check_retention(retain)
        command = CreateVault(org, self._slugs(), retain, asked.actor.encode(), pack(key) if key else b"")
        answer = await self._carry_out(asked, command)
        assert isinstance(answer, CreatedPlace)
        return answer

    async def change_org(self, asked: LedgerCaller, org: int, settings: OrgSettings) -> Org:
        """Change the settings that are not None."""
        self._enter(asked, Role.ADMIN, LedgerPlace(org))
        check_settings(settings)
        answer = await self._carry_out(asked, ChangeOrg(org, settings))
        assert isinstance(answer, Org)
        return answer

    async def change_vault(self, asked: LedgerCaller, place: LedgerPlace, status: LedgerStatus) -> Vault:
        """Change the status of a vault."""
        self._enter(asked, Role.ADMIN, place)
        answer = await self._carry_out(asked, ChangeVault(place, status))
        assert isinstance(answer, Vault)
        return answer

    async def read(self, asked: LedgerCaller, place: LedgerPlace | None, function: Callable[[Reading], T]) -> T:
        """Run a read on one snapshot of a place. None: the read is not about one place."""
        self._enter(asked, Role.READ, place)
        try:
            return await self.context.engine.read(function)
        except Refused as refused:
            raise self._with_error_id(asked, refused) from None

    def sees(self, asked: LedgerCaller, place: LedgerPlace) -> bool:
        """Whether a list for this caller may include a place."""
        return reaches(asked.principal, Role.READ, place)

    def follow(self, asked: LedgerCaller, place: LedgerPlace, start_height: int) -> BlockWatch:
        """Watch the blocks of a place from a height on, page by page; raise when the server ends the watch."""
        self._enter(asked, Role.READ, place)
        return BlockWatch(self.context, self.audit_trail, place, start_height, asked.principal, asked.caller)

    def _enter(self, asked: LedgerCaller, role: Role, place: LedgerPlace | None) -> None:
        """Refuse a caller without the role in a place, and slugs that cannot exist."""
        self._permit(asked, check_role, role, place)
        if place is not None and place.org >= SLUGS_LIMIT:
            raise Refused("ledger:organization_not_found", "There is no such organization.")
        if place is not None and place.vault >= SLUGS_LIMIT:
            raise Refused("ledger:vault_not_found", "There is no such vault in this organization.")

    def _permit(self, asked: LedgerCaller, rule: Callable[..., None], *arguments: Any) -> None:
        """Check an access rule; its refusal is written to the audit log."""
        try:
            rule(asked.principal, *arguments)
        except Refused:
            self.audit_trail.no_access(asked.where)
            raise

    async def _carry_out(self, asked: LedgerCaller, command: LedgerCommand) -> Any:
        write = Write(self.ledger, command, cost=_ROWS_AROUND)
        return self._answered(asked, await self.context.engine.submit(write, asked.caller))

    def _answered(self, asked: LedgerCaller, answer: Any) -> Any:
        if isinstance(answer, Refusal):
            raise self._with_error_id(asked, Refused.of(answer))
        return answer

    async def _refuse_broken(self, asked: LedgerCaller, place: LedgerPlace) -> None:
        """Refuse for good if the chain of a place is broken: then a retry of the failed write cannot succeed."""
        try:
            await self.context.engine.read(lambda reading: check_head(reading, place))
        except Refused as refused:
            raise self._with_error_id(asked, refused) from None
        except EngineError:
            return

    def _with_error_id(self, asked: LedgerCaller, refused: Refused) -> Refused:
        """Log a loss of data under an id that the caller gets too; return other refusals unchanged."""
        code, message, facts, *_ = refused.refusal
        if code != "ledger:data_loss":
            return refused
        error_id = self.context.world.random_bytes(8).hex()
        _log.error("%s", message, extra={"error_id": error_id, **callers_facts([asked.caller])})
        return Refused(code, f"{message} Error id {error_id}.", {**facts, "error_id": error_id})

    def _slugs(self) -> tuple[int, ...]:
        draw = self.context.world.random_bytes
        span = SLUGS_END - FIRST_SLUG
        return tuple(FIRST_SLUG + int.from_bytes(draw(8), "big") % span for _ in range(_SLUG_TRIES))


def _utf8(value: str, field: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise invalid(f"The {field} holds half of a surrogate pair.", field) from None


def policy_of(settings: LedgerSettings) -> LedgerPolicy:
    """The settings that decisions depend on."""
    return LedgerPolicy(
        eviction_interval=settings.ledger_eviction_interval,
        ttl_seconds=settings.ledger_ttl_sec,
        fence=settings.ledger_fence,
        max_orgs=settings.ledger_max_orgs,
        max_vaults=settings.ledger_max_vaults,
        writes_per_second=settings.ledger_writes_per_sec,
    )


def limits_of(settings: LedgerSettings) -> LedgerLimits:
    """The limits of one request."""
    return LedgerLimits(
        max_key_bytes=settings.ledger_max_key_bytes,
        max_value_bytes=settings.ledger_max_value_bytes,
        max_operations=settings.ledger_max_operations,
        max_payload_bytes=settings.ledger_max_payload_bytes,
    )


def make_service(context: Context) -> LedgerService:
    """The service, which HTTP and gRPC share."""
    settings = settings_of(context.settings, LedgerSettings)
    metrics = LedgerMetrics()
    replay_cache = ReplayCache(settings.ledger_hot_items, HOT_MS, context.world.monotonic_ms)
    metrics.remembered = lambda: len(replay_cache)
    ledger = LedgerContract(policy_of(settings), settings.ledger_node_id.encode())
    engine = context.engine
    return LedgerService(
        context=context,
        ledger=ledger,
        queue=TracedWriteQueue(engine, ledger) if isinstance(engine, TracedEngine) else WriteQueue(engine, ledger),
        chances=ChancePool(context.world.random_bytes),
        limits=limits_of(settings),
        replay_cache=replay_cache,
        audit_trail=LedgerAuditTrail(context.audit, metrics, context.retries),
        node=settings.ledger_node_id,
    )
