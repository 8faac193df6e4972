"""`semel once`: creates the table of receipts in a database, and deletes expired receipts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from semel.cli.help import HelpGroup
from semel.cli.output import printable, row_progress, say, with_json
from semel.once import OnceError, ddl
from semel.once.stores import TableStore, store_at
from semel.once.table import TABLE

__all__ = ["once"]

BATCH = 1_000
"""Receipts that one transaction deletes."""


def with_place(command: Any) -> Any:
    """Adds PLACE and `--table`."""
    table = click.option("--table", default=TABLE, metavar="NAME", help=f"Name of the table of receipts.  [{TABLE}]")
    return click.argument("place", metavar="PLACE")(table(command))


@contextmanager
def opened(place: str, table: str) -> Iterator[TableStore]:
    """The store at a place. Errors become errors of the command."""
    try:
        store = store_at(place, table, time.time)
        if not isinstance(store, TableStore):
            raise click.ClickException(
                "A Semel server creates and deletes its receipts itself: give a file or a postgresql:// URL."
            )
        try:
            yield store
        finally:
            store.close()
    except OnceError as error:
        raise click.ClickException(printable(str(error))) from error
    except ImportError as error:
        raise click.ClickException(
            f"PostgreSQL needs the driver psycopg: install semel[postgres] ({error})."
        ) from error


@click.command()
@with_place
@click.option("--print", "is_printed", is_flag=True, help="Print the SQL for a migration, and change nothing.")
def init(place: str, table: str, is_printed: bool) -> None:
    """Create the table of receipts at PLACE, an SQLite file or a postgresql:// URL, if it does not exist."""
    dialect = "postgresql" if place.startswith(("postgresql://", "postgres://")) else "sqlite"
    if is_printed:
        click.echo(ddl(dialect, table), nl=False)
        return
    with opened(place, table) as store:
        store.create()
    click.echo(f"The table {table} is ready.")


@click.command()
@with_place
@click.option("--dry-run", is_flag=True, help="Print how many would be deleted, and change nothing.")
@with_json
def sweep(place: str, table: str, dry_run: bool, as_json: bool) -> None:
    """Delete expired receipts at PLACE, 1,000 per transaction."""
    if "://" not in place and not Path(place).is_file():
        raise click.ClickException(f"There is no file {printable(place)}.")
    with opened(place, table) as store:
        expired = store.expired()
        removed = 0
        if not dry_run:
            with row_progress("Removing receipts", expired) as tell:
                while removed < expired and (some := store.sweep(BATCH)):
                    removed += some
                    tell(some)
    words = f"{expired} receipts have expired." if dry_run else f"{removed} receipts were deleted."
    say(as_json, {"expired": expired, "removed": removed}, words)


@click.group(cls=HelpGroup)
def once() -> None:
    """The receipts of semel.once in your own database."""


for _command in (init, sweep):
    once.add_command(_command)
