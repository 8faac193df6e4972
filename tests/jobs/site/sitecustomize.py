"""A wall clock that is ahead, for a server process from its first moment.

Python imports a module of this name before anything else runs, if its folder is on PYTHONPATH. CLOCK_AHEAD_SECONDS
moves the wall clock, and only that; monotonic time stays real.
"""

from __future__ import annotations

import os
import time

_ahead_seconds = int(os.environ.get("CLOCK_AHEAD_SECONDS", "0"))

if _ahead_seconds:
    _real, _real_ns = time.time, time.time_ns

    def _time() -> float:
        return _real() + _ahead_seconds

    def _time_ns() -> int:
        return _real_ns() + _ahead_seconds * 1_000_000_000

    time.time, time.time_ns = _time, _time_ns
