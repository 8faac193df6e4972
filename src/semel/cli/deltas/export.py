"""`semel deltas export`: rows or the log of a gateway as files for other programs, from one snapshot.

The store is read beside the server, which goes on undisturbed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from semel.cli.deltas.exporting import CSV, JSONL, PARQUET, Report, Wish
from semel.cli.deltas.exporting import export as export_all
from semel.cli.deltas.names import GatewayType, TableType
from semel.cli.deltas.parquet_file import require_pyarrow
from semel.cli.deltas.saving import STDOUT, CutShortError, refuse_taken
from semel.cli.output import printable, with_json

ROWS, LOG = "rows", "log"


@click.command()
@click.argument("gateway", type=GatewayType())
@click.option(
    "--format", "format_", type=click.Choice((PARQUET, JSONL, CSV)), required=True, help="Format of the files."
)
@click.option(
    "--what",
    type=click.Choice((ROWS, LOG)),
    default=ROWS,
    show_default=True,
    help="Export the merged rows, or the log of deltas as they were pushed.",
)
@click.option("--table", type=TableType(), help="Export only this table.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="File to write, or folder for one file a table; - is standard output.  [-]",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--verify", is_flag=True, help="With --what log: check the hash of each delta, and stop at a wrong one.")
@click.option("--dry-run", is_flag=True, help="Read everything, and write nothing.")
@click.option("--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings.")
@click.option("--store", metavar="URL", help="Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]")
@click.option("--data", metavar="FOLDER", help="Folder of the embedded database, without --store.  [SEMEL_DATA; data]")
@with_json
def export(
    gateway: str,
    format_: str,
    what: str,
    table: str | None,
    output: str | None,
    force: bool,
    verify: bool,
    dry_run: bool,
    config: Path | None,
    store: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Write the rows of a gateway, or its log, into files. A server may be running.

    As jsonl it is one object a line. As csv or parquet the rows of each table are a flat file with a column for each of
    theirs; without --table they are put into a folder, one file a table. A file has its name only when it is whole.
    """
    if verify and what == ROWS:
        raise click.UsageError("--verify is for --what log: rows are merged from many deltas and have no hash.")
    wish = Wish(gateway, what == LOG, format_, table, None if dry_run else output or STDOUT, verify, force)
    _refuse_useless(wish)
    from semel.cli.deltas.opening import reading_beside, refuse_unknown  # noqa: PLC0415 - a store takes time to load

    with reading_beside(config, store, data) as reading:
        refuse_unknown(reading, gateway)
        try:
            report = export_all(reading, wish)
        except CutShortError:
            report = None  # it is unknown how much of it was read
    _tell(wish, report, as_json)


def _refuse_useless(wish: Wish) -> None:
    """Find out before anything is read."""
    if wish.format == PARQUET:
        require_pyarrow()
    if wish.target == STDOUT and (wish.format == PARQUET or wish.is_folder):
        what = "A folder" if wish.is_folder else "Parquet"
        raise click.UsageError(f"{what} cannot go to standard output: name it with --output.")
    if wish.target not in (None, STDOUT):
        refuse_taken(Path(str(wish.target)), is_folder=wish.is_folder, force=wish.force)


def _tell(wish: Wish, report: Report | None, as_json: bool) -> None:
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


def _sentence(wish: Wish, report: Report | None) -> str:
    if report is None:
        return printable(f"Not all of {wish.gateway} was exported: standard output was closed before its end.")
    noun = "delta" if wish.is_log else "row"
    what = f"{report.rows:,} {noun}{'' if report.rows == 1 else 's'}"
    done = "Would export" if wish.target is None else "Exported"
    checked = "; every id is the hash of its delta" if wish.verifies else ""
    tables = f" of {len(report.files):,} tables" if wish.is_folder and len(report.files) != 1 else ""
    place = "" if wish.target in (None, STDOUT) else f" to {wish.target}"
    return printable(f"{done} {what}{tables} from {wish.gateway} as of {report.as_of}{place}{checked}")
