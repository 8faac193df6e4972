"""One look at the store for all readers that stand at the same place.

When a thousand readers of one log are woken by one commit, they ask the same question. The answer may be shared by
those who asked after the same signal: a look that began before a later signal may have missed what that signal spoke
of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from semel.engine.engine import Engine
from semel.engine.reading import Reading

T = TypeVar("T")


class SharedLooks(Generic[T]):
    """Looks under way, by place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._under_way: dict[Hashable, tuple[int, asyncio.Future[T]]] = {}

    async def look(self, place: Hashable, look: Callable[[Reading], T]) -> T:
        """What is seen from a place, as of some instant after this call's last signal."""
        turn = self._engine.signals.turn
        shared = self._under_way.get(place)
        if shared is not None and shared[0] == turn:
            return await asyncio.shield(shared[1])
        task = asyncio.ensure_future(self._engine.read(look))
        self._under_way[place] = (turn, task)
        try:
            return await asyncio.shield(task)
        finally:
            if self._under_way.get(place, (0, None))[1] is task:
                del self._under_way[place]
