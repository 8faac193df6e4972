"""What may run on the event loop, and where everything else runs.

The law: no request within the limits holds the loop for more than 50 ms of CPU. Parsing, hashing and rendering take up
to 500 ns a byte, so what has more than `APART_BYTES` goes to one pool of threads, whichever surface it belongs to. The
pool is small because its threads share the interpreter with the loop: each that runs may keep the loop waiting for 5 ms
at a time. Work that waits for a disk or a network does not belong here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

APART_BYTES = 64 * 1024
"""What is made of up to this many bytes is made on the loop: handing it over would take longer."""
POOL_THREADS = 2

_pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="semel-apart")


def is_small(size: int) -> bool:
    """Whether work over this many bytes may run on the loop."""
    return size <= APART_BYTES


async def apart(size: int, work: Callable[..., T], *arguments: Any) -> T:
    """Do it here, or in a thread if it is over more bytes than the loop may be held for."""
    if is_small(size):
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_pool, work, *arguments)
