"""`semel jobs list`, `show`, `result` and `wait`, and the exit codes for the end of a job."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from hashlib import sha256

import click

from semel.cli.connection import CliConnection, not_semel
from semel.cli.jobs.output import (
    PLAIN_SIGNS,
    SIGNS,
    drawn,
    end_sentence,
    error_of,
    error_words,
    json_words,
    moments,
    painted,
    standing,
)
from semel.cli.jobs.requests import PATH, SURFACE, CliJobReference, CliJobServer, Facts, job_path, with_job_reference
from semel.cli.output import printable, table, with_json
from semel.cli.requests import given, with_connection, with_retries
from semel.kernel.hashes import parsed_bytes, report_bytes

STATES = ("scheduled", "queued", "leased", "completed", "failed")
LIST_HEAD = ("JOB", "KIND", "QUEUE", "PRIORITY", "ATTEMPT", "CREATED", "STATE")
DEFAULT = 100


@click.command("list")
@click.option("--state", type=click.Choice(STATES), help="List only jobs in this state.")
@click.option("--queue", help="List only jobs of this queue.")
@click.option("--kind", help="List only jobs of this kind.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"Maximum jobs to list.  [{DEFAULT}]")
@click.option("--all", "is_all", is_flag=True, help="List all.")
@with_retries
@with_json
@with_connection
def list_jobs(
    connection: CliConnection,
    state: str | None,
    queue: str | None,
    kind: str | None,
    limit: int | None,
    is_all: bool,
    retries: int,
    as_json: bool,
) -> None:
    """List jobs, newest first."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or DEFAULT
    filters = given({"state": state, "queue": queue, "kind": kind})
    jobs: list[Facts] = []
    # One more than the limit, to see whether there are more.
    for page in CliJobServer(connection, retries).pages(PATH, "jobs", filters, None if most is None else most + 1):
        for job in page:
            if as_json and (most is None or len(jobs) < most):
                click.echo(json.dumps(job))
            jobs.append(job)
    if not as_json:
        _show_list(jobs[:most])
    if most is not None and len(jobs) > most:
        click.echo(f"There are more than {most} jobs: give a higher --limit, or --all.", err=True)


def _show_list(jobs: list[Facts]) -> None:
    if not jobs:
        click.echo("No jobs match.", err=True)
        return
    head, *lines = table(LIST_HEAD, [_list_row(job) for job in jobs])
    click.echo(head)
    for line, job in zip(lines, jobs, strict=True):
        click.echo(painted(line, job.get("state")))


def _list_row(job: Facts) -> tuple[str, ...]:
    attempts = f"{job.get('attempt')} of {job.get('max_attempts')}" if job.get("max_attempts") else job.get("attempt")
    names = ("job_id", "kind", "queue", "priority")
    cells = (*(job.get(name) for name in names), attempts, job.get("created_utc"), standing(job))
    return tuple(printable(str(cell)) for cell in cells)


@click.command()
@with_job_reference
@with_retries
@with_json
@with_connection
def show(connection: CliConnection, wanted: CliJobReference, retries: int, as_json: bool) -> None:
    """Show a job: its state and its history. JOB is its id or its request id."""
    job = wanted.read(CliJobServer(connection, retries))
    if as_json:
        click.echo(json.dumps(job))
        return
    click.echo(painted(printable(f"{job.get('job_id')}  {job.get('kind')}  {standing(job)}"), job.get("state")))
    for name, words in _job_facts(job):
        click.echo(f"{name:<9} {printable(words)}")
    click.echo()
    for line in drawn(moments(job), _signs()):
        click.echo(line)


def _job_facts(job: Facts) -> Iterator[tuple[str, str]]:
    yield "queue", f"{job.get('queue')}, priority {job.get('priority')}"
    yield "attempts", _attempts(job)
    yield "request", str(job.get("request_id"))
    yield "params", json_words(job.get("params"))
    if job.get("progress") is not None:
        yield "progress", json_words(job["progress"])
    error = error_of(job)
    if job.get("state") == "failed" and error is not None:
        yield "error", error_words(error)
    if job.get("state") == "completed":
        yield "result", _result(job)


def _attempts(job: Facts) -> str:
    extra = [f"{name} {job[name]}" for name in ("deferrals", "revision") if job.get(name)]
    return ", ".join([f"{job.get('attempt')} of {job.get('max_attempts')}", *extra])


def _result(job: Facts) -> str:
    cached = job.get("cached_result")
    kept = json_words(cached.get("result")) if isinstance(cached, dict) else f"not shown ({_why_omitted(job)})"
    return f"{kept}; {job.get('result_bytes')} bytes, SHA-256 {job.get('result_sha256')}"


def _why_omitted(job: Facts) -> str:
    return str(job.get("cached_result_omitted") or "see `semel jobs result`")


def _signs() -> dict[str, str]:
    try:
        "".join(SIGNS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN_SIGNS
    return SIGNS


POLL_MS = 20_000
"""Seconds of one long poll; below the client's read timeout."""

SHORTEST_SECONDS = 0.2
"""Seconds between two requests if the first was answered at once, as by a server that is stopping."""

COMPLETED = 0
FAILED = 3
UNFINISHED = 4


def wait_for_end(server: CliJobServer, job_id: str, seconds: float | None) -> Facts:
    """The job at its end, or its state after `seconds`; None waits without a limit."""
    start = time.monotonic()
    while True:
        asked = time.monotonic()
        left_ms = POLL_MS if seconds is None else max(0, int((seconds - (asked - start)) * 1_000))
        job = server.get(f"{job_path(job_id)}?wait_ms={min(POLL_MS, left_ms)}")
        if left_ms == 0 or is_ended(job):
            return job
        time.sleep(max(0.0, min(SHORTEST_SECONDS, left_ms / 1_000) - (time.monotonic() - asked)))


def is_ended(job: Facts) -> bool:
    """Whether the job has its final outcome."""
    return job.get("state") in ("completed", "failed")


def exit_with(job: Facts, as_json: bool) -> None:
    """Print the state of the job, and exit with the code for it."""
    click.echo(json.dumps(job) if as_json else end_sentence(job))
    code = {"completed": COMPLETED, "failed": FAILED}.get(str(job.get("state")), UNFINISHED)
    click.get_current_context().exit(code)


_RESULT_CODES = f"Exit code {COMPLETED}: completed, {FAILED}: failed."


@click.command(epilog=_RESULT_CODES)
@with_job_reference
@with_retries
@with_json
@with_connection
def result(connection: CliConnection, wanted: CliJobReference, retries: int, as_json: bool) -> None:
    """Print the result of a job as JSON, or the error of a failed one. JOB is its id or its request id.

    With --json the whole answer of the server is printed. A result that does not match its SHA-256 checksum is not
    printed.
    """
    server = CliJobServer(connection, retries)
    found = server.get(job_path(wanted.find(server), "result"))
    ok = found["ok"] is True
    if "result" not in found and "error" not in found:
        raise not_semel(connection.address, SURFACE)
    value = found["result"] if ok else found["error"]
    _check_digest(found, ok, value)
    click.echo(json.dumps(found if as_json else value, ensure_ascii=False))
    click.get_current_context().exit(COMPLETED if ok else FAILED)


def _check_digest(found: Facts, ok: bool, value: object) -> None:
    integrity = found.get("integrity")
    told = integrity.get("sha256") if isinstance(integrity, dict) else None
    digest = sha256(report_bytes(str(found.get("job_id")), ok, parsed_bytes(value))).hexdigest()
    if told != digest:
        raise click.ClickException(
            f"The result of {found.get('job_id')} does not match its SHA-256 checksum: it was changed."
        )


_WAIT_CODES = f"Exit code {COMPLETED}: completed, {FAILED}: failed, {UNFINISHED}: neither when the time was up."


@click.command(epilog=_WAIT_CODES)
@with_job_reference
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop waiting after this time, in seconds; by default never.",
)
@with_retries
@with_json
@with_connection
def wait(
    connection: CliConnection, wanted: CliJobReference, timeout: float | None, retries: int, as_json: bool
) -> None:
    """Wait for a job's end. JOB is its id or its request id."""
    server = CliJobServer(connection, retries)
    exit_with(wait_for_end(server, wanted.find(server), timeout), as_json)
