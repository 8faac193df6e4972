"""`GET /v1/events` as an event stream (server-sent events): history, then live, in one order without a gap.

An event stream is a subscriber: it reads the log from its cursor until it has caught up, and then takes events from
the node's feed, so a commit in other partitions costs it nothing. `FollowEnd` ends an event stream as it ends a
follower, but a stream waits on its own buffer, which the feed and its own reads of the log fill. If events were pruned
before they were sent, a `pruned` frame reports that, and the stream continues after them. A stream of some types of
events gets a frame with an id alone in place of some comments, so that a client that reconnects does not begin before
events that were compared already.
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
from semel.surfaces.events.wire.http_messages import (
    COMMENT,
    EventReadRequest,
    event_frame,
    position_frame,
    pruned_frame,
)

COMMENT_SECONDS = 15.0


class EventStreamSink:
    """The unsent frames of one SSE client. Bounded, because a subscriber stops when its sink is full."""

    origin = b""
    """Always empty: an event stream submits nothing."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._frames: list[bytes] = []
        self._size = 0
        self.has_failed = False
        self.filled = asyncio.Event()

    @property
    def audience(self) -> Hashable:
        """One audience for all event streams."""
        return "tail"

    @property
    def is_full(self) -> bool:
        """Whether the buffer limit is reached."""
        return self._size >= self._most_bytes

    def frame(self, row: EventRow) -> bytes:
        """One event of an event stream."""
        return event_frame(row)

    def push(self, frame: bytes) -> None:
        """Buffer a frame."""
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
        """Take all buffered frames, to send them."""
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
        """The request with its start position; a cursor beyond the end of the log is set to the end."""
        head = await self._context.engine.read(head_of)
        return asked._replace(since=min(asked.since, head.last_id))

    async def follow(self, asked: EventReadRequest, principal: Principal, request: Request, writer: BodyWriter) -> None:
        """Send events until the client disconnects, its credential expires, or the server stops."""
        sink = EventStreamSink(self._buffer_bytes)
        subscriber = EventSubscriber(self._feed, sink, self._buffer_bytes)
        end = self._context.end_of(caller_of(request), principal)
        end.watch(sink.filled.set)
        self._open.add(sink)
        try:
            subscriber.subscribe(asked.since, frozenset(asked.names), asked.types)
            subscriber.release()
            told = asked.since
            while not (sink.has_failed or end.cause is not None):
                await _wait(sink, end)
                body, position = sink.taken(), subscriber.position
                subscriber.drained()
                if not body and asked.types is not None and position > told:
                    body, told = position_frame(position), position
                await writer.write(body or COMMENT)
        finally:
            self._open.discard(sink)
            subscriber.close()
            end.unwatch(sink.filled.set)

    def stop(self) -> None:
        """The server is stopping: wake the streams, so that they end."""
        for sink in self._open:
            sink.filled.set()


async def _wait(sink: EventStreamSink, end: FollowEnd) -> None:
    """Wait until there are frames to send, a keep-alive comment is due, or the stream ends."""
    try:
        await asyncio.wait_for(sink.filled.wait(), min(COMMENT_SECONDS, max(0.0, end.credential_seconds())))
    except TimeoutError:
        return
