"""The least positions of indexes declared `floors`: a range below them is empty, and need not be read.

A floor is a lower bound: below it, the index has no row with this first column. Rows that a transaction writes lower it
at once, so after a rollback it may be too low, which only costs a read. It rises only when a range was read by a
transaction that had written nothing. One process writes, through one connection, and after a commit of another program
all floors are forgotten (`file_watch`), so no row comes in unseen. A crash loses the floors and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from semel.store.protocol import AnyTable, Changes, Range, Row

MAX_FLOORS = 64
"""Limit on the first columns of one index whose floors are known."""

_Index = tuple[AnyTable, str]


class IndexFloors:
    """The floors of all indexes that have them, by the first column. Used by the writer only."""

    def __init__(self, tables: Iterable[AnyTable]) -> None:
        self._floors: dict[_Index, dict[Any, Any]] = {(table, by): {} for table in tables for by in table.floors}

    def clear(self) -> None:
        """Forget every floor."""
        for floors in self._floors.values():
            floors.clear()

    def is_below(self, wanted: Range) -> bool:
        """Whether it is certain that the range is empty."""
        floors = self._floors.get((wanted.table, wanted.by))
        if not floors or len(wanted.prefix) != 1 or len(wanted.stop) != 1:
            return False
        floor = floors.get(wanted.prefix[0])
        return floor is not None and wanted.stop[0] <= floor

    def read(self, wanted: Range, rows: Sequence[Row]) -> None:
        """Note what a range has shown to a transaction that has written nothing."""
        floors = self._floors.get((wanted.table, wanted.by))
        if floors is None or len(wanted.prefix) != 1 or len(wanted.stop) != 1 or wanted.start or wanted.reverse:
            return
        if len(floors) >= MAX_FLOORS:
            floors.clear()
        _, column = self._places(wanted.table, wanted.by)
        floors[wanted.prefix[0]] = rows[0][column] if rows else wanted.stop[0]

    def flush(self, changes: Changes) -> None:
        """Lower the floors to the rows that a transaction writes."""
        for (table, by), floors in self._floors.items():
            if not floors:
                continue
            first, second = self._places(table, by)
            written = [rows for other, rows in changes.replaced() if other is table]
            for rows in (changes.inserts.get(table, ()), *written):
                for row in rows:
                    floor = floors.get(row[first])
                    if floor is not None and row[second] < floor:
                        floors[row[first]] = row[second]
            # A soft change only raises its column: it can lower no position, unless it moves the row to another prefix.
            if any(touch.table is table and touch.column == table.ordering(by)[0] for touch in changes.touches):
                floors.clear()

    def _places(self, table: AnyTable, by: str) -> tuple[int, int]:
        first, second = table.ordering(by)[:2]
        return table.position(first), table.position(second)
