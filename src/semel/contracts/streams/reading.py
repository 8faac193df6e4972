"""Queries over a stream: content from an offset on, at one instant, in limited pages (pagination)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.contracts.streams.offsets import Offset
from semel.contracts.streams.rules.epochs import position_of
from semel.contracts.streams.rules.life import living
from semel.contracts.streams.tables import CHUNK, STREAM, ChunkRow, StreamRow
from semel.engine.reading import Reading
from semel.store.protocol import Range

PAGE_ROWS = 4_096


class Page(NamedTuple):
    """Content from `start` to `end`; both are positions."""

    stream: StreamRow
    start: int
    end: int
    pieces: tuple[bytes, ...]

    @property
    def at_tail(self) -> bool:
        """Whether there was nothing more at that instant."""
        return self.end >= self.stream.tail

    @property
    def is_final(self) -> bool:
        """Whether there will never be more."""
        return self.at_tail and bool(self.stream.closed)


def find(reading: Reading, scope: bytes) -> StreamRow | None:
    """The living stream of that name."""
    return living(reading.get(STREAM, (scope,)), reading.now)


def page(reading: Reading, scope: bytes, position: int | None, page_bytes: int) -> Page | None:
    """The page that begins at a position (None: at the tail); None when there is no such stream."""
    stream = find(reading, scope)
    return None if stream is None else _page(reading, stream, position, page_bytes)


def first_page(reading: Reading, scope: bytes, offset: Offset | None, page_bytes: int) -> Page | None:
    """The page that begins at an offset of a client; `Refused` when a restore has lost what the offset is of."""
    stream = find(reading, scope)
    if stream is None:
        return None
    position = None if offset is None else position_of(reading, stream, offset, reading.now.wall_ms)
    return _page(reading, stream, position, page_bytes)


def _page(reading: Reading, stream: StreamRow, position: int | None, page_bytes: int) -> Page:
    if position is None or position >= stream.tail:
        return Page(stream, stream.tail, stream.tail, ())
    end = _page_end(reading, stream, position, page_bytes)
    wanted = Range(CHUNK, "", (stream.id,), PAGE_ROWS, start=(position + 1,), stop=(end + 1,))
    rows: list[ChunkRow] = list(reading.range(wanted))
    return Page(stream, position, end, tuple(row.data for row in rows))


def _page_end(reading: Reading, stream: StreamRow, position: int, page_bytes: int) -> int:
    """The end of a page: sizes are known from positions alone, so no more is loaded than is sent."""
    keys = reading.keys(Range(CHUNK, "", (stream.id,), PAGE_ROWS, start=(position + 1,)))
    end: int = keys[0][1]
    for _, candidate in keys:
        if candidate - position > page_bytes:
            break
        end = candidate
    return end


class Span(NamedTuple):
    """Names from `start` (included) to `stop` (left out; None is the end)."""

    start: bytes
    stop: bytes | None

    def meet(self, other: Span) -> Span | None:
        """The names in both."""
        start = max(self.start, other.start)
        stops = [stop for stop in (self.stop, other.stop) if stop is not None]
        stop = min(stops, default=None)
        return None if stop is not None and stop <= start else Span(start, stop)


def span_of_prefix(prefix: bytes) -> Span:
    """All names that begin so."""
    kept = prefix.rstrip(b"\xff")
    return Span(prefix, kept[:-1] + bytes([kept[-1] + 1]) if kept else None)


def span_behind(name: bytes) -> Span:
    """All names behind one; all names behind none."""
    return Span(name + b"\x00" if name else b"", None)


def listing(reading: Reading, spans: Sequence[Span], limit: int) -> tuple[list[StreamRow], bytes | None]:
    """Living streams in these spans, by name, and the name to go on from while there may be more.

    Only the names in the spans are looked at: the name to go on from reveals no stream beyond their reach.
    """
    rows: dict[bytes, StreamRow] = {}
    for span in sorted(spans, key=lambda one: one.start):
        stop = () if span.stop is None else (span.stop,)
        found = reading.range(Range(STREAM, "path", (), limit, start=(span.start,), stop=stop))
        rows.update((row.path, row) for row in found)
    first = [rows[path] for path in sorted(rows)[:limit]]
    seen = [row for row in first if living(row, reading.now) is not None]
    return seen, first[-1].path if len(first) == limit else None
