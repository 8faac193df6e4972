"""A subscriber: one connection that gets every event of its partitions after its watermark once, in log order.

A subscriber reads the log by its own cursor. While it keeps up it is live: the node's one feed hands it each new event.
After it was held (its client pages through history), while it lags (its client does not read) or when it has just
subscribed, it reads the log itself from its cursor, in small pages, until it has caught up with the feed. So nothing
is queued for a slow reader, and no event is skipped.

A subscription is a set of partitions, and perhaps a set of types of events. A new one applies from the watermark of the
sync that named it; up to there the old one applies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import orjson

from semel.engine.contract import UnavailableError
from semel.server.thread_pool import apart
from semel.surfaces.events.feed import EventFeed
from semel.surfaces.events.reading import EventPage, history
from semel.surfaces.events.rules.event_types import EventTypes, type_of
from semel.surfaces.events.tables import EventRow

PAGE_EVENTS = 200
REST_SECONDS = 0.5
MAX_ANSWERED = 10_000


class EventSink(Protocol):
    """The destination of a subscriber's events."""

    origin: bytes

    @property
    def audience(self) -> Hashable:
        """Sinks of one audience take the same bytes."""

    @property
    def is_full(self) -> bool:
        """Whether the buffer limit is reached."""

    def frame(self, row: EventRow) -> bytes:
        """The frame of an event for this audience."""

    def push(self, frame: bytes) -> None:
        """Send a frame."""

    def pruned(self, pruned_to: int) -> bool:
        """Report that retention removed unsent events, and return whether to continue after them."""

    def fail(self, message: str) -> None:
        """Close the connection after an internal fault, so that the client reconnects and misses nothing."""


class SubscriberMode(Enum):
    """The state of a subscriber."""

    OFF = "off"
    HELD = "held"
    CATCHING_UP = "catching up"
    LAGGING = "lagging"
    LIVE = "live"


class _Subscription(NamedTuple):
    """The events that are sent: those of some partitions, of some types or of all."""

    names: frozenset[str] = frozenset()
    types: EventTypes = None

    def takes(self, row: EventRow) -> bool:
        """Whether an event belongs to it."""
        if self.names.isdisjoint(orjson.loads(row.partitions)):
            return False
        return self.types is None or type_of(row.event) in self.types


class _Backlog(NamedTuple):
    """Events of a subscription between two positions, without those that were sent already."""

    wanted: _Subscription
    after: int
    upto: int
    sent: _Subscription = _Subscription()

    def is_sent(self, row: EventRow) -> bool:
        """Whether the event was already sent under another subscription."""
        return bool(self.sent.names) and self.sent.takes(row)


class EventSubscriber:
    """The live delivery of one connection. Used on the event loop only."""

    def __init__(self, feed: EventFeed, sink: EventSink, page_bytes: int) -> None:
        self._feed = feed
        self._page_bytes = page_bytes
        self._backlog: list[_Backlog] = []
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        """Incremented when the next events to send may have changed: a read that began before is discarded."""
        self._answered: set[int] = set()
        """Positions of later events that the client already got in the answer to its own submission."""
        self.sink = sink
        self.names: frozenset[str] = frozenset()
        self.types: EventTypes = None
        """The types of the events to send; None for all."""
        self.cursor = 0
        """Once the backlog is sent, every event up to this position has been sent."""
        self.mode = SubscriberMode.OFF
        self.audience: Hashable = None
        """The audience of the sink, while live."""

    def hold(self) -> None:
        """Send nothing until released."""
        self._turn += 1
        self._leave_feed()
        if self.mode is not SubscriberMode.OFF:
            self.mode = SubscriberMode.HELD

    def subscribe(self, watermark: int, names: frozenset[str], types: EventTypes = None) -> None:
        """Subscribe to these partitions, and types, from `watermark` on. The subscriber must be held or off."""
        assert self.mode in (SubscriberMode.HELD, SubscriberMode.OFF)
        old, new = _Subscription(self.names, self.types), _Subscription(names, types)
        if new == old:
            return
        if not old.names:
            self.cursor = watermark
        elif self.cursor < watermark:
            self._backlog.append(_Backlog(old, self.cursor, watermark))
            self.cursor = watermark
        elif watermark < self.cursor:
            # The cycle has more pages: its watermark is below the events that were already sent for the old partitions.
            missing = _Subscription(names - old.names, types) if types == old.types else new
            if missing.names:
                self._backlog.append(_Backlog(missing, watermark, self.cursor, old))
        self.names, self.types = names, types
        self.mode = SubscriberMode.HELD

    @property
    def position(self) -> int:
        """Every event up to this position has been sent or is of no interest, if there is no backlog."""
        return max(self.cursor, self._feed.position) if self.mode is SubscriberMode.LIVE else self.cursor

    def skip(self, committed_id: int) -> None:
        """Do not send this event: the client got it in the answer to its own submission."""
        passed = max(self.cursor, self._feed.position) if self.mode is SubscriberMode.LIVE else 0
        if self.mode is not SubscriberMode.OFF and committed_id > passed and len(self._answered) < MAX_ANSWERED:
            self._answered.add(committed_id)

    def release(self) -> None:
        """Continue from the cursor."""
        if self.mode is SubscriberMode.HELD:
            self._catch_up()

    def drained(self) -> None:
        """The client has read the buffered frames: catch up if the subscriber lags."""
        if self.mode is SubscriberMode.LAGGING:
            self._catch_up()

    def close(self) -> None:
        """End the delivery."""
        self._turn += 1
        self._leave_feed()
        self.mode = SubscriberMode.OFF
        self.names, self.types = frozenset(), None
        self._backlog.clear()
        self._answered.clear()

    def overtaken(self, pruned_to: int) -> None:
        """Called by the feed: events up to `pruned_to` were removed, perhaps before they were sent here."""
        if self.cursor >= pruned_to:
            return
        if self.sink.pruned(pruned_to):
            self.cursor = pruned_to
        else:
            self.close()  # events after a gap would hide the gap

    def take(self, row: EventRow, frame: bytes, before: int) -> bool:
        """Called by the feed: send one event, and return whether it was sent. If the sink is full, leave the feed."""
        if self.mode is not SubscriberMode.LIVE or self.cursor >= row.committed_id:
            return False
        if self.sink.is_full:
            self._feed.leave(self)
            self.cursor = max(self.cursor, before)
            self.mode = SubscriberMode.LAGGING
            return False
        self.cursor = row.committed_id
        if self._is_own(row):
            return False
        self.sink.push(frame)
        return True

    def _is_own(self, row: EventRow) -> bool:
        if row.committed_id in self._answered:
            self._answered.discard(row.committed_id)
            return True
        return row.origin == self.sink.origin

    def _leave_feed(self) -> None:
        if self.mode is SubscriberMode.LIVE:
            self._feed.leave(self)
            self.cursor = max(self.cursor, self._feed.position)

    def _catch_up(self) -> None:
        self.mode = SubscriberMode.CATCHING_UP
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._read_on()
        except Exception:  # noqa: BLE001 - after any fault, the client must not wait forever
            if self.mode is SubscriberMode.OFF:
                return  # the connection has ended meanwhile, and its sink may be gone
            self.sink.fail(self._feed.fault("fault in feeding a subscriber"))

    async def _read_on(self) -> None:
        while self.mode is SubscriberMode.CATCHING_UP:
            if self.sink.is_full:
                self.mode = SubscriberMode.LAGGING
            elif not self._backlog and not self.names:
                self.mode = SubscriberMode.OFF
            elif not self._backlog and self._feed.admits(self.cursor):
                self.mode = SubscriberMode.LIVE
                self.audience = self.sink.audience
                self._feed.join(self)
            else:
                await self._step()

    async def _step(self) -> None:
        """Send one page of the log. If the subscriber was held meanwhile, the page is discarded and read again."""
        turn = self._turn
        span = self._backlog[0] if self._backlog else None
        (names, types), after = (
            (_Subscription(self.names, self.types), self.cursor) if span is None else (span.wanted, span.after)
        )
        try:
            page = await self._feed.read(
                lambda reading: history(
                    reading,
                    names,
                    after,
                    None if span is None else span.upto,
                    PAGE_EVENTS,
                    self._page_bytes,
                    types=types,
                )
            )
        except UnavailableError:
            await asyncio.sleep(REST_SECONDS)
            return
        for row in page.events:
            await self._feed.wait_for_answer(row)
        frames = await apart(sum(len(row.event) for row in page.events), self._frames_of, page.events)
        if turn != self._turn or self.mode is not SubscriberMode.CATCHING_UP:
            return
        if page.pruned_to and not self.sink.pruned(page.pruned_to):
            return
        for row, frame in zip(page.events, frames, strict=True):
            if not self._is_own(row) and not (span is not None and span.is_sent(row)):
                self._feed.count(1)
                self.sink.push(frame)
        self._advance(span, page)

    def _frames_of(self, rows: Sequence[EventRow]) -> list[bytes]:
        return [self.sink.frame(row) for row in rows]

    def _advance(self, span: _Backlog | None, page: EventPage) -> None:
        reached = page.next_since if page.has_more else page.sync_to
        if span is None:
            self.cursor = max(self.cursor, reached)
        elif page.has_more:
            self._backlog[0] = span._replace(after=reached)
        else:
            del self._backlog[0]
