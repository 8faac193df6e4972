"""Live readers of a stream, and the work that they share: one read of the log, one event frame.

A live reader is a follower of the log (`engine/follow.py`) that returns the pages of a stream. It holds at most one
page, and reads the next one when the client has read the last.

Readers at the same position share one read of the log (SharedReads) if they started after the same signal: a read that
began before a later signal may have missed the commit of that signal. Readers of one page share its event frame
(FrameCache), which is made in parts. The last parts are cached, up to CACHE_BYTES; a part that was evicted is made
again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from semel.engine.engine import Engine
from semel.engine.follow import FOREVER, FollowedPage, LogFollower
from semel.kernel.verdict import NEVER
from semel.server.context import Context, caller_of
from semel.server.http.request import Request
from semel.server.thread_pool import COPIED_BYTES, apart, is_small
from semel.surfaces.streams.reading import StreamPage, page
from semel.surfaces.streams.wire.responses import content_of, event_part, parts_of


class SharedReads:
    """Reads in progress that readers share, by stream and position."""

    def __init__(self, engine: Engine, page_bytes: int) -> None:
        self._engine = engine
        self._page_bytes = page_bytes
        self._under_way: dict[tuple[bytes, int], tuple[int, asyncio.Future[StreamPage | None]]] = {}

    async def page(self, scope: bytes, position: int) -> StreamPage | None:
        """The page that begins at a position, read after the last signal before this call."""
        place = (scope, position)
        turn = self._engine.signals.turn
        shared = self._under_way.get(place)
        if shared is not None and shared[0] == turn:
            return await asyncio.shield(shared[1])
        read = asyncio.ensure_future(
            self._engine.read(lambda reading: page(reading, scope, position, self._page_bytes))
        )
        self._under_way[place] = (turn, read)
        try:
            return await asyncio.shield(read)
        finally:
            if self._under_way.get(place, (0, None))[1] is read:
                del self._under_way[place]


class StreamEndedError(Exception):
    """The stream was deleted or has expired."""


class LiveReader(LogFollower):
    """A live reader; it begins after the last page of the client."""

    def __init__(
        self, context: Context, shared_reads: SharedReads, name: bytes, given: StreamPage, request: Request
    ) -> None:
        self._life = given.stream.id
        super().__init__(context.engine.signals, self._life, context.end_of(caller_of(request), request.credential))
        self._world = context.world
        self._shared_reads = shared_reads
        self._name = name
        self._position = given.end

    async def next(self, seconds: float) -> StreamPage:
        """The next page with content or closure; an empty one when the time is up or the reader has ended."""
        return await self.follow(self._look, seconds)

    async def _look(self) -> FollowedPage[StreamPage]:
        page = await self._shared_reads.page(self._name, self._position)
        if page is None or page.stream.id != self._life:
            raise StreamEndedError
        self._position = page.end
        return FollowedPage(page, bool(page.pieces) or page.is_final, self._until_end_of_life(page))

    def _until_end_of_life(self, page: StreamPage) -> float:
        """Seconds until the stream may have expired: expiry sends no signal."""
        deadline = page.stream.deadline
        if deadline == NEVER:
            return FOREVER
        left = (deadline - self._world.wall_ms()) / 1_000
        return max(0.01, left) if left > 0 else 0.5  # past its end but alive: a clock jump delays expiry


CACHE_BYTES = 8 * 1024 * 1024

_Place = tuple[bytes, int, int]
"""The id of a stream and two positions: the content between them never changes."""


class PageFrame:
    """The data event of a page, before it is rendered."""

    __slots__ = ("__weakref__", "content", "content_type", "parts", "place")

    def __init__(self, page: StreamPage) -> None:
        self.place = _place(page)
        self.content = content_of(page)
        self.content_type = page.stream.content_type
        self.parts = parts_of(self.content)


class FrameCache:
    """A cache of frame parts by page and number."""

    def __init__(self) -> None:
        self._frames: WeakValueDictionary[_Place, PageFrame] = WeakValueDictionary()
        self._parts: OrderedDict[tuple[_Place, int], bytes] = OrderedDict()
        self._bytes = 0
        self._under_way: dict[tuple[_Place, int], asyncio.Task[bytes]] = {}

    async def frame(self, page: StreamPage) -> PageFrame:
        """The frame of a page; shared with other readers of the page."""
        place = _place(page)
        known = self._frames.get(place)
        if known is not None:
            return known
        made = await apart(page.end - page.start, PageFrame, page, most=COPIED_BYTES)
        return self._frames.setdefault(place, made)

    async def part(self, frame: PageFrame, number: int) -> bytes:
        """One part of a frame."""
        place = (frame.place, number)
        known = self._parts.get(place)
        if known is not None:
            self._parts.move_to_end(place)
            return known
        if is_small(len(frame.content), COPIED_BYTES):
            return self._keep(place, event_part(frame.content, frame.content_type, number))
        task = self._under_way.get(place)
        if task is None:
            task = self._under_way[place] = asyncio.create_task(self._make(frame, number))
        return await asyncio.shield(task)

    async def _make(self, frame: PageFrame, number: int) -> bytes:
        place = (frame.place, number)
        try:
            made = await apart(
                len(frame.content), event_part, frame.content, frame.content_type, number, most=COPIED_BYTES
            )
            return self._keep(place, made)
        finally:
            del self._under_way[place]

    def _keep(self, place: tuple[_Place, int], part: bytes) -> bytes:
        self._parts[place] = part
        self._bytes += len(part)
        while self._bytes > CACHE_BYTES:
            _, dropped = self._parts.popitem(last=False)
            self._bytes -= len(dropped)
        return part


def _place(page: StreamPage) -> _Place:
    return page.stream.id, page.start, page.end
