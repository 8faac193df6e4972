"""The timeline of a job: its events, and the time between them.

Values in, lines out. What a server does not tell is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from semel.cli.jobs.asking import Facts
from semel.cli.jobs.telling import error_words, instant, painted, seconds_words
from semel.cli.output import printable

SIGNS = {"begun": "●", "trouble": "✗", "now": "▶", "ahead": "○", "between": "│"}
PLAIN_SIGNS = {"begun": "o", "trouble": "x", "now": ">", "ahead": ".", "between": "|"}
"""For a terminal whose letters lack the others."""

_WIDTH = len("2026-01-01T00:00:00.000Z")


class Moment(NamedTuple):
    """One past, present or future event; without an instant it is now."""

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
    """The picture, line by line."""
    before: datetime | None = None
    for number, moment in enumerate(life):
        at = instant(moment.at)
        if number:
            gap = "" if at is None or before is None else seconds_words((at - before).total_seconds())
            yield f"{'':{_WIDTH}}  {signs['between']}  {gap}".rstrip()
        shown = moment.at if at is not None else "now"
        yield painted(f"{shown:>{_WIDTH}}  {signs[moment.sign]}  {printable(moment.words)}", moment.state)
        before = at
