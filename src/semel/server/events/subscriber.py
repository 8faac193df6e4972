"""A subscriber: one connection that gets every event of its partitions after its watermark once, in log order.

A subscriber reads the log by its own cursor. While it keeps up it is live: the node's one feed hands it each new event.
When it is held (its client pages through history), lags (its client does not read) or has just subscribed, it reads
the log itself from its cursor, in small pages, until it has caught up with the feed. So nothing is queued for a slow
reader, and nothing is skipped.

A new set of partitions applies from the watermark of the sync that named it; up to there the old set applies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import orjson

from semel.contracts.events.reading import Page, history
from semel.contracts.events.tables import EventRow
from semel.engine.contract import UnavailableError
from semel.server.events.feed import Feed
from semel.server.threads import apart

PAGE_EVENTS = 200
REST_SECONDS = 0.5
MAX_ANSWERED = 10_000


class Sink(Protocol):
    """The destination of a subscriber's events."""

    origin: bytes

    @property
    def audience(self) -> Hashable:
        """Sinks of one audience take the same bytes."""

    @property
    def is_full(self) -> bool:
        """Whether enough is waiting to be sent."""

    def frame(self, row: EventRow) -> bytes:
        """An event as this audience is sent it."""

    def push(self, frame: bytes) -> None:
        """Send one."""

    def pruned(self, pruned_to: int) -> bool:
        """Retention removed unsent events: report it, and return whether to continue behind them."""

    def fail(self, message: str) -> None:
        """An internal fault: close, so that the client reconnects and misses nothing."""


class Mode(Enum):
    """The state of a subscriber."""

    OFF = "off"
    HELD = "held"
    CATCHING_UP = "catching up"
    LAGGING = "lagging"
    LIVE = "live"


class _Span(NamedTuple):
    """Events of these partitions between two positions, without those that were sent already."""

    names: frozenset[str]
    after: int
    upto: int
    sent: frozenset[str] = frozenset()

    def is_sent(self, row: EventRow) -> bool:
        """Whether it was sent for another of its partitions."""
        return bool(self.sent) and not self.sent.isdisjoint(orjson.loads(row.partitions))


class Subscriber:
    """The live delivery of one connection; lives on the event loop."""

    def __init__(self, feed: Feed, sink: Sink, page_bytes: int) -> None:
        self._feed = feed
        self._page_bytes = page_bytes
        self._backlog: list[_Span] = []
        self._task: asyncio.Task[None] | None = None
        self._turn = 0
        """Rises whenever what is to be sent next may have changed: a read that began before is void."""
        self._answered: set[int] = set()
        """Later events that the client got in an answer already, because it has submitted them too."""
        self.sink = sink
        self.names: frozenset[str] = frozenset()
        self.cursor = 0
        """Everything up to here was sent, once the backlog has been."""
        self.mode = Mode.OFF

    def hold(self) -> None:
        """Send nothing until released."""
        self._turn += 1
        self._leave_feed()
        if self.mode is not Mode.OFF:
            self.mode = Mode.HELD

    def subscribe(self, watermark: int, names: frozenset[str]) -> None:
        """From this position on, these partitions; the subscriber is held, or was off."""
        assert self.mode in (Mode.HELD, Mode.OFF)
        if names == self.names:
            return
        if not self.names:
            self.cursor = watermark
        elif self.cursor < watermark:
            self._backlog.append(_Span(self.names, self.cursor, watermark))
            self.cursor = watermark
        elif names - self.names and watermark < self.cursor:
            # In the middle of a cycle: its pages end below what has been sent already of the other partitions.
            self._backlog.append(_Span(names - self.names, watermark, self.cursor, self.names))
        self.names = names
        self.mode = Mode.HELD

    def skip(self, committed_id: int) -> None:
        """The client has got this event as the answer to its own submission."""
        passed = max(self.cursor, self._feed.position) if self.mode is Mode.LIVE else 0
        if self.mode is not Mode.OFF and committed_id > passed and len(self._answered) < MAX_ANSWERED:
            self._answered.add(committed_id)

    def release(self) -> None:
        """Go on from where it was held."""
        if self.mode is Mode.HELD:
            self._catch_up()

    def drained(self) -> None:
        """The client has read what was waiting."""
        if self.mode is Mode.LAGGING:
            self._catch_up()

    def close(self) -> None:
        """Nothing more."""
        self._turn += 1
        self._leave_feed()
        self.mode = Mode.OFF
        self.names = frozenset()
        self._backlog.clear()
        self._answered.clear()

    def overtaken(self, pruned_to: int) -> None:
        """From the feed: events up to here are gone, and this one may not have had them."""
        if self.cursor >= pruned_to:
            return
        if self.sink.pruned(pruned_to):
            self.cursor = pruned_to
        else:
            self.close()  # what comes behind a gap would hide it

    def take(self, row: EventRow, frame: bytes, before: int) -> bool:
        """From the feed: one event; whether it was sent. A sink that is full is left to read the log later."""
        if self.mode is not Mode.LIVE or self.cursor >= row.committed_id:
            return False
        if self.sink.is_full:
            self._feed.leave(self)
            self.cursor = max(self.cursor, before)
            self.mode = Mode.LAGGING
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
        if self.mode is Mode.LIVE:
            self._feed.leave(self)
            self.cursor = max(self.cursor, self._feed.position)

    def _catch_up(self) -> None:
        self.mode = Mode.CATCHING_UP
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self._read_on()
        except Exception:  # noqa: BLE001 - whatever it is, the client must not wait for ever
            self.sink.fail(self._feed.fault("fault in feeding a subscriber"))

    async def _read_on(self) -> None:
        while self.mode is Mode.CATCHING_UP:
            if self.sink.is_full:
                self.mode = Mode.LAGGING
            elif not self._backlog and not self.names:
                self.mode = Mode.OFF
            elif not self._backlog and self._feed.admits(self.cursor):
                self.mode = Mode.LIVE
                self._feed.join(self)
            else:
                await self._step()

    async def _step(self) -> None:
        """One page of the log; when the subscriber was held meanwhile, it is dropped, and read again later."""
        turn = self._turn
        span = self._backlog[0] if self._backlog else None
        names, after = (self.names, self.cursor) if span is None else (span.names, span.after)
        try:
            page = await self._feed.read(
                lambda reading: history(
                    reading, names, after, None if span is None else span.upto, PAGE_EVENTS, self._page_bytes
                )
            )
        except UnavailableError:
            await asyncio.sleep(REST_SECONDS)
            return
        for row in page.events:
            await self._feed.wait_for_answer(row)
        frames = await apart(sum(len(row.event) for row in page.events), self._frames_of, page.events)
        if turn != self._turn or self.mode is not Mode.CATCHING_UP:
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

    def _advance(self, span: _Span | None, page: Page) -> None:
        reached = page.next_since if page.has_more else page.sync_to
        if span is None:
            self.cursor = max(self.cursor, reached)
        elif page.has_more:
            self._backlog[0] = span._replace(after=reached)
        else:
            del self._backlog[0]
