"""Which snapshots are open, so that an index entry is removed only when none of them can still see its row."""

from __future__ import annotations

import threading
from collections import Counter


class SnapshotEpochs:
    """Counts open snapshots by epoch; a commit that removes rows begins a new epoch.

    A snapshot enters before it begins to read. One that enters after `begin` therefore sees that commit; the others
    may not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self._open: Counter[int] = Counter()

    def enter(self) -> int:
        """A snapshot is about to begin; returns its epoch."""
        with self._lock:
            self._open[self._now] += 1
            return self._now

    def leave(self, epoch: int) -> None:
        """A snapshot has ended."""
        with self._lock:
            self._open[epoch] -= 1
            if not self._open[epoch]:
                del self._open[epoch]

    def begin(self) -> int:
        """Begin a new epoch, after a commit; returns it."""
        with self._lock:
            self._now += 1
            return self._now

    def is_past(self, epoch: int) -> bool:
        """Whether no snapshot of an epoch before this one is open."""
        with self._lock:
            return not self._open or min(self._open) >= epoch
