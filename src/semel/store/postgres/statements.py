"""SQL statements of a table, generated from its declaration.

Rows are sent as one array for each column, so one statement serves any number of rows. Keys are looked up one by one
through the index, in the order given: a LATERAL query with a limit forces the planner to do so, even with wrong
statistics of a table that has just begun to grow. Rows are sorted by key before they are sent, so that two transactions
cannot deadlock on each other's rows.

A generational table is three SQL tables with a number after the name: one takes new rows, the one before it is still
read, and the third is waiting to be truncated until the snapshots that read it have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from semel.store.postgres.pipeline import Filled, bytes_array, number, number_array
from semel.store.protocol import AnyTable, Range, Row, Touch
from semel.store.sql_dialect import SqlDialect, Unsigned, quoted, read_columns
from semel.store.table import ColumnKind, Key, TableLayout

GENERATIONS = 3
NOW_MS = "floor(extract(epoch FROM clock_timestamp()) * 1000)::int8"
"""The server's clock in milliseconds since 1970."""

_ZERO = "0::int8"
_TYPES = {ColumnKind.I64: "int8", ColumnKind.U64: "bytea", ColumnKind.BYTES: "bytea"}


def _options(shape: TableLayout) -> str:
    # Free space in each page, so that the next version of a row fits beside it and no index has to be updated.
    return "" if shape.bulky else "WITH (fillfactor = 70)"


DIALECT = SqlDialect(
    types=_TYPES,
    generations=GENERATIONS,
    bytes_literal=lambda value: f"'\\x{value.hex()}'::bytea",
    options=_options,
    indexes_name_the_key=True,
)


def _arrays(kinds: Iterable[str]) -> str:
    """A set of rows, sent as one array for each column."""
    return f"unnest({', '.join(f'${place}::{kind}[]' for place, kind in enumerate(kinds, 1))})"


class PgStatements:
    """The SQL statements of one table, and the encoding of its rows."""

    def __init__(self, table: AnyTable, name: str) -> None:
        columns = [column.name for column in table.columns]
        keys = table.key_columns
        kinds = {column.name: _TYPES[column.kind] for column in table.columns}
        self.table = table
        self.name = name
        self.unsigned = Unsigned(table)
        self.clear = f'DELETE FROM "{name}"'
        self.lock = f'LOCK TABLE "{name}" IN ACCESS EXCLUSIVE MODE NOWAIT'
        self.truncate = f'TRUNCATE "{name}"'
        self.some = f'SELECT 1::int8 FROM "{name}" LIMIT 1'
        self._encoders = [_ENCODERS[column.kind] for column in table.columns]
        self._kinds = kinds
        self._select = f'SELECT {read_columns(table, _ZERO)} FROM "{name}"'
        self._select_keys = f'SELECT {quoted(keys)} FROM "{name}"'
        given = f"{_arrays(kinds[key] for key in keys)} AS k ({quoted(keys)})"
        match = " AND ".join(f't."{key}" = k."{key}"' for key in keys)
        self._given, self._match = given, match
        self._find = (
            f"SELECT {read_columns(table, _ZERO, 'f.')} FROM {given} CROSS JOIN LATERAL "
            f'(SELECT {quoted(columns, "t.")} FROM "{name}" t WHERE {match} LIMIT 1) f'
        )
        rows = _arrays(kinds[column] for column in columns)
        self._insert = f'INSERT INTO "{name}" ({quoted(columns)}) SELECT * FROM {rows}'
        rest = ", ".join(f'"{column}" = excluded."{column}"' for column in columns[table.key :])
        action = f"UPDATE SET {rest}" if rest else "NOTHING"
        self._update = f"{self._insert} ON CONFLICT ({quoted(keys)}) DO {action}"
        # The locked rows may be newer than those that the statement saw. Then the two counts differ, and the division
        # by zero aborts the transaction before its COMMIT, which has been sent already; the transaction is then
        # retried.
        self._delete = (
            f"WITH found AS MATERIALIZED (SELECT f.place FROM {given} CROSS JOIN LATERAL "
            f'(SELECT t.ctid AS place FROM "{name}" t WHERE {match} FOR UPDATE LIMIT 1) f), '
            f'gone AS (DELETE FROM "{name}" t USING found WHERE t.ctid = found.place RETURNING 1) '
            "SELECT 1 / CASE WHEN (SELECT count(*) FROM found) = (SELECT count(*) FROM gone) THEN 1 ELSE 0 END"
        )

    def find(self, keys: Sequence[Key]) -> Filled:
        """Find rows by their keys."""
        return self._find, self._keys_out(keys)

    def latest(self, prefixes: Sequence[Key], below: Any) -> Filled:
        """For each key prefix, the last row whose last key column is below a limit."""
        return self._nearest(prefixes, "<", below, " DESC")

    def earliest(self, prefixes: Sequence[Key], least: Any) -> Filled:
        """For each key prefix, the first row whose last key column is at least a limit."""
        return self._nearest(prefixes, ">=", least, "")

    def _nearest(self, prefixes: Sequence[Key], sign: str, bound: Any, way: str) -> Filled:
        *prefix, last = self.table.key_columns
        columns = [column.name for column in self.table.columns]
        given = f"{_arrays(self._kinds[key] for key in prefix)} AS k ({quoted(prefix)})"
        fits = " AND ".join([*(f't."{key}" = k."{key}"' for key in prefix), f't."{last}" {sign} ${len(prefix) + 1}'])
        sql = (
            f"SELECT {read_columns(self.table, _ZERO, 'f.')} FROM {given} CROSS JOIN LATERAL "
            f'(SELECT {quoted(columns, "t.")} FROM "{self.name}" t WHERE {fits} ORDER BY t."{last}"{way} LIMIT 1) f'
        )
        arrays = zip(*map(self.unsigned.prefix_out, prefixes), strict=True)
        values = [encode(array) for encode, array in zip(self._encoders, arrays, strict=False)]
        return sql, [*values, self.scalar(last, bound)]

    def insert(self, rows: Sequence[Row]) -> Filled:
        """Insert rows; an existing row is an error."""
        return self._insert, self._rows_out(rows)

    def update(self, rows: Sequence[Row]) -> Filled:
        """Replace rows by their keys."""
        return self._update, self._rows_out(rows)

    def delete(self, keys: Sequence[Key]) -> Filled:
        """Delete rows by their keys."""
        return self._delete, self._keys_out(sorted(keys))

    def touch(self, touches: Sequence[Touch]) -> Filled:
        """Soft changes of one column; returns the keys that were due, and the keys that were changed.

        A row that another transaction is writing is skipped: a soft change never waits, and so cannot deadlock.
        """
        column, life, beside = touches[0].column, touches[0].life_column, touches[0].beside_column
        keys = self.table.key_columns
        given = _arrays([*(self._kinds[key] for key in keys), self._kinds[column], "bytea", "bytea"])
        aliases = f"{quoted(keys)}, value, life, beside"
        set_beside = f', "{beside}" = free.beside' if beside else ""
        due = f't."{column}" < k.value' + (f' AND t."{life}" = k.life' if life else "")
        sql = (
            f"WITH k AS MATERIALIZED (SELECT * FROM {given} AS k ({aliases})), "
            f"due AS (SELECT f.* FROM k CROSS JOIN LATERAL "
            f'(SELECT {quoted(keys, "t.")} FROM "{self.name}" t WHERE {self._match} AND {due} LIMIT 1) f), '
            f"free AS MATERIALIZED (SELECT f.place, k.value, k.beside FROM k CROSS JOIN LATERAL "
            f'(SELECT t.ctid AS place FROM "{self.name}" t WHERE {self._match} AND {due} '
            f"FOR NO KEY UPDATE SKIP LOCKED LIMIT 1) f), "
            f'done AS (UPDATE "{self.name}" t SET "{column}" = free.value{set_beside} '
            f"FROM free WHERE t.ctid = free.place RETURNING {quoted(keys, 't.')}) "
            f"SELECT 0::int8, {quoted(keys)} FROM due UNION ALL SELECT 1::int8, {quoted(keys)} FROM done"
        )
        values = [self.unsigned.value_out(column, touch.value) for touch in touches]
        array = _ENCODERS[self.table.columns[self.table.position(column)].kind](values)
        lives, besides = bytes_array([one.life for one in touches]), bytes_array([one.beside for one in touches])
        return sql, [*self._keys_out([touch.key for touch in touches]), array, lives, besides]

    def scan(self, wanted: Range, *, keys_only: bool = False) -> Filled:
        """The statement for the rows of a range."""
        return self._scan(self._select_keys if keys_only else self._select, wanted)

    def positions(self, wanted: Range, *more: str) -> Filled:
        """The statement for the positions of the rows of a range in its index, and for more columns of them."""
        return self._scan(f'SELECT {quoted([*self.table.ordering(wanted.by), *more])} FROM "{self.name}"', wanted)

    def _scan(self, select: str, wanted: Range) -> Filled:
        terms, values = self._bounds(wanted)
        way = " DESC" if wanted.reverse else ""
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        by = ", ".join(f'"{column}"{way}' for column in self.table.ordering(wanted.by))
        return f"{select}{where} ORDER BY {by} LIMIT ${len(values) + 1}", [*values, number(wanted.limit)]

    def joined(self, wanted: Range, column: str, between: bytes) -> Filled:
        """The statement for the last key, the number and one joined column of the rows of a range."""
        terms, values = self._bounds(wanted)
        last = self.table.key_columns[-1]
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        way, pick = (" DESC", "min") if wanted.reverse else ("", "max")
        after = len(values)
        rows = f'SELECT {quoted([last, column])} FROM "{self.name}"{where} ORDER BY "{last}"{way} LIMIT ${after + 1}'
        text = f'string_agg("{column}", ${after + 2}::bytea ORDER BY "{last}"{way})'
        sql = f'SELECT {pick}("{last}"), count(*), {text} FROM ({rows}) AS r'
        return sql, [*values, number(wanted.limit), between]

    def distinct(self, wanted: Range) -> Filled:
        """The statement for the distinct values after a prefix: each step finds the next value in the index."""
        column = self.table.ordering(wanted.by)[len(wanted.prefix)]
        terms, values = self._bounds(wanted)
        further, fixed = self._bounds(wanted._replace(start=()), len(values))

        def first(terms: Sequence[str]) -> str:
            where = f" WHERE {' AND '.join(terms)}" if terms else ""
            return f'SELECT t."{column}" FROM "{self.name}" t{where} ORDER BY t."{column}" LIMIT 1'

        step = f"SELECT ({first([*further, f't.{quoted([column])} > found.value'])}) FROM found"
        made = f"({first(terms)}) UNION ALL {step} WHERE found.value IS NOT NULL"
        limit = f"LIMIT ${len(values) + len(fixed) + 1}"
        sql = f"WITH RECURSIVE found(value) AS ({made}) SELECT value FROM found WHERE value IS NOT NULL {limit}"
        return sql, [*values, *fixed, number(wanted.limit)]

    def _bounds(self, wanted: Range, before: int = 0) -> tuple[list[str], list[bytes]]:
        """The conditions for the rows of a range; `before` is the number of parameters that precede them."""
        order = self.table.ordering(wanted.by)
        depth = len(wanted.prefix)
        values = [self.scalar(name, value) for name, value in zip(order, wanted.prefix, strict=False)]
        terms = [f'"{column}" = ${place}' for place, column in enumerate(order[:depth], before + 1)]
        if wanted.part is not None:
            terms.append(DIALECT.condition(wanted.part))
        for bound, sign in ((wanted.start, ">="), (wanted.stop, "<")):
            if bound:
                bounded = order[depth : depth + len(bound)]
                places = ", ".join(f"${before + len(values) + place}" for place in range(1, len(bound) + 1))
                terms.append(f"({quoted(bounded)}) {sign} ({places})")
                values += [self.scalar(name, value) for name, value in zip(bounded, bound, strict=True)]
        return terms, values

    def page(self, behind: Key | None, limit: int, most_bytes: int) -> Filled:
        """The statement for the rows after a key, up to and including the row that reaches `most_bytes`."""
        columns = quoted([column.name for column in self.table.columns])
        payloads = [name for name, kind in self._kinds.items() if kind == "bytea"]
        size = " + ".join(["0", *(f'coalesce(octet_length("{name}"), 0)' for name in payloads)])
        sql, values = self._behind(f'SELECT {columns}, {size} AS "its bytes" FROM "{self.name}"', behind, limit)
        keys = quoted(self.table.key_columns)
        before = f'sum("its bytes") OVER (ORDER BY {keys} ROWS UNBOUNDED PRECEDING) - "its bytes" AS "bytes before"'
        # The length of a large value is known without reading the value: rows beyond the limit are never read.
        fitting = f"SELECT {columns} FROM (SELECT {columns}, {before} FROM ({sql}) AS found) AS sized"
        return f'{fitting} WHERE "bytes before" < ${len(values) + 1} ORDER BY {keys}', [*values, number(most_bytes)]

    def page_keys(self, behind: Key | None, limit: int) -> Filled:
        """The statement for the keys after a key."""
        return self._behind(self._select_keys, behind, limit)

    def _behind(self, select: str, behind: Key | None, limit: int) -> Filled:
        keys = self.table.key_columns
        values = [] if behind is None else [self.scalar(name, one) for name, one in zip(keys, behind, strict=True)]
        places = ", ".join(f"${place}" for place in range(1, len(values) + 1))
        where = f" WHERE ({quoted(keys)}) > ({places})" if values else ""
        return f"{select}{where} ORDER BY {quoted(keys)} LIMIT ${len(values) + 1}", [*values, number(limit)]

    def _rows_out(self, rows: Sequence[Row]) -> list[bytes]:
        ordered = sorted(rows, key=self.table.key_of)
        columns = zip(*self.unsigned.rows_out(ordered), strict=True)
        return [encode(values) for encode, values in zip(self._encoders, columns, strict=True)]

    def _keys_out(self, keys: Sequence[Key]) -> list[bytes]:
        columns = zip(*map(self.unsigned.key_out, keys), strict=True)
        return [encode(values) for encode, values in zip(self._encoders, columns, strict=False)]

    def scalar(self, column: str, value: Any) -> bytes:
        """The value of one column as a parameter."""
        stored = self.unsigned.value_out(column, value)
        return number(stored) if isinstance(stored, int) else stored


_ENCODERS: dict[ColumnKind, Any] = {
    ColumnKind.I64: number_array,
    ColumnKind.U64: bytes_array,
    ColumnKind.BYTES: bytes_array,
}
