"""Queries over a stream: content from an offset, in one snapshot, in limited pages (pagination)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.store.protocol import Range
from semel.surfaces.streams.rules.expiry import living, missing
from semel.surfaces.streams.rules.fork_chain import chain_of, segments_from
from semel.surfaces.streams.rules.media_type import is_json
from semel.surfaces.streams.rules.offsets import Offset, position_of
from semel.surfaces.streams.tables import (
    CHUNK,
    FORK,
    PRODUCER,
    RECEIPT,
    RETENTION,
    STREAM,
    ProducerRow,
    ReceiptRow,
    RetentionRow,
    StreamRow,
)

PAGE_SEGMENTS = 64
"""Limit on the streams from which one page of a fork is read."""
PAGE_APPENDS = 16_384
"""Limit on the appends of one page: reading them takes up to about 5 ms."""


class StreamPage(NamedTuple):
    """Content from `start` to `end`; both are positions."""

    stream: StreamRow
    start: int
    end: int
    pieces: tuple[bytes, ...]
    """The content in order; `separator` belongs between two pieces."""

    @property
    def at_tail(self) -> bool:
        """Whether the page ends at the tail of the stream in its snapshot."""
        return self.end >= self.stream.tail

    @property
    def is_final(self) -> bool:
        """Whether the stream will never have more content."""
        return self.at_tail and bool(self.stream.closed)


def separator(content_type: bytes) -> bytes:
    """The bytes between two appends in the content of a page."""
    return b"," if is_json(content_type) else b""


def find(reading: Reading, scope: bytes) -> StreamRow | None:
    """The stream of that name; None if there is none or it has expired."""
    return living(reading.get(STREAM, (scope,)), reading.now)


def found(reading: Reading, scope: bytes) -> StreamRow:
    """The stream of that name; `Refused` if there is none, or if it is gone and only its forks can be read."""
    known = reading.get(STREAM, (scope,))
    stream = living(known, reading.now)
    if stream is None:
        raise Refused.of(missing(known))
    return stream


class StreamState(NamedTuple):
    """A stream, its retention, and what it remembers of a key and of a producer."""

    stream: StreamRow
    receipt: ReceiptRow | None = None
    producer: ProducerRow | None = None
    retention: RetentionRow | None = None


def state(reading: Reading, scope: bytes, key: bytes | None = None, producer: bytes | None = None) -> StreamState:
    """A stream with its retention, the live receipt of a key and the state of a producer; `Refused` if there is no such
    stream.
    """
    stream = found(reading, scope)
    receipt = None if key is None else reading.get(RECEIPT, (scope, key))
    if receipt is not None and (receipt.id != stream.id or reading.now.expiry_ms >= receipt.expires_at):
        receipt = None
    known = None if producer is None else reading.get(PRODUCER, (scope, producer))
    producer_row = known if known is not None and known.id == stream.id else None
    retention = None if stream.floor is None else reading.get(RETENTION, (scope,))
    return StreamState(stream, receipt, producer_row, retention)


def page(reading: Reading, scope: bytes, position: int, page_bytes: int) -> StreamPage | None:
    """The page that begins at a position; None if there is no such stream, or retention has dropped the position."""
    stream = find(reading, scope)
    if stream is None or position < (stream.floor or 0):
        return None
    return _page(reading, stream, position, page_bytes)


def first_page(reading: Reading, scope: bytes, offset: Offset | None, page_bytes: int) -> StreamPage:
    """The page that begins at an offset from a client (None: at the tail).

    `Refused` if there is no such stream, or its content at the offset was lost by a restore or dropped by retention.
    """
    stream = found(reading, scope)
    position = stream.tail if offset is None else position_of(reading, stream, offset, reading.now.wall_ms)
    return _page(reading, stream, position, page_bytes)


def _page(reading: Reading, stream: StreamRow, position: int, page_bytes: int) -> StreamPage:
    """The content of a page: of the stream itself, and before that of the streams that a fork has inherited from."""
    if position >= stream.tail:
        return StreamPage(stream, stream.tail, stream.tail, ())
    if position >= stream.inherited:
        piece, end = _joined(reading, stream, stream.id, position, min(position + page_bytes, stream.tail))
        return StreamPage(stream, position, end, (piece,))
    segments = segments_from(chain_of(stream, reading.get(FORK, (stream.id,))), position)
    pieces: list[bytes] = []
    end, last = position, min(position + page_bytes, stream.tail)
    for segment in segments[:PAGE_SEGMENTS]:
        piece, reached = _joined(reading, stream, segment.id, end, min(segment.end, last), needed=not pieces)
        if reached > end:
            pieces.append(piece)
            end = reached
        if end < segment.end:
            break  # the page is full
    return StreamPage(stream, position, end, tuple(pieces))


def _joined(
    reading: Reading, stream: StreamRow, life: bytes, start: int, last: int, *, needed: bool = True
) -> tuple[bytes, int]:
    """The appends of one stream between two positions, and the end of the last one.

    One query for many appends: sizes follow from positions alone, so only content that is sent is read. If the first
    append is larger than that, it is read by itself if it is `needed`.
    """
    within = Range(CHUNK, "", (life,), PAGE_APPENDS, start=(start + 1,), stop=(last + 1,))
    found = reading.joined(within, "data", separator(stream.content_type))
    if found is not None:
        return found.data, found.last
    if not needed:
        return b"", start
    [large] = reading.range(within._replace(limit=1, stop=()))
    return large.data, large.end_at


class NameRange(NamedTuple):
    """Names from `start` (inclusive) to `stop` (exclusive; None is the end)."""

    start: bytes
    stop: bytes | None

    def meet(self, other: NameRange) -> NameRange | None:
        """The names in both ranges; None if there are none."""
        start = max(self.start, other.start)
        stops = [stop for stop in (self.stop, other.stop) if stop is not None]
        stop = min(stops, default=None)
        return None if stop is not None and stop <= start else NameRange(start, stop)


def names_with_prefix(prefix: bytes) -> NameRange:
    """All names with a prefix."""
    kept = prefix.rstrip(b"\xff")
    return NameRange(prefix, kept[:-1] + bytes([kept[-1] + 1]) if kept else None)


def names_after(name: bytes) -> NameRange:
    """All names after a name; all names if it is empty."""
    return NameRange(name + b"\x00" if name else b"", None)


def listing(reading: Reading, spans: Sequence[NameRange], limit: int) -> tuple[list[StreamRow], bytes | None]:
    """Streams in these ranges that have not expired, by name, and the name to continue from while there may be more.

    Only names in the ranges are read: the name to continue from reveals no stream outside of them.
    """
    rows: dict[bytes, StreamRow] = {}
    for span in sorted(spans, key=lambda one: one.start):
        stop = () if span.stop is None else (span.stop,)
        found = reading.range(Range(STREAM, "path", (), limit, start=(span.start,), stop=stop))
        rows.update((row.path, row) for row in found)
    first = [rows[path] for path in sorted(rows)[:limit]]
    seen = [row for row in first if living(row, reading.now) is not None]
    return seen, first[-1].path if len(first) == limit else None
