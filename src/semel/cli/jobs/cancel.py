"""`semel jobs cancel`: end a job that is no longer wanted.

A job that waits ends at once. One that is being worked on is asked to stop, and what it still reports counts; with
force it ends at once, whatever its worker does, and that is not done without a yes.
"""

from __future__ import annotations

import sys

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import Facts, Server, job_path, with_retries
from semel.cli.jobs.ending import is_ended
from semel.cli.jobs.finding import Wanted, with_wanted
from semel.cli.jobs.telling import standing
from semel.cli.output import printable, say, with_json


@click.command()
@with_wanted
@click.option("--force", is_flag=True, help="Cancel it even while a worker runs it; the worker's result is dropped.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def cancel(
    connection: Connection, wanted: Wanted, force: bool, dry_run: bool, yes: bool, retries: int, as_json: bool
) -> None:
    """Cancel a job. JOB is its id or its request id."""
    if force and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("What a worker does then is lost: say --yes if standard input is not a terminal.")
    server = Server(connection, retries)
    job = wanted.read(server)
    about = printable(f"{job.get('job_id')} ({job.get('kind')}) is {standing(job)}")
    if dry_run:
        say(as_json, {**_facts(job), "dry_run": True}, f"{about}: {_plan(job, force)}")
        return
    if force and not yes:
        click.echo(about, err=True)
        click.confirm("Cancel it at once?", abort=True, err=True)
    done = server.post(job_path(str(job["job_id"]), "cancel"), {"force": force})
    say(as_json, {**_facts(done), "dry_run": False}, _outcome(done))


def _plan(job: Facts, force: bool) -> str:
    if is_ended(job):
        return "would stay as it is."
    if job.get("state") == "leased" and not force:
        return "its worker would be asked to stop."
    return "would be cancelled."


def _outcome(job: Facts) -> str:
    name = printable(str(job.get("job_id")))
    if job.get("state") == "leased":
        return f"{name} is being worked on: its worker is asked to stop, and what it still reports counts."
    if job.get("reason") == "cancelled":
        return f"Cancelled {name}"
    return f"{name} has ended already: it is {standing(job)}"


def _facts(job: Facts) -> Facts:
    names = ("job_id", "state", "status", "reason", "cancel_requested")
    return {name: job.get(name) for name in names}
