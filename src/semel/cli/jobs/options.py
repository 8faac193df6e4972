"""Options that several commands of `semel jobs` have, and how they name a job.

A job is named by its id, by the id of the request that created it, or by its key.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import click

from semel.cli.command import Opt, group
from semel.client import Client, JobInfo

jobs = group("jobs", "Job queue: submit, list, cancel and requeue jobs.")

MAX_TIMEOUT_SECONDS = 604_800
"""Maximum time limit of a run: seven days."""
PRIORITIES = ("critical", "high", "normal", "low")


class PriorityType(click.ParamType[int | str]):
    """A priority from 0 to 9, or a name, which the server checks."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The number, or the name."""
        text = str(value)
        if text in PRIORITIES:
            return text
        if not (text.isdecimal() and len(text) == 1):
            self.fail(f"a priority must be 0 (most urgent) to 9, or {', '.join(PRIORITIES)}.", param, ctx)
        return int(text)


Queue = Annotated[str | None, Opt("Queue of the job; `default` by default.")]
Priority = Annotated[
    int | str | None, Opt("Priority; 0 is the most urgent; 4 by default.", metavar="0..9", type=PriorityType())
]
MaxAttempts = Annotated[int | None, Opt("Maximum number of runs, including the first.", type=click.IntRange(1, 100))]
Timeout = Annotated[
    float | None,
    Opt(
        "Time limit of one run in seconds; 0 is no limit; by default that of the queue.",
        metavar="SECONDS",
        type=click.FloatRange(0, MAX_TIMEOUT_SECONDS),
    ),
]
Key = Annotated[str | None, Opt("Idempotency key of the job, instead of JOB.")]
Principal = Annotated[
    str | None, Opt("Caller that the key belongs to (administrators only); your own by default.", metavar="NAME")
]

_JOB_ID = re.compile(r"job_[A-Za-z0-9]{1,60}")
_REQUEST_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def check_name(job: str) -> None:
    """Refuse an invalid job id, which could form another path."""
    if not _JOB_ID.fullmatch(job) and not _REQUEST_ID.fullmatch(job):
        raise click.UsageError("JOB must be a job id, which starts with job_, or a request id, which is a UUID.")


def read_job(client: Client, job: str | None, key: str | None = None, principal: str | None = None) -> JobInfo:
    """The current state of the job that the user names with JOB or `--key`."""
    _check_reference(job, key, principal)
    if job is None:
        return client.jobs.lookup(key=key, principal=principal)
    return client.jobs.get(job) if _JOB_ID.fullmatch(job) else client.jobs.lookup(request_id=job)


def find_job(client: Client, job: str | None, key: str | None, principal: str | None) -> str:
    """The id of that job."""
    _check_reference(job, key, principal)
    is_id = job is not None and _JOB_ID.fullmatch(job)
    return str(job) if is_id else read_job(client, job, key, principal).job_id


def _check_reference(job: str | None, key: str | None, principal: str | None) -> None:
    if (job is None) == (key is None):
        raise click.UsageError("Name one job: by its id, by its request id, or with --key.")
    if principal is not None and key is None:
        raise click.UsageError("Give --principal only with --key: a job id needs no caller.")
    if job is not None:
        check_name(job)
