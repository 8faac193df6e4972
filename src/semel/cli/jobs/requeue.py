"""`semel jobs requeue`: run failed jobs again, under their own ids and keys.

An order whose answer was lost is not given twice: the job's revision tells whether it was carried out.
"""

from __future__ import annotations

import json
import sys

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.failures import RefusedError, RequestError
from semel.cli.jobs.asking import Facts, Server, job_path, with_retries
from semel.cli.jobs.dead import DEAD_PATH, show_dead
from semel.cli.jobs.finding import Wanted, check_name
from semel.cli.jobs.options import given
from semel.cli.output import printable, with_json
from semel.cli.progress import progress
from semel.cli.retries import send_until_answered

REASONS = ("exhausted", "permanent", "lease_exhausted")


@click.command()
@click.argument("jobs", nargs=-1, metavar="JOB...")
@click.option("--dead", is_flag=True, help="Requeue all dead letters that match --queue, --kind and --reason.")
@click.option("--queue", help="With --dead: only jobs of this queue.")
@click.option("--kind", help="With --dead: only jobs of this kind.")
@click.option("--reason", type=click.Choice(REASONS), help="With --dead: only jobs that failed for this reason.")
@click.option("--dry-run", is_flag=True, help="Print what would run again, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def requeue(
    connection: Connection,
    jobs: tuple[str, ...],
    dead: bool,
    queue: str | None,
    kind: str | None,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    retries: int,
    as_json: bool,
) -> None:
    """Run failed jobs again. A JOB is its id or its request id."""
    wanted = given({"queue": queue, "kind": kind, "reason": reason})
    _check(jobs, dead, bool(wanted), asks=not (yes or dry_run))
    server = Server(connection, retries)
    found = _dead(server, wanted) if dead else [Wanted(name, None).read(server) for name in jobs]
    if dry_run:
        _show_plan(found, as_json)
        return
    if len(found) > 1 and not yes:
        show_dead(found)
        click.confirm(f"Run these {len(found)} jobs again?", abort=True, err=True)
    _requeue(server, found, as_json)


def _check(jobs: tuple[str, ...], dead: bool, is_filtered: bool, *, asks: bool) -> None:
    if dead == bool(jobs):
        raise click.UsageError("Name jobs, or give --dead for the dead letters.")
    if is_filtered and not dead:
        raise click.UsageError("--queue, --kind and --reason choose among the dead letters: give --dead.")
    for name in jobs:
        check_name(name)
    if (dead or len(jobs) > 1) and asks and not sys.stdin.isatty():
        raise click.UsageError("Many jobs would run again: say --yes if standard input is not a terminal.")


def _dead(server: Server, wanted: Facts) -> list[Facts]:
    letters = (job for page in server.pages(DEAD_PATH, "jobs", {}, None) for job in page)
    return [job for job in letters if all(job.get(name) == value for name, value in wanted.items())]


def _show_plan(found: list[Facts], as_json: bool) -> None:
    if as_json:
        for job in found:
            click.echo(json.dumps({"job_id": job.get("job_id"), "requeued": False, "dry_run": True}))
        return
    if found:
        show_dead(found)
    click.echo(f"Would run {len(found)} jobs again.")


def _requeue(server: Server, found: list[Facts], as_json: bool) -> None:
    done = refused = 0
    with progress(len(found) if len(found) > 1 else None, "Requeueing") as advance:
        for job in found:
            try:
                told = _Order(server, job).give()
            except RefusedError as error:
                if error.may_pass:
                    raise _stopped(error, done) from error
                refused += 1
                click.echo(f"{printable(str(job.get('job_id')))}: {error.message}", err=True)
            except RequestError as error:
                raise _stopped(error, done) from error
            else:
                done += 1
                if as_json:
                    click.echo(json.dumps({"job_id": job.get("job_id"), "requeued": True, **told, "dry_run": False}))
            advance(1)
    if not as_json:
        click.echo(
            f"Requeued {printable(str(found[0]['job_id']))}" if done == len(found) == 1 else f"Requeued {done} jobs"
        )
    if refused:
        raise click.ClickException(f"{refused} of {len(found)} jobs were not requeued.")


def _stopped(error: RequestError, done: int) -> click.ClickException:
    return click.ClickException(f"{error.message} Requeued {done} jobs; run this again for the others.")


class _Order:
    """One requeue, given until it is known to have been carried out."""

    def __init__(self, server: Server, job: Facts) -> None:
        self._server = server
        self._job_id = str(job["job_id"])
        self._revision = int(job.get("revision", 0))
        self._is_unsettled = False

    def give(self) -> Facts:
        return send_until_answered(self._send, self._server.retries)

    def _send(self) -> Facts:
        try:
            return self._server.post_once(job_path(self._job_id, "requeue"), {})
        except RequestError as error:
            if self._is_unsettled and isinstance(error, RefusedError) and error.status == 409:
                job = self._server.get(job_path(self._job_id))
                if job["revision"] > self._revision:
                    return job
            self._is_unsettled = self._is_unsettled or error.is_unsettled
            raise
