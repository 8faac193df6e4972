"""Reading request bodies: bounded each, and bounded together."""

from __future__ import annotations

from semel.kernel.errors import Refused
from semel.server.asgi import Header, Receive

CLOSE: Header = (b"connection", b"close")
"""For an answer to a request whose body was not read to its end."""


class ClientGoneError(Exception):
    """The client went away before its request had arrived: there is nobody to answer, and nothing to store."""


class Bodies:
    """Reads bodies. Those that come in pieces share a budget, so that many slow uploads cannot fill the memory."""

    def __init__(self, max_bytes: int, together_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._together_bytes = together_bytes
        self._held = 0

    async def read(self, receive: Receive) -> bytes | None:
        """The whole body, None when it is larger than the limit."""
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            return await self._read_on(receive, body)
        return body if len(body) <= self.max_bytes else None

    async def _read_on(self, receive: Receive, first: bytes) -> bytes | None:
        pieces = [first]
        size = len(first)
        self._held += size
        try:
            while True:
                if self._held > self._together_bytes:
                    raise Refused("OVERLOADED", "Too many uploads are under way; try again in a moment.", (CLOSE,))
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                piece = message.get("body", b"")
                pieces.append(piece)
                size += len(piece)
                self._held += len(piece)
                if size > self.max_bytes:
                    return None
                if not message.get("more_body"):
                    return b"".join(pieces)
        finally:
            self._held -= size
