"""The delta service: every call by value, authorized for its caller and executed by the engine; the audit trail.

The service is made from the settings. It does not depend on HTTP or WebSocket. Refusals are raised as `Refused`, engine
failures as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from time import monotonic
from typing import Any, TypeVar

from semel.engine.caller import WaitingCaller
from semel.engine.contract import UnavailableError, Write
from semel.engine.reading import Reading
from semel.kernel.errors import Refusal, Refused
from semel.kernel.rate_limit import RateLimits
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context
from semel.server.http.answer import ClientGoneError
from semel.server.memory_budget import Budget, BudgetShare
from semel.server.ops.audit_log import AuditLog
from semel.server.settings import settings_of
from semel.surfaces.deltas.access import SURFACE, DeltaCaller, DeltaGate, gate_of, needs_role
from semel.surfaces.deltas.commands import (
    AdvanceCursor,
    ClientsForgotten,
    DeliveryRecorded,
    DeltaCommand,
    DeltasPushed,
    FlushGateway,
    ForgetClients,
    PushDeltas,
    RecordDelivery,
    SaveSyncRules,
    SaveTableSchema,
)
from semel.surfaces.deltas.contract import DeltaContract
from semel.surfaces.deltas.find import delta_retries
from semel.surfaces.deltas.limits import PAGE_BYTES, DeltaPolicy
from semel.surfaces.deltas.metrics import DeltasMetrics
from semel.surfaces.deltas.model import DeltaReplica
from semel.surfaces.deltas.plain_dialect import PlainCaller, PlainStart, PushSettlement, plain_page, settle
from semel.surfaces.deltas.reading import DeltaBroadcast, DeltaPage, PartialPage, entry_size, news, pull
from semel.surfaces.deltas.rules.cursors import UnsavedCursors
from semel.surfaces.deltas.rules.large_push import in_parts, is_large
from semel.surfaces.deltas.settings import DeltasSettings
from semel.surfaces.deltas.spool_files import SpoolFiles, folder_for
from semel.surfaces.deltas.tables import gateway_key
from semel.surfaces.deltas.wire.admin import TableSchema
from semel.surfaces.deltas.wire.push_body import PushBody
from semel.surfaces.deltas.wire.urls import PullQuery


class DeltaAuditTrail:
    """Counts calls and writes audit log lines for one process."""

    def __init__(self, audit: AuditLog, metrics: DeltasMetrics) -> None:
        self._audit = audit
        self.metrics = metrics
        self.sockets = 0
        """Open WebSockets."""
        metrics.sockets = lambda: self.sockets

    def pushed(self, answer: DeltasPushed) -> None:
        """Count a push that is on disk."""
        self.metrics.counts["new"] += answer.accepted - answer.duplicates
        self.metrics.counts["duplicate"] += answer.duplicates

    def given(self, entries: int) -> None:
        """Count entries that are sent to a client."""
        self.metrics.counts["given"] += entries

    def refused(self, refusal: Refusal) -> None:
        """Count a refused call."""
        self.metrics.refused[refusal.name] += 1

    def no_access(self, where: Mapping[str, str]) -> None:
        """Write to the audit log that an authenticated caller lacked a right."""
        self._audit.denied(where)


T = TypeVar("T")

PULL_TRIES = 8
"""Limit of attempts to read a page whose cursor turns out to be in use; then the client must retry."""
_ROWS_OF_A_DELTA = 5
"""Rows that a delta touches: its id, its log entry, its row, and rows of its author or its table."""


_DELTA_BYTES, _COLUMN_BYTES = 400, 270
"""Bytes of memory for a delta and for each of its columns, besides their texts."""


@dataclass(frozen=True, slots=True)
class DeltaService:
    """The service of deltas, made once; all transports call it."""

    context: Context
    settings: DeltasSettings
    deltas: DeltaContract
    policy: DeltaPolicy
    gate: DeltaGate
    """The credentials of this surface."""
    gateways: frozenset[str]
    """The configured gateways; if empty, every gateway is allowed."""
    rates: RateLimits
    audit_trail: DeltaAuditTrail
    answers: Budget
    """The memory budget of unsent answers."""
    uploads: Budget
    """The memory budget of frames that are incomplete or wait for an answer."""
    spool_files: SpoolFiles
    shown: UnsavedCursors = field(default_factory=UnsavedCursors)
    """Acknowledged cursors of clients that have never pushed."""

    def asked(self, principal: Principal, caller: WaitingCaller, where: Mapping[str, str]) -> DeltaCaller:
        """The caller value of an authenticated principal."""
        return DeltaCaller(principal, caller, where, self.gate.principals.are_known)

    def enter(self, asked: DeltaCaller, role: Role, gateway: str | None) -> None:
        """Refuse unknown gateways, and callers without the role. None: the call is not about one gateway."""
        try:
            needs_role(asked.principal, role, gateway)
        except Refused:
            self.audit_trail.no_access(asked.where)
            raise
        if gateway is not None and self.gateways and gateway not in self.gateways:
            raise Refused("deltas:NOT_FOUND", "There is no such gateway here.")

    def pace(self, asked: DeltaCaller, gateway: str) -> None:
        """Refuse a client that pushes too often; a client without a name of its own is identified by its address."""
        wait = self.rates.take((gateway, asked.counted_as))
        if wait > 0:
            raise Refused("deltas:RATE_LIMITED", "This client pushes too often.", retry_after_ms=1_000 * ceil(wait))

    async def push(self, asked: DeltaCaller, gateway: str, body: PushBody, size: int) -> DeltasPushed:
        """Commit the deltas of a push, all or none, each once. `size` is the number of bytes of the request."""
        replica = self.replica(asked, gateway, body.client)
        # On a shared store, another node may know that the client has since gone back to an older cursor.
        shown = 0 if self.context.engine.is_shared else self.shown.of(replica)
        command = PushDeltas(replica, body.deltas, asked.is_named, shown, body.cursor is not None)
        cost = _ROWS_OF_A_DELTA * (2 + len(body.deltas))
        write = Write(self.deltas, command, weight_of(body, size), cost, partial(in_parts, command), is_large(command))
        answer = _judged(await self.context.engine.submit(write, asked.caller))
        assert isinstance(answer, DeltasPushed)
        self.audit_trail.pushed(answer)
        self._note_retries(asked, gateway_key(gateway), answer)
        return answer

    def _note_retries(self, asked: DeltaCaller, gateway: bytes, answer: DeltasPushed) -> None:
        """Note the deltas of a push that had been pushed before."""
        principal = asked.principal.actor if asked.is_known else ""
        address, note = asked.where.get("remote_addr", ""), self.context.retries.note
        now = monotonic() if answer.known else 0.0
        for known in answer.known:
            note(SURFACE, delta_retries(gateway, known), now, principal, address)

    async def settle(self, asked: DeltaCaller, gateway: str, body: PushBody) -> PushSettlement:
        """The answer of the plain dialect to a push that is on disk."""
        asker = PlainCaller(gateway, body.client, asked.claims)
        look = partial(settle, asker=asker, deltas=body.deltas, cursor=body.cursor or 0, budget=PAGE_BYTES)
        return await self.look(look)

    async def plain_pull(self, asked: DeltaCaller, gateway: str, wanted: PullQuery, room: BudgetShare) -> DeltaPage:
        """The next page for a client of the plain dialect, which stores nothing. `room` is resized to the page."""
        if not room.has_room:
            raise OverBudgetError
        asker = PlainCaller(gateway, wanted.client, asked.claims)
        page = await self._plain_page(asked, asker, wanted, PAGE_BYTES)
        if not room.resize(size_of(page)):
            raise OverBudgetError
        self.audit_trail.given(len(page.entries))
        return page

    async def plain_news(
        self, asked: DeltaCaller, replica: DeltaReplica, after: int, limit: int, budget: int
    ) -> DeltaBroadcast:
        """Changes by others after a position, for live delivery to a client of the plain dialect."""
        asker = PlainCaller(replica.gateway, replica.client, asked.claims)
        wanted = PullQuery(replica.client, after, limit, is_plain=True, own_after=0)
        return DeltaBroadcast(await self._plain_page(asked, asker, wanted, budget))

    async def _plain_page(self, asked: DeltaCaller, asker: PlainCaller, wanted: PullQuery, budget: int) -> DeltaPage:
        found: DeltaPage | PlainStart = PlainStart(wanted.since)
        while not asked.caller.gone:
            assert isinstance(found, PlainStart)
            look = partial(
                plain_page,
                asker=asker,
                start=found,
                own_after=wanted.own_after,
                limit=wanted.limit,
                budget=budget,
            )
            found = await self.look(look)
            if isinstance(found, DeltaPage):
                return found
        raise ClientGoneError

    async def pull(
        self, asked: DeltaCaller, gateway: str, client: str, since: int, limit: int, room: BudgetShare
    ) -> DeltaPage:
        """The next page for a client. Progress that later answers depend on is on disk before this returns.

        `room` is resized to the page and is held until the caller closes it. Raise `OverBudgetError` without room.
        """
        replica = self.replica(asked, gateway, client)
        is_guest = not asked.speaks_for(client)
        turn = 0 if is_guest else self.shown.begin(replica)
        for _ in range(PULL_TRIES):
            if not room.has_room:
                raise OverBudgetError
            page = await self._page(asked, replica, since, limit, is_guest=is_guest)
            if not room.resize(size_of(page)):
                raise OverBudgetError
            if is_guest:
                return page
            if not page.must_note:
                self._note_softly(replica, turn, page)
                return page
            given = await self._carry_out(asked, note_of(replica, page))
            assert isinstance(given, DeliveryRecorded)
            if given.cursor is not None:
                self.audit_trail.given(len(page.entries))
                return page._replace(cursor=given.cursor)
        raise UnavailableError("The gateway changes too fast to be read.")

    def _note_softly(self, replica: DeltaReplica, turn: int, page: DeltaPage) -> None:
        """Record the delivery of a page as a soft change; if it is lost, the client gets the entries again."""
        if page.is_known:
            self.context.engine.touch(page.touches)
        else:
            self.shown.note(replica, turn, page.shown)
        if page.entries:
            self.audit_trail.given(len(page.entries))

    async def _page(
        self, asked: DeltaCaller, replica: DeltaReplica, since: int, limit: int, *, is_guest: bool
    ) -> DeltaPage:
        """A page, read in several steps if many entries are not for this caller."""
        begun: PartialPage | None = None
        while not asked.caller.gone:
            look = partial(
                pull,
                replica=replica,
                claims=asked.claims,
                since=since,
                limit=limit,
                budget=PAGE_BYTES,
                begun=begun,
                is_guest=is_guest,
            )
            found = await self.look(look)
            if isinstance(found, PartialPage):
                begun = found
                continue
            if begun is not None and not found.entries and since and not is_guest:
                await self._carry_out(asked, AdvanceCursor(replica, since, found.cursor, found.mark))
            return found
        raise ClientGoneError

    async def news(
        self, asked: DeltaCaller, replica: DeltaReplica, after: int, limit: int, budget: int
    ) -> DeltaBroadcast:
        """Changes by others after a position, for live delivery."""
        claims, is_guest = asked.claims, not asked.speaks_for(replica.client)
        look = partial(news, replica=replica, claims=claims, after=after, limit=limit, budget=budget, is_guest=is_guest)
        return await self.look(look)

    def tell(self, replica: DeltaReplica, turn: int, told: DeltaBroadcast, entries: int) -> None:
        """Record, as a soft change, that a client has received live entries; `turn` is the turn of its last pull."""
        if told.is_known:
            self.context.engine.touch(told.touches)
        else:
            self.shown.note(replica, turn, told.page.cursor)
        self.audit_trail.given(entries)

    async def save_schema(self, asked: DeltaCaller, gateway: str, schema: TableSchema) -> None:
        """Save the columns of a table."""
        await self._carry_out(asked, SaveTableSchema(gateway, schema.table, schema.columns))

    async def save_rules(self, asked: DeltaCaller, gateway: str, rules: bytes) -> None:
        """Save sync rules: canonical JSON that was validated."""
        await self._carry_out(asked, SaveSyncRules(gateway, rules), len(rules))

    async def forget(self, asked: DeltaCaller, gateway: str, clients: Sequence[tuple[bytes, bytes]]) -> int:
        """Forget the progress of clients; returns their number."""
        answer = await self._carry_out(asked, ForgetClients(gateway, tuple(clients)), cost=len(clients) + 1)
        assert isinstance(answer, ClientsForgotten)
        return answer.clients

    async def flush(self, asked: DeltaCaller, gateway: str) -> None:
        """Return when all earlier writes are on disk."""
        await self._carry_out(asked, FlushGateway(gateway))

    async def look(self, function: Callable[[Reading], T]) -> T:
        """Run a read on one snapshot."""
        return await self.context.engine.read(function)

    def replica(self, asked: DeltaCaller, gateway: str, client: str) -> DeltaReplica:
        """A client of a gateway, under the credential of this caller."""
        return DeltaReplica(gateway, client, asked.principal.name)

    async def _carry_out(
        self, asked: DeltaCaller, command: DeltaCommand, size: int = 0, cost: int = _ROWS_OF_A_DELTA
    ) -> Any:
        return _judged(await self.context.engine.submit(Write(self.deltas, command, size, cost), asked.caller))


def _judged(answer: Any) -> Any:
    if isinstance(answer, Refusal):
        raise Refused.of(answer)
    return answer


class OverBudgetError(Refused):
    """Too many bytes are unsent already, for this caller or for all callers."""

    def __init__(self) -> None:
        super().__init__("deltas:BACKPRESSURE_ERROR", "Too many answers wait to be read; try again in a moment.")


def weight_of(body: PushBody, size: int) -> int:
    """Approximate bytes of memory of a push. Short columns take many times their bytes on the wire."""
    columns = sum(len(delta.columns) for delta in body.deltas)
    return size + _DELTA_BYTES * len(body.deltas) + _COLUMN_BYTES * columns


def note_of(replica: DeltaReplica, page: DeltaPage) -> RecordDelivery:
    """The command that must be on disk before a page is sent."""
    return RecordDelivery(replica, page.cursor, page.shown, page.rest, page.gone_back_at, page.is_taken, page.mark)


def size_of(page: DeltaPage) -> int:
    """Approximate bytes of a page on the wire."""
    return sum(map(entry_size, page.entries))


_log = logging.getLogger("semel.deltas")

SECRET_BYTES = 32
"""Minimum bytes of a secret: a shorter one can be guessed from a token that it signed."""
SHARES = 2
"""One caller may hold at most 1/SHARES of a memory budget."""


def policy_of(settings: DeltasSettings) -> DeltaPolicy:
    """The settings that decisions depend on."""
    return DeltaPolicy(
        checks_ids=settings.deltas_check_ids,
        max_deltas=settings.deltas_max_deltas,
        max_gateways=settings.deltas_max_gateways,
        max_clients=settings.deltas_max_clients,
        client_ttl_ms=settings.deltas_client_ttl_sec * 1_000,
        keep_log_ms=settings.deltas_keep_log_sec * 1_000,
    )


def make_service(context: Context) -> DeltaService:
    """The service, which HTTP and WebSocket share."""
    server, settings = context.settings, settings_of(context.settings, DeltasSettings)
    metrics = DeltasMetrics()
    for name in ("deltas_jwt_secret", "deltas_jwt_secret_next"):
        if 0 < len(getattr(settings, name).encode()) < SECRET_BYTES:
            _log.warning("%s is short: take at least %d random bytes", name, SECRET_BYTES)
    answers = Budget(settings.deltas_answers_bytes, settings.deltas_answers_bytes // SHARES)
    most, largest = server.max_uploads_bytes, settings.deltas_max_body_bytes + 1
    uploads = Budget(most, max(most // SHARES, SHARES * largest))
    spool_files = SpoolFiles(folder_for(server.store_url), settings.deltas_checkpoints_bytes)
    metrics.held = {"answers": answers, "uploads": uploads, "checkpoints": spool_files.bytes}
    return DeltaService(
        context=context,
        settings=settings,
        deltas=DeltaContract(policy_of(settings)),
        policy=policy_of(settings),
        gate=gate_of(context),
        gateways=frozenset(_listed(settings.deltas_gateways)),
        rates=RateLimits(settings.deltas_pushes_per_sec, context.world.monotonic_ms),
        audit_trail=DeltaAuditTrail(context.audit, metrics),
        answers=answers,
        uploads=uploads,
        spool_files=spool_files,
    )


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
