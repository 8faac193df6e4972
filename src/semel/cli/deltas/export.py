"""`semel deltas export`: the rows or the log of a gateway as files for other programs, from one snapshot.

The store is read while the server runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import click

from semel.cli.command import DryRun, Json, Opt, command
from semel.cli.deltas.arguments import STDOUT, TABLE, CutShortError, Gateway, standard_output
from semel.cli.output import printable, row_progress
from semel.cli.store_options import StoreOptions
from semel.surfaces.deltas.export import PARQUET, ExportReport, ExportRequest, export_gateway
from semel.surfaces.deltas.flat_files import ExportError

ROWS, LOG = "rows", "log"


@command()
def export(
    gateway: Gateway,
    format_: Annotated[Literal["parquet", "jsonl", "csv"], Opt("Format of the files.", "--format")],
    what: Annotated[
        Literal["rows", "log"],
        Opt("Export the merged rows, or the log of deltas as they were pushed.", show_default=True),
    ] = "rows",
    table: Annotated[str | None, Opt("Export only this table.", type=TABLE)] = None,
    output: Annotated[
        str | None,
        Opt("File to write, or folder for one file per table; - is standard output.  [-]", "-o --output", "FILE"),
    ] = None,
    force: Annotated[bool, Opt("Overwrite existing files.")] = False,
    verify: Annotated[
        bool, Opt("With --what log: verify the hash of each delta, and stop at the first mismatch.")
    ] = False,
    dry_run: DryRun = False,
    *,
    store: StoreOptions,
    as_json: Json = False,
) -> None:
    """Write the rows of a gateway, or its log, into files. A server may be running.

    jsonl has one object per line. csv and parquet have one flat file per table; without --table they are written to a
    folder. A file gets its name only when it is complete.
    """
    if verify and what == ROWS:
        raise click.UsageError("--verify needs --what log: merged rows have no hash.")
    name = "" if dry_run else output or STDOUT
    target = None if name in ("", STDOUT) else Path(name)
    wish = ExportRequest(
        gateway, what == LOG, format_, table, verify, target, force, standard_output if name == STDOUT else None
    )
    report: ExportReport | None = None
    try:
        wish.refuse_useless()
        if name == STDOUT and (format_ == PARQUET or wish.is_folder):
            kind = "A folder" if wish.is_folder else "Parquet"
            raise click.UsageError(f"{kind} cannot be written to standard output: give --output.")
        with store.reading() as reading:
            report = export_gateway(reading, wish, name, row_progress)
    except CutShortError:
        pass  # it is unknown how much of it the reader got
    except ExportError as error:
        raise click.ClickException(printable(str(error))) from error
    facts = _facts(wish, report) | {"dry_run": dry_run}
    click.echo(json.dumps(facts) if as_json else _sentence(wish, report, name), err=name == STDOUT)


def _facts(wish: ExportRequest, report: ExportReport | None) -> dict[str, Any]:
    return {
        "gateway": wish.gateway,
        "what": LOG if wish.is_log else ROWS,
        "format": wish.format,
        "whole": report is not None,
        "as_of": report and str(report.as_of),
        "rows": report and report.rows,
        "files": [file._asdict() for file in report.files] if report else [],
        "verified": wish.verifies and report is not None,
    }


def _sentence(wish: ExportRequest, report: ExportReport | None, name: str) -> str:
    if report is None:
        return printable(f"Not all of {wish.gateway} was exported: standard output was closed before its end.")
    noun = "delta" if wish.is_log else "row"
    what = f"{report.rows:,} {noun}{'' if report.rows == 1 else 's'}"
    done = "Exported" if name else "Would export"
    checked = "; every id is the hash of its delta" if wish.verifies else ""
    tables = f" of {len(report.files):,} tables" if wish.is_folder and len(report.files) != 1 else ""
    place = "" if wish.target is None else f" to {name}"
    return printable(f"{done} {what}{tables} from {wish.gateway} as of {report.as_of}{place}{checked}")
