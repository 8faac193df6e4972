"""`semel streams rm`: delete a stream, with confirmation."""

from __future__ import annotations

import sys

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.output import printable, say, with_json
from semel.cli.streams.resource import describe, stream_path


@click.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
@with_connection
def rm(connection: Connection, name: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete a stream, its content and its keys."""
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Deleting cannot be undone: say --yes if standard input is not a terminal.")
    if not yes or dry_run:
        _show(connection, name, dry_run, as_json)
    if dry_run:
        return
    if not yes:
        click.confirm("Delete it?", abort=True, err=True)
    connection.request("DELETE", stream_path(name))
    say(as_json, {"name": name, "deleted": True, "dry_run": False}, f"Deleted {printable(name)}")


def _show(connection: Connection, name: str, dry_run: bool, as_json: bool) -> None:
    stream = describe(connection, name)
    state = "closed" if stream.is_closed else "open"
    about = f"{printable(name)} ({stream.content_type}, {state}, up to {stream.next_offset})"
    if not dry_run:
        click.echo(about, err=True)
        return
    facts = {
        "name": name,
        "deleted": False,
        "dry_run": True,
        "content_type": stream.content_type,
        "next_offset": stream.next_offset,
        "closed": stream.is_closed,
    }
    say(as_json, facts, f"Would delete {about}")
