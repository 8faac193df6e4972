"""Waits for the end of a job, and maps it to an exit code."""

from __future__ import annotations

import json
import time

import click

from semel.cli.jobs.asking import Facts, Server, job_path
from semel.cli.jobs.telling import end_sentence

POLL_MS = 20_000
"""How long one question is held; below the time that any answer is waited for."""

SHORTEST_SECONDS = 0.2
"""Between two questions of which the first was not held, as by a server that is stopping."""

COMPLETED = 0
FAILED = 3
UNFINISHED = 4


def wait_for_end(server: Server, job_id: str, seconds: float | None) -> Facts:
    """The job when it has ended, or as it is after `seconds`; None waits without a limit."""
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
