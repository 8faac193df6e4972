"""A cache of server-sent event (SSE) frames, rendered once for all readers of a page.

The frame of a page is made in parts. The last parts are kept, up to CACHE_BYTES, for readers that come to them after
the first; a part that was dropped is made again. Readers of one page share its content while one of them is there.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from weakref import WeakValueDictionary

from semel.contracts.streams.reading import Page
from semel.contracts.streams.wire.responses import content_of
from semel.contracts.streams.wire.sse import event_part, parts_of
from semel.server.threads import COPIED_BYTES, apart, is_small

CACHE_BYTES = 8 * 1024 * 1024

_Place = tuple[bytes, int, int]
"""A life and two positions: the content between them never changes."""


class PageFrame:
    """The data event of a page, before it is rendered."""

    __slots__ = ("__weakref__", "content", "content_type", "parts", "place")

    def __init__(self, page: Page) -> None:
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

    async def frame(self, page: Page) -> PageFrame:
        """The frame of a page; that of another reader, if there is one."""
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


def _place(page: Page) -> _Place:
    return page.stream.id, page.start, page.end
