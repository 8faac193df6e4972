"""`semel diagnose`: writes a diagnostic bundle without secrets to a file.

A running server makes its own bundle, to which the checks of `semel doctor` are added. Without a server the bundle is
made from the data folder or the store. No file is replaced; an incomplete file is deleted.
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

from semel.cli.connection import CliConnection, UnreachableError, not_semel
from semel.cli.doctor.checks import DoctorCheck, check_server
from semel.cli.output import say, with_json
from semel.cli.requests import with_connection

__all__ = ["diagnose"]

_NAME = re.compile(r"diag_bundle_\d{8}_\d{6}\.zip")


class CliBundle(NamedTuple):
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
    connection: CliConnection,
    data: str | None,
    store: str | None,
    config: Path | None,
    logs: tuple[Path, ...],
    output: Path,
    as_json: bool,
) -> None:
    """Collect diagnostic data in one zip file.

    The source is the server at --url, with an administrator's token, or without a server --data or --store. The file
    has health, metrics, configuration, the ends of the logs, counts and ages of jobs, and a self-check. It has no
    secrets, keys, params or results.
    """
    if data is None and store is None:
        if logs:
            raise click.UsageError("--log needs --data or --store: a running server adds its own log.")
        made = _from_server(connection)
    else:
        # Only a bundle without a server needs the store's libraries.
        from semel.cli.diagnose.offline import offline  # noqa: PLC0415

        made = CliBundle(*offline(data, store, config, logs))
    path = output / made.name
    _write(path, made.content)
    facts = {"ok": True, "file": str(path), "bytes": len(made.content)}
    say(as_json, facts, f"{path} ({len(made.content):,} bytes)")


def _from_server(connection: CliConnection) -> CliBundle:
    try:
        answer = connection.request("GET", "/v1/diagnose")
    except UnreachableError as error:
        advice = "Without a server, give its data folder: semel diagnose --data FOLDER."
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
    return CliBundle(found[0], content.getvalue())


def told(checks: list[DoctorCheck]) -> str:
    """The doctor's checks as a part of a bundle."""
    return json.dumps([check._asdict() for check in checks], indent=2) + "\n"


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read: it has no secrets, but is not public either."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise click.ClickException(f"{path} already exists: try again in a second.") from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error
