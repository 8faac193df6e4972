"""Jobs as text: sentences about answers, the state of a job, cells of tables, and the timeline of a job.

Pure functions. Members that a server does not send are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from semel.cli.output import printable

Facts = Mapping[str, Any]
"""The members of a server's answer about a job."""

COLOURS = {"completed": "green", "failed": "red", "leased": "yellow", "scheduled": "cyan"}
SHOWN_CHARACTERS = 200


def answer_sentence(facts: Facts, key: str | None) -> str:
    """The server's answer to a submission as a sentence."""
    job_id, key_words = facts.get("job_id"), "" if key is None else f"; key {key}"
    if facts.get("dedup") is False:
        return printable(f"Accepted {job_id} ({facts.get('state')}){key_words}")
    ignored = facts.get("ignored_fields") or ()
    unlike = f"; not changed by this: {', '.join(map(str, ignored))}" if ignored else ""
    return printable(f"Already there (replayed): {job_id} is {standing(facts)}{unlike}{key_words}")


def end_sentence(job: Facts) -> str:
    """The end of a job, or its current state, as a sentence."""
    return printable(f"{job.get('job_id')} is {standing(job)}{_problem(job)}")


def standing(job: Facts) -> str:
    """A job's state with its details."""
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
    """An error as text."""
    return shortened(": ".join(str(error[name]) for name in ("code", "message") if error.get(name)))


def shortened(text: str) -> str:
    """A text cut to a few lines."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def json_words(value: object) -> str:
    """A value as short JSON."""
    return shortened(printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))))


def painted(line: str, state: object) -> str:
    """A line in the colour of a state, for a terminal."""
    colour = COLOURS.get(str(state))
    return line if colour is None else click.style(line, fg=colour)


def instant(text: object) -> datetime | None:
    """The time of a server's text, or None."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def seconds_words(seconds: float) -> str:
    """A duration in a suitable unit."""
    if seconds < 1:
        return f"{round(seconds * 1_000)} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


SIGNS = {"begun": "●", "trouble": "✗", "now": "▶", "ahead": "○", "between": "│"}
PLAIN_SIGNS = {"begun": "o", "trouble": "x", "now": ">", "ahead": ".", "between": "|"}
"""For a terminal whose encoding lacks the other signs."""

_WIDTH = len("2026-01-01T00:00:00.000Z")


class Moment(NamedTuple):
    """One past, present or future event; without a time it is now."""

    at: str | None
    sign: str
    words: str
    state: str = ""


def moments(job: Facts) -> list[Moment]:
    """The known events of a job, in order."""
    past = [Moment(job.get("created_utc"), "begun", "submitted"), *map(_trouble, job.get("errors") or ())]
    known = [(at, moment) for moment in past if (at := instant(moment.at)) is not None]
    return [moment for _, moment in sorted(known, key=lambda pair: pair[0])] + list(_present(job))


def _trouble(error: Facts) -> Moment:
    worker = f" at {error['worker_id']}" if error.get("worker_id") else ""
    words = f"attempt {error.get('attempt')} failed{worker}: {error_words(error)}"
    return Moment(error.get("at_utc"), "trouble", words, "failed")


def _present(job: Facts) -> Iterator[Moment]:
    state, attempt = job.get("state"), job.get("attempt")
    if state == "queued":
        yield Moment(None, "now", "waits for a worker", "scheduled")
    elif state == "scheduled":
        yield Moment(job.get("run_at_utc"), "ahead", "may be run", "scheduled")
    elif state == "leased":
        asked = ", asked to stop" if job.get("cancel_requested") else ""
        yield Moment(None, "now", f"attempt {attempt} runs at {job.get('worker_id')}{asked}", "leased")
        yield Moment(job.get("lease_until_utc"), "ahead", "is given to another, unless its worker is heard of")
    elif state in ("completed", "failed"):
        reason = f" ({job['reason']})" if job.get("reason") else ""
        sign = "begun" if state == "completed" else "trouble"
        yield Moment(job.get("finished_utc"), sign, f"{state}{reason}", str(state))
        if job.get("expires_utc"):
            yield Moment(job.get("expires_utc"), "ahead", "its key can be used anew")


def drawn(life: list[Moment], signs: dict[str, str]) -> Iterator[str]:
    """The timeline, line by line."""
    before: datetime | None = None
    for number, moment in enumerate(life):
        at = instant(moment.at)
        if number:
            gap = "" if at is None or before is None else seconds_words((at - before).total_seconds())
            yield f"{'':{_WIDTH}}  {signs['between']}  {gap}".rstrip()
        shown = moment.at if at is not None else "now"
        yield painted(f"{shown:>{_WIDTH}}  {signs[moment.sign]}  {printable(moment.words)}", moment.state)
        before = at
