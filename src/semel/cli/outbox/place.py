"""Opens the outbox that a command names; an error is one sentence."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from semel.cli.output import printable
from semel.once import OnceError, Outbox
from semel.once.letter_table import TABLE

Command = TypeVar("Command", bound=Callable[..., Any])


def with_place(command: Command) -> Command:
    """Adds PLACE and `--table`."""
    table = click.option("--table", default=TABLE, metavar="NAME", help=f"Name of the table of letters.  [{TABLE}]")
    return click.argument("place", metavar="PLACE")(table(command))


@contextmanager
def opened(place: str, table: str, **options: Any) -> Iterator[Outbox]:
    """The outbox at a place; a file that is not there is not made by looking at it."""
    if "://" not in place:
        _check_file(place, table)
    with failures_told():
        box = Outbox(place, table=table, **options)
        try:
            yield box
        finally:
            box.close()


@contextmanager
def failures_told() -> Iterator[None]:
    """Errors of the outbox as errors of a command."""
    try:
        yield
    except OnceError as error:
        raise click.ClickException(printable(str(error))) from error
    except ImportError as error:
        raise click.ClickException(
            f"PostgreSQL needs the driver psycopg: install semel[postgres] ({error})."
        ) from error


def _check_file(place: str, table: str) -> None:
    path = Path(place)
    if not path.is_file():
        raise click.ClickException(f"There is no outbox at {printable(place)}: `semel outbox init` makes one.")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise click.ClickException(f"{printable(place)} is no outbox: {error}.") from error
    if not found:
        raise click.ClickException(f"{printable(place)} has no table {table}: `semel outbox init` makes it.")


def with_outbox(command: Callable[..., None]) -> Callable[..., None]:
    """Adds PLACE and `--table`, and hands the command the outbox."""

    @with_place
    @functools.wraps(command)
    def opening(*args: Any, place: str, table: str, **rest: Any) -> None:
        with opened(place, table) as box:
            command(*args, box=box, **rest)

    return opening
