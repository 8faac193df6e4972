"""Export of a gateway: its rows or its log as files for other programs, from one snapshot.

A file is complete or does not exist. A flat file needs its columns before its first row, so the rows are read twice
from the same snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple

from semel.engine.reading import Reading
from semel.surfaces.deltas.export_rows import (
    LOG_FIELDS,
    Survey,
    TableShape,
    delta_cells,
    delta_line,
    log_of,
    refuse_forged,
    row_line,
    rows_of,
)
from semel.surfaces.deltas.export_target import new_file, new_folder, refuse_taken
from semel.surfaces.deltas.flat_files import CsvFile, ExportError, FlatColumn, FlatFile, ParquetFile, require_pyarrow
from semel.surfaces.deltas.reading import gauges, high_water
from semel.surfaces.deltas.tables import DELTA_GATEWAY, gateway_key

JSONL, CSV, PARQUET = "jsonl", "csv", "parquet"

OnProgress = Callable[[int], None]
Progress = Callable[[str, int | None], AbstractContextManager[OnProgress]]
"""Begins a bar with a label and the number of rows, if known; what it gives is called with the rows done."""


class ExportRequest(NamedTuple):
    """What to export, and where to. Without a target everything is read and nothing is written."""

    gateway: str
    is_log: bool
    format: str
    table: str | None
    verifies: bool
    """Whether the hash of each delta of the log is compared."""
    target: Path | None
    force: bool = False
    """Whether existing files may be overwritten."""
    stream: Callable[[], AbstractContextManager[BinaryIO]] | None = None
    """Opens what the one file is written to, instead of the target."""

    @property
    def is_folder(self) -> bool:
        """Whether it writes a folder: one flat file per table."""
        return not self.is_log and self.format != JSONL and self.table is None

    def refuse_useless(self) -> None:
        """Raise `ExportError` for a request that cannot be carried out, before anything is read."""
        if self.format == PARQUET:
            require_pyarrow()
        if self.target is not None:
            refuse_taken(self.target, is_folder=self.is_folder, force=self.force)


class ExportedFile(NamedTuple):
    """One file and its number of rows or deltas; the log and JSON lines have no single table."""

    file: str
    table: str | None
    rows: int


class ExportReport(NamedTuple):
    """The result of an export."""

    as_of: int
    """The end of the gateway's log: a pull from here continues after the export."""
    files: tuple[ExportedFile, ...]

    @property
    def rows(self) -> int:
        """The total number of rows."""
        return sum(file.rows for file in self.files)


def export_gateway(reading: Reading, wish: ExportRequest, name: str, progress: Progress) -> ExportReport:
    """Write the export; `name` is that of the target in the report. Raises `ExportError`."""
    if reading.get(DELTA_GATEWAY, (gateway_key(wish.gateway),)) is None:
        raise ExportError(f"There is no gateway {wish.gateway} in this store.")
    as_of = high_water(reading, wish.gateway)
    if wish.is_log:
        rows = _export_log(reading, wish, as_of, progress)
    elif wish.format == JSONL:
        rows = _export_lines(reading, wish, progress)
    else:
        shapes = _export_tables(reading, wish, as_of, progress)
        if wish.table is None:
            found = [(str(Path(name, f"{table}.{wish.format}")), table, one.rows) for table, one in shapes.items()]
            return ExportReport(as_of, tuple(ExportedFile(*one) for one in found))
        rows = shapes[wish.table].rows
    return ExportReport(as_of, (ExportedFile(name, wish.table, rows),))


def _export_log(reading: Reading, wish: ExportRequest, as_of: int, progress: Progress) -> int:
    count = 0
    with _file(wish) as out, progress("Exporting", gauges(reading, wish.gateway).delta_count) as tell:
        grid = None if wish.format == JSONL else _grid(wish, out, LOG_FIELDS, None, as_of)
        for delta in log_of(reading, wish.gateway):
            tell(1)
            if wish.verifies:
                refuse_forged(delta)
            if wish.table not in (None, delta.table):
                continue
            count += 1
            if grid is None:
                out.write(f"{delta_line(delta)}\n".encode())
            else:
                grid.add(delta_cells(delta))
        if grid is not None:
            grid.finish()
    return count


def _export_lines(reading: Reading, wish: ExportRequest, progress: Progress) -> int:
    count, is_known = 0, wish.table is None
    with _file(wish) as out, progress("Exporting", _most_rows(reading, wish)) as tell:
        for row in rows_of(reading, wish.gateway, wish.table):
            tell(1)
            is_known = True
            if row.is_live:
                out.write(f"{row_line(row)}\n".encode())
                count += 1
        if not is_known:
            raise _no_table(wish)
    return count


def _export_tables(reading: Reading, wish: ExportRequest, as_of: int, progress: Progress) -> Mapping[str, TableShape]:
    shapes = _survey(reading, wish, progress)

    def write(table: str, out: BinaryIO, tell: OnProgress) -> None:
        grid = _grid(wish, out, shapes[table].fields, table, as_of)
        for row in rows_of(reading, wish.gateway, table):
            if row.is_live:
                grid.add(shapes[table].cells(row))
                tell(1)
        grid.finish()

    with progress("Exporting", sum(shape.rows for shape in shapes.values())) as tell:
        if wish.table is not None:
            with _file(wish) as out:
                write(wish.table, out, tell)
            return shapes
        with nullcontext() if wish.target is None else new_folder(wish.target, force=wish.force) as folder:
            for table in shapes:
                with _inside(folder, f"{table}.{wish.format}") as out:
                    write(table, out, tell)
    return shapes


def _survey(reading: Reading, wish: ExportRequest, progress: Progress) -> Mapping[str, TableShape]:
    survey = Survey()
    with progress("Looking for columns", _most_rows(reading, wish)) as tell:
        for row in rows_of(reading, wish.gateway, wish.table):
            survey.look_at(row)
            tell(1)
    shapes = survey.shapes()
    if wish.table is not None and wish.table not in shapes:
        raise _no_table(wish)
    return shapes


def _most_rows(reading: Reading, wish: ExportRequest) -> int | None:
    """The number of rows for the progress bar, if known: the store counts them over all tables."""
    return gauges(reading, wish.gateway).index_size if wish.table is None else None


def _no_table(wish: ExportRequest) -> ExportError:
    return ExportError(f"There is no table {wish.table} in {wish.gateway}.")


def _grid(wish: ExportRequest, out: BinaryIO, fields: Sequence[FlatColumn], table: str | None, as_of: int) -> FlatFile:
    if wish.format == CSV:
        return CsvFile(out, fields)
    about = {"gateway": wish.gateway, "as_of": str(as_of)} | ({} if table is None else {"table": table})
    return ParquetFile(out, fields, about)


def _file(wish: ExportRequest) -> AbstractContextManager[BinaryIO]:
    if wish.stream is not None:
        return wish.stream()
    return Path(os.devnull).open("wb") if wish.target is None else new_file(wish.target, force=wish.force)


def _inside(folder: Path | None, name: str) -> BinaryIO:
    if folder is None:
        return Path(os.devnull).open("wb")
    try:
        return (folder / name).open("xb")
    except FileExistsError:
        raise ExportError(
            f"{name} is there already: two tables have names that differ in their case alone, which this disk does not "
            "tell apart. Export them with --table, one by one."
        ) from None
