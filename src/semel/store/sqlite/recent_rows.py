"""Rows of tables declared `recent`, kept in memory from the commit that changed them: the next change follows soon.

One process writes, through one connection, so a row in memory is the committed row until a transaction of this process
changes it, or another program commits (`file_watch`). The memory takes changes over after the COMMIT only, and a
rollback drops them. A transaction that has written to a table reads it from the file. After a failed COMMIT the store
is broken, and the memory is never used again. A crash loses the memory and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from semel.store.protocol import AnyTable, Changes, Row
from semel.store.table import Key

T = TypeVar("T")

MAX_RECENT_ROWS = 2_048
"""Limit on the rows of one table in memory; those that were changed first go first."""


class RecentRows:
    """The committed rows that are in memory, by table. Used by the writer only."""

    def __init__(self, tables: Iterable[AnyTable]) -> None:
        self.rows: dict[AnyTable, dict[Key, Row]] = {table: {} for table in tables if table.recent is not None}

    def clear(self) -> None:
        """Forget every row."""
        for rows in self.rows.values():
            rows.clear()

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
        """What was written to the tables with recent rows. A large transaction flushes its rows in parts, and those of
        all other tables are not held until the COMMIT.
        """

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
        """Note what the transaction has written."""
        tables = self._recent.rows
        own = Changes(
            {},
            _those_of(changes.updates, tables),
            _those_of(changes.deletes, tables),
            [touch for touch in changes.touches if touch.table in tables],
            _those_of(changes.steady, tables),
            narrow=_those_of(changes.narrow, tables),
        )
        if own.touches or not own.is_empty:
            self._written.append(own)

    def apply(self) -> None:
        """Take the changes over, after the COMMIT."""
        for changes in self._written:
            self._apply(changes)

    def _apply(self, changes: Changes) -> None:
        for table, keys in changes.deletes.items():
            self._forget(table, keys)
        for table, rows in changes.replaced():
            self._recent.keep(table, rows)
        for touch in changes.touches:  # the statement decides whether the row changes
            self._forget(touch.table, [touch.key])

    def _forget(self, table: AnyTable, keys: Iterable[Key]) -> None:
        known = self._recent.rows[table]
        for key in keys:
            known.pop(key, None)


def _those_of(changed: Mapping[AnyTable, Sequence[T]], tables: Collection[AnyTable]) -> Mapping[AnyTable, Sequence[T]]:
    return {table: some for table, some in changed.items() if table in tables}
