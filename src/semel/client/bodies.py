"""Request bodies as JSON: small fields, around values that are canonical already, so that hashed bytes are sent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from semel.client.integrity import canonical_bytes
from semel.client.values import JobRequest
from semel.kernel.json_print import dump
from semel.kernel.keys import time_ordered_uuid
from semel.kernel.utc import utc_text

BATCH_JOBS = 100
BATCH_BYTES = 1_900_000
"""Limit of bytes of the jobs in one request: below the limit of a body (2 MiB), with room for the envelope."""


class Draft(NamedTuple):
    """A submission that can be sent any number of times."""

    key: str
    body: bytes


def fresh_name() -> str:
    """A unique name, later ones behind earlier ones."""
    return time_ordered_uuid(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def spliced(fields: Mapping[str, Any], **values: bytes) -> bytes:
    """An object of these fields that are not None, and of values that are JSON already."""
    members = [b'"%s":%s' % (name.encode(), dump(value)) for name, value in fields.items() if value is not None]
    members += [b'"%s":%s' % (name.encode(), value) for name, value in values.items()]
    return b"{%s}" % b",".join(members)


def milliseconds(seconds: float | None) -> int | None:
    """Seconds as the server counts them."""
    return None if seconds is None else round(seconds * 1_000)


def draft(job: JobRequest, wait: float | None = None) -> Draft:
    """The submission of a job, under its own key or a fresh one."""
    key = fresh_name() if job.key is None else job.key
    fields = {
        "idempotency_key": key,
        "kind": job.kind,
        "queue": job.queue,
        "priority": job.priority,
        "delay_ms": milliseconds(job.delay),
        "run_at": None if job.run_at is None else utc_text(round(_since_1970(job) * 1_000)),
        "max_attempts": job.max_attempts,
        "lease_sec": job.lease,
        "timeout_ms": milliseconds(job.timeout),
        "on_failed": job.on_failed,
        "wait_ms": milliseconds(wait),
    }
    return Draft(key, spliced(fields, params=canonical_bytes(dict(job.params))))


def _since_1970(job: JobRequest) -> float:
    assert job.run_at is not None
    if job.run_at.tzinfo is None:
        raise ValueError("run_at has no time zone; use datetime.now(UTC) and the like")
    return job.run_at.timestamp()


def batches(jobs: Iterable[JobRequest]) -> Iterator[list[Draft]]:
    """Submissions in pieces that one request can carry, in their order."""
    piece: list[Draft] = []
    room = BATCH_BYTES
    for job in jobs:
        one = draft(job)
        if piece and (len(piece) == BATCH_JOBS or len(one.body) > room):
            yield piece
            piece, room = [], BATCH_BYTES
        piece.append(one)
        room -= len(one.body) + 1
    if piece:
        yield piece


def batch(drafts: Iterable[Draft]) -> bytes:
    """One request for many submissions."""
    return b'{"jobs":[%s]}' % b",".join(one.body for one in drafts)
