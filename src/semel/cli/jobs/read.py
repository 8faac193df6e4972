"""`semel jobs list`, `show`, `members`, `result` and `wait`, and the exit codes for the end of a job."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated, Any

import click

from semel.cli.command import RETRIES, Arg, Json, MaybeArg, Opt, Retries, command
from semel.cli.jobs.options import Key, Principal, check_name, find_job, jobs, read_job
from semel.cli.jobs.output import (
    PLAIN_SIGNS,
    SIGNS,
    Facts,
    drawn,
    end_sentence,
    error_of,
    error_words,
    json_words,
    moments,
    painted,
    standing,
)
from semel.cli.output import printable, table
from semel.client import Client
from semel.client.jobs.admin_calls import MOST_PAGE_JOBS
from semel.client.jobs.values import State

LIST_HEAD = ("JOB", "KIND", "QUEUE", "PRIORITY", "ATTEMPT", "CREATED", "STATE")
DEFAULT = 100
Limit = Annotated[int | None, Opt(f"Maximum jobs to list.  [{DEFAULT}]", metavar="N", type=click.IntRange(min=1))]


@command(jobs, "list")
def list_jobs(
    client: Client,
    state: Annotated[State | None, Opt("List only jobs in this state.")] = None,
    queue: Annotated[str | None, Opt("List only jobs of this queue.")] = None,
    kind: Annotated[str | None, Opt("List only jobs of this kind.")] = None,
    limit: Limit = None,
    is_all: Annotated[bool, Opt("List all.", "--all")] = False,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or DEFAULT
    # One more than the limit, to see whether there are more.
    wanted = None if most is None else most + 1
    found = client.jobs.walk(state=state, queue=queue, kind=kind, page=page_size(wanted))
    listed: list[Facts] = []
    for job in islice(found, wanted):
        if as_json and (most is None or len(listed) < most):
            click.echo(json.dumps(job.facts))
        listed.append(job.facts)
    if not as_json:
        _show_list(listed[:most])
    if most is not None and len(listed) > most:
        click.echo(f"There are more than {most} jobs: give a higher --limit, or --all.", err=True)


def page_size(most: int | None) -> int:
    """The jobs of one page of a list with at most `most` jobs."""
    return MOST_PAGE_JOBS if most is None else min(most, MOST_PAGE_JOBS)


def _show_list(listed: list[Facts]) -> None:
    if not listed:
        click.echo("No jobs match.", err=True)
        return
    head, *lines = table(LIST_HEAD, [_list_row(job) for job in listed])
    click.echo(head)
    for line, job in zip(lines, listed, strict=True):
        click.echo(painted(line, job["state"]))


def _list_row(job: Facts) -> tuple[str, ...]:
    names, attempts = ("job_id", "kind", "queue", "priority"), f"{job['attempt']} of {job['max_attempts']}"
    return cells(*(job[name] for name in names), attempts, job["created_utc"], standing(job))


def cells(*values: Any) -> tuple[str, ...]:
    """The values as cells of a table."""
    return tuple(printable(str(value)) for value in values)


def print_all(items: Iterable[Facts], as_json: bool, head: tuple[str, ...], rows: Any, nothing: str) -> None:
    """Print a list as JSON lines, or as a table whose rows `rows` makes, or that there is nothing."""
    found = []
    for item in items:
        if as_json:
            click.echo(json.dumps(item))
        else:
            found.append(rows(item))
    if found:
        for line in table(head, found):
            click.echo(line)
    elif not as_json:
        click.echo(nothing, err=True)


@command(jobs)
def members(client: Client, job: Arg, retries: Retries = RETRIES, as_json: Json = False) -> None:
    """List the members of a group, by the id of its join, or the children of a job, oldest first."""
    check_name(job)
    found = client.jobs.walk_members(read_job(client, job).job_id)
    listed = ({"job_id": one.job_id, "name": one.name, "state": one.state, "reason": one.reason} for one in found)
    head = ("JOB", "NAME", "STATE")
    print_all(listed, as_json, head, lambda one: cells(one["job_id"], one["name"] or "", standing(one)), "No members.")


@command(jobs)
def show(
    client: Client,
    job: MaybeArg = None,
    key: Key = None,
    principal: Principal = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Show a job: its state and its history. JOB is its id or its request id."""
    facts = read_job(client, job, key, principal).facts
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(painted(printable(f"{facts['job_id']}  {facts['kind']}  {standing(facts)}"), facts["state"]))
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
    error = error_of(job)
    if job["state"] == "failed" and error is not None:
        yield "error", error_words(error)
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


COMPLETED = 0
FAILED = 3
UNFINISHED = 4


def exit_with(job: Facts, as_json: bool) -> None:
    """Print the state of the job, and exit with the code for it."""
    click.echo(json.dumps(job) if as_json else end_sentence(job))
    code = {"completed": COMPLETED, "failed": FAILED}.get(str(job["state"]), UNFINISHED)
    click.get_current_context().exit(code)


@command(jobs, epilog=f"Exit code {COMPLETED}: completed, {FAILED}: failed.")
def result(
    client: Client,
    job: MaybeArg = None,
    key: Key = None,
    principal: Principal = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Print the result of a job as JSON, or the error of a failed one. JOB is its id or its request id.

    With --json the whole answer of the server is printed. A result that does not match its SHA-256 checksum is not
    printed.
    """
    found = client.jobs.result(find_job(client, job, key, principal))
    value = found.result if found.ok else found.error
    click.echo(json.dumps(found.facts if as_json else value, ensure_ascii=False))
    click.get_current_context().exit(COMPLETED if found.ok else FAILED)


@command(
    jobs, epilog=f"Exit code {COMPLETED}: completed, {FAILED}: failed, {UNFINISHED}: neither when the time was up."
)
def wait(
    client: Client,
    job: MaybeArg = None,
    key: Key = None,
    principal: Principal = None,
    timeout: Annotated[
        float | None,
        Opt(
            "Stop waiting after this time, in seconds; by default never.",
            metavar="SECONDS",
            type=click.FloatRange(min=0),
        ),
    ] = None,
    retries: Retries = RETRIES,
    as_json: Json = False,
) -> None:
    """Wait for a job's end. JOB is its id or its request id."""
    exit_with(dict(client.jobs.wait(find_job(client, job, key, principal), timeout).facts), as_json)
