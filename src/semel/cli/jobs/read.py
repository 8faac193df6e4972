"""`semel jobs list`, `show`, `members`, `result` and `wait`, and the exit codes for the end of a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import click

from semel.cli.command import AT_LEAST_1, SECONDS, Arg, Json, Opt, Retrying, command
from semel.cli.jobs.options import JobName, jobs
from semel.cli.jobs.output import COLOURS, PLAIN_SIGNS, SIGNS, drawn, end_sentence, json_words
from semel.cli.output import Listing, coloured, printable
from semel.client import JobMember, JobSummary
from semel.client.jobs.admin_calls import MOST_PAGE_JOBS
from semel.client.jobs.timeline import Facts, last_error, moments, standing
from semel.client.jobs.values import State

LIST_HEAD = ("JOB", "KIND", "QUEUE", "PRIORITY", "ATTEMPT", "CREATED", "STATE")
DEFAULT = 100


@command(jobs, "list")
def list_jobs(
    client: Retrying,
    state: Annotated[State | None, Opt("List only jobs in this state.")] = None,
    queue: Annotated[str | None, Opt("List only jobs of this queue.")] = None,
    kind: Annotated[str | None, Opt("List only jobs of this kind.")] = None,
    limit: Annotated[int | None, Opt(f"Maximum jobs to list.  [{DEFAULT}]", "", "N", AT_LEAST_1)] = None,
    is_all: Annotated[bool, Opt("List all.", "--all")] = False,
) -> Listing[JobSummary]:
    """List jobs, newest first."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or DEFAULT
    # One more than the limit, to see whether there are more.
    page = page_size(None if most is None else most + 1)
    found = client.jobs.walk(state=state, queue=queue, kind=kind, page=page)
    more = "" if most is None else f"There are more than {most} jobs: give a higher --limit, or --all."
    return Listing(
        found, LIST_HEAD, _list_row, "No jobs match.", most=most, more=more, colour=lambda job: COLOURS.get(job.state)
    )


def page_size(most: int | None) -> int:
    """The jobs of one page of a list with at most `most` jobs."""
    return MOST_PAGE_JOBS if most is None else min(most, MOST_PAGE_JOBS)


def _list_row(one: JobSummary) -> tuple[object, ...]:
    job = one.facts
    names, attempts = ("job_id", "kind", "queue", "priority"), f"{job['attempt']} of {job['max_attempts']}"
    return *(job[name] for name in names), attempts, job["created_utc"], standing(job)


@command(jobs)
def members(client: Retrying, job: Arg) -> Listing[JobMember]:
    """List the members of a group, by the id of its join, or the children of a job, oldest first."""
    found = client.jobs.walk_members(JobName(job).read(client).job_id)
    return Listing(found, ("JOB", "NAME", "STATE"), _member_row, "No members.", lambda one: json.dumps(_member(one)))


def _member(one: JobMember) -> dict[str, Any]:
    return {"job_id": one.job_id, "name": one.name, "state": one.state, "reason": one.reason}


def _member_row(one: JobMember) -> tuple[object, ...]:
    return one.job_id, one.name or "", standing(_member(one))


@command(jobs)
def show(client: Retrying, job: JobName, as_json: Json = False) -> None:
    """Show a job: its state and its history. JOB is its id or its request id."""
    facts = job.read(client).facts
    if as_json:
        click.echo(json.dumps(facts))
        return
    about = printable(f"{facts['job_id']}  {facts['kind']}  {standing(facts)}")
    click.echo(coloured(about, COLOURS.get(str(facts["state"]))))
    for name, words in _job_facts(facts):
        click.echo(f"{name:<9} {printable(words)}")
    click.echo()
    for line in drawn(moments(facts), _signs()):
        click.echo(line)


def _job_facts(job: Facts) -> Iterator[tuple[str, str]]:
    yield "queue", f"{job['queue']}, priority {job['priority']}"
    extra = [f"{name} {job[name]}" for name in ("deferrals", "revision") if job.get(name)]
    yield "attempts", ", ".join([f"{job['attempt']} of {job['max_attempts']}", *extra])
    yield "request", job["request_id"]
    yield "params", json_words(job["params"])
    if job.get("progress") is not None:
        yield "progress", json_words(job["progress"])
    if job["state"] == "failed" and (error := last_error(job)):
        yield "error", error
    if job["state"] == "completed":
        yield "result", _result(job)


def _result(job: Facts) -> str:
    cached, why = job.get("cached_result"), job.get("cached_result_omitted") or "see `semel jobs result`"
    kept = json_words(cached["result"]) if isinstance(cached, dict) else f"not shown ({why})"
    return f"{kept}; {job.get('result_bytes')} bytes, SHA-256 {job.get('result_sha256')}"


def _signs() -> dict[str, str]:
    try:
        "".join(SIGNS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_SIGNS
    return SIGNS


COMPLETED, FAILED, UNFINISHED = 0, 3, 4


def exit_with(job: Facts, as_json: bool) -> None:
    """Print the state of the job, and exit with the code for it."""
    click.echo(json.dumps(job) if as_json else end_sentence(job))
    code = {"completed": COMPLETED, "failed": FAILED}.get(str(job["state"]), UNFINISHED)
    click.get_current_context().exit(code)


@command(jobs, epilog=f"Exit code {COMPLETED}: completed, {FAILED}: failed.")
def result(client: Retrying, job: JobName, as_json: Json = False) -> None:
    """Print the result of a job as JSON, or the error of a failed one. JOB is its id or its request id.

    With --json the whole answer of the server is printed. A result that does not match its SHA-256 checksum is not
    printed.
    """
    found = client.jobs.result(job.find(client))
    value = found.result if found.ok else found.error
    click.echo(json.dumps(found.facts if as_json else value, ensure_ascii=False))
    click.get_current_context().exit(COMPLETED if found.ok else FAILED)


@command(
    jobs, epilog=f"Exit code {COMPLETED}: completed, {FAILED}: failed, {UNFINISHED}: neither when the time was up."
)
def wait(
    client: Retrying,
    job: JobName,
    timeout: Annotated[
        float | None,
        Opt("Stop waiting after this time, in seconds; by default never.", "", "SECONDS", SECONDS),
    ] = None,
    as_json: Json = False,
) -> None:
    """Wait for a job's end. JOB is its id or its request id."""
    exit_with(dict(client.jobs.wait(job.find(client), timeout).facts), as_json)
