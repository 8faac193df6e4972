"""The clocks of a process: the operating system's, and the decision clock, which never falls and expires no row in a
jump.
"""

from __future__ import annotations

import os
import threading
import time

from semel.engine.group_commit import Observer
from semel.kernel.clock import ClockPace, Now, World, advance, now_of, start


class DecisionClock:
    """The decision clock of a process; thread-safe."""

    def __init__(self, world: World, observer: Observer, *, is_shared: bool = False) -> None:
        self._guard = threading.Lock()
        self._world = world
        self._observer = observer
        self._is_shared = is_shared
        self._pace: ClockPace | None = None

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock, to measure durations."""
        return self._world.monotonic_ms()

    def now(self, store_ms: int) -> Now:
        """The time of a decision, from a reading of the store's clock."""
        with self._guard:
            monotonic_ms = self._world.monotonic_ms()
            before = self._pace or start(store_ms, monotonic_ms)
            after = self._pace = advance(before, store_ms, monotonic_ms)
            if after.jumped_at is not None and before.jumped_at is None:
                self._observer.clock_jump(after.ms - after.expiry_ms)
            return now_of(after, is_shared=self._is_shared)


class SystemWorld:
    """The clocks and randomness of the operating system; implements `kernel.clock.World`."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds that never fall."""
        return time.monotonic_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """Unguessable bytes."""
        return os.urandom(count)
