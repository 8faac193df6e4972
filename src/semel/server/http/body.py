"""Reads request bodies: each has a size limit, and those that arrive in pieces share a memory budget."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from semel.kernel.errors import Refused
from semel.server.http.answer import CLOSE
from semel.server.http.request import Request
from semel.server.memory_budget import Budget, BudgetShare
from semel.server.thread_pool import COPIED_BYTES, apart

SKIPPED_BYTES = 16 * 1024 * 1024
SKIP_SECONDS = 2.0


class Bodies:
    """Reads bodies. Bodies that arrive in pieces share a memory budget, so that slow uploads cannot fill the memory."""

    def __init__(self, max_bytes: int, together: int | Budget, *, skips: bool = False) -> None:
        """With `skips` the rest of a body that is too large is taken in and thrown away, within bounds."""
        self.max_bytes = max_bytes
        self._skips = skips
        self._together = together if isinstance(together, Budget) else Budget(together, together)

    def whole(self, request: Request) -> bytes | None:
        """The body of a request that has arrived whole, which the request holds no longer; None if it is too large."""
        assert request.is_whole
        body, request.body = request.body, b""
        return body if len(body) <= self.max_bytes else None

    async def read(self, request: Request, sender: Hashable = None) -> bytes | None:
        """The whole body, None when it is larger than the limit; `sender` has a budget of its own.

        A client that waits for `100 Continue` is not told to send what it announces as too large.
        """
        if request.announced > self.max_bytes:
            return None
        if request.is_whole:
            return self.whole(request)
        return await self._read_on(request, self._together.share(sender))

    async def _read_on(self, request: Request, share: BudgetShare) -> bytes | None:
        body = bytearray()  # one that grows: small pieces would each take many times their size
        try:
            while True:
                piece = await request.exchange.read_piece()
                if not piece:
                    return await apart(len(body), bytes, body, most=COPIED_BYTES)
                body += piece
                if len(body) > self.max_bytes:
                    if self._skips:
                        body.clear()
                        await _skip_rest(request)
                    return None
                if not share.resize(len(body)):
                    raise Refused(
                        "OVERLOADED", "Too many uploads are under way; try again in a moment.", headers=(CLOSE,)
                    )
        finally:
            share.close()


async def _skip_rest(request: Request) -> None:
    """Read what is left of a body and throw it away, within bounds.

    A client that sends all before it listens would otherwise be cut off without its answer.
    """
    skipped = 0
    try:
        async with asyncio.timeout(SKIP_SECONDS):
            while skipped <= SKIPPED_BYTES:
                piece = await request.exchange.read_piece()
                if not piece:
                    return
                skipped += len(piece)
    except TimeoutError:
        return
