"""A job in words: its state, its last error, and its timeline.

Pure functions of the server's answer about a job (`facts`). Members that a server does not send are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

Facts = Mapping[str, Any]
ERROR_CHARACTERS = 200


class JobMoment(NamedTuple):
    """One past, present or future event of a job; without a time it is now."""

    at: str | None
    kind: Literal["begun", "trouble", "now", "ahead"]
    words: str
    state: str = ""
    """The state that the event is like, for a colour."""

    @property
    def time(self) -> datetime | None:
        """When it was or will be."""
        try:
            return datetime.fromisoformat(self.at or "").astimezone(UTC)
        except ValueError:
            return None


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


def last_error(job: Facts) -> str:
    """The last error of a job, cut to some characters; empty if its answer has none."""
    cached = job.get("cached_result")
    errors = job.get("errors") or ()
    for found in (job.get("error"), cached.get("error") if isinstance(cached, dict) else None, *errors[-1:]):
        if isinstance(found, dict):
            return error_words(found)
    return ""


def error_words(error: Facts) -> str:
    """The code and the message of an error, cut to some characters."""
    text = ": ".join(str(error[name]) for name in ("code", "message") if error.get(name))
    return text if len(text) <= ERROR_CHARACTERS else f"{text[:ERROR_CHARACTERS]}..."


def moments(job: Facts) -> list[JobMoment]:
    """The known events of a job, in order."""
    past = [JobMoment(job.get("created_utc"), "begun", "submitted"), *map(_trouble, job.get("errors") or ())]
    known = [(at, moment) for moment in past if (at := moment.time) is not None]
    return [moment for _, moment in sorted(known, key=lambda pair: pair[0])] + list(_present(job))


def _trouble(error: Facts) -> JobMoment:
    worker = f" at {error['worker_id']}" if error.get("worker_id") else ""
    words = f"attempt {error.get('attempt')} failed{worker}: {error_words(error)}"
    return JobMoment(error.get("at_utc"), "trouble", words, "failed")


def _present(job: Facts) -> Iterator[JobMoment]:
    state, attempt = job.get("state"), job.get("attempt")
    if state == "queued":
        yield JobMoment(None, "now", "waits for a worker", "scheduled")
    elif state == "scheduled":
        yield JobMoment(job.get("run_at_utc"), "ahead", "may be run", "scheduled")
    elif state == "leased":
        asked = ", asked to stop" if job.get("cancel_requested") else ""
        yield JobMoment(None, "now", f"attempt {attempt} runs at {job.get('worker_id')}{asked}", "leased")
        yield JobMoment(job.get("lease_until_utc"), "ahead", "is given to another, unless its worker is heard of")
    elif state in ("completed", "failed"):
        reason = f" ({job['reason']})" if job.get("reason") else ""
        kind: Literal["begun", "trouble"] = "begun" if state == "completed" else "trouble"
        yield JobMoment(job.get("finished_utc"), kind, f"{state}{reason}", str(state))
        if job.get("expires_utc"):
            yield JobMoment(job.get("expires_utc"), "ahead", "its key can be used anew")
