"""Schema migrations: numbered steps from an empty store to the present schema; forward only.

A step names tables and columns as they were when the step was written, never by today's declarations, so that an old
data folder always passes through the same steps. At start a store applies the missing steps in one transaction, and
refuses data of a newer schema version.
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
    """The key columns of the table."""
    name: str
    columns: tuple[str, ...]
    below: Below | None = None
    """The condition of a partial index; None for an index over all rows."""


class SetColumn(NamedTuple):
    """Set a column to one value in the existing rows that meet all conditions."""

    table: str
    column: str
    value: int
    below: tuple[Below, ...]


class FillColumn(NamedTuple):
    """Set a column of bytes, in some of the existing rows, to a value computed from another column of the row."""

    table: str
    key: tuple[TableColumn, ...]
    """The key columns of the table."""
    column: str
    source: str
    """A key column of bytes, the input of the computation."""
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
        raise ValueError("migrations must be numbered 1, 2, 3, ... without a gap")
    if version > len(migrations):
        raise StoreVersionError(
            f"The data has schema version {version}, but this Semel supports versions up to {len(migrations)} only: "
            "start the Semel that wrote it, or a newer one."
        )
    return migrations[version:]


def shapes(migrations: Sequence[Migration]) -> dict[str, TableLayout]:
    """The tables after these migrations."""
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
