"""The thread pool for work that is too long for the event loop.

The rule: no request within the limits holds the event loop for more than 50 ms of CPU. Parsing, deciding and printing
take up to 750 ns a byte, so work on more than `APART_BYTES` goes to one thread pool that all surfaces share. The pool
is small because its threads share the interpreter lock with the loop: each running thread may delay the loop by 5 ms at
a time. Work that waits for a disk or a network does not belong here. Where many small items are processed in sequence,
other tasks run after about the same number of bytes. `docs/internals/architecture.md` explains the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

APART_BYTES = 16 * 1024
"""Work on up to this many bytes runs on the loop: 12 ms at worst, while a handover to a thread takes 0.1 ms."""
COPIED_BYTES = 64 * 1024
"""The same limit for bytes that are only copied, hashed or split, which takes up to 250 ns a byte."""
POOL_THREADS = 2

_pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="semel-apart")


def is_small(size: int, most: int = APART_BYTES) -> bool:
    """Whether work over this many bytes may run on the loop."""
    return size <= most


async def apart(size: int, work: Callable[..., T], *arguments: Any, most: int = APART_BYTES) -> T:
    """Run the work here, or in a thread if it is on more bytes than the loop may process."""
    if is_small(size, most):
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(_pool, work, *arguments)
