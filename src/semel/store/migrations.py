"""Schema migrations: numbered steps from an empty store to the present schema; forward only.

A step names tables and columns as they were when the step was written, never by today's declarations, so that an old
data folder always passes through the same steps. At start a store applies the missing steps in one transaction, and
refuses data of a newer schema version, or of one from before the first step, and leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.store.protocol import StoreVersionError
from semel.store.table import Above, Below, TableColumn, TableLayout


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
    part: Below | Above | None = None
    """The condition of a partial index; None for an index over all rows."""


class SetColumn(NamedTuple):
    """Set a column to one value in the existing rows that meet all conditions."""

    table: str
    column: str
    value: int
    below: tuple[Below, ...]


Step = CreateTable | AddColumn | MakeIndex | SetColumn


class Migration(NamedTuple):
    """One numbered set of steps."""

    number: int
    about: str
    steps: tuple[Step, ...]


def last_version(migrations: Sequence[Migration]) -> int:
    """The schema version behind these migrations; 0 without any."""
    return migrations[-1].number if migrations else 0


def pending(migrations: Sequence[Migration], version: int, place: str = "The data") -> Sequence[Migration]:
    """The migrations that the data of a place still needs; version 0 is that of an empty store.

    The first migration creates all tables. Its number is not 1 where data of another form has lower numbers.
    """
    first, last = migrations[0].number if migrations else 1, last_version(migrations)
    if [migration.number for migration in migrations] != list(range(first, last + 1)):
        raise ValueError("migrations must be numbered one after another without a gap")
    if version > last:
        raise StoreVersionError(
            f"{place} has schema version {version}, but this Semel supports versions up to {last} only: "
            "start the Semel that wrote it, or a newer one."
        )
    if 0 < version < first:
        raise StoreVersionError(
            f"{place} has schema version {version}, and this Semel supports versions from {first} on only: start the "
            "Semel that wrote it, or begin with an empty store."
        )
    return migrations[version - first + 1 :] if version else migrations


def shapes(migrations: Sequence[Migration]) -> dict[str, TableLayout]:
    """The tables after these migrations."""
    made: dict[str, TableLayout] = {}
    for migration in migrations:
        for step in migration.steps:
            if isinstance(step, SetColumn):
                continue
            if isinstance(step, CreateTable):
                made[step.shape.name] = step.shape
                continue
            old = made[step.table]
            if isinstance(step, AddColumn):
                made[step.table] = old._replace(columns=(*old.columns, step.column))
            else:
                indexes = {**old.indexes, step.name: step.columns}
                partial = {name: part for name, part in old.partial.items() if name != step.name}
                partial |= {} if step.part is None else {step.name: step.part}
                made[step.table] = old._replace(indexes=indexes, partial=partial)
    return made
