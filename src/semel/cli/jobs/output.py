"""Jobs as text: sentences about answers, and the timeline of a job as a picture. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime

from semel.cli.output import coloured, printable, shortened
from semel.client.jobs.timeline import Facts, JobMoment, last_error, standing

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
    error = last_error(job) if job.get("state") == "failed" else ""
    return printable(f"{job.get('job_id')} is {standing(job)}" + (f": {error}" if error else ""))


def json_words(value: object) -> str:
    """A value as short JSON."""
    return shortened(printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"))), SHOWN_CHARACTERS)


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


def drawn(life: list[JobMoment], signs: Mapping[str, str]) -> Iterator[str]:
    """The timeline, line by line."""
    before: datetime | None = None
    for number, moment in enumerate(life):
        at = moment.time
        if number:
            gap = "" if at is None or before is None else seconds_words((at - before).total_seconds())
            yield f"{'':{_WIDTH}}  {signs['between']}  {gap}".rstrip()
        shown = moment.at if at is not None else "now"
        line = f"{shown:>{_WIDTH}}  {signs[moment.kind]}  {printable(moment.words)}"
        yield coloured(line, COLOURS.get(moment.state))
        before = at
