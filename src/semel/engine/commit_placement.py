"""Decides whether the event loop waits for a COMMIT, or a thread does.

On a fast disk the loop's own thread commits: handing the COMMIT to a thread and back costs more CPU time than the sync
takes. On a slow disk reads would wait for each sync, so the COMMIT alone moves to a thread; nothing else writes
meanwhile.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from statistics import median

SLOW_SECONDS = 0.001
"""If the median COMMIT on the loop takes longer, COMMIT moves to a thread."""
FAST_SECONDS = 0.0007
"""If the median COMMIT in a thread takes less, COMMIT moves back to the loop."""
REMEMBERED = 32
"""The number of recent COMMITs in the median."""
LOOK_EVERY = 8


class CommitThread(Enum):
    """Where COMMIT runs on a store that the event loop writes to."""

    AUTO = "auto"
    """Chosen by the median duration of COMMIT."""
    ALWAYS = "always"
    NEVER = "never"


class CommitPlacement:
    """The present place of COMMIT. Used on the event loop only."""

    def __init__(self, wanted: CommitThread) -> None:
        self._wanted = wanted
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._unlooked = 0
        self.is_apart = wanted is CommitThread.ALWAYS
        """Whether the next COMMIT runs in a thread."""

    def took(self, seconds: float) -> None:
        """Record the duration of a COMMIT, and move COMMIT if needed."""
        self._seconds.append(seconds)
        self._unlooked += 1
        if self._unlooked >= LOOK_EVERY and self._wanted is CommitThread.AUTO:
            self._unlooked = 0
            self.is_apart = median(self._seconds) > (FAST_SECONDS if self.is_apart else SLOW_SECONDS)
