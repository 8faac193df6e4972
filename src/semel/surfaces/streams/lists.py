"""Lists of streams, in limited pages (pagination): streams by name with their forks, and the producers of one stream.

A page names no stream beyond the reach of its caller, and so does the place to continue from. Forks have no index of
their own: the forks of one stream are found among the streams by name, `SCANNED` names a page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import parse_qs

import orjson

from semel.engine.engine import Engine
from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.kernel.keys import pack, unpack
from semel.server.auth.principals import Principal, Role
from semel.store.protocol import Range
from semel.surfaces.streams.reading import NameRange, found, listing, names_after, names_with_prefix
from semel.surfaces.streams.rules.offsets import offset_at
from semel.surfaces.streams.tables import FORK, PRODUCER, ForkRow, ProducerRow, StreamRow

SURFACE = "streams"
MAX_LISTED = 1_000
SCANNED = 1_000
"""Names that one page of the forks of a stream looks at."""


class ListQuery(NamedTuple):
    """The query of a list."""

    values: Mapping[str, Sequence[str]]

    def raw(self, name: str) -> bytes:
        """A parameter as bytes; empty if it is absent."""
        return self.values.get(name, [""])[0].encode("utf-8", "surrogateescape")

    @property
    def limit(self) -> int:
        """The greatest number of items; 100 if absent."""
        text = self.values.get("limit", ["100"])[0]
        if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= MAX_LISTED:
            raise Refused("INVALID_REQUEST", f"limit must be a whole number from 1 to {MAX_LISTED}.")
        return int(text)


def list_query(query: bytes) -> ListQuery:
    """Parse the query of a list."""
    return ListQuery(parse_qs(query.decode("latin-1"), encoding="utf-8", errors="surrogateescape"))


class ListedStream(NamedTuple):
    """A stream of a page; and its fork row, if it is a fork."""

    row: StreamRow
    fork: ForkRow | None


async def list_streams(engine: Engine, principal: Principal, query: ListQuery) -> bytes:
    """One page of the streams, as JSON; with `source`, of the forks of that stream alone."""
    spans, limit = _readable_names(principal, query.raw("prefix"), query.raw("after")), query.limit
    source = query.raw("source")
    if source:
        _check_readable(principal, source)
        look = partial(_forks_of, scope=pack(source), spans=spans)
    else:
        look = partial(_with_forks, spans=spans, limit=limit)
    streams, last = await engine.read(look)
    more = None if last is None else last.decode("utf-8", "replace")
    return orjson.dumps({"streams": [_listed(one, principal) for one in streams], "after": more})


def _with_forks(
    reading: Reading, spans: Sequence[NameRange], limit: int
) -> tuple[Sequence[ListedStream], bytes | None]:
    rows, last = listing(reading, spans, limit)
    forks = reading.find(FORK, [(row.id,) for row in rows if row.inherited >= 0])
    return [ListedStream(row, forks.get((row.id,))) for row in rows], last


def _forks_of(
    reading: Reading, scope: bytes, spans: Sequence[NameRange]
) -> tuple[Sequence[ListedStream], bytes | None]:
    """The forks of a stream among the next names. A page may be empty while there are more names."""
    source = found(reading, scope)
    if not source.forks:
        return [], None
    seen, last = _with_forks(reading, spans, SCANNED)
    return [one for one in seen if one.fork is not None and one.fork.source_id == source.id], last


def _readable_names(principal: Principal, prefix: bytes, after: bytes) -> list[NameRange]:
    asked = names_with_prefix(prefix).meet(names_after(after))
    if asked is None:
        return []
    allowed = [
        names_with_prefix(name) if is_prefix else NameRange(name, name + b"\x00")
        for name, is_prefix in principal.reach(SURFACE)
    ]
    return [both for span in allowed if (both := span.meet(asked)) is not None]


def _check_readable(principal: Principal, name: bytes) -> None:
    if not principal.may(Role.READ, SURFACE, name):
        raise Refused("FORBIDDEN", "This credential may not read this stream.")


def _listed(one: ListedStream, principal: Principal) -> dict[str, object]:
    row = one.row
    return {
        "name": row.path.decode("utf-8", "replace"),
        "content_type": row.content_type.decode("latin-1"),
        "next_offset": offset_at(row, row.tail).decode(),
        "closed": bool(row.closed),
        "ttl_seconds": row.ttl_seconds,
        "expires_at": None if row.expires_text is None else row.expires_text.decode("latin-1"),
        "created_ms": row.created_at,
        "updated_ms": row.updated_at,
        "forks": row.forks,
        "forked_from": None if one.fork is None else _origin(row, one.fork, principal),
    }


def _origin(row: StreamRow, fork: ForkRow, principal: Principal) -> dict[str, object]:
    """Where a fork began; without the name of a source that the caller may not read."""
    is_known = principal.may(Role.READ, SURFACE, fork.source_path)
    return {
        "name": fork.source_path.decode("utf-8", "replace") if is_known else None,
        "offset": offset_at(row, fork.position).decode(),
        "sub_offset": fork.sub_offset,
    }


async def list_producers(engine: Engine, principal: Principal, query: ListQuery) -> bytes:
    """One page of the producers of a stream, as JSON, in stored order."""
    raw, limit = query.raw("stream"), query.limit
    if not raw:
        raise Refused("INVALID_REQUEST", "stream must be the name of a stream.")
    _check_readable(principal, raw)
    try:
        after = bytes.fromhex(query.raw("after").decode("latin-1"))
    except ValueError:
        raise Refused("INVALID_REQUEST", "after must be the after of the page before.") from None
    rows = await engine.read(partial(_producers, scope=pack(raw), after=after, limit=limit))
    more = rows[-1].producer.hex() if len(rows) == limit else None
    return orjson.dumps({"producers": [_produced(row) for row in rows], "after": more})


def _producers(reading: Reading, scope: bytes, after: bytes, limit: int) -> Sequence[ProducerRow]:
    """By the life of the stream: producers of an earlier stream of the name are not seen."""
    stream = found(reading, scope)
    start = (scope, after + b"\x00") if after else ()
    rows: Sequence[ProducerRow] = reading.range(Range(PRODUCER, "life", (stream.id,), limit, start=start))
    return rows


def _produced(row: ProducerRow) -> dict[str, object]:
    """A producer; its id is None if it is so long that only its hash is stored."""
    name = unpack(row.producer)
    return {
        "id": None if name is None else name.decode("utf-8", "replace"),
        "key": row.producer.hex(),
        "epoch": row.epoch,
        "seq": row.seq,
    }
