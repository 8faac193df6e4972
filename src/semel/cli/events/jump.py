"""`semel events jump`: after an older backup was restored, go on above every id that its lost future may have given.

The store is opened as a server would open it, and held while a person is asked, so that no server can come between.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from semel.cli.output import with_json
from semel.server.settings import SettingsError, load_settings


@click.command()
@click.option("--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings.")
@click.option("--store", metavar="URL", help="Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]")
@click.option("--data", metavar="FOLDER", help="Folder of the embedded database, without --store.  [SEMEL_DATA; data]")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_json
def jump(config: Path | None, store: str | None, data: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Skip ids after a backup was restored.

    Clients may have seen ids that the backup does not know, and no id may ever stand for two events. So the log goes on
    above all that can have been given since its last event: a thousand for each millisecond. Stop the server first, and
    start it afterwards.
    """
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("A jump cannot be undone: say --yes where nobody can be asked.")
    try:
        # This listens nowhere: what a server must know before it may listen is not asked for.
        settings = load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    # The store's libraries are for this command alone; those that talk to a server start without them.
    from semel.cli.events.jumping import jump_in  # noqa: PLC0415

    jump_in(settings.store_url, dry_run=dry_run, asks=not yes, as_json=as_json)
