"""Text output of jobs: the result of a submission, the state of a job, a table row."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click

from semel.cli.jobs.asking import Facts
from semel.cli.output import printable

COLOURS = {"completed": "green", "failed": "red", "leased": "yellow", "scheduled": "cyan"}
SHOWN_CHARACTERS = 200


def answer_sentence(facts: Facts, key: str | None) -> str:
    """The server's answer to a submission, in words."""
    job_id, key_words = facts.get("job_id"), "" if key is None else f"; key {key}"
    if facts.get("dedup") is False:
        return printable(f"Accepted {job_id} ({facts.get('state')}){key_words}")
    ignored = facts.get("ignored_fields") or ()
    unlike = f"; not changed by this: {', '.join(map(str, ignored))}" if ignored else ""
    return printable(f"Already there (replayed): {job_id} is {standing(facts)}{unlike}{key_words}")


def end_sentence(job: Facts) -> str:
    """How a job ended, or that it has not."""
    return printable(f"{job.get('job_id')} is {standing(job)}{_problem(job)}")


def standing(job: Facts) -> str:
    """A job's state, and what belongs to it."""
    state, attempt = job.get("state"), job.get("attempt")
    if state == "failed":
        return f"failed ({job['reason']})" if job.get("reason") else "failed"
    if state == "leased":
        worker = f" by {job['worker_id']}" if job.get("worker_id") else ""
        return f"leased{worker} (attempt {attempt})"
    if state == "scheduled":
        return f"scheduled for {job['run_at_utc']}" if job.get("run_at_utc") else "scheduled"
    return str(state)


def _problem(job: Facts) -> str:
    error = error_of(job)
    return "" if error is None or job.get("state") != "failed" else f": {error_words(error)}"


def error_of(job: Facts) -> Facts | None:
    """The last error of a job, if its answer has one."""
    cached = job.get("cached_result")
    errors = job.get("errors") or ()
    for found in (job.get("error"), cached.get("error") if isinstance(cached, dict) else None, *errors[-1:]):
        if isinstance(found, dict):
            return found
    return None


def error_words(error: Facts) -> str:
    """An error as people read it."""
    return shortened(": ".join(str(error[name]) for name in ("code", "message") if error.get(name)))


def shortened(text: str) -> str:
    """A text that fits into a few lines."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def json_words(value: object) -> str:
    """A value as short JSON."""
    return shortened(printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))


def painted(line: str, state: object) -> str:
    """A line in the colour of a state, at a terminal."""
    colour = COLOURS.get(str(state))
    return line if colour is None else click.style(line, fg=colour)


def instant(text: object) -> datetime | None:
    """A server's instant; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def seconds_words(seconds: float) -> str:
    """A length of time in its own order of size."""
    if seconds < 1:
        return f"{round(seconds * 1_000)} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
