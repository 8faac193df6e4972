"""`GET /v1/streams?prefix=&after=&limit=`: pagination over the streams that a caller may read, by name."""

from __future__ import annotations

from urllib.parse import parse_qs

import orjson

from semel.contracts.streams.reading import Span, listing, span_behind, span_of_prefix
from semel.contracts.streams.rules.epochs import offset_at
from semel.contracts.streams.tables import StreamRow
from semel.engine.engine import Engine
from semel.kernel.errors import Refused
from semel.server.principals import Principal

MAX_LISTED = 1_000


async def list_streams(engine: Engine, principal: Principal, query: bytes) -> bytes:
    """One page of the listing, as JSON."""
    asked = parse_qs(query.decode("latin-1"), encoding="utf-8", errors="surrogateescape")
    prefix, after = (asked.get(name, [""])[0].encode("utf-8", "surrogateescape") for name in ("prefix", "after"))
    limit = _limit(asked.get("limit", ["100"])[0])
    spans = _spans(principal, prefix, after)
    rows, last = await engine.read(lambda reading: listing(reading, spans, limit))
    more = None if last is None else last.decode("utf-8", "replace")
    return orjson.dumps({"streams": [_described(row) for row in rows], "after": more})


def _spans(principal: Principal, prefix: bytes, after: bytes) -> list[Span]:
    asked = span_of_prefix(prefix).meet(span_behind(after))
    if asked is None:
        return []
    allowed = [
        span_of_prefix(name) if is_prefix else Span(name, name + b"\x00")
        for name, is_prefix in principal.reach("streams")
    ]
    return [both for span in allowed if (both := span.meet(asked)) is not None]


def _described(row: StreamRow) -> dict[str, object]:
    return {
        "name": row.path.decode("utf-8", "replace"),
        "content_type": row.content_type.decode("latin-1"),
        "next_offset": offset_at(row, row.tail).decode(),
        "closed": bool(row.closed),
        "ttl_seconds": row.ttl_seconds,
        "expires_at": None if row.expires_text is None else row.expires_text.decode("latin-1"),
        "created_ms": row.created_at,
        "updated_ms": row.updated_at,
    }


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MAX_LISTED:
        raise Refused("INVALID_REQUEST", f"limit is a whole number from 1 to {MAX_LISTED}.")
    return int(text)
