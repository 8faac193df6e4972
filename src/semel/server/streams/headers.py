"""Headers that every streams answer carries, and the CORS preflight."""

from __future__ import annotations

from semel.server.asgi import SECURITY, Header

METHODS = b"GET, POST, PUT, DELETE, HEAD, OPTIONS"
ALLOW: Header = (b"allow", METHODS)

_REQUEST_HEADERS = (
    b"content-type, authorization, if-none-match, stream-ttl, stream-expires-at, stream-seq, stream-closed, "
    b"stream-forked-from, stream-fork-offset, stream-fork-sub-offset, producer-id, producer-epoch, producer-seq, "
    b"idempotency-key"
)
_RESPONSE_HEADERS = (
    b"stream-next-offset, stream-up-to-date, stream-cursor, stream-closed, stream-ttl, stream-expires-at, "
    b"stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq, "
    b"idempotency-replayed, etag, location, content-type, content-encoding, vary, retry-after, x-request-id"
)

STATIC: tuple[Header, ...] = (
    *SECURITY,
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", _RESPONSE_HEADERS),
)

PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", METHODS),
    (b"access-control-allow-headers", _REQUEST_HEADERS),
    (b"access-control-max-age", b"86400"),
)
