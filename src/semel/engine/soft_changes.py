"""Soft changes: updates without durability (last use, sliding expiry, lease extension).

They are merged by key, written by the next durable commit or by one of their own within a second, and never cause a
sync. A crash may lose them, so no promise depends on one. Until they are stored, all readers of this process see them
applied to the stored row.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from itertools import islice

from semel.store.protocol import AnyTable, LoadedRows, Range, Row, Touch
from semel.store.table import Key

MAX_WAITING = 65_536
"""Limit on the rows with waiting soft changes; further changes are dropped until the next flush."""

MAX_TOUCHES = 1_024
"""Limit on the soft changes that one transaction stores."""

_Place = tuple[AnyTable, Key, str, str | None, bytes | None]


class SoftChanges:
    """The soft changes that are not stored yet; thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[_Place, Touch] = {}
        self._columns: dict[AnyTable, frozenset[tuple[str, str | None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def touch(self, touches: Iterable[Touch]) -> None:
        """Record soft changes; a value only ever rises."""
        with self._guard:
            for touch in touches:
                place = _place(touch)
                known = self._waiting.get(place)
                if known is None and len(self._waiting) >= MAX_WAITING:
                    continue
                # Copy the set on each change, because readers in other threads iterate over the old one without the
                # lock.
                columns, column = self._columns.get(touch.table, frozenset()), (touch.column, touch.life_column)
                if column not in columns:
                    self._columns[touch.table] = columns | {column}
                if known is None or known.value < touch.value:
                    self._waiting[place] = touch

    def over(self, table: AnyTable, row: Row) -> Row:
        """The row with its soft changes applied."""
        if not self._waiting or table not in self._columns:
            return row
        key = table.key_of(row)
        for column, life_column in self._columns[table]:
            life = None if life_column is None else getattr(row, life_column)
            touch = self._waiting.get((table, key, column, life_column, life))
            if touch is not None:
                row = touch.raised(row)
        return row

    def over_loaded(self, loaded: LoadedRows, ranges: Sequence[Range]) -> LoadedRows:
        """Loaded rows with their soft changes applied; `ranges` are the ranges that were loaded."""
        return LoadedRows(
            {
                table: {key: self.over(table, row) for key, row in rows.items()} if table in self._columns else rows
                for table, rows in loaded.rows.items()
            },
            [[self.over(one.table, row) for row in rows] for one, rows in zip(ranges, loaded.ranges, strict=True)],
        )

    def waiting(self, limit: int) -> Sequence[Touch]:
        """Some of the waiting soft changes, to be stored now."""
        with self._guard:
            return list(islice(self._waiting.values(), limit))

    def stored(self, touches: Iterable[Touch]) -> None:
        """Remove these soft changes, which are stored now, unless their values have risen meanwhile."""
        with self._guard:
            for touch in touches:
                place = _place(touch)
                known = self._waiting.get(place)
                if known is not None and known.value <= touch.value:
                    del self._waiting[place]


def _place(touch: Touch) -> _Place:
    return touch.table, touch.key, touch.column, touch.life_column, touch.life
