"""A sliding count of the last minute, in steps of a second, in the space of sixty numbers."""

from __future__ import annotations

SECONDS = 60


class Minute:
    """Counts by the second; times are in milliseconds, from any clock, and are given with each call.

    A time somewhat before the latest one is counted where it belongs. One that lies a minute or more before it means
    that the clock was set back: the count begins anew there, because it would stand still otherwise.
    """

    __slots__ = ("_counts", "_latest")

    def __init__(self) -> None:
        self._counts = [0] * SECONDS
        self._latest = 0

    def add(self, now_ms: int, count: int = 1) -> None:
        """Count `count` more now."""
        second = self._reach(now_ms)
        self._counts[second % SECONDS] += count

    def total(self, now_ms: int) -> int:
        """How many happened in this second and the 59 before it."""
        self._reach(now_ms)
        return sum(self._counts)

    def _reach(self, now_ms: int) -> int:
        """Forget what is a minute old by now; the second of this time."""
        second = now_ms // 1_000
        ahead = second - self._latest
        if abs(ahead) >= SECONDS:
            self._counts = [0] * SECONDS
        else:
            for passed in range(self._latest + 1, second + 1):
                self._counts[passed % SECONDS] = 0
        if ahead > 0 or ahead <= -SECONDS:
            self._latest = second
        return second
