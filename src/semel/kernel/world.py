"""The interface to clocks and randomness, passed in so that a run replays from a seed."""

from __future__ import annotations

from typing import Protocol


class World(Protocol):
    """Clocks and randomness. The real one is the operating system's; a simulation brings its own."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never fall, from an arbitrary start."""

    def random_bytes(self, count: int) -> bytes:
        """Unguessable bytes."""
