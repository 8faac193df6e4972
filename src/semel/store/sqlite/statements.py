"""The few statements of a table, made from its declaration.

A generational table is two SQL tables with a number behind the name; which of them is the younger one is a row of
`semel_generation`. Unsigned numbers are eight bytes with the big end first, so that SQLite orders them as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.store.migrations import AddColumn, CreateTable, Step
from semel.store.protocol import AnyTable, Range, Row, Touch
from semel.store.table import Key, Kind, Shape

GENERATIONS = 2
_TYPES = {Kind.I64: "INTEGER", Kind.U64: "BLOB", Kind.BYTES: "BLOB"}


def names(name: str, generational: bool) -> list[str]:
    """The SQL tables behind a declared one."""
    return [f"{name}_{number}" for number in range(GENERATIONS)] if generational else [name]


def migrate(step: Step, generational: frozenset[str]) -> list[str]:
    """The statements of one migration step."""
    if isinstance(step, AddColumn):
        value = "NULL" if step.value is None else _literal(step.value, step.column.kind)
        empty = "" if step.column.nullable else " NOT NULL"
        return [
            f"ALTER TABLE {name} ADD COLUMN {step.column.name} {_TYPES[step.column.kind]}{empty} DEFAULT {value}"
            for name in names(step.table, step.table in generational)
        ]
    assert isinstance(step, CreateTable)
    return [sql for name in names(step.shape.name, step.shape.generational) for sql in _create(name, step.shape)]


def _create(name: str, shape: Shape) -> list[str]:
    columns = [
        f"{column.name} {_TYPES[column.kind]}" + ("" if column.nullable else " NOT NULL") for column in shape.columns
    ]
    key = ", ".join(column.name for column in shape.columns[: shape.key])
    # A bulky row is appended at the end of its table and found through an index; a small one lives in the index itself.
    kind = "STRICT" if shape.bulky else "STRICT, WITHOUT ROWID"
    made = [f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({key})) {kind}"]
    for index, named in shape.indexes.items():
        made.append(f"CREATE INDEX {name}_{index} ON {name} ({', '.join(named)})")
    return made


def _literal(value: int | bytes, kind: Kind) -> str:
    if isinstance(value, int) and kind is Kind.I64:
        return str(value)
    stored = value.to_bytes(8, "big") if isinstance(value, int) else value
    return f"x'{stored.hex()}'"


class Statements:
    """The statements of one SQL table, and how its rows travel."""

    def __init__(self, table: AnyTable, name: str) -> None:
        columns = [column.name for column in table.columns]
        keys = " AND ".join(f"{column} = ?" for column in table.key_columns)
        marks = ", ".join("?" for _ in columns)
        self.table = table
        self.name = name
        self.select = f"SELECT {', '.join(columns)} FROM {name}"
        self.select_keys = f"SELECT {', '.join(table.key_columns)} FROM {name}"
        self.find = f"{self.select} WHERE {keys}"
        self.insert = f"INSERT INTO {name} VALUES ({marks})"
        self.upsert = f"INSERT OR REPLACE INTO {name} VALUES ({marks})"
        rest = columns[table.key :]
        self.update = f"UPDATE {name} SET {', '.join(f'{column} = ?' for column in rest)} WHERE {keys}" if rest else ""
        self.delete = f"DELETE FROM {name} WHERE {keys}"
        self.clear = f"DELETE FROM {name}"
        self.some = f"SELECT 1 FROM {name} LIMIT 1"
        self._unsigned = [place for place, column in enumerate(table.columns) if column.kind is Kind.U64]
        self._unsigned_keys = [place for place in self._unsigned if place < table.key]

    def touch(self, touch: Touch) -> tuple[str, tuple[Any, ...]]:
        """A soft change of one row."""
        keys = " AND ".join(f"{column} = ?" for column in self.table.key_columns)
        column = touch.column
        sql = f"UPDATE {self.name} SET {column} = ? WHERE {keys} AND {column} < ?"
        value = self._number(column, touch.value)
        return sql, (value, *self.key_out(touch.key), value)

    def scan(self, wanted: Range, *, keys_only: bool = False) -> tuple[str, list[Any]]:
        """The statement and values of a range."""
        select = self.select_keys if keys_only else self.select
        order = self.table.ordering(wanted.by)
        depth = len(wanted.prefix)
        terms = [f"{column} = ?" for column in order[:depth]]
        values: list[Any] = [self._number(name, value) for name, value in zip(order, wanted.prefix, strict=False)]
        for bound, sign in ((wanted.start, ">="), (wanted.stop, "<")):
            if bound:
                bounded = order[depth : depth + len(bound)]
                terms.append(f"({', '.join(bounded)}) {sign} ({', '.join('?' for _ in bounded)})")
                values += [self._number(name, value) for name, value in zip(bounded, bound, strict=True)]
        way = " DESC" if wanted.reverse else ""
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        by = ", ".join(f"{column}{way}" for column in order)
        return f"{select}{where} ORDER BY {by} LIMIT ?", [*values, wanted.limit]

    def rows_out(self, rows: Sequence[Row]) -> Sequence[Any]:
        """Rows as SQLite takes them."""
        return [_replace(row, self._unsigned, _pack) for row in rows] if self._unsigned else rows

    def updates_out(self, rows: Sequence[Row]) -> list[Any]:
        """Rows as the update statement takes them: the key behind."""
        key = self.table.key
        return [(*row[key:], *row[:key]) for row in self.rows_out(rows)]

    def key_out(self, key: Key) -> Key:
        """A key as SQLite takes it."""
        return _replace(key, self._unsigned_keys, _pack) if self._unsigned_keys else key

    def key_in(self, values: Any) -> Key:
        """A key as the contracts know it."""
        return _replace(values, self._unsigned_keys, _unpack) if self._unsigned_keys else tuple(values)

    def row_in(self, values: Any) -> Row:
        """A row as the contracts know it."""
        if self._unsigned:
            values = _replace(values, self._unsigned, _unpack)
        return self.table.row._make(values)

    def _number(self, column: str, value: Any) -> Any:
        return _pack(value) if self.table.columns[self.table.position(column)].kind is Kind.U64 else value


def _replace(values: Any, places: list[int], change: Any) -> tuple[Any, ...]:
    changed = list(values)
    for place in places:
        if changed[place] is not None:
            changed[place] = change(changed[place])
    return tuple(changed)


def _pack(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _unpack(stored: bytes) -> int:
    return int.from_bytes(stored, "big")
