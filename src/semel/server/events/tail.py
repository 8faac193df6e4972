"""`GET /v1/events` as server-sent events (SSE): history, then live, in one order without a gap.

A tail is a subscriber: it reads the log from its cursor until it has caught up, and then gets events from the node's
feed, so a commit in other partitions costs it nothing. Where events were pruned before they could be sent, at its
beginning or because its client was slow, a frame says so, and it continues behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from semel.contracts.events.reading import head_of
from semel.contracts.events.tables import EventRow
from semel.contracts.events.wire.http import COMMENT, Tail, event_frame, pruned_frame
from semel.server.context import Context
from semel.server.events.feed import Feed
from semel.server.events.subscriber import Subscriber
from semel.server.http.answer import BodyWriter
from semel.server.http.request import Request
from semel.server.principals import Principal
from semel.server.settings import settings_of
from semel.surfaces.events.settings import EventsSettings

PULSE_SECONDS = 15.0


class TailSink:
    """The unsent frames of one SSE client; limited, because a subscriber stops when it is full."""

    origin = b""
    """A tail has submitted nothing."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._frames: list[bytes] = []
        self._size = 0
        self.has_failed = False
        self.filled = asyncio.Event()

    @property
    def audience(self) -> Hashable:
        """All tails are sent the same."""
        return "tail"

    @property
    def is_full(self) -> bool:
        """Whether enough is waiting to be sent."""
        return self._size >= self._most_bytes

    def frame(self, row: EventRow) -> bytes:
        """One event of an event stream."""
        return event_frame(row)

    def push(self, frame: bytes) -> None:
        """One more."""
        self._frames.append(frame)
        self._size += len(frame)
        self.filled.set()

    def pruned(self, pruned_to: int) -> bool:
        """Report the removed events at their place in the stream."""
        self.push(pruned_frame(pruned_to))
        return True

    def fail(self, message: str) -> None:
        """End the stream: the client reconnects and continues."""
        self.has_failed = True
        self.filled.set()

    def taken(self) -> bytes:
        """Everything that waits, which is now being sent."""
        body = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        self.filled.clear()
        return body


class Tails:
    """Serves events as server-sent events (SSE)."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self._context = context
        self._feed = feed
        self._buffer_bytes = settings_of(context.settings, EventsSettings).events_buffer_bytes
        self._open: set[TailSink] = set()

    async def begin(self, asked: Tail) -> Tail:
        """Where a tail begins: a cursor beyond the end of the log is brought back to it."""
        head = await self._context.engine.read(head_of)
        return asked._replace(since=min(asked.since, head.last_id))

    async def follow(self, asked: Tail, principal: Principal, request: Request, writer: BodyWriter) -> None:
        """Event after event until the client has gone, its credential has ended, or the server stops."""
        sink = TailSink(self._buffer_bytes)
        subscriber = Subscriber(self._feed, sink, self._buffer_bytes)
        request.on_gone = sink.filled.set
        if principal.revocation is not None:
            principal.revocation.watch(sink.filled.set)
        self._open.add(sink)
        subscriber.subscribe(asked.since, frozenset(asked.names))
        subscriber.release()
        try:
            while not (sink.has_failed or self._is_over(request, principal)):
                await self._wait(sink, principal.expires_at_ms)
                body = sink.taken()
                subscriber.drained()
                await writer.write(body or COMMENT)
        finally:
            self._open.discard(sink)
            subscriber.close()
            if principal.revocation is not None:
                principal.revocation.unwatch(sink.filled.set)

    def stop(self) -> None:
        """The server stops: wake them, so that they end."""
        for sink in self._open:
            sink.filled.set()

    async def _wait(self, sink: TailSink, expires_at_ms: int | None) -> None:
        seconds = PULSE_SECONDS
        if expires_at_ms is not None:
            seconds = min(seconds, max(0.0, (expires_at_ms - self._context.world.wall_ms()) / 1_000))
        try:
            await asyncio.wait_for(sink.filled.wait(), seconds)
        except TimeoutError:
            return

    def _is_over(self, request: Request, principal: Principal) -> bool:
        has_ended = principal.has_ended(self._context.world.wall_ms())
        return has_ended or self._context.is_stopping or request.gone
