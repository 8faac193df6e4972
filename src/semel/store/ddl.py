"""DDL statements of migration steps, one dialect for each database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration, SetColumn
from semel.store.table import Below, Column, Kind, Shape, Table
from semel.store.unsigned import pack

SchemaChange = CreateTable | AddColumn | MakeIndex | SetColumn


class Dialect(NamedTuple):
    """The differences between databases."""

    types: Mapping[Kind, str]
    generations: int
    """The number of SQL tables behind a generational one."""
    bytes_literal: Callable[[bytes], str]
    options: Callable[[Shape], str]
    """The options after the columns of a new table."""
    indexes_name_the_key: bool
    """Whether the key must be written behind an index's columns; elsewhere it is in every index by itself."""

    def names(self, name: str, generational: bool) -> list[str]:
        """The SQL tables behind a declared one."""
        return [f"{name}_{number}" for number in range(self.generations)] if generational else [name]

    def names_of(self, table: Table[Any]) -> list[str]:
        """The same for its declaration."""
        return self.names(table.name, table.generational)

    def migrate(self, step: SchemaChange, generational: frozenset[str]) -> list[str]:
        """The statements of one migration step that needs nothing but SQL."""
        if isinstance(step, AddColumn):
            added = f"ADD COLUMN {self._column(step.column)} DEFAULT {self._literal(step.value, step.column.kind)}"
            tables = self.names(step.table, step.table in generational)
            return [f'ALTER TABLE "{name}" {added}' for name in tables]
        if isinstance(step, MakeIndex):
            made = self._index(step.table, step.key, step.name, step.columns, step.below)
            return [f'DROP INDEX IF EXISTS "{step.table}_{step.name}"', made]
        if isinstance(step, SetColumn):
            rows = " AND ".join(map(self.condition, step.below))
            tables = self.names(step.table, step.table in generational)
            return [f'UPDATE "{name}" SET "{step.column}" = {step.value} WHERE {rows}' for name in tables]
        shape = step.shape
        return [sql for name in self.names(shape.name, shape.generational) for sql in self._create(name, shape)]

    def _create(self, name: str, shape: Shape) -> list[str]:
        columns = ", ".join(map(self._column, shape.columns))
        keys = [column.name for column in shape.columns[: shape.key]]
        made = [f'CREATE TABLE "{name}" ({columns}, PRIMARY KEY ({quoted(keys)})) {self.options(shape)}']
        for index, named in shape.indexes.items():
            made.append(self._index(name, keys, index, named, shape.partial.get(index)))
        return made

    def _index(self, name: str, keys: Sequence[str], index: str, columns: Sequence[str], below: Below | None) -> str:
        behind = [key for key in keys if key not in columns] if self.indexes_name_the_key else []
        rows = "" if below is None else f" WHERE {self.condition(below)}"
        return f'CREATE INDEX "{name}_{index}" ON "{name}" ({quoted([*columns, *behind])}){rows}'

    def condition(self, below: Below) -> str:
        """Which rows a partial index has, as SQL: a query must say it in these words, without values put in later."""
        bound = self.bytes_literal(below.bound) if isinstance(below.bound, bytes) else str(below.bound)
        return f'"{below.column}" < {bound}'

    def _column(self, column: Column) -> str:
        return f'"{column.name}" {self.types[column.kind]}' + ("" if column.nullable else " NOT NULL")

    def _literal(self, value: int | bytes | None, kind: Kind) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, int) and kind is Kind.I64:
            return str(value)
        return self.bytes_literal(pack(value) if isinstance(value, int) else value)


def quoted(columns: Sequence[str], before: str = "") -> str:
    """A list of names as SQL."""
    return ", ".join(f'{before}"{column}"' for column in columns)


def generational_tables(migrations: Sequence[Migration]) -> frozenset[str]:
    """The tables that these migrations make in generations."""
    steps = (step for migration in migrations for step in migration.steps)
    return frozenset(step.shape.name for step in steps if isinstance(step, CreateTable) and step.shape.generational)
