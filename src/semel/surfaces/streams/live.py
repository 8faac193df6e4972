"""Live readers of a stream, and the work that they share: one read of the log, one event frame.

A live reader is a follower of the log (`engine/follow.py`) that returns the pages of a stream. It holds at most one
page, and reads the next one when the client has read the last.

The pages of a hot tail come from memory (`tail_cache`). Otherwise readers at the same position share one read of the
log (SharedReads) if they started after the same signal: a read that began before a later signal may have missed the
commit of that signal. Readers of one page share its event frame (FrameCache): the whole text of a small page, or the
parts of a large one. The last ones are cached, up to CACHE_BYTES; what was evicted is made again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from weakref import WeakValueDictionary

from semel.engine.engine import Engine
from semel.engine.follow import FOREVER, FollowedPage, LogFollower
from semel.kernel.verdict import NEVER
from semel.server.context import Context, caller_of
from semel.server.http.request import Request
from semel.server.thread_pool import COPIED_BYTES, apart, is_small
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.reading import StreamPage, page
from semel.surfaces.streams.rules.offsets import BEGINNING, EARLIEST, Offset, epoch_at
from semel.surfaces.streams.tables import StreamRow
from semel.surfaces.streams.tail_cache import TailCache
from semel.surfaces.streams.wire.responses import PART_BYTES, content_of, control_event, event_part, parts_of


class SharedReads:
    """The pages of live readers: from the tail cache, or from reads in progress that readers share."""

    def __init__(self, engine: Engine, page_bytes: int, metrics: StreamsMetrics) -> None:
        self._engine = engine
        self._page_bytes = page_bytes
        self._metrics = metrics
        self._under_way: dict[tuple[bytes, int], tuple[int, asyncio.Future[StreamPage | None]]] = {}
        self.tails = TailCache(page_bytes, metrics)
        if engine.sees_all_commits:
            engine.watch_commits(self.tails.committed)

    def row(self, scope: bytes) -> StreamRow | None:
        """The stream as of the last commit, from memory; None if only the store knows it."""
        return self.tails.row(scope) if self._engine.is_settled else None

    def first(self, scope: bytes, offset: Offset | None) -> StreamPage | None:
        """The page at an offset of a client, from memory and as of the last commit; None if the store must be read."""
        row = self.row(scope)
        if row is None or (row.floor and offset is not None):
            return None
        position = row.tail if offset is None else max(0, offset.position)
        is_known = offset in (None, EARLIEST, BEGINNING) or offset.epoch == epoch_at(row, position)
        if position > row.tail or not is_known:
            return None
        return self.hot(scope, position)

    def note(self, page: StreamPage) -> None:
        """A page was read from the store: if it ends at the tail, the next ones come from memory."""
        self._metrics.pages["store"] += 1
        if page.at_tail and self._engine.sees_all_commits:
            self.tails.watch(page.stream)

    async def page(self, scope: bytes, position: int) -> StreamPage | None:
        """The page that begins at a position, read after the last signal before this call."""
        hot = self.hot(scope, position)
        if hot is not None:
            return hot
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
            found = await asyncio.shield(read)
        finally:
            if self._under_way.get(place, (0, None))[1] is read:
                del self._under_way[place]
        if found is not None:
            self.note(found)
        return found

    def hot(self, scope: bytes, position: int) -> StreamPage | None:
        """The page that begins at a position, from memory; None if the store must be read."""
        if self._engine.failure is not None:
            return None
        page = self.tails.page(scope, position)
        self._metrics.pages["memory"] += page is not None
        return page


class StreamEndedError(Exception):
    """The stream was deleted or has expired, or its retention has dropped what the reader is to read next."""


class LiveReader(LogFollower):
    """A live reader; it begins after the last page of the client."""

    def __init__(
        self, context: Context, shared_reads: SharedReads, name: bytes, given: StreamPage, request: Request
    ) -> None:
        self._life = given.stream.id
        request.is_live = True
        super().__init__(context.engine.signals, self._life, context.end_of(caller_of(request), request.credential))
        self._world = context.world
        self._shared_reads = shared_reads
        self._name = name
        self._position = given.end

    async def next(self, seconds: float, take: Callable[[], bool] | None = None) -> StreamPage:
        """The next page with content or closure; an empty one when the time is up or the reader has ended."""
        return await self.follow(self._look, seconds, take)

    def hot_page(self) -> StreamPage | None:
        """The next page, if it is in memory, leads to the tail, and the reader goes on after it."""
        page = self._shared_reads.hot(self._name, self._position)
        if page is None or not page.pieces or page.stream.closed or not page.at_tail:
            return None
        return page if page.stream.id == self._life and self.end.cause is None else None

    def took(self, page: StreamPage) -> None:
        """The client was sent a page of `hot_page`."""
        self._position = page.end

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
SMALL_BYTES = PART_BYTES // 2
"""A page of up to this many bytes is one part of an event, with the brackets and commas of its messages."""

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
        self._last: tuple[tuple[bytes | int, ...], bytes] = ((), b"")
        """The last small page and its text: the readers of a stream are woken one after the other."""

    def small(self, page: StreamPage, cursor: int) -> bytes | None:
        """The content of a small page and its control event in one text; None for a page that is sent in parts."""
        if not is_small(page.end - page.start, SMALL_BYTES):
            return None
        stream = page.stream
        place = (*_place(page), stream.tail, stream.closed, cursor)
        if place == self._last[0]:
            return self._last[1]
        text = control_event(page, cursor)
        if page.pieces:
            text = event_part(content_of(page), stream.content_type, 0) + text
        self._last = (place, text)
        return text

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
