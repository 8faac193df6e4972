"""Answers to HTTP requests: complete, or with a body that is produced piece by piece.

A surface returns a value; the host renders it. Constant header lines are rendered once, as a block of bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, Protocol

from semel.kernel.http_answer import Answer, Header

__all__ = [
    "CLOSE",
    "JSON",
    "NO_STORE",
    "SECURITY",
    "Answer",
    "BodyWriter",
    "ClientGoneError",
    "Header",
    "StreamedAnswer",
    "header_block",
]

JSON: Header = (b"content-type", b"application/json")
NO_STORE: Header = (b"cache-control", b"no-store")
CLOSE: Header = (b"connection", b"close")
"""For an answer to a request whose body was not read to its end."""

SECURITY: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-site"),
    (b"vary", b"Origin"),
    (b"content-security-policy", b"sandbox"),
)
"""Headers of every answer: a browser that shows stored content runs no script in it and gives it a separate origin; no
page of another site may embed it; caches vary by Origin, because the CORS headers depend on it.
"""


class ClientGoneError(Exception):
    """The client closed the connection: no answer can be sent, and an incomplete body is not stored."""


class BodyWriter(Protocol):
    """Sends the body of a streamed answer."""

    async def write(self, piece: bytes) -> None:
        """Send a piece; waits while the client does not keep up, and raises `ClientGoneError` once it has disconnected.

        An empty piece sends nothing: it only waits.
        """

    def offer(self, piece: bytes) -> bool:
        """Send a piece at once; false, and nothing is sent, if the client does not keep up or has disconnected."""


def nothing_held() -> None:
    """The default of `close`: do nothing."""


class StreamedAnswer(NamedTuple):
    """An answer of unknown length: the head is sent at once, then `produce` writes the body; it is not called for HEAD.

    With a `content-length` among the headers the answer has a known length and is not chunked.
    """

    headers: list[Header]
    produce: Callable[[BodyWriter], Awaitable[None]]
    close: Callable[[], None] = nothing_held
    """Called once, after the answer was sent or if it will not be sent: releases its resources."""
    status: int = 200


def header_block(headers: Iterable[Header]) -> bytes:
    """Header lines as bytes, each with its line end."""
    return b"".join(b"%b: %b\r\n" % header for header in headers)
