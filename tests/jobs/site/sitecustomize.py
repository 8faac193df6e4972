"""What may befall a server process from its first moment: a clock that is ahead, and a death that waits for its order.

Python imports a module of this name before anything else runs, if its folder is on PYTHONPATH. CLOCK_AHEAD_SECONDS
moves the wall clock, and only that; monotonic time stays real. CRASH_FILE names a file: once it is there, the process
dies at the point of the commit path that it names. So a start, which commits things of its own, is survived.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_ahead_seconds = int(os.environ.get("CLOCK_AHEAD_SECONDS", "0"))
_crash_file = os.environ.get("CRASH_FILE", "")

if _ahead_seconds:
    _real, _real_ns = time.time, time.time_ns

    def _time() -> float:
        return _real() + _ahead_seconds

    def _time_ns() -> int:
        return _real_ns() + _ahead_seconds * 1_000_000_000

    time.time, time.time_ns = _time, _time_ns

if _crash_file:
    from semel.engine import crash_point

    def _crash_at(point: str, one_in: int, seed: int | None = None) -> Callable[[str], None]:
        order = Path(_crash_file)

        def reach(passed: str) -> None:
            if not order.exists():
                return
            with suppress(FileNotFoundError):  # taken back meanwhile: two nodes look at one file
                if order.read_text() == passed:
                    os.kill(os.getpid(), signal.SIGKILL)

        return reach

    crash_point.crash_at = _crash_at
