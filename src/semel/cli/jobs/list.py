"""`semel jobs list`: the jobs that this caller may see, the newest first."""

from __future__ import annotations

import json

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import PATH, Facts, Server, with_retries
from semel.cli.jobs.options import given
from semel.cli.jobs.telling import painted, standing
from semel.cli.output import printable, table, with_json

STATES = ("scheduled", "queued", "leased", "completed", "failed")
HEAD = ("JOB", "KIND", "QUEUE", "PRIORITY", "ATTEMPT", "CREATED", "STATE")
DEFAULT = 100


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="List only those in this state.")
@click.option("--queue", help="List only jobs of this queue.")
@click.option("--kind", help="List only jobs of this kind.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"Limit of jobs to list.  [{DEFAULT}]")
@click.option("--all", "is_all", is_flag=True, help="List all, without a limit.")
@with_retries
@with_json
@with_connection
def list_jobs(
    connection: Connection,
    state: str | None,
    queue: str | None,
    kind: str | None,
    limit: int | None,
    is_all: bool,
    retries: int,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or DEFAULT
    filters = given({"state": state, "queue": queue, "kind": kind})
    jobs: list[Facts] = []
    # One more than asked for tells whether there are more.
    for page in Server(connection, retries).pages(PATH, "jobs", filters, None if most is None else most + 1):
        for job in page:
            if as_json and (most is None or len(jobs) < most):
                click.echo(json.dumps(job))
            jobs.append(job)
    if not as_json:
        _show(jobs[:most])
    if most is not None and len(jobs) > most:
        click.echo(f"There are more than {most}: give --limit or --all.", err=True)


def _show(jobs: list[Facts]) -> None:
    if not jobs:
        click.echo("There are no such jobs.", err=True)
        return
    head, *lines = table(HEAD, [_row(job) for job in jobs])
    click.echo(head)
    for line, job in zip(lines, jobs, strict=True):
        click.echo(painted(line, job.get("state")))


def _row(job: Facts) -> tuple[str, ...]:
    attempts = f"{job.get('attempt')} of {job.get('max_attempts')}" if job.get("max_attempts") else job.get("attempt")
    names = ("job_id", "kind", "queue", "priority")
    cells = (*(job.get(name) for name in names), attempts, job.get("created_utc"), standing(job))
    return tuple(printable(str(cell)) for cell in cells)
