"""A death that waits for its order, and that one process dies of: whoever takes the order first.

Python imports a module of this name before anything else runs, if its folder is on PYTHONPATH. CRASH_FILE names a file:
once it is there, the process that comes to the point of the commit path in it takes the file away, and dies. So a
start, which commits things of its own, is survived, and of several nodes all but one live on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from semel.engine import crash_point

_order = Path(os.environ["CRASH_FILE"])


def _crash_at(point: str, one_in: int, seed: int | None = None) -> Callable[[str], None]:
    def reach(passed: str) -> None:
        with suppress(FileNotFoundError):  # there is no order, or another process was quicker to take it
            if _order.read_text() == passed:
                _order.rename(_order.with_suffix(".taken"))
                os.kill(os.getpid(), signal.SIGKILL)

    return reach


crash_point.crash_at = _crash_at
