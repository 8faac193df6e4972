"""`JobsClient`: submits and reads jobs from asyncio code; it also has the calls of a worker.

Promise: a call that was answered took effect once, however often it was retried. A submission without a key gets a new
one, which every attempt uses. Lost answers, 429 and 503 are retried with the same key and with backoff; other refusals
are not. Results have a checksum of their canonical bytes in both directions, and a signature if there is a key. After a
crash of this process, submit again with the same key: it is the same job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from semel.client import answers, integrity
from semel.client.errors import CallError, NotFinishedError
from semel.client.retry import ClientCaller, OnRetry, Patience
from semel.client.submission import (
    ClientJobDraft,
    batches,
    draft,
    fresh_name,
    milliseconds,
    spliced,
    submit_batch,
    unanswered,
)
from semel.client.transport import Transport, find_access
from semel.client.values import (
    Beat,
    Cancellation,
    Claimed,
    JobInfo,
    JobRequest,
    Lease,
    Outcome,
    QueueInfo,
    Reported,
    Step,
    Submitted,
)

CONNECTIONS = 100
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MOST_WAIT_SECONDS = 30.0
"""Longest long poll of the server, in seconds."""
_LEASE_BYTES = 1024 * 1024 + 16 * 1024
"""Maximum bytes of one claimed job: the largest params plus the other members."""
_PATH = "/v1/jobs"


class JobsClient:
    """The jobs of one server, used in one event loop: `async with JobsClient() as jobs:`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        result_hmac_key: str | bytes | None = None,
        patience: Patience | None = None,
        connections: int = CONNECTIONS,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        on_retry: OnRetry = lambda error: None,
    ) -> None:
        """Defaults come from SEMEL_URL, SEMEL_TOKEN and SEMEL_JOBS_RESULT_HMAC_KEY.

        `on_retry` is called with each error that is retried.
        """
        access = find_access(url, token, result_hmac_key, os.environ)
        self._hmac_key = access.hmac_key
        self._transport = Transport(access, connections)
        self._caller = ClientCaller(self._transport, patience or Patience(), max_answer_bytes, on_retry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def submit(
        self,
        kind: str,
        params: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int | str | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        lease: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the time limit of a run, not of this call
        on_failed: Literal["return", "retry"] | None = None,
        wait: float | None = None,
    ) -> Submitted:
        """Submit a job once. Times are in seconds; `wait` (at most 30) waits for the end of the job.

        With the caller's own key it is one job even if this program crashes and submits again.
        """
        job = JobRequest(
            kind,
            params or {},
            key,
            queue,
            priority,
            delay,
            run_at,
            max_attempts,
            lease=lease,
            timeout=timeout,
            on_failed=on_failed,
        )
        sent = draft(job, wait)
        try:
            facts = await self._caller.post(_PATH, sent.body, wait=wait or 0.0)
        except CallError as error:
            error.key = sent.key
            raise
        return self._submitted(facts, sent)

    async def submit_many(self, jobs: Iterable[JobRequest]) -> list[Submitted | CallError]:
        """Submit jobs, each once and independently of the others. Returns one answer each, in order.

        An error is returned as an answer, with its `key`. If the server stays unavailable, the rest is not sent.
        """
        answers: list[Submitted | CallError] = []
        away: CallError | None = None
        for drafts in batches(jobs):
            if away is None:
                given, away = await submit_batch(self._caller, drafts, self._submitted)
            else:
                given = unanswered(drafts, away, is_unsettled=False)
            answers += given
        return answers

    def _submitted(self, facts: Mapping[str, Any], sent: ClientJobDraft) -> Submitted:
        return answers.read(lambda: answers.submitted(facts, sent.key))

    async def get(self, job_id: str, *, wait: float = 0.0) -> JobInfo:
        """The current state of a job; `wait` (at most 30 seconds) is a long poll for its end."""
        query = f"?wait_ms={milliseconds(wait)}" if wait else ""
        facts = await self._caller.get(_job_path(job_id) + query, wait=wait)
        return answers.read(lambda: answers.job_info(facts))

    async def result(self, job_id: str, *, wait: float = 0.0) -> Outcome:
        """The verified outcome of a job. Waits `wait` seconds for its end, else raises `NotFinishedError`."""
        deadline = time.monotonic() + wait
        while True:
            left = max(0.0, min(MOST_WAIT_SECONDS, deadline - time.monotonic()))
            job = await self.get(job_id, wait=left)
            if job.has_ended:
                break
            if time.monotonic() >= deadline:
                raise NotFinishedError(f"The job {job.job_id} is {job.state}.")
        facts = await self._caller.get(_job_path(job_id) + "/result")
        return answers.read(lambda: answers.outcome(facts, self._hmac_key))

    async def lookup(
        self, *, key: str | None = None, request_id: str | None = None, principal: str | None = None
    ) -> JobInfo:
        """The job of a key, or of the request id in the answer to its submission.

        An administrator may pass the `principal` that owns the key; by default it is the caller.
        """
        if (key is None) == (request_id is None):
            raise ValueError("pass a key or a request_id, not both")
        if principal is not None and key is None:
            raise ValueError("a principal needs a key")
        fields = {"idempotency_key": key, "request_id": request_id, "principal": principal}
        facts = await self._caller.post(_PATH + "/lookup", spliced(fields))
        return answers.read(lambda: answers.job_info(facts))

    async def cancel(self, job_id: str, *, force: bool = False) -> Cancellation:
        """Cancel a waiting job. For a running one, notify its worker, or with `force` end its lease."""
        facts = await self._caller.post(_job_path(job_id) + "/cancel", spliced({"force": force}))
        return answers.read(lambda: answers.cancelled(facts))

    async def queue(self, name: str) -> QueueInfo:
        """A queue with its limits and counts; for administrators."""
        facts = await self._caller.get(_queue_path(name))
        return answers.read(lambda: answers.queue_info(facts))

    async def set_queue(
        self, name: str, *, max_inflight: int | None = None, default_timeout: float | None = None
    ) -> QueueInfo:
        """Limit the concurrent jobs of a queue, or the seconds of a run; for administrators.

        0 removes a limit; a limit that is not passed does not change.
        """
        if max_inflight is None and default_timeout is None:
            raise ValueError("pass max_inflight or default_timeout")
        fields = {"max_inflight": max_inflight, "default_timeout_ms": milliseconds(default_timeout)}
        facts = await self._caller.put(_queue_path(name), spliced(fields))
        return answers.read(lambda: answers.queue_info(facts))

    async def claim(
        self,
        worker_id: str,
        *,
        most: int = 1,
        kinds: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        wait: float = 0.0,
        lease: int | None = None,
        claim_id: str | None = None,
    ) -> Claimed:
        """Lease ready jobs, or wait up to `wait` seconds (at most 30) for the first one.

        A repeated claim with the same `claim_id` gets the same leases. Without it a new one is used, so that a lost
        answer loses no lease.
        """
        fields = {
            "worker_id": worker_id,
            "max": most,
            "kinds": None if kinds is None else list(kinds),
            "queues": None if queues is None else list(queues),
            "wait_ms": milliseconds(wait),
            "lease_sec": lease,
            "claim_id": fresh_name() if claim_id is None else claim_id,
        }
        facts = await self._caller.post(
            _PATH + "/claim", spliced(fields), wait=wait, most_bytes=(most + 1) * _LEASE_BYTES
        )
        return answers.read(lambda: answers.claimed(facts))

    async def heartbeat(self, lease: Lease, *, progress: Any = None) -> Beat:
        """Renew the lease of a job. The answer tells whether its owner has cancelled it."""
        facts = await self._caller.post(
            _job_path(lease.job_id) + "/heartbeat", spliced({"lease_token": lease.token, "progress": progress})
        )
        return answers.read(lambda: answers.beat(facts))

    async def complete(self, lease: Lease, result: Any = None) -> Reported:
        """Report the result of a job."""
        return await self._report(lease, "complete", True, result, {})

    async def fail(
        self, lease: Lease, error: Mapping[str, Any], *, retryable: bool = True, retry_after: float | None = None
    ) -> Reported:
        """Report that a run failed; `error` has a `code`, a `message` and optional `details`."""
        fields = {"retryable": retryable, "retry_after_ms": milliseconds(retry_after)}
        return await self._report(lease, "fail", False, dict(error), fields)

    async def defer(self, lease: Lease, delay: float = 0.0, *, reason: str | None = None) -> Reported:
        """Give a job back for `delay` seconds; the run does not count as an attempt."""
        fields = {"lease_token": lease.token, "delay_ms": milliseconds(delay), "reason": reason}
        facts = await self._caller.post(_job_path(lease.job_id) + "/defer", spliced(fields))
        return answers.read(lambda: answers.reported(facts))

    async def step(self, lease: Lease, step_key: str) -> Step:
        """The stored result of a step of a job."""
        return await self._step(lease, spliced({"lease_token": lease.token, "step_key": step_key}))

    async def store_step(self, lease: Lease, step_key: str, result: Any) -> Step:
        """Store the result of a step unless it has one. Returns the stored result."""
        fields = {"lease_token": lease.token, "step_key": step_key}
        return await self._step(lease, spliced(fields, result=integrity.canonical_bytes(result)))

    async def _step(self, lease: Lease, body: bytes) -> Step:
        facts = await self._caller.post(_job_path(lease.job_id) + "/steps", body)
        return answers.read(lambda: answers.step(facts))

    async def _report(self, lease: Lease, verb: str, ok: bool, value: Any, fields: Mapping[str, Any]) -> Reported:
        text = integrity.canonical_bytes(value)
        proof = integrity.proof(lease.job_id, ok, text, self._hmac_key)
        name = "result" if ok else "error"
        body = spliced({"lease_token": lease.token, **fields, "integrity": proof}, **{name: text})
        facts = await self._caller.post(f"{_job_path(lease.job_id)}/{verb}", body)
        return answers.read(lambda: answers.reported(facts))


def _queue_path(name: str) -> str:
    return f"{_PATH}/queues/{quote(name, safe='')}"


def _job_path(job_id: str) -> str:
    return f"{_PATH}/{quote(job_id, safe='')}"
