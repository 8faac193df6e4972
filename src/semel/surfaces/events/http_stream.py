"""`GET /v1/events` as an event stream (server-sent events): history, then live, in one order without a gap.

An event stream is a subscriber like any other: it reads the log from its cursor until it has caught up, and then
takes events from the node's feed, so a commit in partitions that it does not follow costs it nothing. It ends by the
causes of any follower, but it is none: it waits for its own buffer, which the feed and its own reads of the log fill.
Where events were pruned before they could be sent, a frame of its own says so, and the stream goes on behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from semel.engine.follow import FollowEnd
from semel.server.auth.principals import Principal
from semel.server.context import Context, caller_of
from semel.server.http.answer import BodyWriter
from semel.server.http.request import Request
from semel.server.settings import settings_of
from semel.surfaces.events.feed import EventFeed
from semel.surfaces.events.reading import head_of
from semel.surfaces.events.settings import EventsSettings
from semel.surfaces.events.subscriber import EventSubscriber
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.http_messages import COMMENT, EventReadRequest, event_frame, pruned_frame

COMMENT_SECONDS = 15.0


class EventStreamSink:
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


class EventStreams:
    """Serves events as server-sent events (SSE)."""

    def __init__(self, context: Context, feed: EventFeed) -> None:
        self._context = context
        self._feed = feed
        self._buffer_bytes = settings_of(context.settings, EventsSettings).events_buffer_bytes
        self._open: set[EventStreamSink] = set()

    async def begin(self, asked: EventReadRequest) -> EventReadRequest:
        """Where a tail begins: a cursor beyond the end of the log is brought back to it."""
        head = await self._context.engine.read(head_of)
        return asked._replace(since=min(asked.since, head.last_id))

    async def follow(self, asked: EventReadRequest, principal: Principal, request: Request, writer: BodyWriter) -> None:
        """Event after event until the client has gone, its credential has ended, or the server stops."""
        sink = EventStreamSink(self._buffer_bytes)
        subscriber = EventSubscriber(self._feed, sink, self._buffer_bytes)
        end = self._context.end_of(caller_of(request), principal)
        end.watch(sink.filled.set)
        self._open.add(sink)
        try:
            subscriber.subscribe(asked.since, frozenset(asked.names))
            subscriber.release()
            while not (sink.has_failed or end.cause is not None):
                await _wait(sink, end)
                body = sink.taken()
                subscriber.drained()
                await writer.write(body or COMMENT)
        finally:
            self._open.discard(sink)
            subscriber.close()
            end.unwatch(sink.filled.set)

    def stop(self) -> None:
        """The server stops: wake them, so that they end."""
        for sink in self._open:
            sink.filled.set()


async def _wait(sink: EventStreamSink, end: FollowEnd) -> None:
    """Wait for something to send, for the time of a comment, or for the end."""
    try:
        await asyncio.wait_for(sink.filled.wait(), min(COMMENT_SECONDS, max(0.0, end.credential_seconds())))
    except TimeoutError:
        return
