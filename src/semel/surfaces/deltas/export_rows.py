"""The rows and deltas of an export: read from one snapshot page by page, as JSON lines and as cells of flat files.

JSON uses the names of the HTTP API. A line of the log is a delta as it was pushed plus its position, which a push
ignores: so the log of one gateway can be pushed into another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.hashes import delta_id
from semel.store.table import Key
from semel.surfaces.deltas.flat_files import ExportError, FlatColumn, FlatKind, joined, kind_of
from semel.surfaces.deltas.reading import LoggedDelta, MergedRow, delta_log, merged_rows

FIRST, MOST = 32, 256
PAGE_BYTES = 4 * 1024 * 1024
"""Approximate bytes of one page: the size of rows is known only after they are read."""


class ExportPageSize:
    """The number of rows of the next page, from the size of the last one."""

    def __init__(self) -> None:
        self.limit = FIRST

    def note(self, count: int, size: int) -> None:
        """Record that a page had `count` entries with `size` bytes in total."""
        wanted = PAGE_BYTES * count // max(size, 1)
        self.limit = max(1, min(wanted, 2 * self.limit, MOST))


def rows_of(reading: Reading, gateway: str, table: str | None) -> Iterator[MergedRow]:
    """Merged rows of one table or all, in table order, including deleted rows."""
    pace = ExportPageSize()
    after: Key | None = None if table is None else (table.encode(), -1)
    while True:
        rows, after = merged_rows(reading, gateway, after, pace.limit)
        for row in rows:
            if table is not None and row.table != table:
                return
            yield row
        if after is None:
            return
        pace.note(len(rows), sum(_size(row) for row in rows))


def log_of(reading: Reading, gateway: str) -> Iterator[LoggedDelta]:
    """The deltas as pushed, in commit order."""
    pace = ExportPageSize()
    after = 0
    while True:
        limit = pace.limit
        deltas = delta_log(reading, gateway, after, limit)
        yield from deltas
        if len(deltas) < limit:
            return
        after = deltas[-1].position
        pace.note(len(deltas), sum(len(delta.columns_text) for delta in deltas))


def refuse_forged(delta: LoggedDelta) -> None:
    """Raise ExportError if the id of a delta is not the hash of its content."""
    found = delta_id(delta.client, delta.columns_text, delta.hlc, delta.row, delta.table)
    if found != delta.id:
        raise ExportError(
            f"The delta {delta.id.hex()} at position {delta.position} does not match its id: its content has the "
            f"hash {found.hex()}."
        )


def _size(row: MergedRow) -> int:
    return sum(len(name) + len(text) for name, text in row.columns)


MOST_COLUMNS = 10_000
"""Columns of all flat files of one export."""

LOG_FIELDS = (
    FlatColumn("position", FlatKind.UNSIGNED),
    FlatColumn("hlc", FlatKind.UNSIGNED),
    FlatColumn("client_id", FlatKind.STRING),
    FlatColumn("delta_id", FlatKind.STRING),
    FlatColumn("op", FlatKind.STRING),
    FlatColumn("table", FlatKind.STRING),
    FlatColumn("row_id", FlatKind.STRING),
    FlatColumn("columns", FlatKind.JSON),
)

_OWN = (
    FlatColumn("_row_id", FlatKind.STRING),
    FlatColumn("_hlc", FlatKind.UNSIGNED),
    FlatColumn("_client_id", FlatKind.STRING),
)


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
    """The flat file of one table: the columns that identify a row, then the table's own."""

    fields: Sequence[FlatColumn]
    names: Sequence[str]
    rows: int

    def cells(self, row: MergedRow) -> list[str | None]:
        """The texts of a row, by the fields."""
        values = dict(row.columns)
        return [row.row, str(row.hlc), row.client, *map(values.get, self.names)]


class Survey:
    """The columns and kinds of each table, which a flat file needs before its first row."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, FlatKind]] = {}
        self._rows: dict[str, int] = {}
        self._columns = 0

    def look_at(self, row: MergedRow) -> None:
        """Take one row into account; a deleted row only adds its table."""
        kinds = self._kinds.setdefault(row.table, {})
        self._rows[row.table] = self._rows.get(row.table, 0) + row.is_live
        before = len(kinds)
        for name, text in row.columns:
            kinds[name] = joined(kinds.get(name, FlatKind.NOTHING), kind_of(text))
        self._columns += len(kinds) - before
        if self._columns > MOST_COLUMNS:
            raise ExportError(
                f"There are more than {MOST_COLUMNS:,} different columns, too many for flat files: "
                "export table by table with --table, or as jsonl."
            )

    def shapes(self) -> Mapping[str, TableShape]:
        """The flat files, by the names of their tables."""
        return {table: _shape(kinds, self._rows[table]) for table, kinds in self._kinds.items()}


def _shape(kinds: Mapping[str, FlatKind], rows: int) -> TableShape:
    names = sorted(kinds)
    own = [FlatColumn(_free(field.name, kinds), field.kind) for field in _OWN]
    return TableShape([*own, *(FlatColumn(name, kinds[name]) for name in names)], names, rows)


def _free(name: str, taken: Mapping[str, FlatKind]) -> str:
    """A column name that the table does not have."""
    while name in taken:
        name = f"_{name}"
    return name
