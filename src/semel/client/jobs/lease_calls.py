"""The calls of a worker: claim jobs, hold their leases, report, and steps.

A claim has an id and a report has the token of its lease, so both are repeated after a lost answer without a second
effect. Reports have a checksum of their canonical bytes, and a signature if there is a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semel.client.errors import InvalidArgumentError
from semel.client.jobs import answers, integrity
from semel.client.jobs.requests import PATH, JobRequests, job_path
from semel.client.jobs.submission import draft, fresh_name, milliseconds, spliced
from semel.client.jobs.values import Beat, Claimed, JobRequest, Lease, Reported, Step, Submitted

_LEASE_BYTES = 1024 * 1024 + 16 * 1024
"""Maximum bytes of one claimed job: the largest params plus the other members."""


class AsyncLeaseCalls(JobRequests):
    """The calls of a worker, from asyncio code."""

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
        most_bytes = (most + 1) * _LEASE_BYTES
        return await self._post(answers.claimed, f"{PATH}/claim", spliced(fields), wait=wait, most_bytes=most_bytes)

    async def heartbeat(self, lease: Lease, *, progress: Any = None) -> Beat:
        """Renew the lease of a job. The answer tells whether its owner has cancelled it."""
        body = spliced({"lease_token": lease.token, "progress": progress})
        return await self._post(answers.beat, job_path(lease.job_id, "heartbeat"), body)

    async def complete(self, lease: Lease, result: Any = None) -> Reported:
        """Report the result of a job."""
        return await self._report(lease, "complete", True, result, {})

    async def fail(
        self, lease: Lease, error: Mapping[str, Any], *, retryable: bool = True, retry_after: float | None = None
    ) -> Reported:
        """Report that a run failed; `error` has a `code`, a `message` and optional `details`."""
        fields = {"retryable": retryable, "retry_after_ms": milliseconds(retry_after)}
        return await self._report(lease, "fail", False, dict(error), fields)

    async def defer(
        self, lease: Lease, delay: float = 0.0, *, reason: str | None = None, wait_children: bool = False
    ) -> Reported:
        """Give a job back for `delay` seconds, or until its children have ended; the run does not count."""
        fields = {
            "lease_token": lease.token,
            "delay_ms": milliseconds(delay),
            "reason": reason,
            "wait_children": wait_children or None,
        }
        return await self._post(answers.reported, job_path(lease.job_id, "defer"), spliced(fields))

    async def submit_child(self, lease: Lease, name: str, job: JobRequest) -> Submitted:
        """Submit a child of a job that is leased. The name under the parent is its key, over all runs of the parent."""
        if job.key is not None:
            raise InvalidArgumentError("A child has no key: its name under its parent is its key.")
        parent = {"job_id": lease.job_id, "lease_token": lease.token, "name": name}
        sent = draft(job, parent=parent, carried=self._carried)
        return await self._post(lambda facts: answers.submitted(facts, f"{lease.job_id}/{name}"), PATH, sent.body)

    async def step(self, lease: Lease, step_key: str) -> Step:
        """The stored result of a step of a job."""
        return await self._step(lease, spliced({"lease_token": lease.token, "step_key": step_key}))

    async def store_step(self, lease: Lease, step_key: str, result: Any) -> Step:
        """Store the result of a step unless it has one. Returns the stored result."""
        fields = {"lease_token": lease.token, "step_key": step_key}
        return await self._step(lease, spliced(fields, result=integrity.canonical_bytes(result)))

    async def _step(self, lease: Lease, body: bytes) -> Step:
        return await self._post(answers.step, job_path(lease.job_id, "steps"), body)

    async def _report(self, lease: Lease, verb: str, ok: bool, value: Any, fields: Mapping[str, Any]) -> Reported:
        text = integrity.canonical_bytes(value)
        proof = integrity.proof(lease.job_id, ok, text, self._hmac_key)
        name = "result" if ok else "error"
        body = spliced({"lease_token": lease.token, **fields, "integrity": proof}, **{name: text})
        return await self._post(answers.reported, job_path(lease.job_id, verb), body)
