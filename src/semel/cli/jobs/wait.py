"""`semel jobs wait`: wait for the end of a job; the exit code says how it ended."""

from __future__ import annotations

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import Server, with_retries
from semel.cli.jobs.ending import COMPLETED, FAILED, UNFINISHED, exit_with, wait_for_end
from semel.cli.jobs.finding import Wanted, with_wanted
from semel.cli.output import with_json

_CODES = f"Exit code {COMPLETED}: completed, {FAILED}: failed, {UNFINISHED}: neither when the time was up."


@click.command(epilog=_CODES)
@with_wanted
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this time, in seconds; by default never.",
)
@with_retries
@with_json
@with_connection
def wait(connection: Connection, wanted: Wanted, timeout: float | None, retries: int, as_json: bool) -> None:
    """Wait for a job's end. JOB is its id or its request id."""
    server = Server(connection, retries)
    exit_with(wait_for_end(server, wanted.find(server), timeout), as_json)
