"""`semel deltas export`: the rows or the log of a gateway as files for other programs, from one snapshot.

The store is read while the server runs. A file is complete or does not exist. A flat file needs its columns before its
first row, so the rows are read twice from the same snapshot.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import click

from semel.cli.command import DryRun, Json, Opt, command
from semel.cli.deltas.arguments import (
    STDOUT,
    CutShortError,
    Gateway,
    TableType,
    new_file,
    new_folder,
    refuse_taken,
    standard_output,
)
from semel.cli.output import printable, row_progress
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
from semel.surfaces.deltas.flat_files import CsvFile, ExportError, FlatColumn, FlatFile, ParquetFile, require_pyarrow
from semel.surfaces.deltas.reading import gauges, high_water

JSONL, CSV, PARQUET = "jsonl", "csv", "parquet"

OnProgress = Callable[[int], None]


class CliExportRequest(NamedTuple):
    """The options of an export. Without a target everything is read and nothing is written."""

    gateway: str
    is_log: bool
    format: str
    table: str | None
    target: str | None
    verifies: bool
    force: bool = False
    """Whether existing files may be overwritten."""

    @property
    def is_folder(self) -> bool:
        """Whether it writes a folder: one flat file per table."""
        return not self.is_log and self.format != JSONL and self.table is None


class CliExportFile(NamedTuple):
    """One file and its number of rows or deltas; the log and JSON lines have no single table."""

    file: str
    table: str | None
    rows: int


class CliExportReport(NamedTuple):
    """The result of an export."""

    as_of: int
    """The end of the gateway's log: a pull from here continues after the export."""
    files: tuple[CliExportFile, ...]

    @property
    def rows(self) -> int:
        """The total number of rows."""
        return sum(file.rows for file in self.files)


def export_all(reading: Reading, wish: CliExportRequest) -> CliExportReport:
    """Write the export. Raises `CutShortError` if standard output is closed early."""
    as_of = high_water(reading, wish.gateway)
    if wish.is_log:
        return CliExportReport(as_of, (_export_log(reading, wish, as_of),))
    if wish.format == JSONL:
        return CliExportReport(as_of, (_export_lines(reading, wish),))
    return CliExportReport(as_of, tuple(_export_tables(reading, wish, as_of)))


def _export_log(reading: Reading, wish: CliExportRequest, as_of: int) -> CliExportFile:
    count = 0
    with _file(wish) as out, row_progress("Exporting", gauges(reading, wish.gateway).delta_count) as tell:
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
    return CliExportFile(wish.target or "", wish.table, count)


def _export_lines(reading: Reading, wish: CliExportRequest) -> CliExportFile:
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
    return CliExportFile(wish.target or "", wish.table, count)


def _export_tables(reading: Reading, wish: CliExportRequest, as_of: int) -> list[CliExportFile]:
    shapes = _survey(reading, wish)
    ending = f".{wish.format}"

    def write(table: str, out: BinaryIO, tell: OnProgress) -> None:
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
            return [CliExportFile(wish.target or "", wish.table, shapes[wish.table].rows)]
        with _folder(wish) as folder:
            for table in shapes:
                with _inside(folder, table + ending) as out:
                    write(table, out, tell)
    target = wish.target or ""
    return [CliExportFile(str(Path(target, table + ending)), table, shape.rows) for table, shape in shapes.items()]


def _survey(reading: Reading, wish: CliExportRequest) -> Mapping[str, TableShape]:
    survey = Survey()
    with row_progress("Looking for columns", _most_rows(reading, wish)) as tell:
        for row in rows_of(reading, wish.gateway, wish.table):
            survey.look_at(row)
            tell(1)
    shapes = survey.shapes()
    if wish.table is not None and wish.table not in shapes:
        raise _no_table(wish)
    return shapes


def _most_rows(reading: Reading, wish: CliExportRequest) -> int | None:
    """The number of rows for the progress bar, if known: the store counts them over all tables."""
    return gauges(reading, wish.gateway).index_size if wish.table is None else None


def _no_table(wish: CliExportRequest) -> click.ClickException:
    return click.ClickException(f"There is no table {wish.table} in {printable(wish.gateway)}.")


def _grid(
    wish: CliExportRequest, out: BinaryIO, fields: Sequence[FlatColumn], table: str | None, as_of: int
) -> FlatFile:
    if wish.format == CSV:
        return CsvFile(out, fields)
    about = {"gateway": wish.gateway, "as_of": str(as_of)} | ({} if table is None else {"table": table})
    return ParquetFile(out, fields, about)


def _file(wish: CliExportRequest) -> AbstractContextManager[BinaryIO]:
    if wish.target is None:
        return Path(os.devnull).open("wb")
    return standard_output() if wish.target == STDOUT else new_file(Path(wish.target), force=wish.force)


def _folder(wish: CliExportRequest) -> AbstractContextManager[Path | None]:
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


ROWS, LOG = "rows", "log"


@command()
def export(
    gateway: Gateway,
    format_: Annotated[Literal["parquet", "jsonl", "csv"], Opt("Format of the files.", "--format")],
    what: Annotated[
        Literal["rows", "log"],
        Opt("Export the merged rows, or the log of deltas as they were pushed.", show_default=True),
    ] = "rows",
    table: Annotated[str | None, Opt("Export only this table.", type=TableType())] = None,
    output: Annotated[
        str | None,
        Opt("File to write, or folder for one file per table; - is standard output.  [-]", "-o --output", "FILE"),
    ] = None,
    force: Annotated[bool, Opt("Overwrite existing files.")] = False,
    verify: Annotated[
        bool, Opt("With --what log: verify the hash of each delta, and stop at the first mismatch.")
    ] = False,
    dry_run: DryRun = False,
    config: Annotated[Path | None, Opt("TOML file with settings.", envvar="SEMEL_CONFIG")] = None,
    store: Annotated[
        str | None, Opt("Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]", metavar="URL")
    ] = None,
    data: Annotated[
        str | None, Opt("Folder of the embedded database, without --store.  [SEMEL_DATA; data]", metavar="FOLDER")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the rows of a gateway, or its log, into files. A server may be running.

    jsonl has one object per line. csv and parquet have one flat file per table; without --table they are written to a
    folder. A file gets its name only when it is complete.
    """
    if verify and what == ROWS:
        raise click.UsageError("--verify needs --what log: merged rows have no hash.")
    wish = CliExportRequest(gateway, what == LOG, format_, table, None if dry_run else output or STDOUT, verify, force)
    from semel.cli.deltas.read_only import read_only_view, refuse_unknown  # noqa: PLC0415 - a store takes time to load

    try:
        _refuse_useless(wish)
        with read_only_view(config, store, data) as reading:
            refuse_unknown(reading, gateway)
            report = export_all(reading, wish)
    except CutShortError:
        report = None  # it is unknown how much of it the reader got
    except ExportError as error:
        raise click.ClickException(str(error)) from error
    _tell(wish, report, as_json)


def _refuse_useless(wish: CliExportRequest) -> None:
    """Refuse wrong options before anything is read."""
    if wish.format == PARQUET:
        require_pyarrow()
    if wish.target == STDOUT and (wish.format == PARQUET or wish.is_folder):
        what = "A folder" if wish.is_folder else "Parquet"
        raise click.UsageError(f"{what} cannot be written to standard output: give --output.")
    if wish.target not in (None, STDOUT):
        refuse_taken(Path(str(wish.target)), is_folder=wish.is_folder, force=wish.force)


def _tell(wish: CliExportRequest, report: CliExportReport | None, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "gateway": wish.gateway,
        "what": LOG if wish.is_log else ROWS,
        "format": wish.format,
        "whole": report is not None,
        "as_of": report and str(report.as_of),
        "rows": report and report.rows,
        "files": [file._asdict() for file in report.files] if report else [],
        "verified": wish.verifies and report is not None,
        "dry_run": wish.target is None,
    }
    click.echo(json.dumps(facts) if as_json else _sentence(wish, report), err=wish.target == STDOUT)


def _sentence(wish: CliExportRequest, report: CliExportReport | None) -> str:
    if report is None:
        return printable(f"Not all of {wish.gateway} was exported: standard output was closed before its end.")
    noun = "delta" if wish.is_log else "row"
    what = f"{report.rows:,} {noun}{'' if report.rows == 1 else 's'}"
    done = "Would export" if wish.target is None else "Exported"
    checked = "; every id is the hash of its delta" if wish.verifies else ""
    tables = f" of {len(report.files):,} tables" if wish.is_folder and len(report.files) != 1 else ""
    place = "" if wish.target in (None, STDOUT) else f" to {wish.target}"
    return printable(f"{done} {what}{tables} from {wish.gateway} as of {report.as_of}{place}{checked}")
