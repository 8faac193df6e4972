"""What a resolver makes of a request with certain headers."""

from __future__ import annotations

from semel.contracts.fields import Fields
from semel.server.principals import Principal, Principals, presented


def sent_with(known: Principals, authorization: bytes | None, now_ms: int) -> Principal:
    """The caller behind an Authorization header."""
    pairs = [] if authorization is None else [(b"authorization", authorization)]
    return known.judge(presented(Fields(pairs)), now_ms).principal
