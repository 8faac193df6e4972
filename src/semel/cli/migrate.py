"""`semel migrate`: migrate the schema of a store, and print what was done.

A server does the same at its start; this is for those who want it done, or looked at, before. A crash leaves the schema
at the version it had: the missing migrations are one transaction.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from semel.contracts.schema import MIGRATIONS, TABLES
from semel.server.settings_loader import SettingsError, load_settings
from semel.server.world import SystemWorld
from semel.store.migrations import pending
from semel.store.open import look_at, open_store, shown
from semel.store.protocol import StoreError


@click.command()
@click.option("--config", type=click.Path(path_type=Path), envvar="SEMEL_CONFIG", help="TOML file with settings.")
@click.option("--store", metavar="URL", help="Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]")
@click.option("--data", metavar="FOLDER", help="Folder of the embedded database, without --store.  [SEMEL_DATA; data]")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
def migrate(config: Path | None, store: str | None, data: str | None, dry_run: bool) -> None:
    """Bring the schema of a store up to date.

    The store is the one that `semel serve` would use. A server does this at its start by itself. Over PostgreSQL, nodes
    of the version before go on working, but can no longer be started.
    """
    try:
        # This listens nowhere: what a server must know before it may listen is not asked for.
        settings = load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config)
        _migrate(settings.store_url, dry_run)
    except (SettingsError, StoreError) as error:
        raise click.ClickException(str(error)) from error


def _migrate(url: str, dry_run: bool) -> None:
    if url.startswith("memory:"):
        raise click.ClickException("A memory store begins anew at every start: there is nothing to migrate.")
    missing = pending(MIGRATIONS, look_at(url, ()).version)
    click.echo(f"Store: {shown(url)}")
    if not missing:
        click.echo(f"up to date: version {len(MIGRATIONS)}")
        return
    if not dry_run:
        open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms).close()
    would = "would change " if dry_run else ""
    for migration in missing:
        click.echo(f"{would}schema version {migration.number - 1} -> {migration.number}: {migration.about}")
