"""A clock inside of a server process that tells for how long its event loop was held.

Python imports a module of this name before anything else runs, if its folder is on PYTHONPATH. LOOP_FILE names a file
of two numbers: the most CPU time in nanoseconds that the loop's thread took between two ticks of the clock, and the
number of ticks. The clock ticks every millisecond when the loop is free, so one hold lies between two ticks.
Once a file of this name with `.hold` behind it is there, the loop is held for 100 ms, to prove that the clock sees it.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import time
from pathlib import Path

from semel.server.http.server import HttpHost

TICK_SECONDS = 0.001
NUMBERS = struct.Struct("qq")
PLANTED_NS = 100_000_000

_planted = Path(os.environ["LOOP_FILE"] + ".hold")
_watch = HttpHost.watch


class _Clock:
    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), NUMBERS.size)
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time_ns()

    def tick(self) -> None:
        now = time.thread_time_ns()
        longest, ticks = NUMBERS.unpack_from(self._shared)
        NUMBERS.pack_into(self._shared, 0, max(longest, now - self._last), ticks + 1)
        self._last = now
        self._loop.call_later(TICK_SECONDS, self.tick)
        if _planted.exists():
            _planted.unlink()
            self._hold()

    def _hold(self) -> None:
        end = time.thread_time_ns() + PLANTED_NS
        while time.thread_time_ns() < end:
            pass


async def _with_clock(self: HttpHost) -> None:
    _Clock(os.environ["LOOP_FILE"]).tick()
    await _watch(self)


HttpHost.watch = _with_clock  # type: ignore[method-assign]
