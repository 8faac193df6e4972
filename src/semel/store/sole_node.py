"""What a store answers about other nodes if only one process can open it."""

from __future__ import annotations

from collections.abc import Callable

from semel.store.protocol import Hear, StoreHealth
from semel.store.usage import StoreUsage


class SoleNode:
    """Cluster methods of a store that only one process can open: there are no other nodes."""

    is_away = False
    is_shared = False

    def follow(self, hear: Hear) -> None:
        """Does nothing: no other process commits."""

    def leads(self) -> bool:
        """Always true: there is no other node."""
        return True

    def era(self) -> bytes:
        """Empty: every start begins a new history."""
        return b""

    def checkpoint_beside(self) -> Callable[[], None] | None:
        """None: there is nothing to checkpoint."""
        return None

    def is_tidy_long(self) -> bool:
        """Never: there is little to do."""
        return False

    def health(self) -> StoreHealth:
        """Nothing to tell: the clock is that of this machine, and there is no standby."""
        return StoreHealth()

    def usage(self) -> StoreUsage:
        """Nothing is known."""
        return StoreUsage()
