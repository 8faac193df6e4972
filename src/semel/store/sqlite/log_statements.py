"""SQL statements of a log table: rows are appended, and read, replaced and deleted by their place.

The place is the rowid. It is a declared column, so that VACUUM and `.dump` keep it. The statements say rowid, because a
file that is only read may be of a version that did not declare it.

A log table has no index on its key. The statements by key that it inherits (`find`, `find_one`) read the whole table;
only a process that has no memory index uses them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apsw

from semel.store.protocol import AnyTable, Row, Touch
from semel.store.sql_dialect import quoted, read_columns
from semel.store.sqlite.query import fetch
from semel.store.sqlite.statements import DIALECT, Filled, SqliteStatements
from semel.store.table import Key


class LogStatements(SqliteStatements):
    """The SQL statements of one log table."""

    def __init__(self, table: AnyTable, name: str) -> None:
        super().__init__(table, name)
        columns = [column.name for column in table.columns]
        self._named = f"rowid, {quoted(columns)}"
        self._read = f"rowid, {read_columns(table, '0')}"
        self._placed_row = f"({', '.join('?' for _ in range(len(columns) + 1))})"
        keys = quoted(table.key_columns)
        self.last_place = f"SELECT coalesce(max(rowid), 0) FROM {name}"
        self.first_place = f"SELECT min(rowid) FROM {name}"
        self.keys_above = f"SELECT rowid, {keys} FROM {name} WHERE rowid > ? ORDER BY rowid"
        self.some_keys_above = f"{self.keys_above} LIMIT +?"
        self.clear_moved = f"DELETE FROM {name}_moved"
        self._find_place = f"SELECT rowid FROM {name} WHERE {self.matches}"

    def highest(self, connection: apsw.Connection) -> int:
        """The highest place that has a row; 0 if there is none."""
        return fetch(connection, self.last_place, ())[0][0]  # type: ignore[no-any-return]

    def read_at(self, places: Sequence[int]) -> Iterator[Filled]:
        """Read rows by their places; the place is the first value of each."""
        return self.in_bulk("read_at", self._read_text, [(place,) for place in places])

    def insert_at(self, first: int, rows: Sequence[Row]) -> Iterator[Filled]:
        """Append rows at consecutive places."""
        placed = [(place, *row) for place, row in enumerate(self.unsigned.rows_out(rows), start=first)]
        return self.in_bulk("insert_at", self._append_text, placed)

    def replace_at(self, placed: Sequence[tuple[int, Row]], *, steady: bool) -> Iterator[Filled]:
        """Replace rows at their places; with `steady` every indexed column keeps its value."""
        rows = self.unsigned.rows_out([row for _, row in placed])
        tuples = [(place, *row) for (place, _), row in zip(placed, rows, strict=True)]
        return self.in_bulk(
            "steady_at" if steady else "replace_at", self._steady_at_text if steady else self._replace_text, tuples
        )

    def delete_at(self, places: Sequence[int]) -> Iterator[Filled]:
        """Delete rows by their places."""
        return self.in_bulk("delete_at", self._delete_at_text, [(place,) for place in places])

    def touch_at(self, place: int, touch: Touch) -> Filled:
        """A soft change of the row at a place."""
        value = self.unsigned.value_out(touch.column, touch.value)
        changed, values = f'"{touch.column}" = ?', [value]
        if touch.beside_column is not None:
            changed, values = f'{changed}, "{touch.beside_column}" = ?', [value, touch.beside]
        sql = f'UPDATE {self.name} SET {changed} WHERE rowid = ? AND "{touch.column}" < ?'
        values += [place, value]
        if touch.life_column is None:
            return sql, tuple(values)
        return f'{sql} AND "{touch.life_column}" = ?', (*values, touch.life)

    def moved_places(self, hashes: Sequence[tuple[int]]) -> Iterator[Filled]:
        """Find the places of hashes among the keys that have left memory."""
        return self.in_bulk("moved_places", self._moved_places_text, hashes)

    def add_moved(self, entries: Sequence[tuple[int, int]]) -> Iterator[Filled]:
        """Add hashes and places to the keys that have left memory."""
        return self.in_bulk("add_moved", self._add_moved_text, entries)

    def remove_moved(self, entries: Sequence[tuple[int, int]]) -> Iterator[Filled]:
        """Remove hashes and places from them."""
        return self.in_bulk("remove_moved", self._remove_moved_text, entries)

    def place_of(self, key: Key) -> Filled:
        """Find the place of a key by reading the table."""
        return self._find_place, self.unsigned.key_out(key)

    def page_above(self, place: int, limit: int, *, keys_only: bool = False) -> Filled:
        """The rows above a place in order of arrival; the place is the first value of each."""
        columns = f"rowid, {quoted(self.table.key_columns)}" if keys_only else self._named
        return f"SELECT {columns} FROM {self.name} WHERE rowid > ? ORDER BY rowid LIMIT +?", (place, limit)

    def _read_text(self, count: int) -> str:
        return f"SELECT {self._read} FROM {self.name} WHERE rowid IN ({', '.join('?' * count)})"

    def _append_text(self, count: int) -> str:
        return f"INSERT OR ROLLBACK INTO {self.name} ({self._named}) VALUES {', '.join([self._placed_row] * count)}"

    def _replace_text(self, count: int) -> str:
        return self._upsert_at(count, [column.name for column in self.table.columns[self.table.key :]])

    def _steady_at_text(self, count: int) -> str:
        return self._upsert_at(count, self.table.loose_columns)

    def _upsert_at(self, count: int, columns: Sequence[str]) -> str:
        rest = ", ".join(f'"{column}" = excluded."{column}"' for column in columns)
        action = f"UPDATE SET {rest}" if rest else "NOTHING"
        return f"{self._append_text(count)} ON CONFLICT (rowid) DO {action}"

    def _moved_places_text(self, count: int) -> str:
        return f"SELECT place FROM {self.name}_moved WHERE hash IN ({', '.join('?' * count)})"

    def _add_moved_text(self, count: int) -> str:
        # Other than ABORT, which would first copy every page that the statement changes.
        return f"INSERT OR IGNORE INTO {self.name}_moved VALUES {', '.join(['(?, ?)'] * count)}"

    def _remove_moved_text(self, count: int) -> str:
        return f"DELETE FROM {self.name}_moved WHERE (hash, place) IN (VALUES {', '.join(['(?, ?)'] * count)})"

    def _delete_at_text(self, count: int) -> str:
        return f"DELETE FROM {self.name} WHERE rowid IN ({', '.join('?' * count)})"


def statements_of(tables: Sequence[AnyTable]) -> dict[AnyTable, list[SqliteStatements]]:
    """The statements of every SQL table of these declared tables."""
    return {
        table: [(LogStatements if table.log else SqliteStatements)(table, name) for name in DIALECT.names_of(table)]
        for table in tables
    }
