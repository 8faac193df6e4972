"""`semel epoch`: show the epoch of a store, and raise it after an older backup was restored."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TypeVar

import click

from semel.cli.help import HelpGroup
from semel.cli.output import with_json
from semel.server.settings_loader import SettingsError, load_settings

__all__ = ["epoch"]

F = TypeVar("F")


@click.group(cls=HelpGroup)
def epoch() -> None:
    """The epoch of all logs of a store."""


def _with_store(command: F) -> F:
    """Adds the options of a server that name a store."""
    data = click.option(
        "--data", metavar="FOLDER", help="Folder of the embedded database, without --store.  [SEMEL_DATA; data]"
    )
    store = click.option("--store", metavar="URL", help="Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]")
    config = click.option(
        "--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings."
    )
    named: F = config(store(data(command)))  # type: ignore[type-var]
    return named


def _url(config: Path | None, store: str | None, data: str | None) -> str:
    try:
        # This command does not listen, so settings that only a listening server needs are not required.
        return load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config).store_url
    except SettingsError as error:
        raise click.ClickException(str(error)) from error


@epoch.command()
@_with_store
@with_json
def show(config: Path | None, store: str | None, data: str | None, as_json: bool) -> None:
    """Show the epoch of a store, and when it was raised. A server may be running."""
    # Only these commands need the store's libraries; client commands start without them.
    from semel.cli.store import show_epoch  # noqa: PLC0415

    show_epoch(_url(config, store, data), as_json=as_json)


@epoch.command("raise")
@_with_store
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
def raise_(config: Path | None, store: str | None, data: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Start a new epoch after an older backup was restored.

    Clients may hold offsets, ids and cursors that the backup does not have. In a new epoch the server recognizes them,
    and reuses no id or position. Stop the server first, and start it afterwards.
    """
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Raising the epoch cannot be undone: give --yes if standard input is not a terminal.")
    from semel.cli.store import raise_epoch  # noqa: PLC0415

    raise_epoch(_url(config, store, data), dry_run=dry_run, asks=not yes, as_json=as_json)
