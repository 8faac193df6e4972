"""A gateway read from one snapshot, page by page, so that its size does not matter."""

from __future__ import annotations

from collections.abc import Iterator

from semel.contracts.deltas.reading import LoggedDelta, MergedRow, delta_log, merged_rows
from semel.engine.reading import Reading
from semel.store.table import Key

FIRST, MOST = 32, 256
PAGE_BYTES = 4 * 1024 * 1024
"""About what one page holds: rows may be large, and how large is seen only afterwards."""


class Pace:
    """How many to ask for next, from what the last page held."""

    def __init__(self) -> None:
        self.limit = FIRST

    def note(self, count: int, size: int) -> None:
        """Note that a page had `count` entries, of `size` bytes together."""
        wanted = PAGE_BYTES * count // max(size, 1)
        self.limit = max(1, min(wanted, 2 * self.limit, MOST))


def rows_of(reading: Reading, gateway: str, table: str | None) -> Iterator[MergedRow]:
    """Merged rows in the order of their tables, those that are gone too; of one table, or of all."""
    pace = Pace()
    after: Key | None = None if table is None else (table.encode(), b"")
    while True:
        rows, after = merged_rows(reading, gateway, after, pace.limit)
        for row in rows:
            if table is not None and row.table != table:
                return
            yield row
        if after is None:
            return
        pace.note(len(rows), sum(_size(row) for row in rows))


def log_of(reading: Reading, gateway: str) -> Iterator[LoggedDelta]:
    """The deltas as pushed, in commit order."""
    pace = Pace()
    after = 0
    while True:
        limit = pace.limit
        deltas = delta_log(reading, gateway, after, limit)
        yield from deltas
        if len(deltas) < limit:
            return
        after = deltas[-1].position
        pace.note(len(deltas), sum(len(delta.columns_text) for delta in deltas))


def _size(row: MergedRow) -> int:
    return sum(len(name) + len(text) for name, text in row.columns)
