"""What a resolver makes of a request with certain headers."""

from __future__ import annotations

from semel.kernel.header_fields import HeaderFields
from semel.server.auth.principals import Principal, Principals, presented


def sent_with(known: Principals, authorization: bytes | None, now_ms: int) -> Principal:
    """The caller behind an Authorization header."""
    pairs = [] if authorization is None else [(b"authorization", authorization)]
    return known.judge(presented(HeaderFields(pairs)), now_ms).principal
