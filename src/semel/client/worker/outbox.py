"""Submissions in the caller's own transaction, through the outbox of `semel.once`.

The message commits with the caller's data or not at all. `semel outbox run` delivers it with the key of the job, so the
job is submitted once, however often the message is sent. The token is not stored: the process that delivers reads it
from `SEMEL_TOKEN`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from semel.client.access import TOKEN, Access
from semel.client.jobs.requests import PATH
from semel.client.jobs.submission import draft
from semel.client.jobs.values import JobRequest
from semel.once import EnvSecret, Outbox, Posted

OutboxAccess = Callable[[], Access]
"""The server of the jobs, read when a job is posted."""


class _Message(NamedTuple):
    url: str
    data: bytes
    headers: dict[str, str | EnvSecret]
    key: str


def _message(access: Access, request: JobRequest) -> _Message:
    sent = draft(request)
    headers: dict[str, str | EnvSecret] = {"Content-Type": "application/json"}
    if access.token is not None:
        headers["Authorization"] = EnvSecret(TOKEN, "Bearer ")
    return _Message(access.url + PATH, sent.body, headers, sent.key)


def post_job(using: Any, outbox: OutboxAccess, request: JobRequest) -> Posted:
    """Post the submission of a job, in the transaction of `using` or in an outbox of its own."""
    one = _message(outbox(), request)
    box = using if isinstance(using, Outbox) else Outbox.in_transaction(using)
    return box.post(one.url, data=one.data, headers=one.headers, key=one.key)


async def post_job_async(using: Any, outbox: OutboxAccess, request: JobRequest) -> Posted:
    """As `post_job`, with an asynchronous connection or session."""
    one = _message(outbox(), request)
    box = using if isinstance(using, Outbox) else Outbox.in_transaction(using)
    return await box.post_async(one.url, data=one.data, headers=one.headers, key=one.key)
