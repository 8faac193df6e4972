"""Back pressure: how much of the engine's queue each principal holds, so that no principal can fill it alone.

A principal may hold at most a share of the waiting writes and of their bytes; a write beyond it is refused and nothing
is stored. Writes without a principal (chores of the server, callers in development mode) are bounded by the queue
alone. There is one entry for each principal with a waiting write, so memory is bounded by the queue. Used on the event
loop only; a crash loses the counts together with the queue.
"""

from __future__ import annotations

NO_PRINCIPAL = ""
"""The principal of a write that counts towards no share."""


class QueueShare:
    """Counts the waiting writes and bytes of each principal."""

    def __init__(self, max_writes: int, max_bytes: int) -> None:
        self._max_writes = max(1, max_writes)
        self._max_bytes = max_bytes
        self._held: dict[str, tuple[int, int]] = {}

    def has_room(self, principal: str, size: int) -> bool:
        """Whether one more write of this principal fits into its share; a first write always does."""
        writes, held = self._held.get(principal, (0, 0))
        return writes == 0 or (writes < self._max_writes and held + size <= self._max_bytes)

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
