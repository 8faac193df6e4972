"""Which web pages may call deltas: the headers that a browser asks for, by the origin of the page."""

from __future__ import annotations

from collections.abc import Collection

from semel.server.asgi import Header

_ORIGIN = b"access-control-allow-origin"
_VARY: Header = (b"vary", b"Origin")
_SHARED: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, POST, DELETE, OPTIONS"),
    (b"access-control-allow-headers", b"Authorization, Content-Type"),
    (b"access-control-expose-headers", b"API-Version, Retry-After, X-Checkpoint-Hlc, X-Request-Id"),
    (b"access-control-max-age", b"86400"),
)


class Cors:
    """Any origin, or those of a list; a page of another one gets no headers, and its browser keeps the answer back.

    A list with `*` in it is any.
    """

    def __init__(self, origins: Collection[str] = ()) -> None:
        self._origins = frozenset(origin.rstrip("/").encode() for origin in origins if "*" not in origins)

    def headers(self, origin: bytes | None) -> tuple[Header, ...]:
        """For an answer to a page of this origin; None is no page at all."""
        if self._origins:
            return (_VARY, (_ORIGIN, origin), *_SHARED) if origin in self._origins and origin is not None else (_VARY,)
        return ((_ORIGIN, b"*"), *_SHARED) if origin is None else (_VARY, (_ORIGIN, origin), *_SHARED)

    def admits(self, origin: bytes | None) -> bool:
        """Whether a page of this origin may open a WebSocket, which no browser would keep from it."""
        return not self._origins or origin is None or origin in self._origins
