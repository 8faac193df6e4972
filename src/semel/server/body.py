"""Request bodies: read under a limit for each body, and a memory budget for all together."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from semel.kernel.errors import Refused
from semel.server.asgi import ANNOUNCED, Header, Receive, Scope
from semel.server.budget import Budget, Share
from semel.server.threads import COPIED_BYTES, apart

CLOSE: Header = (b"connection", b"close")
"""For an answer to a request whose body was not read to its end."""
SKIPPED_BYTES = 16 * 1024 * 1024
SKIP_SECONDS = 2.0


class ClientGoneError(Exception):
    """The client disconnected before its request had arrived: there is no answer to send, and nothing to store."""


class Bodies:
    """Reads bodies. Bodies that arrive in pieces share a memory budget, so that slow uploads cannot fill the memory."""

    def __init__(self, max_bytes: int, together: int | Budget, *, skips: bool = False) -> None:
        """With `skips` the rest of a body that is too large is taken in and thrown away, within bounds."""
        self.max_bytes = max_bytes
        self._skips = skips
        self._together = together if isinstance(together, Budget) else Budget(together, together)

    async def read(self, receive: Receive, scope: Scope, sender: Hashable = None) -> bytes | None:
        """The whole body, None when it is larger than the limit. `sender` counts where each of them has a limit.

        A client that waits for `100 Continue` is not told to send what it announces as too large.
        """
        if scope.get(ANNOUNCED, 0) > self.max_bytes:
            return None
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            return await self._read_on(receive, body, self._together.share(sender))
        return body if len(body) <= self.max_bytes else None

    async def _read_on(self, receive: Receive, first: bytes, share: Share) -> bytes | None:
        body = bytearray(first)  # one that grows: small pieces would each take many times their size
        try:
            while True:
                if not share.resize(len(body)):
                    raise Refused("OVERLOADED", "Too many uploads are under way; try again in a moment.", (CLOSE,))
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                body += message.get("body", b"")
                if len(body) > self.max_bytes:
                    if self._skips and message.get("more_body"):
                        body.clear()
                        await skip_rest(receive)
                    return None
                if not message.get("more_body"):
                    return await apart(len(body), bytes, body, most=COPIED_BYTES)
        finally:
            share.close()


async def skip_rest(receive: Receive) -> None:
    """Read and discard the rest of a body, within limits.

    A client that sends all before it listens would otherwise be cut off without its answer.
    """
    skipped = 0
    try:
        async with asyncio.timeout(SKIP_SECONDS):
            while skipped <= SKIPPED_BYTES:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                skipped += len(message.get("body", b""))
                if not message.get("more_body"):
                    return
    except TimeoutError:
        return
