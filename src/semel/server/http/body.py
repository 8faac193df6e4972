"""Reads request bodies: each has a size limit, and bodies that arrive in pieces share a memory budget."""

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
        """With `skips` the rest of a body that is too large is read and discarded, up to a limit."""
        self.max_bytes = max_bytes
        self._skips = skips
        self._together = together if isinstance(together, Budget) else Budget(together, together)

    def whole(self, request: Request) -> bytes | None:
        """The body of a request that has arrived completely; the request releases it. None if it is too large."""
        assert request.is_whole
        body, request.body = request.body, b""
        return body if len(body) <= self.max_bytes else None

    async def read(self, request: Request, sender: Hashable = None) -> bytes | None:
        """The whole body; None if it is larger than the limit. `sender` has its own share of the budget.

        A client that waits for `100 Continue` does not get it for a body that it announces as too large.
        """
        if request.announced > self.max_bytes:
            return None
        if request.is_whole:
            return self.whole(request)
        return await self._read_on(request, self._together.share(sender))

    async def _read_on(self, request: Request, share: BudgetShare) -> bytes | None:
        account = request.exchange.connection.account
        body = bytearray()  # a buffer that grows: a list of small pieces would take many times their size
        try:
            while True:
                piece = await request.exchange.read_piece()
                if not piece:
                    return await apart(len(body), bytes, body, most=COPIED_BYTES)
                body += piece
                if account is not None:
                    account.spend_bytes(len(piece))
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
    """Read the rest of a body and discard it, up to a limit.

    Otherwise a client that sends everything before it reads would lose its answer to a connection reset.
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
