"""SIGTERM and SIGINT handling in an event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_signals(call: Callable[[], None]) -> Iterator[None]:
    """Call it in the running loop at each of both signals, while the block runs; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    # `signal.signal` and not the loop's own way, which Windows lacks.
    before = {number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(call)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
