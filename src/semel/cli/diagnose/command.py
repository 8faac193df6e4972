"""`semel diagnose`: the source of a bundle, and the file that it is written to.

A running server makes its own, and the doctor's view of it is put in. Without one the bundle is made from the data
folder or the store. No file is replaced; one that could not be written to its end is removed.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.doctor.check import Check
from semel.cli.doctor.remote import check_server
from semel.cli.failures import UnreachableError, not_semel
from semel.cli.output import say, with_json

_NAME = re.compile(r"diag_bundle_\d{8}_\d{6}\.zip")


class Made(NamedTuple):
    """A bundle and its name."""

    name: str
    content: bytes


@click.command()
@click.option("--data", metavar="FOLDER", help="Diagnose this data folder, without a server.")
@click.option("--store", metavar="URL", help="Diagnose this store, without a server.")
@click.option("--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings.")
@click.option("--log", "logs", type=click.Path(path_type=Path), multiple=True, help="Log file to add; may be repeated.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=".",
    help="Folder to write the zip file to.",
)
@with_json
@with_connection
def diagnose(
    connection: Connection,
    data: str | None,
    store: str | None,
    config: Path | None,
    logs: tuple[Path, ...],
    output: Path,
    as_json: bool,
) -> None:
    """Collect what helps to find a fault into one zip file.

    From the server at --url, which needs an admin's token; or, where none runs, from --data or --store. The file holds
    health, metrics, configuration, the ends of the logs, counts and ages of jobs, and a self-check. It holds no
    secrets, no keys, no params and no results.
    """
    if data is None and store is None:
        if logs:
            raise click.UsageError("--log goes with --data or --store: a running server puts its own log in.")
        made = _from_server(connection)
    else:
        # The store's libraries are for this way alone.
        from semel.cli.diagnose.offline import offline  # noqa: PLC0415

        made = Made(*offline(data, store, config, logs))
    path = output / made.name
    _write(path, made.content)
    facts = {"ok": True, "file": str(path), "bytes": len(made.content)}
    say(as_json, facts, f"{path} ({len(made.content):,} bytes)")


def _from_server(connection: Connection) -> Made:
    try:
        answer = connection.request("GET", "/v1/diagnose")
    except UnreachableError as error:
        advice = "Without a server, name its data folder: semel diagnose --data FOLDER."
        raise click.ClickException(f"{error.message} {advice}") from error
    found = _NAME.search(answer.headers.get("Content-Disposition", ""))
    if answer.content_type != "application/zip" or found is None:
        raise not_semel(connection.address)
    content = io.BytesIO(answer.body)
    try:
        with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("doctor.json", told(list(check_server(connection))))
    except zipfile.BadZipFile as error:
        raise not_semel(connection.address) from error
    return Made(found[0], content.getvalue())


def told(checks: list[Check]) -> str:
    """The doctor's findings as a part of a bundle."""
    return json.dumps([check._asdict() for check in checks], indent=2) + "\n"


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read: it holds no secrets, but is not public either."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.ClickException(f"{path} is there already; try again in a second.") from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error
