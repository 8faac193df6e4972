"""`semel import sheratan`: imports the keys of a Sheratan idempotency store, so that this server honours them.

The store is opened as a server would open it, and held, so that no server can start meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from semel.cli.help import HelpGroup
from semel.cli.output import printable, with_json
from semel.cli.source import read_whole
from semel.server.settings_loader import SettingsError, load_settings

__all__ = ["importer"]


@click.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings.")
@click.option("--store", metavar="URL", help="Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]")
@click.option("--data", metavar="FOLDER", help="Folder of the embedded database, without --store.  [SEMEL_DATA; data]")
@click.option(
    "--principal", default="default", show_default=True, metavar="NAME", help="Caller that the keys will belong to."
)
@click.option("--skip-bad", is_flag=True, help="Skip invalid records; by default an invalid record stops the import.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@with_json
def sheratan(
    file: str,
    config: Path | None,
    store: str | None,
    data: str | None,
    principal: str,
    skip_bad: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Import the keys in FILE, an idempotency_store.json or .jsonl; - is standard input.

    A retry with an imported key gets the result of its completed job, or an answer that the outcome is unknown if the
    job had not ended. Jobs keep their ids. Expired keys are skipped and existing keys are not changed, so the import
    can be run again. Stop the server first, and start it afterwards.
    """
    try:
        # This command does not listen, so settings that only a listening server needs are not required.
        settings = load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    # Only this command needs the store's libraries.
    from semel.cli.importer.takeover import ImportOptions, import_keys  # noqa: PLC0415

    import_keys(_content(file), settings, ImportOptions(principal, skip_bad, dry_run, as_json))


def _content(file: str) -> bytes:
    try:
        with click.open_file(file, "rb") as source:
            return read_whole(source)
    except OSError as error:
        raise click.ClickException(f"The file {printable(file)} cannot be read: {error.strerror}.") from None


@click.group("import", cls=HelpGroup)
def importer() -> None:
    """Import the data of another program."""


importer.add_command(sheratan)
