"""What the tests of every surface do with servers: read all they printed, call them at the same moment, wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tests.nodes import Nodes
from tests.running import RunningServer

T = TypeVar("T")

Servers = RunningServer | Nodes
PATIENCE_SECONDS = 15.0


def log_of(server: Servers) -> str:
    """All that was printed."""
    outputs = server.outputs if isinstance(server, Nodes) else [server.output]
    return "".join(output.read_text(errors="replace") for output in outputs)


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at the same moment, each in a thread of its own; their results in the same order."""
    barrier = threading.Barrier(len(calls))

    def call(function: Callable[[], T]) -> T:
        barrier.wait(PATIENCE_SECONDS)
        return function()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


def eventually(check: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a check holds."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.02)
