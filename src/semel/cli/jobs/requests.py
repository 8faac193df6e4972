"""Requests to the jobs surface, with retries and JSON answers, and the option that names a job.

A job is named by its id, by the id of the request that created it, or by its key. A key is never in a URL, because URLs
are logged.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import click

from semel.cli.connection import CliAnswer, CliConnection, not_semel
from semel.cli.requests import RETRIES, send_until_answered

PATH = "/v1/jobs"
SURFACE = "jobs"
PAGE = 1_000
"""Maximum items that a server lists in one answer."""

Facts = dict[str, Any]


class CliJobServer(NamedTuple):
    """The connection and the number of retries."""

    connection: CliConnection
    retries: int = RETRIES

    def get(self, path: str) -> Facts:
        """A GET, which may be repeated."""
        return self._facts(lambda: self.connection.request("GET", path))

    def put(self, path: str, body: Facts | bytes) -> Facts:
        """A PUT, which is idempotent."""
        return self._facts(self._sending("PUT", path, body))

    def delete(self, path: str) -> Facts:
        """A DELETE, which is idempotent."""
        return self._facts(lambda: self.connection.request("DELETE", path))

    def post(self, path: str, body: Facts | bytes, *, has_identity: bool = True) -> Facts:
        """A POST. Without an identity it is retried only if it had no effect."""
        return self._facts(self._sending("POST", path, body), has_identity=has_identity)

    def post_once(self, path: str, body: Facts) -> Facts:
        """A POST without retries."""
        return self._read(self._sending("POST", path, body)())

    def pages(self, path: str, member: str, filters: Facts, most: int | None) -> Iterator[list[Facts]]:
        """A list page by page, at most `most` items; None means all."""
        after: str | None = None
        while most is None or most > 0:
            limit = PAGE if most is None else min(most, PAGE)
            cursor = {} if after is None else {"after": after}
            page = self.get(f"{path}?{urlencode({**filters, **cursor, 'limit': limit}, errors='surrogateescape')}")
            listed, following = page.get(member), page.get("next")
            goes_round = after is not None and following == after
            if not isinstance(listed, list) or goes_round:
                raise not_semel(self.connection.address, SURFACE)
            yield listed
            if following is None:
                return
            after = following
            most = None if most is None else most - len(listed)

    def _sending(self, method: str, path: str, body: Facts | bytes) -> Callable[[], CliAnswer]:
        headers = {"Content-Type": b"application/json"}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return lambda: self.connection.request(method, path, headers, content)

    def _facts(self, send: Callable[[], CliAnswer], *, has_identity: bool = True) -> Facts:
        return self._read(send_until_answered(send, self.retries, has_identity=has_identity))

    def _read(self, answer: CliAnswer) -> Facts:
        try:
            facts = json.loads(answer.body)
        except ValueError as error:
            raise not_semel(self.connection.address, SURFACE) from error
        if not isinstance(facts, dict) or "ok" not in facts:
            raise not_semel(self.connection.address, SURFACE)
        return facts


def job_path(job_id: str, call: str = "") -> str:
    """The path of a job, or of a call on it."""
    return f"{PATH}/{quote(job_id, safe='')}" + (f"/{call}" if call else "")


def named_path(collection: str, name: str) -> str:
    """The path of a queue or a schedule."""
    return f"{PATH}/{collection}/{quote(name, safe='', errors='surrogateescape')}"


_JOB_ID = re.compile(r"job_[A-Za-z0-9]{1,60}")
_REQUEST_ID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


class CliJobReference(NamedTuple):
    """A job, by its id, request id or key."""

    name: str | None
    key: str | None
    principal: str | None = None
    """Owner of the key; None means the caller."""

    @property
    def job_id(self) -> str | None:
        """The job id, if JOB is one."""
        return self.name if self.name is not None and _JOB_ID.fullmatch(self.name) else None

    def read(self, server: CliJobServer) -> Facts:
        """The current state of the job."""
        if self.job_id is not None:
            return server.get(job_path(self.job_id))
        handle = {"request_id": self.name} if self.key is None else {"idempotency_key": self.key}
        if self.principal is not None:
            handle["principal"] = self.principal
        return server.post(f"{PATH}/lookup", handle)

    def find(self, server: CliJobServer) -> str:
        """The id of the job."""
        return self.job_id or str(self.read(server)["job_id"])


def with_job_reference(command: Callable[..., None]) -> Callable[..., None]:
    """Adds JOB, `--key` and `--principal`; the user gives JOB or `--key`."""

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
            raise click.UsageError("Give --principal only with --key: a job id needs no caller.")
        if job is not None:
            check_name(job)
        command(*args, wanted=CliJobReference(job, key, principal), **rest)

    return wanting


def check_name(job: str) -> None:
    """Refuse an invalid job id, which could form another path."""
    if not _JOB_ID.fullmatch(job) and not _REQUEST_ID.fullmatch(job):
        raise click.UsageError("JOB must be a job id, which starts with job_, or a request id, which is a UUID.")
