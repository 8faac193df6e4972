"""`semel diagnose`: writes a diagnostic bundle without secrets to a file.

A running server makes its own bundle, to which the checks of `semel doctor` are added. Without a server the bundle is
made from the data folder or the store. No file is replaced; an incomplete file is deleted.
"""

from __future__ import annotations

import io
import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import click

from semel.cli.command import Json, Opt, command
from semel.cli.doctor import check_server
from semel.cli.output import say
from semel.cli.session import sentence
from semel.client import Client
from semel.client.errors import NoAnswerError
from semel.server.ops.self_check import as_text


@command()
def diagnose(
    client: Client,
    data: Annotated[str | None, Opt("Diagnose this data folder, without a server.", metavar="FOLDER")] = None,
    store: Annotated[str | None, Opt("Diagnose this store, without a server.", metavar="URL")] = None,
    config: Annotated[Path | None, Opt("TOML file with settings.", envvar="SEMEL_CONFIG")] = None,
    logs: Annotated[tuple[Path, ...], Opt("Log file to add; may be repeated.", "--log")] = (),
    output: Annotated[
        Path,
        Opt("Folder to write the zip file to.", type=click.Path(path_type=Path, file_okay=False, exists=True)),
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Collect diagnostic data in one zip file.

    The source is the server at --url, with an administrator's token, or without a server --data or --store. The file
    has health, metrics, configuration, the ends of the logs, counts and ages of jobs, and a self-check. It has no
    secrets, keys, params or results.
    """
    if data is None and store is None:
        if logs:
            raise click.UsageError("--log needs --data or --store: a running server adds its own log.")
        name, content = _from_server(client)
    else:
        name, content = _offline(data, store, config, logs)
    path = output / name
    _write(path, content)
    say(as_json, {"ok": True, "file": str(path), "bytes": len(content)}, f"{path} ({len(content):,} bytes)")


def _from_server(client: Client) -> tuple[str, bytes]:
    try:
        bundle = client.server.diagnosis()
    except NoAnswerError as error:
        advice = "Without a server, give its data folder: semel diagnose --data FOLDER."
        raise click.ClickException(f"{sentence(error)} {advice}") from error
    content = io.BytesIO(bundle.content)
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("doctor.json", as_text(list(check_server(client))))
    return bundle.name, content.getvalue()


def _offline(data: str | None, store: str | None, config: Path | None, logs: tuple[Path, ...]) -> tuple[str, bytes]:
    # Only a bundle without a server needs the store's libraries.
    from semel.server.offline_diagnosis import offline  # noqa: PLC0415
    from semel.store.protocol import StoreError  # noqa: PLC0415

    try:
        return offline(data, store, config, logs)
    except StoreError as error:
        raise click.ClickException(str(error)) from error


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
