"""`semel jobs cancel`, `dead`, `requeue` and `release`.

A waiting job is cancelled at once. The worker of a running job is asked to stop, and its report counts; with `--force`
the job ends at once, after a confirmation. A requeue whose answer was lost has no second effect: the job's revision
shows whether it was applied.
"""

from __future__ import annotations

import json
import sys

import click

from semel.cli.connection import CliConnection, CliRefusedError, RequestError
from semel.cli.jobs.output import error_of, error_words, standing
from semel.cli.jobs.read import is_ended
from semel.cli.jobs.requests import PATH, CliJobReference, CliJobServer, Facts, check_name, job_path, with_job_reference
from semel.cli.output import printable, progress, say, table, with_json
from semel.cli.requests import given, send_until_answered, with_connection, with_retries


@click.command()
@with_job_reference
@click.option(
    "--force", is_flag=True, help="Cancel the job even while a worker runs it; the worker's result is dropped."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def cancel(
    connection: CliConnection,
    wanted: CliJobReference,
    force: bool,
    dry_run: bool,
    yes: bool,
    retries: int,
    as_json: bool,
) -> None:
    """Cancel a job. JOB is its id or its request id."""
    if force and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError(
            "--force discards the work of a running job: give --yes if standard input is not a terminal."
        )
    server = CliJobServer(connection, retries)
    job = wanted.read(server)
    about = printable(f"{job.get('job_id')} ({job.get('kind')}) is {standing(job)}")
    if dry_run:
        say(as_json, {**_cancel_facts(job), "dry_run": True}, f"{about}: {_cancel_plan(job, force)}")
        return
    if force and not yes:
        click.echo(about, err=True)
        click.confirm("Cancel it at once?", abort=True, err=True)
    done = server.post(job_path(str(job["job_id"]), "cancel"), {"force": force})
    say(as_json, {**_cancel_facts(done), "dry_run": False}, _cancel_outcome(done))


def _cancel_plan(job: Facts, force: bool) -> str:
    if is_ended(job):
        return "it would not change."
    if job.get("state") == "leased" and not force:
        return "its worker would be asked to stop."
    return "would be cancelled."


def _cancel_outcome(job: Facts) -> str:
    name = printable(str(job.get("job_id")))
    if job.get("state") == "leased":
        return f"{name} is running: its worker was asked to stop, and its report still counts."
    if job.get("reason") == "cancelled":
        return f"Cancelled {name}"
    return f"{name} has already ended: it is {standing(job)}"


def _cancel_facts(job: Facts) -> Facts:
    names = ("job_id", "state", "status", "reason", "cancel_requested")
    return {name: job.get(name) for name in names}


DEAD_PATH = f"{PATH}/dead"
DEAD_HEAD = ("JOB", "KIND", "QUEUE", "REASON", "ATTEMPTS", "FINISHED", "ERROR")


@click.command()
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum jobs to list; all by default.")
@with_retries
@with_json
@with_connection
def dead(connection: CliConnection, limit: int | None, retries: int, as_json: bool) -> None:
    """List the dead letter queue: jobs that failed permanently. `semel jobs requeue` runs them again."""
    found = [job for page in CliJobServer(connection, retries).pages(DEAD_PATH, "jobs", {}, limit) for job in page]
    if as_json:
        for job in found:
            click.echo(json.dumps(job))
    elif not found:
        click.echo("There are no dead letters.", err=True)
    else:
        show_dead(found)


def show_dead(jobs: list[Facts]) -> None:
    """Print dead letters as a table."""
    for line in table(DEAD_HEAD, [_dead_row(job) for job in jobs]):
        click.echo(line)


def _dead_row(job: Facts) -> tuple[str, ...]:
    error = error_of(job)
    names = ("job_id", "kind", "queue", "reason", "attempts", "finished_utc")
    cells = (*(job.get(name, "") for name in names), "" if error is None else error_words(error))
    return tuple(printable(str(cell)) for cell in cells)


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
    connection: CliConnection,
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
    _check_requeue(jobs, dead, bool(wanted), asks=not (yes or dry_run))
    server = CliJobServer(connection, retries)
    found = _dead(server, wanted) if dead else [CliJobReference(name, None).read(server) for name in jobs]
    if dry_run:
        _show_plan(found, as_json)
        return
    if len(found) > 1 and not yes:
        show_dead(found)
        click.confirm(f"Run these {len(found)} jobs again?", abort=True, err=True)
    _requeue(server, found, as_json)


def _check_requeue(jobs: tuple[str, ...], dead: bool, is_filtered: bool, *, asks: bool) -> None:
    if dead == bool(jobs):
        raise click.UsageError("Name jobs, or give --dead for the dead letters.")
    if is_filtered and not dead:
        raise click.UsageError("--queue, --kind and --reason need --dead.")
    for name in jobs:
        check_name(name)
    if (dead or len(jobs) > 1) and asks and not sys.stdin.isatty():
        raise click.UsageError("Many jobs would run again: give --yes if standard input is not a terminal.")


def _dead(server: CliJobServer, wanted: Facts) -> list[Facts]:
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


def _requeue(server: CliJobServer, found: list[Facts], as_json: bool) -> None:
    done = refused = 0
    with progress(len(found) if len(found) > 1 else None, "Requeueing") as advance:
        for job in found:
            try:
                told = _Requeue(server, job).give()
            except CliRefusedError as error:
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


class _Requeue:
    """One requeue, retried until it is known to be applied."""

    def __init__(self, server: CliJobServer, job: Facts) -> None:
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
            if self._is_unsettled and isinstance(error, CliRefusedError) and error.status == 409:
                job = self._server.get(job_path(self._job_id))
                if job["revision"] > self._revision:
                    return job
            self._is_unsettled = self._is_unsettled or error.is_unsettled
            raise


RELEASE_PATH = f"{PATH}/keys/release"


@click.command()
@click.argument("key")
@click.option(
    "--principal", default="default", show_default=True, metavar="NAME", help="Caller that the key belongs to."
)
@click.option(
    "--force", is_flag=True, help="Release the key even if its job has not ended; a retry then creates a second job."
)
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_retries
@with_json
@with_connection
def release(
    connection: CliConnection,
    key: str,
    principal: str,
    force: bool,
    dry_run: bool,
    yes: bool,
    retries: int,
    as_json: bool,
) -> None:
    """Release a key whose job has ended: the next submission with it creates a new job."""
    if force and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError(
            "With --force a retry under this key runs its job twice: give --yes if standard input is not a terminal."
        )
    about = printable(f"the key {key} of {principal}")
    facts = {"principal": principal, "idempotency_key": key, "released": not dry_run, "dry_run": dry_run}
    if dry_run:
        say(as_json, facts, f"Would release {about}{', even if its job has not ended' if force else ''}.")
        return
    if force and not yes:
        click.confirm(f"Release {about}, even if its job has not ended?", abort=True, err=True)
    body = {"principal": principal, "idempotency_key": key, "force": force}
    told = CliJobServer(connection, retries).post(RELEASE_PATH, body)
    say(as_json, {**told, **facts}, f"Released {about}")
