"""`semel jobs dead`: the dead letter queue, failed jobs that an operator should look at."""

from __future__ import annotations

import json

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import PATH, Facts, Server, with_retries
from semel.cli.jobs.telling import error_of, error_words
from semel.cli.output import printable, table, with_json

DEAD_PATH = f"{PATH}/dead"
HEAD = ("JOB", "KIND", "QUEUE", "REASON", "ATTEMPTS", "FINISHED", "ERROR")


@click.command()
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Limit of jobs to list; all by default.")
@with_retries
@with_json
@with_connection
def dead(connection: Connection, limit: int | None, retries: int, as_json: bool) -> None:
    """List the dead letter queue: jobs that failed for good. `semel jobs requeue` runs them again."""
    found = [job for page in Server(connection, retries).pages(DEAD_PATH, "jobs", {}, limit) for job in page]
    if as_json:
        for job in found:
            click.echo(json.dumps(job))
    elif not found:
        click.echo("There are no dead letters.", err=True)
    else:
        show_dead(found)


def show_dead(jobs: list[Facts]) -> None:
    """A table of them."""
    for line in table(HEAD, [_row(job) for job in jobs]):
        click.echo(line)


def _row(job: Facts) -> tuple[str, ...]:
    error = error_of(job)
    names = ("job_id", "kind", "queue", "reason", "attempts", "finished_utc")
    cells = (*(job.get(name, "") for name in names), "" if error is None else error_words(error))
    return tuple(printable(str(cell)) for cell in cells)
