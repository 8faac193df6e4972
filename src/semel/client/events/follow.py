"""Follow partitions: each event is handed over once and in order, over one server-sent event stream after another.

A lost connection, a restarted server and a server without room are waited out, and the stream is opened again behind
the last event that was handed over. Nothing is skipped in silence: what the server has deleted or lost since is raised
as a `HistoryGapError`, again and again until the application accepts it.

Buffering is bounded: at most 256 KiB of unread bytes and one event are held, and a slow application slows the server's
sending down. The connection may end while an event is being handled; the next one then opens another.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlencode

from semel.client.errors import CallError, GoneError, InvalidArgumentError, SemelError
from semel.client.events.cursors import CursorStore
from semel.client.events.errors import (
    CursorMovedError,
    EventReplacedError,
    EventsPrunedError,
    EventsResetError,
    HistoryGapError,
    LogBehindError,
    reset_of,
)
from semel.client.events.values import START, Cursor, Event, EventsPage, event_of, page_of
from semel.client.json_answer import Facts, facts_of, read
from semel.client.retry import LONGEST_SECONDS, ClientCaller, Patience
from semel.client.sync_calls import BlockingIterator
from semel.client.transport.http_transport import ClientRequest, LiveAnswer
from semel.client.transport.network import finished
from semel.client.transport.server_sent_events import EVENT_STREAM, EventReader, ServerSentEvent

EVENTS_PATH = "/v1/events"
MOST_PAGE_BYTES = 1 << 30
"""Limit of a page, above every `max_message_bytes` of a server."""
MOST_EVENT_BYTES = 1 << 26
"""Limit of one event, above every `max_message_bytes` of a server."""
PAGE_EVENTS = 1_000
"""Events that are asked for in one page; the server's limit in bytes may make it smaller."""
KNOWN_EVENTS = 1_000
"""Ids of the last events that a follower remembers, to compare one that comes again."""
EPOCH_HEADER, SINCE_HEADER = "events-log-epoch", "events-since"


class _EndedError(CallError):
    """The server ended the event stream."""

    may_pass = True


class _KnownEvents:
    """The last events that were handed over, from a place in the log on."""

    def __init__(self, cursor: Cursor) -> None:
        self._after = cursor.committed_id
        """Of places up to here nothing is remembered: the cursor says that their events are handled."""
        self._ids: dict[int, str] = {}

    def add(self, event: Event) -> None:
        """Remember an event that is handed over now."""
        self._ids[event.committed_id] = event.id
        if len(self._ids) > KNOWN_EVENTS:
            self._after = next(iter(self._ids))
            del self._ids[self._after]

    def has(self, event: Event, cursor: Cursor) -> bool:
        """Whether an event is known at this cursor. Raises EventReplacedError if another one, or none, was there."""
        place = event.committed_id
        if place > cursor.committed_id:
            return False
        known = self._ids.get(place)
        if place > self._after and known != event.id:
            raise EventReplacedError(cursor, place, event.id, known)
        return True


class AsyncEventFollower:
    """Iterator over the events of some partitions: `async for event in client.events.follow("orders")`.

    After an error it can be iterated again: it goes on behind the last event that it handed over.
    """

    def __init__(
        self,
        caller: ClientCaller,
        query: Sequence[tuple[str, str]],
        store: CursorStore,
        patience: Patience,
        *,
        live: bool = True,
        has_epoch: bool = True,
    ) -> None:
        self._caller = caller
        self._is_live = live
        self._has_epoch = has_epoch
        """Whether the epoch of the position is known; else it is that of the first answer."""
        self._page: deque[Event] = deque()
        self._to: int | None = None
        """Without `live`: the end of the log when the first page was read."""
        self._is_read = False
        self._asked = 0
        self._query = query
        self._store = store
        self._patience = patience
        self._is_loaded = self._is_closed = False
        self._position = START
        self._known = _KnownEvents(START)
        self._stored: tuple[Cursor, ...] = (START,)
        """The stored cursor, and those of later saves that were interrupted, and may have been made."""
        self._left: Cursor | None = None
        """The cursor before the last save, which the application may have rolled back."""
        self._answer: LiveAnswer | None = None
        self._reader: EventReader | None = None
        self._epoch = 0
        self._tried = 0
        self._since = caller.transport.network.now()
        """When the last frame came, or the last stream was lost."""

    @property
    def cursor(self) -> Cursor:
        """The position of the last event that was handed over, or where following began."""
        return self._position

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """The next event; waits for it. With a `FileCursor` the event before counts as handled now."""
        if self._is_closed:
            raise StopAsyncIteration
        await self._begin()
        at, has_epoch = self._position, self._has_epoch
        try:
            return await (self._followed() if self._is_live else self._paged())
        except (SemelError, StopAsyncIteration):
            raise
        except BaseException as error:
            # An interrupt may come anywhere, also when the bytes of an event were taken from the connection. The
            # cancellation of a task comes only while it waits, and leaves them there.
            if not _is_cancellation(error):
                self._drop()
                self._position, self._has_epoch = at, has_epoch
            raise

    async def _followed(self) -> Event:
        while True:
            was_open = self._reader is not None
            try:
                event = self._event(await self._frame())
            except SemelError as error:
                was_open = was_open or self._reader is not None
                self._drop()
                if not isinstance(error, CallError):
                    raise
                await self._rest(error, was_open)
                continue
            self._tried, self._since = 0, self._caller.transport.network.now()
            if event is not None:
                return event

    async def ack(self, event: Event | None = None, *, using: Any = None) -> None:
        """Store the cursor of an event, by default the last one that was handed over: it and all before are handled.

        With a `TransactionCursor` this is a part of the open transaction of its connection, or of `using`. After a
        rollback the event may be handled and acknowledged again. `CursorMovedError`: it was committed before.
        """
        if event is not None:
            await self._save(event.cursor, using)
        elif self._is_loaded and (self._left is not None or self._position != self._stored[0]):
            await self._save(self._position, using)

    async def accept(self, gap: HistoryGapError, *, at: int | None = None, using: Any = None) -> None:
        """Go on behind a gap in the history; its cursor is stored as `ack` stores that of an event.

        `at` is the position of the copy that you loaded, if it is above that of `gap.next_cursor`.
        """
        await self._begin()
        cursor = gap.next_cursor if at is None else Cursor(gap.next_cursor.epoch, at)
        if gap.cursor != self._position or cursor < gap.next_cursor:
            raise InvalidArgumentError("This gap is not at the position of this follower, or ends above `at`.")
        await self._save(cursor, using)
        self._drop()
        self._begin_at(cursor)

    async def aclose(self) -> None:
        """End it: its connection is closed, and the lock of its cursor's file is released."""
        self._is_closed = True
        self._drop()
        await self._caller.transport.network.apart(self._store.close)

    def __del__(self) -> None:
        """A follower that was left without `aclose` gives its connection back."""
        with suppress(AttributeError, RuntimeError):  # it was not made, or the event loop is closed
            self._drop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _begin(self) -> None:
        if not self._is_loaded:
            self._begin_at(await self._store.load(self._caller.transport.network))
            self._stored = (self._position,)
            self._is_loaded = True
        elif self._store.every:
            self._asked += 1
            if self._asked % self._store.every == 0:
                await self._save(self._position, None)

    def _begin_at(self, cursor: Cursor) -> None:
        self._position, self._known = cursor, _KnownEvents(cursor)

    async def _save(self, cursor: Cursor, using: Any) -> None:
        stored = before = self._stored
        if cursor <= stored[0]:
            if not self._store.is_undoable:
                return  # an ack covers all events before it
            if self._left is None or cursor <= self._left:
                raise CursorMovedError("This event was acknowledged before: roll back what was done for it again.")
            before = (self._left,)
        if cursor not in stored:
            self._stored = (*stored, cursor)
        try:
            await self._store.save(self._caller.transport.network, before, cursor, using)
        except CursorMovedError:
            self._stored = stored
            raise
        self._stored, self._left = (cursor,), before[0]

    async def _paged(self) -> Event:
        """The next event of the pages up to the end of the log, which was taken with the first page."""
        while (event := await self._next_of_page()) is None:
            pass
        return event

    async def _next_of_page(self) -> Event | None:
        """The next event of the pages; None if it is known."""
        while not self._page:
            if self._is_read:
                if self._store.every:
                    await self._save(self._position, None)
                raise StopAsyncIteration
            query = [*self._query, ("limit", str(PAGE_EVENTS)), *_given_to(self._to)]
            page = await read_page(self._caller, query, self._position, has_epoch=self._has_epoch)
            self._learn_epoch(page.cursor.epoch)
            if self._to is None and page.sync_to < self._position.committed_id:
                raise LogBehindError(self._position, page.sync_to)
            self._to = page.sync_to
            if page.pruned_to is not None:
                raise EventsPrunedError(self._position, page.cursor.epoch, page.pruned_to)
            self._is_read = not page.has_more
            self._page.extend(page.events)
            if not page.events and page.cursor.committed_id > self._position.committed_id:
                self._position = page.cursor
        return self._new(self._page.popleft())

    def _new(self, event: Event) -> Event | None:
        """Move on to an event; None for a known one, which a client skips however often it comes."""
        if self._known.has(event, self._position):
            return None
        self._known.add(event)
        self._position = event.cursor
        return event

    async def _frame(self) -> ServerSentEvent:
        if self._reader is None:
            self._reader = await self._opened()
        frame = await self._reader.next()
        if frame is None:
            raise _EndedError(f"The event stream of {self._caller.transport.url} has ended.")
        return frame

    async def _opened(self) -> EventReader:
        self._drop()
        transport, at = self._caller.transport, self._position
        path = f"{EVENTS_PATH}?{urlencode([*self._query, *_position(at, has_epoch=self._has_epoch)])}"
        answer = self._answer = await transport.begin(ClientRequest("GET", path, headers={"Accept": EVENT_STREAM}))
        if answer.status != 200:
            raise self._caller.refused(await transport.whole(answer, MOST_EVENT_BYTES))
        if not answer.headers.get("content-type", "").startswith(EVENT_STREAM):
            raise transport.not_semel()
        self._epoch = read(lambda: int(answer.headers.get(EPOCH_HEADER, "0")))
        since = read(lambda: int(answer.headers.get(SINCE_HEADER, str(at.committed_id))))
        if since < at.committed_id:
            raise LogBehindError(at, since)
        self._learn_epoch(self._epoch)
        return EventReader(answer, MOST_EVENT_BYTES)

    def _learn_epoch(self, epoch: int) -> None:
        if not self._has_epoch:
            self._has_epoch = True
            self._position = Cursor(epoch, self._position.committed_id)
            self._stored = (self._position,)

    def _event(self, frame: ServerSentEvent) -> Event | None:
        """The event of a frame; None for a known event and for a kind of frame that this version does not know.

        Raises the gap that the frame tells of.
        """
        if frame.kind not in ("event", "pruned", "reset"):
            self._pass(frame)
            return None
        try:
            facts = facts_of(frame.data)
        except ValueError:
            raise self._caller.transport.not_semel() from None
        at, epoch = self._position, self._epoch
        if frame.kind == "pruned":
            raise read(lambda: EventsPrunedError(at, epoch, _number(facts, "pruned_to_committed_id")))
        if frame.kind == "reset":
            raise read(lambda: EventsResetError(at, _number(facts, "log_epoch"), _number(facts, "agreed_committed_id")))
        return self._new(read(lambda: event_of(facts, epoch)))

    def _pass(self, frame: ServerSentEvent) -> None:
        """Go on to a position up to which the server has no event of the wanted types."""
        if not frame.data and frame.event_id.isdecimal() and int(frame.event_id) > self._position.committed_id:
            self._position = Cursor(self._epoch, int(frame.event_id))

    async def _rest(self, error: CallError, was_open: bool) -> None:
        """Wait before the next stream, or raise the error."""
        now = self._caller.transport.network.now()
        if was_open:
            self._tried = 0 if now - self._since > LONGEST_SECONDS else self._tried
            self._since = now
        self._tried += 1
        if not error.may_pass or self._patience.is_over(self._tried, now - self._since, 0.0):
            raise error
        await self._caller.rest(self._tried, error)

    def _drop(self) -> None:
        """Close the connection and forget the page; the next event opens or reads another."""
        self._page.clear()
        self._is_read = False
        if self._answer is not None:
            self._answer.close()
        self._answer = self._reader = None


def _is_cancellation(error: BaseException) -> bool:
    """Whether a task of asyncio was cancelled; a program without an event loop has not loaded asyncio."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def _given_to(to: int | None) -> list[tuple[str, str]]:
    return [] if to is None else [("to", str(to))]


def _position(at: Cursor, *, has_epoch: bool) -> list[tuple[str, str]]:
    return [("since", str(at.committed_id)), *([("log_epoch", str(at.epoch))] if has_epoch else [])]


async def read_page(
    caller: ClientCaller, query: Sequence[tuple[str, str]], at: Cursor, *, has_epoch: bool = True
) -> EventsPage:
    """A page of the events after a cursor. Raises `EventsResetError` for a cursor of a lost history."""
    path = f"{EVENTS_PATH}?{urlencode([*query, *_position(at, has_epoch=has_epoch)])}"
    try:
        facts = await caller.facts(ClientRequest("GET", path, most_bytes=MOST_PAGE_BYTES))
    except GoneError as error:
        raise reset_of(error, at) from None
    return read(lambda: page_of(facts))


def _number(facts: Facts, name: str) -> int:
    return int(facts[name])


class EventFollower(BlockingIterator[Event]):
    """Iterator over the events of some partitions, from synchronous code: `for event in client.events.follow(...)`."""

    def __init__(self, follower: AsyncEventFollower) -> None:
        super().__init__(follower)
        self._follower = follower

    @property
    def cursor(self) -> Cursor:
        """The position of the last event that was handed over, or where following began."""
        return self._follower.cursor

    def ack(self, event: Event | None = None, *, using: Any = None) -> None:
        """Store the cursor of an event, by default the last one that was handed over: it and all before are handled.

        With a `TransactionCursor` this is a part of the open transaction of its connection, or of `using`. After a
        rollback the event may be handled and acknowledged again. `CursorMovedError`: it was committed before.
        """
        finished(self._follower.ack(event, using=using))

    def accept(self, gap: HistoryGapError, *, at: int | None = None, using: Any = None) -> None:
        """Go on behind a gap in the history; its cursor is stored as `ack` stores that of an event.

        `at` is the position of the copy that you loaded, if it is above that of `gap.next_cursor`.
        """
        finished(self._follower.accept(gap, at=at, using=using))
