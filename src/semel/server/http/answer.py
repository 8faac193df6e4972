"""Answers to HTTP requests: a whole one, or one whose body is produced piece by piece.

A surface returns a value; the host renders it. Header lines that never change are rendered once, as a block of bytes.
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
"""On every answer of this server: a browser that shows stored content runs nothing of it, and gives it no origin that
could reach the rest; no page of another site may embed it, and who may read it depends on the origin."""


class ClientGoneError(Exception):
    """The client closed the connection: no answer can be sent, and a body that has not arrived is not stored."""


class BodyWriter(Protocol):
    """Sends the body of a streamed answer."""

    async def write(self, piece: bytes) -> None:
        """Send a piece; waits first while the client does not keep up, and raises `ClientGoneError` once it has gone.

        An empty piece sends nothing: it only waits.
        """


def nothing_held() -> None:
    """An answer that holds nothing has nothing to let go."""


class StreamedAnswer(NamedTuple):
    """An answer of unknown length: the head leaves at once, then `produce` writes the body; not called for HEAD.

    A `content-length` among the headers makes it an answer of known length, which is not chunked.
    """

    headers: list[Header]
    produce: Callable[[BodyWriter], Awaitable[None]]
    close: Callable[[], None] = nothing_held
    """Called once when the answer was sent, or will not be: lets go of what it holds."""
    status: int = 200


def header_block(headers: Iterable[Header]) -> bytes:
    """Header lines as they stand in an answer, each with its end of line."""
    return b"".join(b"%b: %b\r\n" % header for header in headers)
