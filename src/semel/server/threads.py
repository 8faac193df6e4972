"""Thread pool for CPU work: what may run on the event loop, and where everything else runs.

The law: no request within the limits holds the loop for more than 50 ms of CPU. To parse, judge and print takes up to
750 ns a byte, so what has more than `APART_BYTES` goes to one pool of threads, whichever surface it belongs to. The
pool is small because its threads share the interpreter with the loop: each that runs may keep the loop waiting for 5 ms
at a time. Work that waits for a disk or a network does not belong here. Where many small things are done one behind the
other, others have a turn after about as many bytes. `docs/internals/loop-law.md` has the rules in words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

APART_BYTES = 16 * 1024
"""Work on up to this many bytes runs on the loop: 12 ms at worst, while a handover takes 0.1 ms."""
COPIED_BYTES = 64 * 1024
"""The same where bytes are only copied, hashed or cut, which takes up to 250 ns a byte."""
POOL_THREADS = 2

_pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="semel-apart")


def is_small(size: int, most: int = APART_BYTES) -> bool:
    """Whether work over this many bytes may run on the loop."""
    return size <= most


async def apart(size: int, work: Callable[..., T], *arguments: Any, most: int = APART_BYTES) -> T:
    """Do it here, or in a thread if it is over more bytes than the loop may be held for."""
    if is_small(size, most):
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_pool, work, *arguments)
