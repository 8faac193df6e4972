"""Submissions of jobs as JSON: one job, or a batch. Jobs of a batch that the server had no room for are retried.

Bodies contain canonical JSON, so that the bytes sent are the bytes hashed.

A key that is made up for one call is sent as generated: the server keeps it for a short time only. So is no key that
may be sent later than that: of a call with much patience, of a row of an outbox, or of a caller who gave it.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from semel.client.errors import CallError, InvalidArgumentError, NoAnswerError, OutcomeUnknown, refusal
from semel.client.identity import JobKey, NamedCall
from semel.client.jobs.integrity import canonical_bytes
from semel.client.jobs.values import Debounce, JobRequest, Submitted, Unique
from semel.client.retry import ClientCaller, json_request, pause_seconds
from semel.kernel.clock import utc_text
from semel.kernel.json.fragment import dump
from semel.kernel.keys import time_ordered_uuid

BATCH_JOBS = 100
BATCH_BYTES = 1_900_000
"""Limit of bytes of the jobs in one request: below the limit of a body (2 MiB), with room for the envelope."""


GENERATED_KEPT = timedelta(minutes=10)
"""How long the server keeps a generated key after the end of its job."""
GENERATED_SECONDS = 300.0
"""Longest call whose key is sent as generated: half of that time, because clocks and pauses are not exact."""

BATCH_TURNS = 2
"""A request of many jobs may be repeated until the patience of the client ends, and its last attempt has the same."""


class ClientJobDraft(NamedTuple):
    """A submission that may be sent repeatedly."""

    key: str
    body: bytes
    protected_until: datetime | None = None
    """Until when a generated key surely protects a retry; None for a key that is kept longer."""


class SentJob(Protocol):
    """The body of a submission; without a key it is not repeated if it may have taken effect."""

    @property
    def key(self) -> str | None: ...

    @property
    def body(self) -> bytes: ...

    @property
    def protected_until(self) -> datetime | None: ...


D = TypeVar("D", bound=SentJob)


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


def draft(
    job: JobRequest,
    wait: float | None = None,
    parent: Mapping[str, str] | None = None,
    carried: Mapping[str, str] | None = None,
    *,
    new_key: str | None = None,
    is_brief: bool = False,
) -> ClientJobDraft:
    """The submission of a job, with its own key or a new one; a child has its name under its parent as a key.

    `carried` is the trace of the submitter, for the worker. `is_brief` says that a new key is needed for a short call
    only, so that it is sent as generated.
    """
    key = job.key if job.key is not None else new_key or fresh_name()
    is_generated = is_brief and job.key is None and parent is None
    fields = {
        "idempotency_key": key if parent is None else None,
        "generated_key": True if is_generated else None,
        "parent": parent,
        "kind": job.kind,
        **members_of(job),
        "wait_ms": milliseconds(wait),
        "client": carried or None,
    }
    until = datetime.now(UTC) + GENERATED_KEPT if is_generated else None
    return ClientJobDraft(key, spliced(fields, params=canonical_bytes(dict(job.params))), until)


def mark_protection(error: CallError, sent: SentJob) -> None:
    """Tell in the error of a submission what its key is, and until when it protects a retry."""
    error.key = sent.key
    if isinstance(error, OutcomeUnknown) and sent.protected_until is not None:
        error.protected_until = sent.protected_until
        until = sent.protected_until.isoformat(timespec="seconds").replace("+00:00", "Z")
        error.args = (f"{error} Its key protects a retry until {until}.",)


def members_of(job: JobRequest) -> dict[str, Any]:
    """The members of a submission that are set, without kind, params and key."""
    return _given(
        join=None if job.join is None else _given(size=job.join.size, on_failure=job.join.on_failure),
        group=job.group,
        queue=job.queue,
        priority=job.priority,
        delay_ms=milliseconds(job.delay),
        run_at=None if job.run_at is None else utc_text(round(_since_1970(job) * 1_000)),
        max_attempts=job.max_attempts,
        lease_sec=job.lease,
        timeout_ms=milliseconds(job.timeout),
        on_failed=job.on_failed,
        unique=None if job.unique is None else _unique(job.unique),
        debounce=None if job.debounce is None else _debounce(job.debounce),
    )


def _unique(unique: Unique) -> dict[str, Any]:
    states = None if unique.states is None else list(unique.states)
    return _given(key=unique.key, for_ms=milliseconds(unique.window), states=states)


def _debounce(debounce: Debounce) -> dict[str, Any]:
    delay_ms, max_ms = milliseconds(debounce.delay), milliseconds(debounce.longest)
    return _given(key=debounce.key, delay_ms=delay_ms, max_ms=max_ms)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _since_1970(job: JobRequest) -> float:
    assert job.run_at is not None
    if job.run_at.tzinfo is None:
        raise InvalidArgumentError("run_at has no time zone: use an aware datetime such as datetime.now(UTC).")
    return job.run_at.timestamp()


def batches(drafts: Iterable[D]) -> Iterator[list[D]]:
    """Submissions split into requests of allowed size, in order."""
    piece: list[D] = []
    room = BATCH_BYTES
    for one in drafts:
        if piece and (len(piece) == BATCH_JOBS or len(one.body) > room):
            yield piece
            piece, room = [], BATCH_BYTES
        piece.append(one)
        room -= len(one.body) + 1
    if piece:
        yield piece


def batch(drafts: Iterable[SentJob]) -> bytes:
    """The body of one request with many submissions."""
    return b'{"jobs":[%s]}' % b",".join(one.body for one in drafts)


Read = Callable[[Mapping[str, Any], SentJob], Submitted]
BatchAnswer = Submitted | CallError

_PATH = "/v1/jobs/batch"


async def submit_batch(
    caller: ClientCaller, drafts: Sequence[SentJob], read: Read
) -> tuple[list[BatchAnswer], CallError | None]:
    """One answer per draft, and the error that ended the batch if the server stayed unavailable.

    Jobs that the server had no room for are sent again. Attempts count from the last one that some jobs passed.
    """
    answers: dict[int, BatchAnswer] = {}
    waiting = list(range(len(drafts)))
    network = caller.transport.network
    began, tried = network.now(), 0
    while True:
        sent = [drafts[place] for place in waiting]
        identity = None if any(one.key is None for one in sent) else NamedCall("POST", _PATH)
        try:
            request = json_request("POST", _PATH, batch(sent))
            judged = await caller.facts_as(partial(_judged, drafts=sent, read=read), request, identity)
        except CallError as error:
            if not error.may_pass:
                raise
            answers |= zip(waiting, unanswered(sent, error, is_unsettled=error.is_unsettled), strict=True)
            return _in_order(answers), error
        answers |= zip(waiting, judged, strict=True)
        passing = [place for place in waiting if _may_repeat(drafts[place], answers[place])]
        errors = [one for place in passing if isinstance(one := answers[place], CallError)]
        tried = 0 if len(passing) < len(waiting) else tried + 1
        waiting = passing
        pause = pause_seconds(tried, max((one.retry_after for one in errors), default=0.0), random.random())  # noqa: S311
        if not errors or caller.patience.is_over(max(tried, 1), network.now() - began, pause):
            return _in_order(answers), None
        caller.on_retry(errors[0])
        await network.sleep(pause)
        if caller.patience.has_ended(network.now() - began):
            return _in_order(answers), None


def _may_repeat(draft: SentJob, answer: BatchAnswer) -> bool:
    """Whether to send a job again: not without a key if it may have been queued."""
    if not isinstance(answer, CallError) or not answer.may_pass:
        return False
    return draft.key is not None or not answer.is_unsettled


def unanswered(drafts: Sequence[SentJob], error: CallError, *, is_unsettled: bool) -> list[BatchAnswer]:
    """The error of a request as the answer to each of its submissions."""
    answers: list[BatchAnswer] = []
    for one in drafts:
        if is_unsettled and one.key is not None:
            answer: NoAnswerError = OutcomeUnknown(str(error), JobKey(one.key))
        else:
            answer = NoAnswerError(str(error), is_unsettled=is_unsettled)
        answer.__cause__ = error
        mark_protection(answer, one)
        answers.append(answer)
    return answers


def _judged(facts: Mapping[str, Any], drafts: Sequence[SentJob], read: Read) -> list[BatchAnswer]:
    jobs = facts.get("jobs")
    if not isinstance(jobs, list) or len(jobs) != len(drafts) or not all(isinstance(job, dict) for job in jobs):
        raise ValueError("jobs")
    return [_answer(job, sent, read) for job, sent in zip(jobs, drafts, strict=True)]


def _answer(facts: Mapping[str, Any], sent: SentJob, read: Read) -> BatchAnswer:
    if facts.get("ok") is True:
        return read(facts, sent)
    status = facts.get("http")
    if not isinstance(status, int):
        raise ValueError("http")
    error = refusal(status, facts)
    error.key = sent.key
    return error


def _in_order(answers: Mapping[int, BatchAnswer]) -> list[BatchAnswer]:
    return [answers[place] for place in range(len(answers))]
