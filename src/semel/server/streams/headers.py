"""Headers of every answer of streams."""

from __future__ import annotations

from semel.server.http.answer import SECURITY, Header, header_block

METHODS = b"GET, POST, PUT, DELETE, HEAD, OPTIONS"
ALLOW: Header = (b"allow", METHODS)

_RESPONSE_HEADERS = (
    b"stream-next-offset, stream-up-to-date, stream-cursor, stream-closed, stream-ttl, stream-expires-at, "
    b"stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq, "
    b"idempotency-replayed, etag, location, content-type, content-encoding, vary, retry-after, x-request-id"
)

COMMON = header_block((*SECURITY, (b"access-control-expose-headers", _RESPONSE_HEADERS)))
