"""SQL statements of a table, generated from its declaration.

One statement carries many rows. SQLite releases the interpreter lock for every statement, and the event loop may return
it late, so a batch of writes should cost a handful of statements, not several for each write. Statements exist for 1,
2, 4, ... rows, so that a few prepared statements serve every batch.

Where a statement has an order, an equality and a limit are written with `+?`. For a bare `?` SQLite plans with the
value that is bound, and so compiles the statement again for each execution: ten times the time of a short range. A
range in the order of an index names that index.

A generational table is two SQL tables with a number after the name; a row of `semel_generation` says which one is the
younger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from semel.store.protocol import AnyTable, Range, Row, Touch
from semel.store.sql_dialect import SqlDialect, Unsigned, quoted, read_columns
from semel.store.sqlite.blank_columns import blank_columns
from semel.store.table import ColumnKind, Key, TableLayout

GENERATIONS = 2
PLACE = "place"
"""The column of a log table that is the number of the row, which statements call rowid."""
_MOST_ROWS = 128
"""Limit on the rows of one statement."""
_FEW_ROWS = 4
"""At most this number of rows are updated one by one."""
_STATEMENT_BYTES = 256 * 1024
"""Limit on the bytes of the rows of one statement, because SQLite copies all of them. A larger row is sent alone."""

Filled = tuple[str, tuple[Any, ...]]
"""A statement and its values."""
NarrowUpdate = tuple[str, Callable[[Row], tuple[Any, ...]]]
"""An UPDATE of some columns of one row, and how its values are taken from the row."""


def _options(shape: TableLayout) -> str:
    # A bulky row is appended to its table and found through an index; a small row is stored in the index itself.
    return "STRICT" if shape.bulky else "STRICT, WITHOUT ROWID"


def _log_statements(name: str, columns: str) -> list[str]:
    # No index on the key: a row goes to the end of the table and is found through the memory index. Its place is
    # declared, because VACUUM and `.dump` give new numbers to rows without a declared one. The second table holds the
    # part of that index that is not in memory (see `moved_keys`).
    return [
        f'CREATE TABLE "{name}" ("{PLACE}" INTEGER PRIMARY KEY, {columns}) STRICT',
        f'CREATE TABLE "{name}_moved" (hash INTEGER, place INTEGER, PRIMARY KEY (hash, place)) STRICT, WITHOUT ROWID',
    ]


DIALECT = SqlDialect(
    types={ColumnKind.I64: "INTEGER", ColumnKind.U64: "BLOB", ColumnKind.BYTES: "BLOB"},
    generations=GENERATIONS,
    bytes_literal=lambda value: f"x'{value.hex()}'",
    options=_options,
    indexes_name_the_key=False,
    log_statements=_log_statements,
)


class SqliteStatements:
    """The SQL statements of one table, and the encoding of its rows."""

    def __init__(self, table: AnyTable, name: str) -> None:
        columns = [column.name for column in table.columns]
        self.table = table
        self.name = name
        self.select = f"SELECT {read_columns(table, '0')} FROM {name}"
        self._select_stored = f"SELECT {quoted(columns)} FROM {name}"
        self.select_keys = f"SELECT {quoted(table.key_columns)} FROM {name}"
        self.matches = " AND ".join(f'"{column}" = ?' for column in table.key_columns)
        self.find_one = f"{self.select} WHERE {self.matches}"
        self.clear = f"DELETE FROM {name}"
        self.some = f"SELECT 1 FROM {name} LIMIT 1"
        self._columns = columns
        self._row = f"({', '.join('?' for _ in columns)})"
        self._key = f"({', '.join('?' for _ in table.key_columns)})"
        self._texts: dict[tuple[str, int], str] = {}
        self._scans: dict[tuple[Any, ...], str] = {}
        """Texts by the form of the range: names of indexes, numbers of columns."""
        self._is_bounded = table.bulky and not table.log  # the rows of a log table are small
        payloads = [column for column in table.columns[table.key :] if column.kind is ColumnKind.BYTES]
        self._payloads = [itemgetter(table.position(column.name)) for column in payloads]
        """The payloads of a row, for a quick sum column by column."""
        self.payload_place = -1 if table.checksum_of is None else -2
        """The place of a payload that may be large, from the end of a row."""
        self.unsigned = Unsigned(table)
        self._blanks = None if table.log else blank_columns(table)
        self.update_one = self._update_one()
        self._narrow: dict[tuple[str, ...], NarrowUpdate] = {}

    def _update_one(self) -> NarrowUpdate | None:
        """An UPDATE of the columns without an index, in half the time of the upsert that many rows need.

        None for a generational table, where the row may be in the other generation.
        """
        loose = self.table.loose_columns
        return None if self.table.generational or not loose else self._update_of(loose)

    def _update_of(self, columns: tuple[str, ...]) -> NarrowUpdate:
        assigned = ", ".join(f'"{column}" = ?' for column in columns)
        places = [self.table.position(column) for column in (*columns, *self.table.key_columns)]
        return f"UPDATE {self.name} SET {assigned} WHERE {self.matches}", itemgetter(*places)

    def find(self, keys: Sequence[Key]) -> Iterator[Filled]:
        """Find rows by their keys."""
        return self.in_bulk("find", self._find_text, [self.unsigned.key_out(key) for key in keys])

    def latest(self, prefixes: Sequence[Key], below: Any) -> Iterator[Filled]:
        """For each key prefix, the last row whose last key column is below a limit."""
        bound = self.unsigned.value_out(self.table.key_columns[-1], below)
        tuples = [self.unsigned.prefix_out(prefix) for prefix in prefixes]
        return ((sql, (*values, bound)) for sql, values in self.in_bulk("latest", self._latest_text, tuples))

    def earliest(self, prefixes: Sequence[Key], least: Any) -> Iterator[Filled]:
        """For each key prefix, the first row whose last key column is at least a limit."""
        bound = self.unsigned.value_out(self.table.key_columns[-1], least)
        tuples = [self.unsigned.prefix_out(prefix) for prefix in prefixes]
        return ((sql, (*values, bound)) for sql, values in self.in_bulk("earliest", self._earliest_text, tuples))

    def insert(self, rows: Sequence[Row]) -> Iterator[Filled]:
        """Insert rows; an existing row is an error."""
        tuples = self.unsigned.rows_out(rows)
        if self._blanks is not None:
            blanks = self._blanks.fitting(tuples)
            if blanks is not None:
                self._blanks = blanks
                return self.in_bulk(blanks.row, self._blank_insert_text, blanks.bound(tuples), blanks.payloads)
            self._blanks = None
        return self.in_bulk("insert", self._insert_text, tuples)

    def update(self, rows: Sequence[Row]) -> Iterator[Filled]:
        """Replace rows by their keys."""
        return self.in_bulk("update", self._update_text, self.unsigned.rows_out(rows))

    def update_steadily(self, rows: Sequence[Row]) -> Iterator[Filled]:
        """As `update`, for unchanged indexed columns: SQLite would rewrite index pages for every column that is
        named.
        """
        if self.update_one is not None and len(rows) <= _FEW_ROWS:
            sql, arrange = self.update_one
            return iter([(sql, arrange(row)) for row in self.unsigned.rows_out(rows)])
        return self.in_bulk("steady", self._steady_text, self.unsigned.rows_out(rows))

    def update_columns(self, columns: tuple[str, ...], rows: Sequence[Row]) -> tuple[str, Iterator[tuple[Any, ...]]]:
        """One statement, and its values for each row: an UPDATE of these columns. Of existing rows only.

        For a wide row with many indexes this takes 60 % of the time of the upsert, although it runs once for each row.
        """
        made = self._narrow.get(columns)
        if made is None:
            is_ordinary = not (self.table.log or self.table.generational or self.table.cached)
            assert is_ordinary, f"{self.name} has no narrow updates"
            made = self._narrow[columns] = self._update_of(columns)
        return made[0], map(made[1], self.unsigned.rows_out(rows))

    def delete(self, keys: Sequence[Key]) -> Iterator[Filled]:
        """Delete rows by their keys."""
        return self.in_bulk("delete", self._delete_text, [self.unsigned.key_out(key) for key in keys])

    def in_bulk(
        self,
        kind: str,
        text: Callable[[int], str],
        tuples: Sequence[Any],
        payloads: Sequence[Callable[[Any], bytes | None]] = (),
    ) -> Iterator[Filled]:
        """Statements of one kind for many tuples of values; `text` makes the SQL for a number of them.

        `payloads` takes the payloads out of tuples that are neither rows nor keys.
        """
        at = 0
        while at < len(tuples):
            size = min(_MOST_ROWS, 1 << ((len(tuples) - at).bit_length() - 1))
            while size > 1 and self._is_bounded and self._weight(tuples[at : at + size], payloads) > _STATEMENT_BYTES:
                size //= 2
            sql = self._texts.get((kind, size))
            if sql is None:
                sql = self._texts[kind, size] = text(size)
            yield sql, tuple(chain.from_iterable(tuples[at : at + size]))
            at += size

    def _weight(self, rows: Sequence[Any], payloads: Sequence[Callable[[Any], bytes | None]]) -> int:
        """About how many bytes the rows have; nothing for tuples that are only keys."""
        if not payloads:
            payloads = self._payloads if len(rows[0]) == len(self._columns) else ()
        return sum(sum(map(len, filter(None, map(column, rows)))) for column in payloads)  # None has no bytes

    def _find_text(self, count: int) -> str:
        wanted = ", ".join(f"k{place}" for place in range(self.table.key))
        match = " AND ".join(f't."{column}" = k.k{place}' for place, column in enumerate(self.table.key_columns))
        columns = read_columns(self.table, "0", "t.")
        values = ", ".join([self._key] * count)
        # CROSS JOIN fixes the order: one look-up in the table's index for each key.
        return f"WITH k({wanted}) AS (VALUES {values}) SELECT {columns} FROM k CROSS JOIN {self.name} t WHERE {match}"

    def _latest_text(self, count: int) -> str:
        return self._nearest_text(count, "max", "<")

    def _earliest_text(self, count: int) -> str:
        return self._nearest_text(count, "min", ">=")

    def _nearest_text(self, count: int, pick: str, sign: str) -> str:
        *prefix, last = self.table.key_columns
        wanted = ", ".join(f"k{place}" for place in range(len(prefix)))
        found, other = (
            " AND ".join(f'{alias}."{column}" = k.k{place}' for place, column in enumerate(prefix)) for alias in "tm"
        )
        values = ", ".join([f"({', '.join('?' for _ in prefix)})"] * count)
        nearest = f'SELECT {pick}(m."{last}") FROM {self.name} m WHERE {other} AND m."{last}" {sign} ?'
        select = f"SELECT {read_columns(self.table, '0', 't.')} FROM k CROSS JOIN {self.name} t"
        return f'WITH k({wanted}) AS (VALUES {values}) {select} WHERE {found} AND t."{last}" = ({nearest})'

    def _insert_text(self, count: int) -> str:
        # A failed statement ends its transaction anyway. By default SQLite prepares to undo the statement alone, and
        # first copies every page that a statement of many rows changes.
        return f"INSERT OR ROLLBACK INTO {self.name} VALUES {', '.join([self._row] * count)}"

    def _blank_insert_text(self, count: int) -> str:
        assert self._blanks is not None
        return f"INSERT OR ROLLBACK INTO {self.name} VALUES {', '.join([self._blanks.row] * count)}"

    def _update_text(self, count: int) -> str:
        return self._upsert_text(count, self._columns[self.table.key :])

    def _steady_text(self, count: int) -> str:
        # A generational row may be in the other generation and is written completely; the table has no indexes anyway.
        return self._upsert_text(count, self.table.loose_columns)

    def _upsert_text(self, count: int, columns: Sequence[str]) -> str:
        keys = quoted(self.table.key_columns)
        rest = ", ".join(f'"{column}" = excluded."{column}"' for column in columns)
        action = f"UPDATE SET {rest}" if rest else "NOTHING"
        return f"{self._insert_text(count)} ON CONFLICT ({keys}) DO {action}"

    def _delete_text(self, count: int) -> str:
        keys = quoted(self.table.key_columns)
        return f"DELETE FROM {self.name} WHERE ({keys}) IN (VALUES {', '.join([self._key] * count)})"

    def touch(self, touch: Touch) -> tuple[str, tuple[Any, ...]]:
        """A soft change of one row."""
        column = touch.column
        beside, besides = (
            ("", ()) if touch.beside_column is None else (f', "{touch.beside_column}" = ?', (touch.beside,))
        )
        sql = f'UPDATE {self.name} SET "{column}" = ?{beside} WHERE {self.matches} AND "{column}" < ?'
        value = self.unsigned.value_out(column, touch.value)
        values = (value, *besides, *self.unsigned.key_out(touch.key), value)
        if touch.life_column is None:
            return sql, values
        return f'{sql} AND "{touch.life_column}" = ?', (*values, touch.life)

    def scan(self, wanted: Range, *, keys_only: bool = False) -> tuple[str, list[Any]]:
        """The statement for the rows of a range."""
        part = wanted.part
        form = (wanted.by, len(wanted.prefix), len(wanted.start), len(wanted.stop), wanted.reverse, part, keys_only)
        sql = self._scans.get(form)
        if sql is None:
            sql = self._scans[form] = self._scan_text(wanted, keys_only=keys_only)
        _, values = self._bounds(wanted)
        return sql, [*values, wanted.limit]

    def positions(self, wanted: Range, *more: str) -> tuple[str, list[Any]]:
        """The statement for the positions of the rows of a range in its index, and for more columns of them."""
        select = f"SELECT {quoted([*self.table.ordering(wanted.by), *more])} FROM {self.name}"
        _, values = self._bounds(wanted)
        return self._ordered(f"{select}{self._through(wanted)}", wanted), [*values, wanted.limit]

    def _scan_text(self, wanted: Range, *, keys_only: bool) -> str:
        return self._ordered(f"{self.select_keys if keys_only else self.select}{self._through(wanted)}", wanted)

    def _ordered(self, select: str, wanted: Range) -> str:
        terms, _ = self._bounds(wanted)
        way = " DESC" if wanted.reverse else ""
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        by = ", ".join(f'"{column}"{way}' for column in self.table.ordering(wanted.by))
        return f"{select}{where} ORDER BY {by} LIMIT +?"

    def joined(self, wanted: Range, column: str, between: bytes) -> tuple[str, list[Any]]:
        """The statement for the last key, the number and one joined column of the rows of a range.

        One step of SQLite joins all rows, while the interpreter lock is released once. The limit keeps SQLite from
        dropping the order of the inner query. The bytes of a value pass through `group_concat` unchanged, zero bytes
        included, because the encoding of the database is UTF-8.
        """
        terms, values = self._bounds(wanted)
        last = self.table.key_columns[-1]
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        way, pick = (" DESC", "min") if wanted.reverse else ("", "max")
        rows = f'SELECT {quoted([last, column])} FROM {self.name}{where} ORDER BY "{last}"{way} LIMIT +?'
        text = f'CAST(group_concat("{column}", CAST(? AS TEXT)) AS BLOB)'
        return f'SELECT {pick}("{last}"), count(*), {text} FROM ({rows})', [between, *values, wanted.limit]

    def distinct(self, wanted: Range) -> tuple[str, list[Any]]:
        """The statement for the distinct values after a prefix: each step finds the next value in the index."""
        column = self.table.ordering(wanted.by)[len(wanted.prefix)]
        terms, values = self._bounds(wanted)
        further, fixed = self._bounds(wanted._replace(start=()))
        through = self._through(wanted)

        def first(terms: Sequence[str]) -> str:
            where = f" WHERE {' AND '.join(terms)}" if terms else ""
            return f'SELECT "{column}" FROM {self.name}{through}{where} ORDER BY "{column}" LIMIT 1'

        step = f"SELECT ({first([*further, f'{quoted([column])} > found.value'])}) FROM found"
        made = f"SELECT * FROM ({first(terms)}) UNION ALL {step} WHERE found.value IS NOT NULL LIMIT +?"
        sql = f"WITH RECURSIVE found(value) AS ({made}) SELECT value FROM found WHERE value IS NOT NULL"
        return sql, [*values, *fixed, wanted.limit]

    def _through(self, wanted: Range) -> str:
        """The index that SQLite must use: without statistics it may prefer another one that has the order, and then
        reads all rows of a queue or a vault to find one. Empty for the key, and if a partial index lacks some rows.
        """
        is_whole = wanted.by not in self.table.partial or wanted.part is not None
        return f' INDEXED BY "{self.name}_{wanted.by}"' if wanted.by and is_whole else ""

    def _bounds(self, wanted: Range) -> tuple[list[str], list[Any]]:
        """The conditions for the rows of a range."""
        order = self.table.ordering(wanted.by)
        depth = len(wanted.prefix)
        terms = [f'"{column}" = +?' for column in order[:depth]]
        if wanted.part is not None:
            terms.append(DIALECT.condition(wanted.part))
        values: list[Any] = [
            self.unsigned.value_out(name, value) for name, value in zip(order, wanted.prefix, strict=False)
        ]
        for bound, sign in ((wanted.start, ">="), (wanted.stop, "<")):
            if bound:
                bounded = order[depth : depth + len(bound)]
                terms.append(f"({quoted(bounded)}) {sign} ({', '.join('?' for _ in bounded)})")
                values += [self.unsigned.value_out(name, value) for name, value in zip(bounded, bound, strict=True)]
        return terms, values

    def page(self, behind: Key | None, limit: int, *, keys_only: bool = False) -> Filled:
        """The statement for the rows after a key."""
        select = self.select_keys if keys_only else self._select_stored
        keys = quoted(self.table.key_columns)
        where, values = (
            ("", ()) if behind is None else (f" WHERE ({keys}) > {self._key}", self.unsigned.key_out(behind))
        )
        return f"{select}{where} ORDER BY {keys} LIMIT +?", (*values, limit)
