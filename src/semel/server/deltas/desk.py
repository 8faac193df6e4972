"""The service of deltas: every call without a transport, authorized and executed by the engine.

Independent of HTTP and WebSocket. Refusals are raised as `RefusedDeltas`, errors of the engine as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, TypeVar

from semel.contracts.deltas.commands import (
    Command,
    Flush,
    Forget,
    Forgotten,
    Give,
    Given,
    Push,
    Pushed,
    Rest,
    SaveRules,
    SaveSchema,
)
from semel.contracts.deltas.contract import Deltas
from semel.contracts.deltas.limits import PAGE_BYTES, Policy
from semel.contracts.deltas.model import Replica
from semel.contracts.deltas.plain_dialect import PlainAsker, PlainStart, Settlement, plain_page, settle
from semel.contracts.deltas.reading import Begun, News, Page, entry_size, news, pull
from semel.contracts.deltas.refusals import Refusal, RefusedDeltas
from semel.contracts.deltas.rules.push_parts import in_parts, is_large
from semel.contracts.deltas.shown import ShownCursors
from semel.contracts.deltas.wire.bodies import PushBody
from semel.contracts.deltas.wire.query import PullQuery
from semel.contracts.deltas.wire.schemas import Schema
from semel.engine.contract import UnavailableError, Write
from semel.engine.engine import Caller
from semel.engine.reading import Reading
from semel.server.budget import Budget, Share
from semel.server.context import Context
from semel.server.deltas.access import Asked, SurfaceGate, needs
from semel.server.deltas.journal import Journal
from semel.server.deltas.spools import Spools
from semel.server.http.answer import ClientGoneError
from semel.server.principals import Principal, Role
from semel.server.rates import Rates
from semel.surfaces.deltas.settings import DeltasSettings

T = TypeVar("T")

PULL_TRIES = 8
"""Limit of tries for a page whose cursor turns out to be in use, before the client must retry."""
_ROWS_OF_A_DELTA = 5
"""Rows that a delta touches: its id, its place in the log, its row, and something of its author or its table."""


_DELTA_BYTES, _COLUMN_BYTES = 400, 270
"""Bytes in memory of a delta and of each of its columns, besides their texts."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The service of deltas, made once; all transports call it."""

    context: Context
    settings: DeltasSettings
    deltas: Deltas
    policy: Policy
    gate: SurfaceGate
    """Who is known on this surface."""
    gateways: frozenset[str]
    """The gateways there are; none of them is any."""
    rates: Rates
    journal: Journal
    answers: Budget
    """The memory budget of unsent answers."""
    uploads: Budget
    """Bytes of frames that are not whole, or wait for their turn."""
    spools: Spools
    shown: ShownCursors = field(default_factory=ShownCursors)
    """Acknowledged cursors of clients that have never pushed."""

    def asked(self, principal: Principal, caller: Caller, where: Mapping[str, str]) -> Asked:
        """The call of an authenticated caller."""
        return Asked(principal, caller, where, self.gate.principals.are_known)

    def enter(self, asked: Asked, role: Role, gateway: str | None) -> None:
        """Refuse a caller without the role in a gateway, and unknown gateways; None is for no gateway in particular."""
        try:
            needs(asked.principal, role, gateway)
        except RefusedDeltas:
            self.journal.no_access(asked.where)
            raise
        if gateway is not None and self.gateways and gateway not in self.gateways:
            raise RefusedDeltas("NOT_FOUND", "There is no such gateway here.")

    def pace(self, asked: Asked, gateway: str) -> None:
        """Refuse a client that pushes too often; one without a name of its own is known by its address."""
        wait = self.rates.take((gateway, asked.counted_as))
        if wait > 0:
            raise RefusedDeltas("RATE_LIMITED", "This client pushes too often.", retry_after=ceil(wait))

    async def push(self, asked: Asked, gateway: str, body: PushBody, size: int) -> Pushed:
        """Commit the deltas of a push, all or none, each once. `size` is how many bytes it took to send them."""
        replica = self.replica(asked, gateway, body.client)
        # Another process may know that the client has gone back since.
        shown = 0 if self.context.engine.is_shared else self.shown.of(replica)
        command = Push(replica, body.deltas, asked.is_named, shown, body.cursor is not None)
        cost = _ROWS_OF_A_DELTA * (2 + len(body.deltas))
        write = Write(self.deltas, command, weight_of(body, size), cost, partial(in_parts, command), is_large(command))
        answer = _judged(await self.context.engine.submit(write, asked.caller))
        assert isinstance(answer, Pushed)
        self.journal.pushed(answer)
        return answer

    async def settle(self, asked: Asked, gateway: str, body: PushBody) -> Settlement:
        """The answer of the plain dialect to a push that is on disk."""
        asker = PlainAsker(gateway, body.client, asked.claims)
        look = partial(settle, asker=asker, deltas=body.deltas, cursor=body.cursor or 0, budget=PAGE_BYTES)
        return await self.look(look)

    async def plain_pull(self, asked: Asked, gateway: str, wanted: PullQuery, room: Share) -> Page:
        """The next page for a client of the plain dialect, with room for it: a read, of which nothing is kept."""
        if not room.has_room:
            raise NoRoomError
        asker = PlainAsker(gateway, wanted.client, asked.claims)
        page = await self._plain_page(asked, asker, wanted, PAGE_BYTES)
        if not room.resize(size_of(page)):
            raise NoRoomError
        self.journal.given(len(page.entries))
        return page

    async def plain_news(self, asked: Asked, replica: Replica, after: int, limit: int, budget: int) -> News:
        """Others' changes behind a position, for live delivery to a client of the plain dialect."""
        asker = PlainAsker(replica.gateway, replica.client, asked.claims)
        wanted = PullQuery(replica.client, after, limit, is_plain=True, own_after=0)
        return News(await self._plain_page(asked, asker, wanted, budget))

    async def _plain_page(self, asked: Asked, asker: PlainAsker, wanted: PullQuery, budget: int) -> Page:
        found: Page | PlainStart = PlainStart(wanted.since)
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
            if isinstance(found, Page):
                return found
        raise ClientGoneError

    async def pull(self, asked: Asked, gateway: str, client: str, since: int, limit: int, room: Share) -> Page:
        """The next page for a client; what a promise rests on is on disk before this returns.

        The page has the room that was brought for it, until that is given back; without room there is none.
        """
        replica = self.replica(asked, gateway, client)
        is_guest = not asked.speaks_for(client)
        turn = 0 if is_guest else self.shown.begin(replica)
        for _ in range(PULL_TRIES):
            if not room.has_room:
                raise NoRoomError
            page = await self._page(asked, replica, since, limit, is_guest=is_guest)
            if not room.resize(size_of(page)):
                raise NoRoomError
            if is_guest:
                return page
            if not page.must_note:
                self._note_softly(replica, turn, page)
                return page
            given = await self._carry_out(asked, note_of(replica, page))
            assert isinstance(given, Given)
            if given.cursor is not None:
                self.journal.given(len(page.entries))
                return page._replace(cursor=given.cursor)
        raise UnavailableError("The gateway changes too fast to be read.")

    def _note_softly(self, replica: Replica, turn: int, page: Page) -> None:
        """Record the soft part of a page's delivery; if it is lost, the client gets the entries again."""
        if page.is_known:
            self.context.engine.touch(page.touches)
        else:
            self.shown.note(replica, turn, page.shown)
        if page.entries:
            self.journal.given(len(page.entries))

    async def _page(self, asked: Asked, replica: Replica, since: int, limit: int, *, is_guest: bool) -> Page:
        """A page, in as many reads as it takes to pass over entries that are not for this caller."""
        begun: Begun | None = None
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
            if isinstance(found, Begun):
                begun = found
                continue
            if begun is not None and not found.entries and since and not is_guest:
                await self._carry_out(asked, Rest(replica, since, found.cursor, found.mark))
            return found
        raise ClientGoneError

    async def news(self, asked: Asked, replica: Replica, after: int, limit: int, budget: int) -> News:
        """Others' changes behind a position, for live delivery."""
        claims, is_guest = asked.claims, not asked.speaks_for(replica.client)
        look = partial(news, replica=replica, claims=claims, after=after, limit=limit, budget=budget, is_guest=is_guest)
        return await self.look(look)

    def tell(self, replica: Replica, turn: int, told: News, entries: int) -> None:
        """Record, as a soft change, that a client has received live entries; `turn` is that of its last pull."""
        if told.is_known:
            self.context.engine.touch(told.touches)
        else:
            self.shown.note(replica, turn, told.page.cursor)
        self.journal.given(entries)

    async def save_schema(self, asked: Asked, gateway: str, schema: Schema) -> None:
        """Keep the columns of a table."""
        await self._carry_out(asked, SaveSchema(gateway, schema.table, schema.columns))

    async def save_rules(self, asked: Asked, gateway: str, rules: bytes) -> None:
        """Save sync rules: canonical JSON, validated."""
        await self._carry_out(asked, SaveRules(gateway, rules), len(rules))

    async def forget(self, asked: Asked, gateway: str, clients: Sequence[tuple[bytes, bytes]]) -> int:
        """Forget the progress of clients; returns their number."""
        answer = await self._carry_out(asked, Forget(gateway, tuple(clients)), cost=len(clients) + 1)
        assert isinstance(answer, Forgotten)
        return answer.clients

    async def flush(self, asked: Asked, gateway: str) -> None:
        """Return when everything before it is on disk."""
        await self._carry_out(asked, Flush(gateway))

    async def look(self, function: Callable[[Reading], T]) -> T:
        """Look at one commit point."""
        return await self.context.engine.read(function)

    def replica(self, asked: Asked, gateway: str, client: str) -> Replica:
        """A client of a gateway, under this caller."""
        return Replica(gateway, client, asked.principal.name)

    async def _carry_out(self, asked: Asked, command: Command, size: int = 0, cost: int = _ROWS_OF_A_DELTA) -> Any:
        return _judged(await self.context.engine.submit(Write(self.deltas, command, size, cost), asked.caller))


def _judged(answer: Any) -> Any:
    if isinstance(answer, Refusal):
        raise RefusedDeltas.of(answer)
    return answer


class NoRoomError(RefusedDeltas):
    """Too many bytes are unsent already, for this caller or for all of them."""

    def __init__(self) -> None:
        super().__init__("BACKPRESSURE_ERROR", "Too many answers wait to be read; try again in a moment.")


def weight_of(body: PushBody, size: int) -> int:
    """About how many bytes a push of this size holds in memory: of short columns, many times what they took to send."""
    columns = sum(len(delta.columns) for delta in body.deltas)
    return size + _DELTA_BYTES * len(body.deltas) + _COLUMN_BYTES * columns


def note_of(replica: Replica, page: Page) -> Give:
    """The command that must be on disk before a page is sent."""
    return Give(replica, page.cursor, page.shown, page.rest, page.gone_back_at, page.is_taken, page.mark)


def size_of(page: Page) -> int:
    """About how many bytes a page is on the wire."""
    return sum(map(entry_size, page.entries))
