"""An ordered scan of the keys of a place as of one height, with a few statements for thousands of keys.

At the current height only the current rows are read. At an older height a key counts that exists now, or that a later
block has replaced or removed. While there are few blocks above that height, their operations name these keys; otherwise
the scan also reads the table of past rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.store.protocol import AnyTable, Range
from semel.surfaces.ledger.limits import MAX_RECENT_BLOCKS, MAX_RECENT_BYTES
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.reading import operations_of
from semel.surfaces.ledger.rules.chain import decode_operations, state_keys, subject_of
from semel.surfaces.ledger.tables import LEDGER_BLOCK, LEDGER_ENTITY, LEDGER_PAST, BlockRow, EntityRow, PastRow

CHUNK = 2_048
"""Rows of one statement, after a first statement for a page."""
ROUNDS_NOW, ROUNDS_THEN = 8, 3
"""Limit of further reads for a page: each is one statement at the current height, three at an older height."""

StateRow = EntityRow | PastRow


class KeyScan(NamedTuple):
    """A key range at a height: `start` is included, `stop` is excluded; an empty `stop` is no upper bound."""

    place: LedgerPlace
    start: bytes
    stop: bytes
    height: int
    tip: int
    subject: bytes | None = None
    """The subject whose relationships are scanned; None for all keys."""

    def range(self, table: AnyTable, start: bytes, limit: int) -> Range:
        """The range of a table that this scan reads."""
        index, prefix = ("", self.place) if self.subject is None else ("subject", (*self.place, self.subject))
        return Range(table, index, tuple(prefix), limit, start=(start,), stop=(self.stop,) if self.stop else ())

    def passes(self, key: bytes) -> bool:
        """Whether a key belongs to the scan."""
        is_between = self.start <= key and (not self.stop or key < self.stop)
        return is_between and self.subject in (None, subject_of(key))


class ScanChunk(NamedTuple):
    """Consecutive keys, each with its row or None; and whether more keys may follow."""

    rows: Sequence[tuple[bytes, StateRow | None]]
    has_more: bool


def scan_chunks(reading: Reading, walk: KeyScan, size: int) -> Iterator[ScanChunk]:
    """The keys in chunks: the first is about as long as a page, later ones are longer."""
    return _now(reading, walk, size) if walk.height == walk.tip else _then(reading, walk, size)


def next_key(key: bytes) -> bytes:
    """The first key after another."""
    return key + b"\0"


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all keys with a prefix; empty if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


def _sizes(size: int, rounds: int) -> Iterator[int]:
    yield size + 1
    for _ in range(rounds - 1):
        yield CHUNK


def _now(reading: Reading, walk: KeyScan, size: int) -> Iterator[ScanChunk]:
    start = walk.start
    for limit in _sizes(size, ROUNDS_NOW):
        rows: Sequence[EntityRow] = reading.range(walk.range(LEDGER_ENTITY, start, limit))
        has_more = len(rows) == limit
        yield ScanChunk([(row.key, row) for row in rows], has_more)
        if not has_more:
            return
        start = next_key(rows[-1].key)


def _then(reading: Reading, walk: KeyScan, size: int) -> Iterator[ScanChunk]:
    start = walk.start
    changed = _changed(reading, walk)
    for limit in _sizes(size, ROUNDS_THEN):
        rows: Sequence[EntityRow] = reading.range(walk.range(LEDGER_ENTITY, start, limit))
        keys = changed(start, limit)
        ends = [reached[-1] for reached in ([row.key for row in rows], keys) if len(reached) == limit]
        # A read that reached its limit is complete only up to its last key, so both count up to the lowest such key.
        end = min(ends, default=None)
        standing = {row.key: row for row in rows if end is None or row.key <= end}
        replaced = [key for key in keys if end is None or key <= end]
        yield ScanChunk(_seen(reading, walk, standing, replaced), end is not None)
        if end is None:
            return
        start = next_key(end)


def _seen(
    reading: Reading, walk: KeyScan, standing: dict[bytes, EntityRow], replaced: Sequence[bytes]
) -> list[tuple[bytes, StateRow | None]]:
    """The rows at the height, for keys that exist now and for keys that a later block changed."""
    ended = reading.earliest(LEDGER_PAST, [(*walk.place, key) for key in replaced], walk.height + 1) if replaced else {}
    found: list[tuple[bytes, StateRow | None]] = []
    for key in sorted({*standing, *replaced}):
        row = ended.get((*walk.place, key)) or standing.get(key)
        found.append((key, row if row is not None and row.version <= walk.height else None))
    return found


def _changed(reading: Reading, walk: KeyScan) -> Callable[[bytes, int], Sequence[bytes]]:
    """Pages of the keys that blocks above the height changed; if there are many, of all keys with past rows."""
    recent = _recent(reading, walk)
    if recent is None:
        return lambda start, limit: reading.distinct(walk.range(LEDGER_PAST, start, limit))
    return lambda start, limit: [key for key in recent if key >= start][:limit]


def _recent(reading: Reading, walk: KeyScan) -> list[bytes] | None:
    """The keys of the operations above the height, sorted; None if there are too many blocks or bytes."""
    if walk.tip - walk.height > MAX_RECENT_BLOCKS:
        return None
    above = Range(LEDGER_BLOCK, "", tuple(walk.place), MAX_RECENT_BLOCKS, (walk.height + 1,), (walk.tip + 1,))
    blocks: Sequence[BlockRow] = reading.range(above)
    if sum(block.size for block in blocks) > MAX_RECENT_BYTES:
        return None
    kept = operations_of(reading, blocks)
    keys = {key for encoded in kept.values() for key in state_keys(decode_operations(encoded))}
    return sorted(key for key in keys if walk.passes(key))
