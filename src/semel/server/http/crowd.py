"""Turns of connections that are costly to parse: one of them in a pass of the event loop, whatever their number.

A slice of tiny chunks takes milliseconds. A hundred connections that send nothing else would take a hundred slices in
each pass of the loop, and everyone else would wait for all of them. In the crowd they wait for one another instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Crowd:
    """Runs callbacks in the order in which they came, one in a pass of the loop. Used on the event loop only."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, callback: Callable[[], None]) -> None:
        """Call it in its turn."""
        self._waiting.append(callback)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        callback = self._waiting[0]
        try:
            callback()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._take_turn)
