"""Job lookup: by id, by the id of the request that made it, or by its key.

A key is never part of a URL, because those are logged.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from semel.cli.jobs.asking import PATH, Facts, Server, job_path

_JOB_ID = re.compile(r"job_[A-Za-z0-9]{1,60}")
_REQUEST_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class Wanted(NamedTuple):
    """A job, by the one name that was given."""

    name: str | None
    key: str | None
    principal: str | None = None
    """Whose key it is; None is the caller's own."""

    @property
    def job_id(self) -> str | None:
        """The id, when it was given as such."""
        return self.name if self.name is not None and _JOB_ID.fullmatch(self.name) else None

    def read(self, server: Server) -> Facts:
        """The job as it is now."""
        if self.job_id is not None:
            return server.get(job_path(self.job_id))
        handle = {"request_id": self.name} if self.key is None else {"idempotency_key": self.key}
        if self.principal is not None:
            handle["principal"] = self.principal
        return server.post(f"{PATH}/lookup", handle)

    def find(self, server: Server) -> str:
        """Its id."""
        return self.job_id or str(self.read(server)["job_id"])


def with_wanted(command: Callable[..., None]) -> Callable[..., None]:
    """Adds JOB and `--key`, of which one is given, and `--principal`."""

    @click.argument("job", required=False)
    @click.option("--key", help="Idempotency key of the job, instead of JOB.")
    @click.option(
        "--principal", metavar="NAME", help="Caller that the key belongs to (administrators only); your own by default."
    )
    @functools.wraps(command)
    def wanting(*args: Any, job: str | None, key: str | None, principal: str | None, **rest: Any) -> None:
        if (job is None) == (key is None):
            raise click.UsageError("Name one job: by its id, by its request id, or with --key.")
        if principal is not None and key is None:
            raise click.UsageError("--principal goes with --key: an id says by itself whose job it is.")
        if job is not None:
            check_name(job)
        command(*args, wanted=Wanted(job, key, principal), **rest)

    return wanting


def check_name(job: str) -> None:
    """Refuse an impossible job id, before it becomes the path of something else."""
    if not _JOB_ID.fullmatch(job) and not _REQUEST_ID.fullmatch(job):
        raise click.UsageError("JOB is a job id, which begins with job_, or a request id, which is a UUID.")
