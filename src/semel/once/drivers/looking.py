"""A bound of the connections of asynchronous witnesses: each look connects anew, because a pool has one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from semel.once.errors import StoreBusy
from semel.once.table import PATIENCE_SECONDS

LOOKS = 8
"""Maximum looks at once in an event loop, and so maximum connections."""
_free: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
"""Of the event loops in which a look is under way: a semaphore that had to wait keeps its loop."""
_looking: Counter[asyncio.AbstractEventLoop] = Counter()


@asynccontextmanager
async def connection_for_look() -> AsyncIterator[None]:
    """Wait until a look may connect; raise `StoreBusy` after `PATIENCE_SECONDS`."""
    loop = asyncio.get_running_loop()
    free = _free.setdefault(loop, asyncio.Semaphore(LOOKS))
    _looking[loop] += 1
    try:
        async with _bounded(free):
            yield
    finally:
        _looking[loop] -= 1
        if not _looking[loop]:
            del _looking[loop], _free[loop]


@asynccontextmanager
async def _bounded(free: asyncio.Semaphore) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await free.acquire()
    except TimeoutError:
        raise StoreBusy("The receipt cannot be read: all connections for looks were in use.") from None
    try:
        yield
    finally:
        free.release()
