"""The system clocks and the operating system's randomness."""

from __future__ import annotations

import os
import time


class SystemWorld:
    """Implements `kernel.world.World`."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds that never fall."""
        return time.monotonic_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """Unguessable bytes."""
        return os.urandom(count)
