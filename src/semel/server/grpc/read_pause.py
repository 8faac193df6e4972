"""The pause of a connection whose client sends more calls than its quota allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ReadPause:
    """A connection is not read for a while, and its calls wait in the network."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listen: Callable[[], None]) -> None:
        self._loop = loop
        self._listen = listen
        self.is_on = False

    def begin(self, seconds: float) -> None:
        """Read nothing for this time."""
        if not self.is_on:
            self.is_on = True
            self._loop.call_later(seconds, self._end)

    def _end(self) -> None:
        self.is_on = False
        self._listen()
