"""Where the retention of a stream cuts: queries of the chore that trims it.

Sizes follow from positions, so a cut by size reads one key. A cut by age searches for the first append that is young
enough, by bisection over positions: it reads a few appends and not all of them.
"""

from __future__ import annotations

from semel.engine.reading import Reading
from semel.store.protocol import Range
from semel.surfaces.streams.commands import Trim
from semel.surfaces.streams.rules.fork_chain import ChainSegment, chain_of
from semel.surfaces.streams.rules.retention import next_look
from semel.surfaces.streams.tables import CHUNK, FORK, STREAM, ChunkRow, RetentionRow, StreamRow


def trim_of(reading: Reading, kept: RetentionRow, rows: int) -> Trim:
    """The next trim of a stream; it frees at most `rows` appends."""
    stream = reading.get(STREAM, (kept.scope,))
    if stream is None or stream.id != kept.id:  # the row of a stream that has just ended
        return Trim(kept.scope, kept.id, 0, 0, (), next_look(kept, reading.now, is_busy=False))
    floor = _cut(reading, stream, kept)
    dropped = Range(CHUNK, "", (stream.id,), rows, start=(kept.freed + 1,), stop=(floor + 1,))
    chunks = () if stream.forks else tuple(reading.keys(dropped))
    freed = floor if len(chunks) < rows else chunks[-1][1]
    due_at = next_look(kept, reading.now, is_busy=bool(chunks) or floor != stream.floor)
    return Trim(kept.scope, kept.id, floor, freed if chunks else kept.freed, chunks, due_at)


def _cut(reading: Reading, stream: StreamRow, kept: RetentionRow) -> int:
    """The new floor: the higher one of the cuts by size and by age."""
    floor = stream.floor or 0
    chain = chain_of(stream, reading.get(FORK, (stream.id,)) if stream.inherited > 0 else None)
    if kept.max_bytes is not None:
        floor = max(floor, _end_before(reading, chain, stream.tail - kept.max_bytes, floor))
    if kept.max_age_ms is not None:
        floor = max(floor, _end_of_old(reading, chain, floor, stream.tail, reading.now.expiry_ms - kept.max_age_ms))
    return floor


def _end_before(reading: Reading, chain: tuple[ChainSegment, ...], position: int, floor: int) -> int:
    """The last end of an append at or before a position; the floor if there is none after it."""
    start = 0
    best = floor
    for segment in chain:
        stop = min(segment.end, position)
        if stop > max(start, best):
            within = Range(CHUNK, "", (segment.id,), 1, start=(start + 1,), stop=(stop + 1,), reverse=True)
            best = next((key[1] for key in reading.keys(within)), best)
        start = segment.end
    return best


def _end_of_old(reading: Reading, chain: tuple[ChainSegment, ...], floor: int, tail: int, before_ms: int) -> int:
    """The end of the last append that was committed before a time; the floor if there is none after it."""
    old, young = floor, tail
    while old < young:
        middle = (old + young) // 2
        chunk = _chunk_after(reading, chain, middle)
        if chunk is None:
            young = middle
        elif chunk.committed_at >= before_ms:
            young = chunk.end_at - len(chunk.data)
        else:
            old = chunk.end_at
    return old


def _chunk_after(reading: Reading, chain: tuple[ChainSegment, ...], position: int) -> ChunkRow | None:
    """The append that holds the byte after a position."""
    for segment in chain:
        if segment.end > position:
            found = reading.range(Range(CHUNK, "", (segment.id,), 1, start=(position + 1,)))
            return next(iter(found), None)
    return None
