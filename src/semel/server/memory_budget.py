"""Memory: budgets of bytes or slots that holders share, and the return of freed memory to the system.

A budget has a limit for all holders together and one for each holder. A client that reads or sends slowly holds its
share for long. Without the second limit a few such clients could hold the whole budget, and all others would be refused
meanwhile.

glibc maps large blocks one by one and returns them to the system, but each freed block raises its threshold for large
blocks: after one body of 16 MB, others of that size are taken from heaps, one for each thread, which keep freed memory.
With a fixed threshold the process takes about as much memory as it uses.
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
        """The amount held now."""
        return self._held

    def has_room(self, holder: Hashable) -> bool:
        """Whether the holder can hold more."""
        return self._held < self.most and self._by_holder[holder] < self.each

    def share(self, holder: Hashable) -> BudgetShare:
        """An empty share for a holder."""
        return BudgetShare(self, holder)

    def move(self, holder: Hashable, change: int) -> bool:
        """Add `change` to the amount of the holder if there is room; a negative change always succeeds."""
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
    """The amount that one holder holds for one purpose."""

    def __init__(self, budget: Budget, holder: Hashable) -> None:
        self._budget = budget
        self._holder = holder
        self.size = 0

    @property
    def most(self) -> int:
        """The largest amount that would be possible if no other share held anything."""
        return self._budget.each

    @property
    def has_room(self) -> bool:
        """Whether the share can grow."""
        return self._budget.has_room(self._holder)

    def resize(self, size: int) -> bool:
        """Set the amount to `size`; False if there is no room, and then nothing changes."""
        if not self._budget.move(self._holder, size - self.size):
            return False
        self.size = size
        return True

    def close(self) -> None:
        """Release the whole amount."""
        self.resize(0)


MAPPED_BYTES = 256 * 1024
"""Blocks of this many bytes or more are mapped one by one: at least the size of a page of a table or a piece of
a text.
"""
TRIMMED_BYTES = 1024 * 1024
"""Free memory at the end of a heap that is kept for later allocations, in bytes."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def return_large_blocks() -> bool:
    """Set fixed thresholds, if the C library is glibc; returns whether it was done."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    return bool(mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)) and bool(mallopt(_TRIM_THRESHOLD, TRIMMED_BYTES))
