"""Reading a stream: what stands from a position on, as of one instant, in pages of bounded size."""

from __future__ import annotations

from typing import NamedTuple

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
    if stream is None:
        return None
    if position is None or position >= stream.tail:
        return Page(stream, stream.tail, stream.tail, ())
    end = _page_end(reading, stream, position, page_bytes)
    wanted = Range(CHUNK, "", (stream.id,), PAGE_ROWS, start=(position + 1,), stop=(end + 1,))
    rows: list[ChunkRow] = list(reading.range(wanted))
    return Page(stream, position, end, tuple(row.data for row in rows))


def _page_end(reading: Reading, stream: StreamRow, position: int, page_bytes: int) -> int:
    """Where to stop: sizes are known from positions alone, so no more is loaded than is sent."""
    keys = reading.keys(Range(CHUNK, "", (stream.id,), PAGE_ROWS, start=(position + 1,)))
    end: int = keys[0][1]
    for _, candidate in keys:
        if candidate - position > page_bytes:
            break
        end = candidate
    return end


def listing(reading: Reading, prefix: bytes, after: bytes, limit: int) -> tuple[list[StreamRow], bytes | None]:
    """Living streams in the order of their names, and the name to go on from while there may be more."""
    start = max(prefix, after + b"\x00" if after else b"")
    end = _after_prefix(prefix)
    rows = reading.range(Range(STREAM, "path", (), limit, start=(start,), stop=() if end is None else (end,)))
    seen = [row for row in rows if living(row, reading.now) is not None]
    return seen, rows[-1].path if len(rows) == limit else None


def _after_prefix(prefix: bytes) -> bytes | None:
    """The first name behind all that begin with the prefix; None when there can be none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
