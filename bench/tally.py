"""For programs that drive a client library: a count of its calls, and the event loop that they run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

try:
    import uvloop

    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:  # uvloop has no Windows wheels
    new_loop = asyncio.new_event_loop


class Tally:
    """What was counted while the window was open."""

    def __init__(self) -> None:
        self.is_open = False
        self.is_over = False
        self.seconds: list[float] = []
        self.errors = 0

    def count(self, status: bytes, seconds: float) -> None:
        """One answer."""
        if not self.is_open:
            return
        if status[:1] == b"2":
            self.seconds.append(seconds)
        else:
            self.errors += 1

    def figures(self, window: float) -> dict[str, float]:
        """What is printed: answers a second, latencies, and how many were refused."""
        times = sorted(self.seconds) or [0.0]
        return {
            "per_second": len(self.seconds) / window,
            "p50_ms": times[len(times) // 2] * 1_000,
            "p99_ms": times[len(times) * 99 // 100] * 1_000,
            "errors": self.errors,
        }
