"""Shared reads: one read of the log for all readers at the same offset.

When a thousand readers of one stream are woken by one commit, they need the same read. Its result is shared by the
readers that asked after the same signal: a read that began before a later signal may have missed that signal's commit.
"""

from __future__ import annotations

import asyncio

from semel.contracts.streams.reading import Page, page
from semel.engine.engine import Engine


class SharedLooks:
    """Shared reads in progress, by stream and position."""

    def __init__(self, engine: Engine, page_bytes: int) -> None:
        self._engine = engine
        self._page_bytes = page_bytes
        self._under_way: dict[tuple[bytes, int], tuple[int, asyncio.Future[Page | None]]] = {}

    async def page(self, scope: bytes, position: int) -> Page | None:
        """The page behind a position, as of some instant after this call's last signal."""
        place = (scope, position)
        turn = self._engine.signals.turn
        shared = self._under_way.get(place)
        if shared is not None and shared[0] == turn:
            return await asyncio.shield(shared[1])
        look = asyncio.ensure_future(
            self._engine.read(lambda reading: page(reading, scope, position, self._page_bytes))
        )
        self._under_way[place] = (turn, look)
        try:
            return await asyncio.shield(look)
        finally:
            if self._under_way.get(place, (0, None))[1] is look:
                del self._under_way[place]
