"""Submissions of jobs as JSON: one job, or a batch. Jobs of a batch that the server had no room for are retried.

Bodies contain canonical JSON, so that the bytes sent are the bytes hashed.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from semel.client.errors import BadAnswerError, CallError, NoAnswerError, refusal
from semel.client.integrity import canonical_bytes
from semel.client.retry import ClientCaller, pause_seconds
from semel.client.values import JobRequest, Submitted
from semel.kernel.clock import utc_text
from semel.kernel.json.fragment import dump
from semel.kernel.keys import time_ordered_uuid

BATCH_JOBS = 100
BATCH_BYTES = 1_900_000
"""Limit of bytes of the jobs in one request: below the limit of a body (2 MiB), with room for the envelope."""


class ClientJobDraft(NamedTuple):
    """A submission that may be sent repeatedly."""

    key: str
    body: bytes


def fresh_name() -> str:
    """A unique name; names sort by creation time."""
    return time_ordered_uuid(time.time_ns() // 1_000_000, secrets.token_bytes(10))


def spliced(fields: Mapping[str, Any], **values: bytes) -> bytes:
    """A JSON object of the fields that are not None, and of values that are JSON text."""
    members = [b'"%s":%s' % (name.encode(), dump(value)) for name, value in fields.items() if value is not None]
    members += [b'"%s":%s' % (name.encode(), value) for name, value in values.items()]
    return b"{%s}" % b",".join(members)


def milliseconds(seconds: float | None) -> int | None:
    """Seconds as whole milliseconds."""
    return None if seconds is None else round(seconds * 1_000)


def draft(job: JobRequest, wait: float | None = None) -> ClientJobDraft:
    """The submission of a job, with its own key or a new one."""
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
    return ClientJobDraft(key, spliced(fields, params=canonical_bytes(dict(job.params))))


def _since_1970(job: JobRequest) -> float:
    assert job.run_at is not None
    if job.run_at.tzinfo is None:
        raise ValueError("run_at has no time zone: use an aware datetime such as datetime.now(UTC)")
    return job.run_at.timestamp()


def batches(jobs: Iterable[JobRequest]) -> Iterator[list[ClientJobDraft]]:
    """Submissions split into requests of allowed size, in order."""
    piece: list[ClientJobDraft] = []
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


def batch(drafts: Iterable[ClientJobDraft]) -> bytes:
    """The body of one request with many submissions."""
    return b'{"jobs":[%s]}' % b",".join(one.body for one in drafts)


Read = Callable[[Mapping[str, Any], ClientJobDraft], Submitted]
BatchAnswer = Submitted | CallError

_PATH = "/v1/jobs/batch"


async def submit_batch(
    caller: ClientCaller, drafts: Sequence[ClientJobDraft], read: Read
) -> tuple[list[BatchAnswer], CallError | None]:
    """One answer per draft, and the error that ended the batch if the server stayed unavailable."""
    answers: dict[int, BatchAnswer] = {}
    waiting = list(range(len(drafts)))
    began, tried = time.monotonic(), 0
    while True:
        tried += 1
        sent = [drafts[place] for place in waiting]
        try:
            judged = _judged(await caller.post(_PATH, batch(sent)), sent, read)
        except CallError as error:
            if not error.may_pass:
                raise
            answers |= zip(waiting, unanswered(sent, error, is_unsettled=error.is_unsettled), strict=True)
            return _in_order(answers), error
        answers |= zip(waiting, judged, strict=True)
        passing = {place: one for place in waiting if isinstance(one := answers[place], CallError) and one.may_pass}
        waiting = list(passing)
        asked = max((one.retry_after for one in passing.values()), default=0.0)
        pause = pause_seconds(tried, asked, random.random())  # noqa: S311 - not a secret
        if not waiting or caller.patience.is_over(tried, time.monotonic() - began, pause):
            return _in_order(answers), None
        await asyncio.sleep(pause)


def unanswered(drafts: Sequence[ClientJobDraft], error: CallError, *, is_unsettled: bool) -> list[BatchAnswer]:
    """The error of a request as the answer to each of its submissions."""
    answers: list[BatchAnswer] = []
    for one in drafts:
        answer = NoAnswerError(str(error), is_unsettled=is_unsettled)
        answer.key = one.key
        answers.append(answer)
    return answers


def _judged(facts: Mapping[str, Any], drafts: Sequence[ClientJobDraft], read: Read) -> list[BatchAnswer]:
    jobs = facts.get("jobs")
    if not isinstance(jobs, list) or len(jobs) != len(drafts) or not all(isinstance(job, dict) for job in jobs):
        raise BadAnswerError("The server's answer is incomplete (jobs).")
    return [_answer(job, sent, read) for job, sent in zip(jobs, drafts, strict=True)]


def _answer(facts: Mapping[str, Any], sent: ClientJobDraft, read: Read) -> BatchAnswer:
    if facts.get("ok") is True:
        return read(facts, sent)
    status = facts.get("http")
    error = refusal(status if isinstance(status, int) else 500, facts)
    error.key = sent.key
    return error


def _in_order(answers: Mapping[int, BatchAnswer]) -> list[BatchAnswer]:
    return [answers[place] for place in range(len(answers))]
