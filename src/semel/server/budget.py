"""Memory budget: a limit of bytes or slots for all holders together, and one for each holder.

A client that reads or sends slowly holds its share for long. Without the limit for each holder a few of those could
hold everything, and all other clients would be refused.
"""

from __future__ import annotations

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

    def share(self, holder: Hashable) -> Share:
        """An empty share for a holder."""
        return Share(self, holder)

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


class Share:
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
