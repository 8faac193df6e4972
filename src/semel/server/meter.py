"""Counters by name, of the last minute and since the start, for metrics by the minute.

Everything is counted when it happens and summed when it is read, so there is no task behind it, and a name costs
sixty numbers. Names are constants of the code and never come from a client. All counts are 0 after a start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from semel.kernel.minute import Minute

MAX_NAMES = 1_000


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
            assert len(self._minutes) < MAX_NAMES, "a name that is no constant"
            minute = self._minutes[name] = Minute()
        minute.add(self._monotonic_ms(), count)

    def last_minute(self, name: str) -> int:
        """How many happened in the last 60 seconds, in steps of one."""
        minute = self._minutes.get(name)
        return 0 if minute is None else minute.total(self._monotonic_ms())
