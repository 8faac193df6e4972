"""The time of decisions, where the database has no clock of its own: it never falls, and expires nothing in a jump.

A clock that jumps more than a minute ahead, as after a wrong date, expires no receipt and ends no lease until it has
kept the jump for ten minutes. It has the rules of the server's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from semel.kernel.clock import ClockPace, advance, start

NEAR_MS = 1_000
"""Readings that are closer than this are not compared: they cannot be a jump."""

Clock = Callable[[], float]
"""Seconds since 1970. If it has a method `monotonic`, that is the clock beside which a jump is seen."""


class OnceClock:
    """The time of one process."""

    def __init__(self, clock: Clock = time.time, monotonic: Clock | None = None) -> None:
        self._clock = clock
        own: Clock = getattr(clock, "monotonic", time.monotonic)
        self._monotonic = monotonic or own
        self._pace: ClockPace | None = None
        self._last_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since 1970, for comparisons with stored times."""
        wall_ms, monotonic_ms, pace = int(self._clock() * 1_000), int(self._monotonic() * 1_000), self._pace
        # Without a lock: of two threads that read the same pace either may store the next one, and both are true.
        if (
            pace is None
            or pace.jumped_at is not None
            or not 0 <= wall_ms - pace.wall_ms < NEAR_MS
            or monotonic_ms - pace.monotonic_ms >= NEAR_MS
        ):
            self._pace = pace = advance(pace or start(wall_ms, monotonic_ms), wall_ms, monotonic_ms)
            wall_ms = pace.expiry_ms
        self._last_ms = last_ms = max(wall_ms, self._last_ms)
        return last_ms
