"""SQL dialects: statements that create and change tables, and unsigned numbers for databases without them.

Statements are made from migration steps; each database has its dialect. An unsigned number is stored as eight bytes in
big-endian order, so that bytewise order is numeric order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration, SetColumn
from semel.store.protocol import AnyTable, Row
from semel.store.table import Above, Below, ColumnKind, Key, Table, TableColumn, TableLayout

_new_tuple = tuple.__new__
"""Makes a named tuple in a third of the time of its constructor."""


class Unsigned:
    """Converts the unsigned columns of one table's rows and keys on write and read."""

    def __init__(self, table: AnyTable) -> None:
        self._table = table
        self._places = [place for place, column in enumerate(table.columns) if column.kind is ColumnKind.U64]
        self._key_places = [place for place in self._places if place < table.key]
        self.has_keys = bool(self._key_places)
        """Whether a key has another form in the database."""

    def rows_out(self, rows: Sequence[Row]) -> Sequence[Any]:
        """Rows in the form of the database."""
        if len(self._places) == 1:  # as most tables with unsigned columns have
            place = self._places[0]
            return [
                row if row[place] is None else (*row[:place], row[place].to_bytes(8, "big"), *row[place + 1 :])
                for row in rows
            ]
        return [_replace(row, self._places, pack) for row in rows] if self._places else rows

    def key_out(self, key: Key) -> Key:
        """A key in the form of the database."""
        return _replace(key, self._key_places, pack) if self._key_places else key

    def prefix_out(self, prefix: Key) -> Key:
        """A key prefix in the form of the database."""
        places = [place for place in self._key_places if place < len(prefix)]
        return _replace(prefix, places, pack) if places else prefix

    def key_in(self, values: Any) -> Key:
        """A key in the form of the contracts."""
        return _replace(values, self._key_places, unpack) if self._key_places else tuple(values)

    def row_in(self, values: Any) -> Row:
        """A row in the form of the contracts. The values are as many as the columns, so nothing counts them again."""
        return _new_tuple(self._table.row, _replace(values, self._places, unpack) if self._places else values)

    def value_out(self, column: str, value: Any) -> Any:
        """The value of one column in the form of the database."""
        return pack(value) if self._table.columns[self._table.position(column)].kind is ColumnKind.U64 else value

    def value_in(self, column: str, value: Any) -> Any:
        """The value of one column in the form of the contracts."""
        return unpack(value) if self._table.columns[self._table.position(column)].kind is ColumnKind.U64 else value


MOVED = "semel_moved"
"""The row of `semel_generation` that marks a store whose data was moved. Both stores compare those rows with what they
know before they write: a mark that comes beside a running node stops it.
"""


def pack(number: int) -> bytes:
    """A number as eight bytes."""
    return number.to_bytes(8, "big")


def unpack(stored: bytes) -> int:
    """The number in these eight bytes."""
    return int.from_bytes(stored, "big")


def _replace(values: Any, places: list[int], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    if len(places) == 1:  # as for most keys: faster than by a list
        place = places[0]
        value = values[place]
        return values if value is None else (*values[:place], change(value), *values[place + 1 :])
    changed = list(values)
    for place in places:
        if changed[place] is not None:
            changed[place] = change(changed[place])
    return tuple(changed)


SchemaChange = CreateTable | AddColumn | MakeIndex | SetColumn


class SqlDialect(NamedTuple):
    """The differences between databases."""

    types: Mapping[ColumnKind, str]
    generations: int
    """The number of SQL tables of a generational table."""
    bytes_literal: Callable[[bytes], str]
    options: Callable[[TableLayout], str]
    """The options after the columns of a new table."""
    indexes_name_the_key: bool
    """Whether an index must name the key columns after its own; otherwise the database appends them to every index."""
    log_statements: Callable[[str, str], list[str]] | None = None
    """Creates a log table with this name and these columns; None if the database keeps log tables like others."""

    def names(self, name: str, generational: bool) -> list[str]:
        """The SQL tables of a declared table."""
        return [f"{name}_{number}" for number in range(self.generations)] if generational else [name]

    def names_of(self, table: Table[Any]) -> list[str]:
        """As `names`, for a declaration."""
        return self.names(table.name, table.generational)

    def migrate(self, step: SchemaChange, generational: frozenset[str]) -> list[str]:
        """The statements of a migration step that needs only SQL."""
        if isinstance(step, AddColumn):
            added = f"ADD COLUMN {self._column(step.column)} DEFAULT {self._literal(step.value, step.column.kind)}"
            tables = self.names(step.table, step.table in generational)
            return [f'ALTER TABLE "{name}" {added}' for name in tables]
        if isinstance(step, MakeIndex):
            made = self._index(step.table, step.key, step.name, step.columns, step.part)
            return [f'DROP INDEX IF EXISTS "{step.table}_{step.name}"', made]
        if isinstance(step, SetColumn):
            rows = " AND ".join(map(self.condition, step.below))
            tables = self.names(step.table, step.table in generational)
            return [f'UPDATE "{name}" SET "{step.column}" = {step.value} WHERE {rows}' for name in tables]
        shape = step.shape
        return [sql for name in self.names(shape.name, shape.generational) for sql in self.create(name, shape)]

    def create(self, name: str, shape: TableLayout) -> list[str]:
        """The statements that create one SQL table and its indexes."""
        columns = ", ".join(map(self._column, shape.columns))
        keys = [column.name for column in shape.columns[: shape.key]]
        made = [f'CREATE TABLE "{name}" ({columns}, PRIMARY KEY ({quoted(keys)})) {self.options(shape)}']
        if shape.log and self.log_statements is not None:
            made = self.log_statements(name, columns)
        for index, named in shape.indexes.items():
            made.append(self._index(name, keys, index, named, shape.partial.get(index)))
        return made

    def _index(
        self, name: str, keys: Sequence[str], index: str, columns: Sequence[str], part: Below | Above | None
    ) -> str:
        behind = [key for key in keys if key not in columns] if self.indexes_name_the_key else []
        rows = "" if part is None else f" WHERE {self.condition(part)}"
        return f'CREATE INDEX "{name}_{index}" ON "{name}" ({quoted([*columns, *behind])}){rows}'

    def condition(self, part: Below | Above) -> str:
        """The condition of a partial index as SQL. A query must repeat it literally, without bound parameters."""
        if isinstance(part, Above):
            return f'"{part.column}" > {self.bytes_literal(pack(part.bound))}'
        bound = self.bytes_literal(part.bound) if isinstance(part.bound, bytes) else str(part.bound)
        return f'"{part.column}" < {bound}'

    def _column(self, column: TableColumn) -> str:
        return f'"{column.name}" {self.types[column.kind]}' + ("" if column.nullable else " NOT NULL")

    def _literal(self, value: int | bytes | None, kind: ColumnKind) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, int) and kind is ColumnKind.I64:
            return str(value)
        return self.bytes_literal(pack(value) if isinstance(value, int) else value)


def quoted(columns: Sequence[str], before: str = "") -> str:
    """A list of names as SQL."""
    return ", ".join(f'{before}"{column}"' for column in columns)


def read_columns(table: AnyTable, zero: str, before: str = "") -> str:
    """The columns of a row as SQL, with the literal `zero` in place of its checksum, which no rule reads."""
    columns = [column.name for column in table.columns]
    return quoted(columns, before) if table.checksum_of is None else f"{quoted(columns[:-1], before)}, {zero}"


def generational_tables(migrations: Sequence[Migration]) -> frozenset[str]:
    """The generational tables that these migrations create."""
    steps = (step for migration in migrations for step in migration.steps)
    return frozenset(step.shape.name for step in steps if isinstance(step, CreateTable) and step.shape.generational)
