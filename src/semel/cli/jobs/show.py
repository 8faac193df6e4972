"""`semel jobs show`: one job, with a timeline."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click

from semel.cli.access import with_connection
from semel.cli.connection import Connection
from semel.cli.jobs.asking import Facts, Server, with_retries
from semel.cli.jobs.finding import Wanted, with_wanted
from semel.cli.jobs.telling import error_of, error_words, json_words, painted, standing
from semel.cli.jobs.timeline import PLAIN_SIGNS, SIGNS, drawn, moments
from semel.cli.output import printable, with_json


@click.command()
@with_wanted
@with_retries
@with_json
@with_connection
def show(connection: Connection, wanted: Wanted, retries: int, as_json: bool) -> None:
    """Show a job: its state and its history. JOB is its id or its request id."""
    job = wanted.read(Server(connection, retries))
    if as_json:
        click.echo(json.dumps(job))
        return
    click.echo(painted(printable(f"{job.get('job_id')}  {job.get('kind')}  {standing(job)}"), job.get("state")))
    for name, words in _facts(job):
        click.echo(f"{name:<9} {printable(words)}")
    click.echo()
    for line in drawn(moments(job), _signs()):
        click.echo(line)


def _facts(job: Facts) -> Iterator[tuple[str, str]]:
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
