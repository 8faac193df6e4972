"""`semel jobs cancel`, `close`, `dead`, `requeue` and `release`.

A waiting job is cancelled at once. The worker of a running job is asked to stop, and its report counts; with `--force`
the job ends at once, after a confirmation. A requeue whose answer was lost has no second effect: the job's revision
shows whether it was applied.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Literal

import click

from semel.cli.command import RETRIES, Arg, DryRun, Json, MaybeArg, Opt, Positional, Retries, Yes, command
from semel.cli.jobs.options import Key, Principal, check_name, find_job, jobs, read_job
from semel.cli.jobs.output import Facts, error_of, error_words, standing
from semel.cli.jobs.read import cells, page_size, print_all
from semel.cli.output import printable, progress, say
from semel.cli.session import sentence
from semel.client import CallError, Client, JobSummary

NO_TERMINAL = "give --yes if standard input is not a terminal."


@command(jobs)
def cancel(
    client: Client,
    job: MaybeArg = None,
    key: Key = None,
    principal: Principal = None,
    force: Annotated[bool, Opt("Cancel the job even while a worker runs it; the worker's result is dropped.")] = False,
    members: Annotated[bool, Opt("Also cancel the members of its group, or its children.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Cancel a job. JOB is its id or its request id."""
    if force and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError(f"--force discards the work of a running job: {NO_TERMINAL}")
    found = read_job(client, job, key, principal)
    about = printable(f"{found.job_id} ({found.kind}) is {standing(found.facts)}")
    if dry_run:
        say(as_json, {**_cancel_facts(found.facts), "dry_run": True}, f"{about}: {_cancel_plan(found, force)}")
        return
    if force and not yes:
        click.echo(about, err=True)
        click.confirm("Cancel it at once?", abort=True, err=True)
    done = client.jobs.cancel(found.job_id, force=force, members=members).facts
    say(as_json, {**_cancel_facts(done), "dry_run": False}, _cancel_outcome(done))


def _cancel_plan(job: JobSummary, force: bool) -> str:
    if job.has_ended:
        return "it would not change."
    return "its worker would be asked to stop." if job.state == "leased" and not force else "would be cancelled."


def _cancel_outcome(job: Facts) -> str:
    name = printable(str(job["job_id"]))
    if job["state"] == "leased":
        return f"{name} is running: its worker was asked to stop, and its report still counts."
    if job.get("reason") == "cancelled":
        return f"Cancelled {name}"
    return f"{name} has already ended: it is {standing(job)}"


def _cancel_facts(job: Facts) -> dict[str, object]:
    return {name: job.get(name) for name in ("job_id", "state", "status", "reason", "cancel_requested")}


@command(jobs)
def close(
    client: Client,
    job: MaybeArg = None,
    key: Key = None,
    principal: Principal = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Close a group, by its join: it gets no more members, and its join runs when all of them have ended."""
    done = client.jobs.close_group(find_job(client, job, key, principal))
    say(as_json, dict(done.facts), printable(f"Closed the group of {done.job_id}: it is {standing(done.facts)}"))


DEAD_HEAD = ("JOB", "KIND", "QUEUE", "REASON", "ATTEMPTS", "FINISHED", "ERROR")


@command(jobs)
def dead(
    client: Client,
    limit: Annotated[
        int | None, Opt("Maximum jobs to list; all by default.", metavar="N", type=click.IntRange(min=1))
    ] = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """List the dead letter queue: jobs that failed permanently. `semel jobs requeue` runs them again."""
    found = islice(client.jobs.walk_dead(page=page_size(limit)), limit)
    print_all((job.facts for job in found), as_json, DEAD_HEAD, _dead_row, "There are no dead letters.")


def _dead_row(job: Facts) -> tuple[str, ...]:
    error = error_of(job)
    names = ("job_id", "kind", "queue", "reason", "attempts", "finished_utc")
    return cells(*(job.get(name, "") for name in names), "" if error is None else error_words(error))


@command(jobs)
def requeue(
    client: Client,
    names: Annotated[tuple[str, ...], Positional("JOB...")] = (),
    is_dead: Annotated[
        bool, Opt("Requeue all dead letters that match --queue, --kind and --reason.", "--dead")
    ] = False,
    queue: Annotated[str | None, Opt("With --dead: only jobs of this queue.")] = None,
    kind: Annotated[str | None, Opt("With --dead: only jobs of this kind.")] = None,
    reason: Annotated[
        Literal["exhausted", "permanent", "lease_exhausted"] | None,
        Opt("With --dead: only jobs that failed for this reason."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Run failed jobs again. A JOB is its id or its request id."""
    filters = {"queue": queue, "kind": kind, "reason": reason}
    wanted = {name: value for name, value in filters.items() if value is not None}
    _check_requeue(names, is_dead, bool(wanted), asks=not (yes or dry_run))
    found: list[JobSummary] = [read_job(client, name) for name in names]
    if is_dead:
        letters = client.jobs.walk_dead()
        found = [job for job in letters if all(job.facts.get(name) == value for name, value in wanted.items())]
    if dry_run:
        _show_plan(found, as_json)
        return
    if len(found) > 1 and not yes:
        _show_dead(found)
        click.confirm(f"Run these {len(found)} jobs again?", abort=True, err=True)
    _requeue(client, found, as_json)


def _check_requeue(names: tuple[str, ...], is_dead: bool, is_filtered: bool, *, asks: bool) -> None:
    if is_dead == bool(names):
        raise click.UsageError("Name jobs, or give --dead for the dead letters.")
    if is_filtered and not is_dead:
        raise click.UsageError("--queue, --kind and --reason need --dead.")
    for name in names:
        check_name(name)
    if (is_dead or len(names) > 1) and asks and not sys.stdin.isatty():
        raise click.UsageError(f"Many jobs would run again: {NO_TERMINAL}")


def _show_dead(found: Sequence[JobSummary]) -> None:
    print_all((job.facts for job in found), False, DEAD_HEAD, _dead_row, "There are no dead letters.")


def _show_plan(found: Sequence[JobSummary], as_json: bool) -> None:
    if as_json:
        for job in found:
            click.echo(json.dumps({"job_id": job.job_id, "requeued": False, "dry_run": True}))
        return
    if found:
        _show_dead(found)
    click.echo(f"Would run {len(found)} jobs again.")


def _requeue(client: Client, found: Sequence[JobSummary], as_json: bool) -> None:
    done = refused = 0
    with progress(len(found) if len(found) > 1 else None, "Requeueing") as advance:
        for job in found:
            try:
                told = client.jobs.requeue(job.job_id, revision=job.revision).facts
            except CallError as error:
                if error.may_pass:
                    advice = f"Requeued {done} jobs; run this again for the others."
                    raise click.ClickException(f"{sentence(error)} {advice}") from error
                refused += 1
                click.echo(f"{printable(job.job_id)}: {sentence(error)}", err=True)
            else:
                done += 1
                if as_json:
                    click.echo(json.dumps({"job_id": job.job_id, "requeued": True, **told, "dry_run": False}))
            advance(1)
    if not as_json:
        click.echo(f"Requeued {printable(found[0].job_id)}" if done == len(found) == 1 else f"Requeued {done} jobs")
    if refused:
        raise click.ClickException(f"{refused} of {len(found)} jobs were not requeued.")


@command(jobs)
def release(
    client: Client,
    key: Arg,
    principal: Annotated[str, Opt("Caller that the key belongs to.", metavar="NAME", show_default=True)] = "default",
    force: Annotated[
        bool, Opt("Release the key even if its job has not ended; a retry then creates a second job.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Release a key whose job has ended: the next submission with it creates a new job."""
    if force and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError(f"With --force a retry under this key runs its job twice: {NO_TERMINAL}")
    about = printable(f"the key {key} of {principal}")
    facts = {"principal": principal, "idempotency_key": key, "released": not dry_run, "dry_run": dry_run}
    if dry_run:
        say(as_json, facts, f"Would release {about}{', even if its job has not ended' if force else ''}.")
        return
    if force and not yes:
        click.confirm(f"Release {about}, even if its job has not ended?", abort=True, err=True)
    client.jobs.release_key(key, principal=principal, force=force)
    say(as_json, {"ok": True, **facts}, f"Released {about}")
