"""`semel jobs cancel`, `close`, `dead`, `requeue` and `release`.

A waiting job is cancelled at once. The worker of a running job is asked to stop, and its report counts; with `--force`
the job ends at once, after a confirmation. A requeue whose answer was lost has no second effect: the job's revision
shows whether it was applied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import click

from semel.cli.command import AT_LEAST_1, Arg, Json, Opt, Positional, Retrying, Sure, command
from semel.cli.jobs.options import JobName, check_name, jobs
from semel.cli.jobs.read import page_size
from semel.cli.output import Listing, Said, printable, progress
from semel.cli.session import sentence
from semel.client import CallError, Client, JobSummary
from semel.client.jobs.timeline import Facts, last_error, standing


@command(jobs)
def cancel(
    client: Retrying,
    job: JobName,
    force: Annotated[bool, Opt("Cancel the job even while a worker runs it; the worker's result is dropped.")] = False,
    members: Annotated[bool, Opt("Also cancel the members of its group, or its children.")] = False,
    *,
    sure: Sure,
) -> Said:
    """Cancel a job. JOB is its id or its request id."""
    if force:
        sure.refuse_silence("--force discards the work of a running job")
    found = job.read(client)
    about = printable(f"{found.job_id} ({found.kind}) is {standing(found.facts)}")
    if sure.dry_run:
        return Said({**_cancel_facts(found.facts), "dry_run": True}, f"{about}: {_cancel_plan(found, force)}")
    if force:
        sure.ask("Cancel it at once?", about)
    done = client.jobs.cancel(found.job_id, force=force, members=members).facts
    return Said({**_cancel_facts(done), "dry_run": False}, _cancel_outcome(done))


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
def close(client: Retrying, job: JobName) -> Said:
    """Close a group, by its join: it gets no more members, and its join runs when all of them have ended."""
    done = client.jobs.close_group(job.find(client))
    return Said(done.facts, f"Closed the group of {done.job_id}: it is {standing(done.facts)}")


DEAD_HEAD = ("JOB", "KIND", "QUEUE", "REASON", "ATTEMPTS", "FINISHED", "ERROR")


@command(jobs)
def dead(
    client: Retrying,
    limit: Annotated[int | None, Opt("Maximum jobs to list; all by default.", "", "N", AT_LEAST_1)] = None,
) -> Listing[JobSummary]:
    """List the dead letter queue: jobs that failed permanently. `semel jobs requeue` runs them again."""
    return _listed(client.jobs.walk_dead(page=page_size(limit)), limit)


def _listed(found: Iterable[JobSummary], most: int | None = None) -> Listing[JobSummary]:
    return Listing(found, DEAD_HEAD, _dead_row, "There are no dead letters.", most=most)


def _dead_row(job: JobSummary) -> tuple[object, ...]:
    names = ("job_id", "kind", "queue", "reason", "attempts", "finished_utc")
    return *(job.facts.get(name, "") for name in names), last_error(job.facts)


@command(jobs)
def requeue(
    client: Retrying,
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
    *,
    sure: Sure,
    as_json: Json = False,
) -> None:
    """Run failed jobs again. A JOB is its id or its request id."""
    filters = {"queue": queue, "kind": kind, "reason": reason}
    wanted = {name: value for name, value in filters.items() if value is not None}
    if is_dead == bool(names):
        raise click.UsageError("Name jobs, or give --dead for the dead letters.")
    if wanted and not is_dead:
        raise click.UsageError("--queue, --kind and --reason need --dead.")
    for name in names:
        check_name(name)
    if is_dead or len(names) > 1:
        sure.refuse_silence("Many jobs would run again")
    found: list[JobSummary] = [JobName(name).read(client) for name in names]
    if is_dead:
        letters = client.jobs.walk_dead()
        found = [job for job in letters if all(job.facts.get(name) == value for name, value in wanted.items())]
    if sure.dry_run:
        _plan(found, as_json)
        return
    if len(found) > 1 and not sure.yes:
        _listed(found).show(False)
        sure.ask(f"Run these {len(found)} jobs again?")
    _requeue(client, found, as_json)


def _plan(found: Sequence[JobSummary], as_json: bool) -> None:
    for job in found if as_json else ():
        click.echo(json.dumps({"job_id": job.job_id, "requeued": False, "dry_run": True}))
    if found and not as_json:
        _listed(found).show(False)
    if not as_json:
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
    client: Retrying,
    key: Arg,
    principal: Annotated[str, Opt("Caller that the key belongs to.", metavar="NAME", show_default=True)] = "default",
    force: Annotated[
        bool, Opt("Release the key even if its job has not ended; a retry then creates a second job.")
    ] = False,
    *,
    sure: Sure,
) -> Said:
    """Release a key whose job has ended: the next submission with it creates a new job."""
    about, even = printable(f"the key {key} of {principal}"), ", even if its job has not ended" if force else ""
    facts = {"principal": principal, "idempotency_key": key, "released": not sure.dry_run, "dry_run": sure.dry_run}
    if force:
        sure.refuse_silence("With --force a retry under this key runs its job twice")
    if sure.dry_run:
        return Said(facts, f"Would release {about}{even}.")
    if force:
        sure.ask(f"Release {about}{even}?")
    client.jobs.release_key(key, principal=principal, force=force)
    return Said({"ok": True, **facts}, f"Released {about}")
