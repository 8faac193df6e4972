"""The export: one snapshot of a gateway, read beside the server, into files that are complete or absent.

A flat file needs to know its columns before its first row, so rows are read twice then: once to look, once to write. It
is one snapshot all along, so both times they are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

import click

from semel.cli.deltas.csv_file import CsvFile
from semel.cli.deltas.kinds import Field
from semel.cli.deltas.pages import log_of, rows_of
from semel.cli.deltas.parquet_file import ParquetFile
from semel.cli.deltas.saving import STDOUT, new_file, new_folder, standard_output
from semel.cli.deltas.shapes import LOG_FIELDS, Survey, TableShape, delta_cells, delta_line, row_line
from semel.cli.output import printable
from semel.cli.progress import row_progress
from semel.contracts.deltas.reading import LoggedDelta, gauges, high_water
from semel.engine.reading import Reading
from semel.kernel.delta_id import delta_id

JSONL, CSV, PARQUET = "jsonl", "csv", "parquet"

Tell = Callable[[int], None]


class Wish(NamedTuple):
    """The options of an export. Without a target everything is read and nothing is written."""

    gateway: str
    is_log: bool
    format: str
    table: str | None
    target: str | None
    verifies: bool
    force: bool = False
    """Whether the target may be there already."""

    @property
    def is_folder(self) -> bool:
        """Whether it writes several files: flat ones of several tables."""
        return not self.is_log and self.format != JSONL and self.table is None


class Written(NamedTuple):
    """One file, and how many rows or deltas are in it; the log and lines of JSON belong to no one table."""

    file: str
    table: str | None
    rows: int


class Report(NamedTuple):
    """The result of an export."""

    as_of: int
    """The end of the gateway's log: a pull from here goes on behind what was exported."""
    files: tuple[Written, ...]

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(file.rows for file in self.files)


class Grid(Protocol):
    """A flat file that is being written."""

    def add(self, cells: list[str | None]) -> None:
        """One row."""

    def finish(self) -> None:
        """Write the end of the file."""


def export(reading: Reading, wish: Wish) -> Report:
    """Write everything that is wished for; `CutShortError` if standard output is closed before its end."""
    as_of = high_water(reading, wish.gateway)
    if wish.is_log:
        return Report(as_of, (_export_log(reading, wish, as_of),))
    if wish.format == JSONL:
        return Report(as_of, (_export_lines(reading, wish),))
    return Report(as_of, tuple(_export_tables(reading, wish, as_of)))


def _export_log(reading: Reading, wish: Wish, as_of: int) -> Written:
    count = 0
    with _file(wish) as out, row_progress("Exporting", gauges(reading, wish.gateway).delta_count) as tell:
        grid = None if wish.format == JSONL else _grid(wish, out, LOG_FIELDS, None, as_of)
        for delta in log_of(reading, wish.gateway):
            tell(1)
            if wish.verifies:
                _refuse_forged(delta)
            if wish.table not in (None, delta.table):
                continue
            count += 1
            if grid is None:
                out.write(f"{delta_line(delta)}\n".encode())
            else:
                grid.add(delta_cells(delta))
        if grid is not None:
            grid.finish()
    return Written(wish.target or "", wish.table, count)


def _refuse_forged(delta: LoggedDelta) -> None:
    found = delta_id(delta.client, delta.columns_text, delta.hlc, delta.row, delta.table)
    if found != delta.id:
        raise click.ClickException(
            f"The delta {delta.id.hex()} at position {delta.position} is not what its id says: its content has the "
            f"hash {found.hex()}."
        )


def _export_lines(reading: Reading, wish: Wish) -> Written:
    count, is_known = 0, wish.table is None
    with _file(wish) as out, row_progress("Exporting", _most_rows(reading, wish)) as tell:
        for row in rows_of(reading, wish.gateway, wish.table):
            tell(1)
            is_known = True
            if row.is_live:
                out.write(f"{row_line(row)}\n".encode())
                count += 1
        if not is_known:
            raise _no_table(wish)
    return Written(wish.target or "", wish.table, count)


def _export_tables(reading: Reading, wish: Wish, as_of: int) -> list[Written]:
    shapes = _survey(reading, wish)
    ending = f".{wish.format}"

    def write(table: str, out: BinaryIO, tell: Tell) -> None:
        grid = _grid(wish, out, shapes[table].fields, table, as_of)
        for row in rows_of(reading, wish.gateway, table):
            if row.is_live:
                grid.add(shapes[table].cells(row))
                tell(1)
        grid.finish()

    with row_progress("Exporting", sum(shape.rows for shape in shapes.values())) as tell:
        if wish.table is not None:
            with _file(wish) as out:
                write(wish.table, out, tell)
            return [Written(wish.target or "", wish.table, shapes[wish.table].rows)]
        with _folder(wish) as folder:
            for table in shapes:
                with _inside(folder, table + ending) as out:
                    write(table, out, tell)
    target = wish.target or ""
    return [Written(str(Path(target, table + ending)), table, shape.rows) for table, shape in shapes.items()]


def _survey(reading: Reading, wish: Wish) -> Mapping[str, TableShape]:
    survey = Survey()
    with row_progress("Looking for columns", _most_rows(reading, wish)) as tell:
        for row in rows_of(reading, wish.gateway, wish.table):
            survey.look_at(row)
            tell(1)
    shapes = survey.shapes()
    if wish.table is not None and wish.table not in shapes:
        raise _no_table(wish)
    return shapes


def _most_rows(reading: Reading, wish: Wish) -> int | None:
    """How many rows there are, if that is known: they are counted over all tables."""
    return gauges(reading, wish.gateway).index_size if wish.table is None else None


def _no_table(wish: Wish) -> click.ClickException:
    return click.ClickException(f"There never was a row of a table {wish.table} in {printable(wish.gateway)}.")


def _grid(wish: Wish, out: BinaryIO, fields: Sequence[Field], table: str | None, as_of: int) -> Grid:
    if wish.format == CSV:
        return CsvFile(out, fields)
    about = {"gateway": wish.gateway, "as_of": str(as_of)} | ({} if table is None else {"table": table})
    return ParquetFile(out, fields, about)


def _file(wish: Wish) -> AbstractContextManager[BinaryIO]:
    if wish.target is None:
        return Path(os.devnull).open("wb")
    return standard_output() if wish.target == STDOUT else new_file(Path(wish.target), force=wish.force)


def _folder(wish: Wish) -> AbstractContextManager[Path | None]:
    return nullcontext() if wish.target is None else new_folder(Path(wish.target), force=wish.force)


def _inside(folder: Path | None, name: str) -> BinaryIO:
    if folder is None:
        return Path(os.devnull).open("wb")
    try:
        return (folder / name).open("xb")
    except FileExistsError:
        raise click.ClickException(
            f"{name} is there already: two tables have names that differ in their case alone, which this disk does not "
            "tell apart. Export them with --table, one by one."
        ) from None
