"""Call order: calls keep the order in which they arrived, although some of them are decoded in a thread.

A client may send the sequences 1, 2, 3 without waiting for answers. If 1 is large and is read in a thread, 2 and 3 must
not reach the engine before it: they would be refused as a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from semel.server.threads import APART_BYTES, apart

T = TypeVar("T")


class Turns:
    """The call order of one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last: asyncio.Future[None] | None = None

    async def read(self, size: int, work: Callable[[], T]) -> T:
        """Do the work on `size` bytes and return the results in the order of the calls.

        The next result is returned only after the caller of this one has first waited for something: by then it has
        been admitted.
        """
        before = self._last
        if before is None and size <= APART_BYTES:
            return work()
        mine = self._last = self._loop.create_future()
        try:
            result = await apart(size, work)
            if before is not None:
                await asyncio.wait([before])  # which, unlike a plain await, leaves it alone when this call is cancelled
            return result
        finally:
            if before is None:
                self._loop.call_soon(self._pass_on, mine)
            else:
                before.add_done_callback(lambda _: self._pass_on(mine))

    def _pass_on(self, mine: asyncio.Future[None]) -> None:
        mine.set_result(None)
        if self._last is mine:
            self._last = None
