"""`semel once`: creates the table of receipts in a database, and deletes expired receipts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import click

from semel.cli.command import Opt, Positional, command, group
from semel.cli.output import Said, printable, row_progress
from semel.kernel.shown_url import shown_url
from semel.once import OnceError, ddl
from semel.once.stores import ReceiptStore, store_at
from semel.once.table import TABLE

once = group("once", "The receipts of semel.once in your own database.")

BATCH = 1_000
"""Receipts that one transaction deletes."""
Place = Annotated[str, Positional("PLACE")]
Table = Annotated[str, Opt(f"Name of the table of receipts.  [{TABLE}]", "", "NAME")]


@contextmanager
def once_failures() -> Iterator[None]:
    """Turn errors of a store of receipts or messages into errors of the command."""
    try:
        yield
    except OnceError as error:
        raise click.ClickException(printable(str(error))) from error
    except ImportError as error:
        raise click.ClickException(
            f"PostgreSQL needs the driver psycopg: install semel[postgres] ({error})."
        ) from error


@contextmanager
def _opened(place: str, table: str) -> Iterator[ReceiptStore]:
    with once_failures():
        store = store_at(place, table, time.time)
        try:
            yield store
        finally:
            store.close()


@command(once)
def init(
    place: Place,
    table: Table = TABLE,
    is_printed: Annotated[bool, Opt("Print the SQL for a migration, and change nothing.", "--print")] = False,
) -> None:
    """Create the table of receipts at PLACE, an SQLite file or a postgresql:// URL, if it does not exist."""
    if is_printed:
        is_postgres = place.startswith(("postgresql://", "postgres://"))
        click.echo(ddl("postgresql" if is_postgres else "sqlite", table), nl=False)
        return
    with _opened(place, table) as store:
        store.create()
    click.echo(f"The table {table} is ready.")


@command(once)
def sweep(
    place: Place,
    table: Table = TABLE,
    dry_run: Annotated[bool, Opt("Print how many would be deleted, and change nothing.")] = False,
) -> Said:
    """Delete expired receipts at PLACE, 1,000 per transaction."""
    if "://" not in place and not Path(place).is_file():
        raise click.ClickException(f"There is no file {printable(shown_url(place))}.")
    with _opened(place, table) as store:
        expired, removed = store.expired(), 0
        if not dry_run:
            with row_progress("Removing receipts", expired) as tell:
                while removed < expired and (some := store.sweep(BATCH)):
                    removed += some
                    tell(some)
    words = f"{expired} receipts have expired." if dry_run else f"{removed} receipts were deleted."
    return Said({"expired": expired, "removed": removed}, words)
