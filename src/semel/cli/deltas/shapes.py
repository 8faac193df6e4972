"""Export formats: rows and deltas as lines of JSON, and as cells of flat files.

JSON has the names of the wire. A line of the log is a delta as it was pushed, with its position besides, which a push
ignores: so the log of one gateway can be pushed into another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from semel.cli.deltas.kinds import Field, Kind, joined, kind_of
from semel.contracts.deltas.reading import LoggedDelta, MergedRow

MOST_COLUMNS = 10_000
"""Columns of all flat files of one export."""

LOG_FIELDS = (
    Field("position", Kind.UNSIGNED),
    Field("hlc", Kind.UNSIGNED),
    Field("client_id", Kind.STRING),
    Field("delta_id", Kind.STRING),
    Field("op", Kind.STRING),
    Field("table", Kind.STRING),
    Field("row_id", Kind.STRING),
    Field("columns", Kind.JSON),
)

_OWN = (Field("_row_id", Kind.STRING), Field("_hlc", Kind.UNSIGNED), Field("_client_id", Kind.STRING))


def row_line(row: MergedRow) -> str:
    """A row as one line of JSON."""
    columns = ",".join(f'"{name}":{text}' for name, text in sorted(row.columns))
    return (
        f'{{"table":"{row.table}","rowId":{row.row},"hlc":"{row.hlc}","clientId":{row.client},"columns":{{{columns}}}}}'
    )


def delta_line(delta: LoggedDelta) -> str:
    """A delta as one line of JSON."""
    return (
        f'{{"position":"{delta.position}","op":"{delta.op.name}","table":"{delta.table}","rowId":{delta.row},'
        f'"clientId":{delta.client},"columns":{delta.columns_text},"hlc":"{delta.hlc}","deltaId":"{delta.id.hex()}"}}'
    )


def delta_cells(delta: LoggedDelta) -> list[str | None]:
    """The texts of a delta, by LOG_FIELDS."""
    names = [f'"{name}"' for name in (delta.id.hex(), delta.op.name, delta.table)]
    return [str(delta.position), str(delta.hlc), delta.client, *names, delta.row, delta.columns_text]


class TableShape(NamedTuple):
    """The flat file of one table: its own columns behind those that say whose row it is."""

    fields: Sequence[Field]
    names: Sequence[str]
    rows: int

    def cells(self, row: MergedRow) -> list[str | None]:
        """The texts of a row, by the fields."""
        values = dict(row.columns)
        return [row.row, str(row.hlc), row.client, *map(values.get, self.names)]


class Survey:
    """Which columns the rows of each table have, and of what kind: a flat file has to know before its first row."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Kind]] = {}
        self._rows: dict[str, int] = {}
        self._columns = 0

    def look_at(self, row: MergedRow) -> None:
        """Take one row into account; one that is gone makes its table known."""
        kinds = self._kinds.setdefault(row.table, {})
        self._rows[row.table] = self._rows.get(row.table, 0) + row.is_live
        before = len(kinds)
        for name, text in row.columns:
            kinds[name] = joined(kinds.get(name, Kind.NOTHING), kind_of(text))
        self._columns += len(kinds) - before
        if self._columns > MOST_COLUMNS:
            raise click.ClickException(
                f"There are more than {MOST_COLUMNS:,} different columns, too many for flat files: "
                "export table by table with --table, or as jsonl."
            )

    def shapes(self) -> Mapping[str, TableShape]:
        """The flat files, by the names of their tables."""
        return {table: _shape(kinds, self._rows[table]) for table, kinds in self._kinds.items()}


def _shape(kinds: Mapping[str, Kind], rows: int) -> TableShape:
    names = sorted(kinds)
    own = [Field(_free(field.name, kinds), field.kind) for field in _OWN]
    return TableShape([*own, *(Field(name, kinds[name]) for name in names)], names, rows)


def _free(name: str, taken: Mapping[str, Kind]) -> str:
    """A name that no column of the table has."""
    while name in taken:
        name = f"_{name}"
    return name
