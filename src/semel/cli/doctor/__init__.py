"""`semel doctor`: checks whether a server can run here, and says what to do if it cannot."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from semel.cli.connection import CliConnection
from semel.cli.doctor.checks import (
    DoctorCheck,
    check_clock,
    check_folder,
    check_python,
    check_server,
    check_settings,
    check_speedups,
    check_sqlite,
)
from semel.cli.output import with_json
from semel.cli.requests import with_connection

__all__ = ["doctor"]


@click.command()
@click.option(
    "--data", type=click.Path(path_type=Path), envvar="SEMEL_DATA", default="data", help="Data folder of the server."
)
@click.option("--store", envvar="SEMEL_STORE", default="", metavar="URL", help="Store URL, instead of the data folder.")
@with_json
@with_connection
def doctor(connection: CliConnection, data: Path, store: str, as_json: bool) -> None:
    """Check this machine and the server.

    Prints what to correct, and exits with 1 if there is a problem. Nothing is changed or left behind.
    """
    checks = []
    for check in _rounds(connection, data, store):
        checks.append(check)
        if not as_json:
            _show(check)
    problems = sum(not check.is_ok for check in checks)
    if as_json:
        click.echo(json.dumps({"ok": problems == 0, "checks": [_facts(check) for check in checks]}))
    else:
        click.echo(_summary(problems))
    sys.exit(1 if problems else 0)


def _rounds(connection: CliConnection, data: Path, store: str) -> Iterator[DoctorCheck]:
    yield check_python()
    yield check_sqlite()
    yield check_speedups()
    yield check_clock()
    yield check_settings(os.environ)
    if store:
        # Imported here, because the checks above report a missing library.
        yield from importlib.import_module("semel.cli.doctor.store").check_store(store)
    else:
        yield from check_folder(data)
    yield from check_server(connection)


def _show(check: DoctorCheck) -> None:
    mark = click.style("ok     ", fg="green") if check.is_ok else click.style("problem", fg="red", bold=True)
    click.echo(f"{mark}  {check.name:<11}  {check.found}")
    if check.advice:
        click.echo(f"{'':22}{check.advice}")


def _facts(check: DoctorCheck) -> dict[str, object]:
    return {"name": check.name, "ok": check.is_ok, "found": check.found, "advice": check.advice or None}


def _summary(problems: int) -> str:
    if problems == 0:
        return "No problems found."
    return "There is 1 problem." if problems == 1 else f"There are {problems} problems."
