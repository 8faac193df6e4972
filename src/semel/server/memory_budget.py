"""Memory: budgets of bytes or places that holders share, and the return of freed blocks to the system.

A budget is bounded in all, and bounded for each holder. A client that reads or sends slowly holds what it was given for
long. Without the second bound a few such clients could hold everything, and all others would be refused meanwhile.

glibc maps large blocks one by one and gives them back, but each that is freed raises its threshold of what is large:
after one body of 16 MB, others of that size are cut out of heaps, one a thread, which keep what was freed. With a fixed
threshold the process is about as large as what it holds.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Hashable
from threading import Lock


class Budget:
    """A limit for all holders and for each holder; thread-safe."""

    def __init__(self, most: int, each: int) -> None:
        self.most = most
        self.each = min(each, most)
        """The limit of one holder."""
        self._lock = Lock()
        self._held = 0
        self._by_holder: Counter[Hashable] = Counter()

    @property
    def held(self) -> int:
        """How much is held now."""
        return self._held

    def has_room(self, holder: Hashable) -> bool:
        """Whether the holder can hold anything more."""
        return self._held < self.most and self._by_holder[holder] < self.each

    def share(self, holder: Hashable) -> BudgetShare:
        """An empty share for a holder."""
        return BudgetShare(self, holder)

    def move(self, holder: Hashable, change: int) -> bool:
        """Give the holder `change` more, if there is room, or take some back."""
        with self._lock:
            mine = self._by_holder[holder] + change
            if change > 0 and (self._held + change > self.most or mine > self.each):
                return False
            self._held += change
            if mine:
                self._by_holder[holder] = mine
            else:
                del self._by_holder[holder]
            return True


class BudgetShare:
    """What one holder holds for one purpose."""

    def __init__(self, budget: Budget, holder: Hashable) -> None:
        self._budget = budget
        self._holder = holder
        self.size = 0

    @property
    def most(self) -> int:
        """The most that it could be, if no other share held anything."""
        return self._budget.each

    @property
    def has_room(self) -> bool:
        """Whether there is anything left to grow by."""
        return self._budget.has_room(self._holder)

    def resize(self, size: int) -> bool:
        """Hold `size` from now on; False when there is no room for it, and then nothing changes."""
        if not self._budget.move(self._holder, size - self.size):
            return False
        self.size = size
        return True

    def close(self) -> None:
        """Let go of all of it."""
        self.resize(0)


MAPPED_BYTES = 256 * 1024
"""A block of this size is mapped by itself: at least as long as a page of a table or a piece of a text."""
TRIMMED_BYTES = 1024 * 1024
"""Free memory at the end of a heap that is kept for later allocations, in bytes."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def return_large_blocks() -> bool:
    """Ask for that, where the C library is glibc; whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, TRIMMED_BYTES))
