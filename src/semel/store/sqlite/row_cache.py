"""A cache of the rows that almost every write needs, such as the head of a stream, for tables declared `cached`.

One process writes, through one connection, so a row in memory is the committed row until a transaction of this process
changes it, or another program commits (`file_watch`). A transaction sees its own changes first. The cache takes them
over after the COMMIT only; a rollback drops them. After a failed COMMIT the store is broken, and the cache is never
used again. A crash loses the cache and nothing else.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from semel.store.protocol import AnyTable, Changes, Row
from semel.store.table import Key, bytes_of

MAX_ROWS = 4_096
"""Limit on the rows in memory; the least recently used go first."""
MAX_ROW_BYTES = 4 * 1024
"""A larger row is read each time."""

UNKNOWN: Any = object()
"""Stands for a row that the cache does not know; None is a row that is known to be absent."""

_Place = tuple[AnyTable, Key]


class RowCache:
    """The committed rows of cached tables that are in memory. Used by the writer only."""

    def __init__(self) -> None:
        self._rows: OrderedDict[_Place, Row | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def clear(self) -> None:
        """Forget every row."""
        self._rows.clear()

    def find(self, place: _Place) -> Row | None:
        """The committed row, None if there is none, or `UNKNOWN`."""
        row = self._rows.get(place, UNKNOWN)
        if row is not UNKNOWN:
            self._rows.move_to_end(place)
        return row

    def set(self, place: _Place, row: Row | None) -> None:
        """Keep a committed row, or `UNKNOWN` to forget it."""
        if row is UNKNOWN or (row is not None and bytes_of(row) > MAX_ROW_BYTES):
            self._rows.pop(place, None)
            return
        self._rows[place] = row
        self._rows.move_to_end(place)
        if len(self._rows) > MAX_ROWS:
            self._rows.popitem(last=False)


class CachedRows:
    """The cached tables inside one transaction."""

    def __init__(self, cache: RowCache) -> None:
        self._cache = cache
        self._changed: dict[_Place, Row | None] = {}

    def find(self, table: AnyTable, keys: Iterable[Key]) -> tuple[dict[Key, Row], list[Key]]:
        """The known rows, and the keys that must be read."""
        found: dict[Key, Row] = {}
        unknown: list[Key] = []
        for key in keys:
            place = (table, key)
            row = self._changed[place] if place in self._changed else self._cache.find(place)
            if row is UNKNOWN:
                unknown.append(key)
            elif row is not None:
                found[key] = row
        return found, unknown

    def read(self, table: AnyTable, keys: Iterable[Key], rows: Mapping[Key, Row]) -> None:
        """Keep rows that were read, as of the last commit; those that this transaction has changed are left out."""
        for key in keys:
            if (table, key) not in self._changed:
                self._cache.set((table, key), rows.get(key))

    def flush(self, changes: Changes) -> None:
        """Note the changes of this transaction."""
        changed = self._changed
        for rows_of in (changes.inserts, changes.updates, changes.steady):
            for table, rows in rows_of.items():
                if table.cached:
                    for row in rows:
                        changed[table, table.key_of(row)] = row
        for table, keys in changes.deletes.items():
            if table.cached:
                for key in keys:
                    changed[table, key] = None
        for touch in changes.touches:
            if touch.table.cached:  # the statement decides whether the row changes
                changed[touch.table, touch.key] = UNKNOWN

    def apply(self) -> None:
        """Take the changes over, after the COMMIT."""
        for place, row in self._changed.items():
            self._cache.set(place, row)
