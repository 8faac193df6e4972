"""ASGI types and helpers: the part of ASGI that is used here, and how an answer is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

SECURITY: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-site"),
    (b"vary", b"Origin"),
    (b"content-security-policy", b"sandbox"),
)
"""On every answer of this server, whatever it is: a browser that shows stored content runs nothing of it, and gives it
no origin that could reach the rest; no page of another site may embed it, and who may read it depends."""

REVOCATION = "semel.revocation"
"""In the scope of a request whose credential was judged: its `Revocation`, or None if it cannot be revoked."""

ANNOUNCED = "semel.announced_bytes"
"""In the scope of a request that waits for `100 Continue`: the length of the body that it would send."""


async def respond(send: Send, status: int, headers: Sequence[Header], body: bytes | None) -> None:
    """Send one whole answer; None for the answer to a HEAD, which has no length of its own."""
    if body is not None and status not in (204, 304):
        headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body or b""})
