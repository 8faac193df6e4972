"""Counts of events by name: of the last minute, and since the start.

Events are counted when they happen and summed when the metrics are read, so no background task is needed. The count of
the last minute slides in steps of one second and takes sixty numbers for each name. Names are constants of the code and
never come from a client. All counts are 0 after a start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

MINUTE_SECONDS = 60


class Minute:
    """Counts by the second. Times are in milliseconds of any clock, and are passed with each call.

    A time less than a minute before the latest one is counted in its own second. A time a minute or more before it
    means that the clock was set back: the count restarts there, because it would stand still otherwise.
    """

    __slots__ = ("_counts", "_latest")

    def __init__(self) -> None:
        self._counts = [0] * MINUTE_SECONDS
        self._latest = 0

    def add(self, now_ms: int, count: int = 1) -> None:
        """Count `count` more now."""
        second = self._reach(now_ms)
        self._counts[second % MINUTE_SECONDS] += count

    def total(self, now_ms: int) -> int:
        """The count of this second and the 59 before it."""
        self._reach(now_ms)
        return sum(self._counts)

    def _reach(self, now_ms: int) -> int:
        """Drop counts that are a minute old; returns the second of this time."""
        second = now_ms // 1_000
        ahead = second - self._latest
        if abs(ahead) >= MINUTE_SECONDS:
            self._counts = [0] * MINUTE_SECONDS
        else:
            for passed in range(self._latest + 1, second + 1):
                self._counts[passed % MINUTE_SECONDS] = 0
        if ahead > 0 or ahead <= -MINUTE_SECONDS:
            self._latest = second
        return second


MAX_METER_NAMES = 1_000


class Meter:
    """Counters of one process; used on the event loop only."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self.totals: Counter[str] = Counter()
        self._monotonic_ms = monotonic_ms
        self._minutes: dict[str, Minute] = {}

    def add(self, name: str, count: int = 1) -> None:
        """Count `count` more of these now."""
        self.totals[name] += count
        minute = self._minutes.get(name)
        if minute is None:
            assert len(self._minutes) < MAX_METER_NAMES, "the name of a counter must be a constant"
            minute = self._minutes[name] = Minute()
        minute.add(self._monotonic_ms(), count)

    def last_minute(self, name: str) -> int:
        """The count of the last 60 seconds, in steps of one second."""
        minute = self._minutes.get(name)
        return 0 if minute is None else minute.total(self._monotonic_ms())
