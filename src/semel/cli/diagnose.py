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

from semel.cli.command import Opt, command
from semel.cli.doctor import check_server, within
from semel.cli.output import Said
from semel.cli.session import sentence
from semel.cli.store_options import ConfigFile
from semel.client import Client
from semel.client.errors import NoAnswerError
from semel.kernel.namespace import DEFAULT, NamespaceNameError
from semel.server.ops.self_check import as_text
from semel.store.protocol import StoreError


@command(errors=(StoreError, NamespaceNameError))
def diagnose(
    client: Client,
    data: Annotated[str | None, Opt("Diagnose this data folder, without a server.", "", "FOLDER")] = None,
    store: Annotated[str | None, Opt("Diagnose this store, without a server.", "", "URL")] = None,
    config: ConfigFile = None,
    namespace: Annotated[str, Opt("Namespace to diagnose, as in /ns/NAME/.", "", "NAME", show_default=True)] = DEFAULT,
    logs: Annotated[tuple[Path, ...], Opt("Log file to add; may be repeated.", "--log")] = (),
    output: Annotated[
        Path, Opt("Folder to write the zip file to.", type=click.Path(path_type=Path, file_okay=False, exists=True))
    ] = Path(),
) -> Said:
    """Collect diagnostic data in one zip file.

    The source is the server at --url, with an administrator's token, or without a server --data or --store. The file
    has health, metrics, configuration, the ends of the logs, counts and ages of jobs, and a self-check. It has no
    secrets, keys, params or results.
    """
    if data is None and store is None:
        if logs:
            raise click.UsageError("--log needs --data or --store: a running server adds its own log.")
        with within(client, namespace) as one:
            name, content = _from_server(one)
    else:
        name, content = _offline(data, store, config, logs, namespace)
    path = output / name
    _write(path, content)
    return Said({"ok": True, "file": str(path), "bytes": len(content)}, f"{path} ({len(content):,} bytes)")


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


def _offline(
    data: str | None, store: str | None, config: Path | None, logs: tuple[Path, ...], namespace: str
) -> tuple[str, bytes]:
    from semel.server.offline_diagnosis import offline  # noqa: PLC0415 - only this needs the store's libraries

    return offline(data, store, config, logs, namespace)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read: it has no secrets, but is not public either."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise click.ClickException(f"{path} already exists: try again in a second.") from None
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from error
