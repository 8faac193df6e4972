"""Flips of single bits of a stored value: in every column of every table, in several rows of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from semel.store.protocol import AnyTable
from semel.store.sql_dialect import quoted
from semel.store.table import ColumnKind
from tests.check.damages import Database

ROWS = 4
"""Rows of a table whose value of one column is changed, spread over the table."""


class Flip(NamedTuple):
    """One value of one row, and what it becomes."""

    table: str
    column: str
    keys: tuple[str, ...]
    key: tuple[Any, ...]
    before: Any
    after: Any

    def plant(self, database: Database) -> None:
        """Change the value."""
        self._write(database, self.key, self.after)

    def mend(self, database: Database) -> None:
        """Change it back."""
        key = tuple(
            self.after if name == self.column else value for name, value in zip(self.keys, self.key, strict=True)
        )
        self._write(database, key, self.before)

    def _write(self, database: Database, key: Sequence[Any], value: Any) -> None:
        where = " AND ".join(f'"{name}" = ?' for name in self.keys)
        database.run(f'UPDATE {self.table} SET "{self.column}" = ? WHERE {where}', value, *key)


def flips_of(database: Database, table: AnyTable, rows: int = ROWS) -> Iterator[Flip]:
    """Flips of every column of a table, one column after the other."""
    name = f"{table.name}_0" if table.generational else table.name
    names = [column.name for column in table.columns]
    stored = [tuple(map(_plain, row)) for row in database.ask(f"SELECT {quoted(names)} FROM {name}")]
    stored.sort(key=lambda row: tuple(map(repr, row)))
    keys = {row[: table.key] for row in stored}
    for place, column in enumerate(names):
        filled = [row for row in stored if row[place] not in (None, b"")]
        chosen = filled or stored  # a column that no row uses gets a value instead
        step = max(1, len(chosen) // rows)
        for number, row in enumerate(chosen[::step][:rows]):
            after = _flipped(row, place, number, table, keys)
            yield Flip(name, column, table.key_columns, row[: table.key], row[place], after)


def _flipped(row: tuple[Any, ...], place: int, number: int, table: AnyTable, keys: set[tuple[Any, ...]]) -> Any:
    """The value with one bit changed, such that the row has a key of its own: in each row another bit, in the first the
    lowest of the last byte.
    """
    key = row[: table.key]
    for bit in (*range(number * 5, 62), *range(62)):
        after = _with_bit(row[place], bit, table.columns[place].kind)
        if (*key[:place], after, *key[place + 1 :]) not in keys:
            return after
    raise AssertionError(f"{table.name} has rows under all keys")


def _with_bit(value: Any, bit: int, kind: ColumnKind) -> Any:
    if value in (None, b""):
        return {ColumnKind.I64: 1, ColumnKind.U64: bytes(7) + b"\x01", ColumnKind.BYTES: b"\x01"}[kind]
    if isinstance(value, int):
        return value ^ 1 << bit
    data = bytearray(value)
    data[-1 - bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(data)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
