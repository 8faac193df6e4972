"""Range scan of the keys of a place in order, at one height, with few statements for thousands of keys.

At the current height the rows of now are all there is to look at. At an older one a key counts that is there now, or
that a later block has replaced or removed. While few blocks stand above that height, they say themselves which keys
these are; else the past is walked through beside the present.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from semel.contracts.ledger.limits import MAX_RECENT_BLOCKS, MAX_RECENT_BYTES
from semel.contracts.ledger.model import Place
from semel.contracts.ledger.rules.encoding import decode_operations, state_keys, subject_of
from semel.contracts.ledger.tables import LEDGER_BLOCK, LEDGER_BODY, LEDGER_ENTITY, LEDGER_PAST, EntityRow, PastRow
from semel.engine.reading import Reading
from semel.store.protocol import AnyTable, Range

CHUNK = 2_048
"""Rows of one statement, after a first one for a page."""
ROUNDS_NOW, ROUNDS_THEN = 8, 3
"""Limit of further reads for a page: one statement each now, three at an older height."""

StateRow = EntityRow | PastRow


class Walk(NamedTuple):
    """A key range: from one key on, up to another (excluded), or to the last if that is empty."""

    place: Place
    start: bytes
    stop: bytes
    height: int
    tip: int
    subject: bytes | None = None
    """Whose relationships are walked over; None for all keys."""

    def range(self, table: AnyTable, start: bytes, limit: int) -> Range:
        """The rows of a table that are on the way."""
        index, prefix = ("", self.place) if self.subject is None else ("subject", (*self.place, self.subject))
        return Range(table, index, tuple(prefix), limit, start=(start,), stop=(self.stop,) if self.stop else ())

    def passes(self, key: bytes) -> bool:
        """Whether a key is on the way."""
        is_between = self.start <= key and (not self.stop or key < self.stop)
        return is_between and self.subject in (None, subject_of(key))


class Stretch(NamedTuple):
    """Consecutive keys, each with its row, if any; and whether there may be more."""

    rows: Sequence[tuple[bytes, StateRow | None]]
    has_more: bool


def stretches(reading: Reading, walk: Walk, size: int) -> Iterator[Stretch]:
    """The keys in stretches: the first about as long as a page, later ones longer."""
    return _now(reading, walk, size) if walk.height == walk.tip else _then(reading, walk, size)


def next_key(key: bytes) -> bytes:
    """The first key behind another."""
    return key + b"\0"


def after_prefix(prefix: bytes) -> bytes:
    """The first key that is greater than all that begin so; empty when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else b""


def _sizes(size: int, rounds: int) -> Iterator[int]:
    yield size + 1
    for _ in range(rounds - 1):
        yield CHUNK


def _now(reading: Reading, walk: Walk, size: int) -> Iterator[Stretch]:
    start = walk.start
    for limit in _sizes(size, ROUNDS_NOW):
        rows: Sequence[EntityRow] = reading.range(walk.range(LEDGER_ENTITY, start, limit))
        has_more = len(rows) == limit
        yield Stretch([(row.key, row) for row in rows], has_more)
        if not has_more:
            return
        start = next_key(rows[-1].key)


def _then(reading: Reading, walk: Walk, size: int) -> Iterator[Stretch]:
    start = walk.start
    changed = _changed(reading, walk)
    for limit in _sizes(size, ROUNDS_THEN):
        rows: Sequence[EntityRow] = reading.range(walk.range(LEDGER_ENTITY, start, limit))
        keys = changed(start, limit)
        ends = [reached[-1] for reached in ([row.key for row in rows], keys) if len(reached) == limit]
        # Where one of both has ended for now, nothing is known of the other's keys behind it.
        end = min(ends, default=None)
        standing = {row.key: row for row in rows if end is None or row.key <= end}
        replaced = [key for key in keys if end is None or key <= end]
        yield Stretch(_seen(reading, walk, standing, replaced), end is not None)
        if end is None:
            return
        start = next_key(end)


def _seen(
    reading: Reading, walk: Walk, standing: dict[bytes, EntityRow], replaced: Sequence[bytes]
) -> list[tuple[bytes, StateRow | None]]:
    """The rows at the height, of keys that exist now and of those that a later block changed."""
    ended = reading.earliest(LEDGER_PAST, [(*walk.place, key) for key in replaced], walk.height + 1) if replaced else {}
    found: list[tuple[bytes, StateRow | None]] = []
    for key in sorted({*standing, *replaced}):
        row = ended.get((*walk.place, key)) or standing.get(key)
        found.append((key, row if row is not None and row.version <= walk.height else None))
    return found


def _changed(reading: Reading, walk: Walk) -> Callable[[bytes, int], Sequence[bytes]]:
    """The keys that blocks above the height have changed, a page from one on; or all that have a past."""
    recent = _recent(reading, walk)
    if recent is None:
        return lambda start, limit: reading.distinct(walk.range(LEDGER_PAST, start, limit))
    return lambda start, limit: [key for key in recent if key >= start][:limit]


def _recent(reading: Reading, walk: Walk) -> list[bytes] | None:
    """The keys of the operations above the height, in order; None when there are too many."""
    if walk.tip - walk.height > MAX_RECENT_BLOCKS:
        return None
    above = Range(LEDGER_BLOCK, "", tuple(walk.place), MAX_RECENT_BLOCKS, (walk.height + 1,), (walk.tip + 1,))
    if sum(block.size for block in reading.range(above)) > MAX_RECENT_BYTES:
        return None
    bodies = reading.range(above._replace(table=LEDGER_BODY))
    keys = {key for body in bodies for key in state_keys(decode_operations(body.operations))}
    return sorted(key for key in keys if walk.passes(key))
