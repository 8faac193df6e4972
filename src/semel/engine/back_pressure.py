"""Back pressure: how much of the engine's queue each principal holds, so that no principal can fill it alone.

A principal may hold at most a share of the waiting writes and of their bytes; a write beyond it is refused and nothing
is stored. Writes without a principal (chores of the server, callers in development mode) are bounded by the queue
alone. There is one entry for each principal with a waiting write, so memory is bounded by the queue. Used on the event
loop only; a crash loses the counts together with the queue.
"""

from __future__ import annotations

from collections.abc import Callable

from semel.engine.contract import OverloadedError

NO_PRINCIPAL = ""
"""The principal of a write that counts towards no share."""


class ShareFullError(OverloadedError):
    """The caller holds its whole share of the queue."""


class InFlightError(OverloadedError):
    """The caller has as many waiting writes as its quota allows."""


class QueueShare:
    """Counts the waiting writes and bytes of each principal."""

    def __init__(self, max_writes: int, max_bytes: int) -> None:
        self._max_writes = max(1, max_writes)
        self._max_bytes = max_bytes
        self._held: dict[str, tuple[int, int]] = {}
        self.limit_of: Callable[[str], int] | None = None
        """The most waiting writes of a principal, 0 for no limit; None if no principal has a limit of its own."""

    def change(self, max_writes: int, max_bytes: int) -> None:
        """Set other limits; what waits stays."""
        self._max_writes = max(1, max_writes)
        self._max_bytes = max_bytes

    def has_room(self, principal: str, size: int) -> bool:
        """Whether one more write of this principal fits into its share; a first write always does."""
        writes, held = self._held.get(principal, (0, 0))
        return writes == 0 or (writes < self._max_writes and held + size <= self._max_bytes)

    def refusal(self, principal: str, size: int) -> OverloadedError | None:
        """Why one more write of this principal is not admitted; None if it is."""
        if not self.has_room(principal, size):
            return ShareFullError("Too many writes of this caller are waiting; nothing was stored.")
        if self.limit_of is not None:
            most = self.limit_of(principal)
            if most and self._held.get(principal, (0, 0))[0] >= most:
                return InFlightError("Too many writes of this caller are in flight; nothing was stored.")
        return None

    def add(self, principal: str, size: int) -> None:
        """Count a write of this principal that is waiting now."""
        if principal != NO_PRINCIPAL:
            writes, held = self._held.get(principal, (0, 0))
            self._held[principal] = writes + 1, held + size

    def remove(self, principal: str, size: int) -> None:
        """Remove a write of this principal that was decided or has failed."""
        if principal == NO_PRINCIPAL:
            return
        writes, held = self._held[principal]
        if writes == 1:
            del self._held[principal]
        else:
            self._held[principal] = writes - 1, held - size

    def __len__(self) -> int:
        return len(self._held)
