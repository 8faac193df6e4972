"""Options that several commands of `semel jobs` have, and how they name a job.

A job is named by its id, by the id of the request that created it, or by its key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import click

from semel.cli.command import MaybeArg, Opt, OptionSet, ParsedType, group
from semel.client import Client, JobInfo

jobs = group("jobs", "Job queue: submit, list, cancel and requeue jobs.")

MAX_TIMEOUT_SECONDS = 604_800
"""Maximum time limit of a run: seven days."""
PRIORITIES = ("critical", "high", "normal", "low")


def _priority(text: str) -> int | str:
    """A number, or a name, which the server checks."""
    if text not in PRIORITIES and not (text.isdecimal() and len(text) == 1):
        raise ValueError(f"a priority must be 0 (most urgent) to 9, or {', '.join(PRIORITIES)}.")
    return text if text in PRIORITIES else int(text)


PRIORITY = ParsedType("priority", _priority)
Queue = Annotated[str | None, Opt("Queue of the job; `default` by default.")]
Priority = Annotated[int | str | None, Opt("Priority; 0 is the most urgent; 4 by default.", "", "0..9", PRIORITY)]
MaxAttempts = Annotated[int | None, Opt("Maximum number of runs, including the first.", type=click.IntRange(1, 100))]
TIMEOUT = click.FloatRange(0, MAX_TIMEOUT_SECONDS)
Timeout = Annotated[
    float | None,
    Opt("Time limit of one run in seconds; 0 is no limit; by default that of the queue.", "", "SECONDS", TIMEOUT),
]

_JOB_ID = re.compile(r"job_[A-Za-z0-9]{1,60}")
_REQUEST_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def check_name(job: str) -> None:
    """Refuse an invalid job id, which could form another path."""
    if not _JOB_ID.fullmatch(job) and not _REQUEST_ID.fullmatch(job):
        raise click.UsageError("JOB must be a job id, which starts with job_, or a request id, which is a UUID.")


@dataclass(frozen=True)
class JobName(OptionSet):
    """The job that the user names, with JOB or `--key`."""

    job: MaybeArg = None
    key: Annotated[str | None, Opt("Idempotency key of the job, instead of JOB.")] = None
    principal: Annotated[
        str | None, Opt("Caller that the key belongs to (administrators only); your own by default.", "", "NAME")
    ] = None

    def read(self, client: Client) -> JobInfo:
        """Its current state."""
        self._check()
        if self.job is None:
            return client.jobs.lookup(key=self.key, principal=self.principal)
        return client.jobs.get(self.job) if _JOB_ID.fullmatch(self.job) else client.jobs.lookup(request_id=self.job)

    def find(self, client: Client) -> str:
        """Its id."""
        self._check()
        return self.job if self.job is not None and _JOB_ID.fullmatch(self.job) else self.read(client).job_id

    def _check(self) -> None:
        if (self.job is None) == (self.key is None):
            raise click.UsageError("Name one job: by its id, by its request id, or with --key.")
        if self.principal is not None and self.key is None:
            raise click.UsageError("Give --principal only with --key: a job id needs no caller.")
        if self.job is not None:
            check_name(self.job)
