"""Crash points: named points of the commit path at which a crash test kills the process with SIGKILL."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

POINTS = ("gathered", "locked", "loaded", "decided", "flushed", "committed", "answered")


def crash_at(point: str, one_in: int, seed: int | None = None) -> Callable[[str], None]:
    """A function that kills this process at the point, on average once in `one_in` passes."""
    if point not in POINTS:
        raise ValueError(f"there is no crash point {point!r}; there are {', '.join(POINTS)}")
    chance = random.Random(seed)  # noqa: S311 - not a secret

    def reach(passed: str) -> None:
        if passed == point and chance.randrange(one_in) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return reach
