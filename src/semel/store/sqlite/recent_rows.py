"""Rows of tables declared `recent`, kept in memory from the commit that changed them: the next change follows soon.

One process writes, through one connection, so a row in memory is the committed row until a transaction of this process
changes it. The memory takes changes over after the COMMIT only, and a rollback drops them. A transaction that has
written to a table reads it from the file. After a failed COMMIT the store is broken, and the memory is never used
again. A crash loses the memory and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from semel.store.protocol import AnyTable, Changes, Row
from semel.store.table import Key

MAX_RECENT_ROWS = 2_048
"""Limit on the rows of one table in memory; those that were changed first go first."""


class RecentRows:
    """The committed rows that are in memory, by table. Used by the writer only."""

    def __init__(self, tables: Iterable[AnyTable]) -> None:
        self.rows: dict[AnyTable, dict[Key, Row]] = {table: {} for table in tables if table.recent is not None}

    def keep(self, table: AnyTable, rows: Iterable[Row]) -> None:
        """Keep changed rows while they meet the condition of the table, and forget the others."""
        known, condition = self.rows[table], table.recent
        assert condition is not None
        place, bound = table.position(condition.column), condition.bound
        for row in rows:
            key = row[: table.key]
            known.pop(key, None)
            if row[place] < bound:
                known[key] = row
        while len(known) > MAX_RECENT_ROWS:
            del known[next(iter(known))]


class RecentChanges:
    """The recent rows inside one transaction."""

    def __init__(self, recent: RecentRows) -> None:
        self._recent = recent
        self._written: list[Changes] = []

    def find(self, table: AnyTable, keys: Iterable[Key]) -> tuple[dict[Key, Row], list[Key]]:
        """The known rows, and the keys that must be read."""
        known = {} if self._written else self._recent.rows[table]
        found: dict[Key, Row] = {}
        unknown: list[Key] = []
        for key in keys:
            row = known.get(key)
            if row is None:
                unknown.append(key)
            else:
                found[key] = row
        return found, unknown

    def flush(self, changes: Changes) -> None:
        """Note that the transaction has written."""
        self._written.append(changes)

    def apply(self) -> None:
        """Take the changes over, after the COMMIT."""
        for changes in self._written:
            self._apply(changes)

    def _apply(self, changes: Changes) -> None:
        tables = self._recent.rows
        for table, keys in changes.deletes.items():
            if table in tables:
                self._forget(table, keys)
        for table, rows in changes.replaced():
            if table in tables:
                self._recent.keep(table, rows)
        for touch in changes.touches:
            if touch.table in tables:  # the statement decides whether the row changes
                self._forget(touch.table, [touch.key])

    def _forget(self, table: AnyTable, keys: Iterable[Key]) -> None:
        known = self._recent.rows[table]
        for key in keys:
            known.pop(key, None)
