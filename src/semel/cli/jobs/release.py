"""`semel jobs release`: release a key early, so that it can be used again."""

from __future__ import annotations

import sys

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import PATH, Server, with_retries
from semel.cli.output import printable, say, with_json

RELEASE_PATH = f"{PATH}/keys/release"


@click.command()
@click.argument("key")
@click.option(
    "--principal", default="default", show_default=True, metavar="NAME", help="Caller that the key belongs to."
)
@click.option(
    "--force", is_flag=True, help="Release it even if its job has not ended; a retry then makes a second job."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def release(
    connection: Connection,
    key: str,
    principal: str,
    force: bool,
    dry_run: bool,
    yes: bool,
    retries: int,
    as_json: bool,
) -> None:
    """Release a key whose job has ended: the next submission under it makes a new job."""
    if force and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("A released key protects no job: say --yes if standard input is not a terminal.")
    about = printable(f"the key {key} of {principal}")
    facts = {"principal": principal, "idempotency_key": key, "released": not dry_run, "dry_run": dry_run}
    if dry_run:
        say(as_json, facts, f"Would release {about}{', even if its job has not ended' if force else ''}.")
        return
    if force and not yes:
        click.confirm(f"Release {about}, even if its job has not ended?", abort=True, err=True)
    body = {"principal": principal, "idempotency_key": key, "force": force}
    told = Server(connection, retries).post(RELEASE_PATH, body)
    say(as_json, {**told, **facts}, f"Released {about}")
