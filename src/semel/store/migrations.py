"""Schema migrations: numbered steps from an empty store to the present schema; forward only.

A step names shapes as they were when it was written, never the declarations of today, so that an old data folder is
carried through the same steps as it always was. A store applies the missing steps in one transaction at start, and
refuses data that a newer version has already moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from semel.store.protocol import StoreVersionError
from semel.store.table import Below, TableColumn, TableLayout


class CreateTable(NamedTuple):
    """Create a table and its indexes."""

    shape: TableLayout


class AddColumn(NamedTuple):
    """Add a column at the end of a table, with a value for existing rows."""

    table: str
    column: TableColumn
    value: int | bytes | None


class MakeIndex(NamedTuple):
    """Create an index, replacing one of the same name."""

    table: str
    key: tuple[str, ...]
    """The columns of the table's key."""
    name: str
    columns: tuple[str, ...]
    below: Below | None = None
    """The rows that it has; None for all."""


class SetColumn(NamedTuple):
    """Set a column to one value in the existing rows for which all conditions hold."""

    table: str
    column: str
    value: int
    below: tuple[Below, ...]


class FillColumn(NamedTuple):
    """Set a column of bytes, in some of the existing rows, to a value made from another column of the row."""

    table: str
    key: tuple[TableColumn, ...]
    """The columns of the table's key."""
    column: str
    source: str
    """One of the key's, of bytes."""
    below: Below
    """The rows that are changed."""
    derive: Callable[[bytes], bytes]


Step = CreateTable | AddColumn | MakeIndex | SetColumn | FillColumn


class Migration(NamedTuple):
    """One numbered set of steps."""

    number: int
    about: str
    steps: tuple[Step, ...]


def pending(migrations: Sequence[Migration], version: int) -> Sequence[Migration]:
    """The migrations that data of that version still needs."""
    if [migration.number for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError("migrations are numbered 1, 2, 3, ... without a hole")
    if version > len(migrations):
        raise StoreVersionError(
            f"The data is of schema version {version}, and this Semel knows versions up to {len(migrations)}: "
            "start the Semel that wrote it, or a newer one."
        )
    return migrations[version:]


def shapes(migrations: Sequence[Migration]) -> dict[str, TableLayout]:
    """The tables that these migrations leave behind."""
    made: dict[str, TableLayout] = {}
    for migration in migrations:
        for step in migration.steps:
            if isinstance(step, SetColumn | FillColumn):
                continue
            if isinstance(step, CreateTable):
                made[step.shape.name] = step.shape
                continue
            old = made[step.table]
            if isinstance(step, AddColumn):
                made[step.table] = old._replace(columns=(*old.columns, step.column))
            else:
                indexes = {**old.indexes, step.name: step.columns}
                partial = {name: below for name, below in old.partial.items() if name != step.name}
                partial |= {} if step.below is None else {step.name: step.below}
                made[step.table] = old._replace(indexes=indexes, partial=partial)
    return made
