"""The clock of a process: the time of the store, monotonic, and guarded against jumps that would expire data."""

from __future__ import annotations

import threading

from semel.engine.observer import Observer
from semel.kernel.clock import Now, Pace, advance, now_of, start
from semel.kernel.world import World


class Timekeeper:
    """The clock of a process; thread-safe."""

    def __init__(self, world: World, observer: Observer, *, is_shared: bool = False) -> None:
        self._guard = threading.Lock()
        self._world = world
        self._observer = observer
        self._is_shared = is_shared
        self._pace: Pace | None = None

    def monotonic_ms(self) -> int:
        """For how long something takes."""
        return self._world.monotonic_ms()

    def now(self, store_ms: int) -> Now:
        """The time of a decision, from the store's clock."""
        with self._guard:
            monotonic_ms = self._world.monotonic_ms()
            before = self._pace or start(store_ms, monotonic_ms)
            after = self._pace = advance(before, store_ms, monotonic_ms)
            if after.jumped_at is not None and before.jumped_at is None:
                self._observer.clock_jump(after.ms - after.expiry_ms)
            return now_of(after, is_shared=self._is_shared)
