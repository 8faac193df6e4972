"""A job that its owner has cancelled ends cancelled, whatever its worker does next, except that a completion counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.together import eventually
from tests.jobs.wire import Jobs, Message, fresh


def _flagged(jobs: Jobs, queue: str, **fields: Any) -> Message:
    """A job that a worker holds and whose owner has cancelled it."""
    jobs.submit("k", key=fresh("key"), queue=queue, **fields)
    [job] = jobs.claim(queue)["jobs"]
    assert jobs.cancel(job["job_id"])["state"] == "leased"
    return job  # type: ignore[no-any-return]


def _has_ended_cancelled(jobs: Jobs, job_id: str, queue: str) -> None:
    seen = jobs.get(job_id)
    assert (seen["state"], seen["reason"], seen["attempt"]) == ("failed", "cancelled", 1), dict(seen)
    assert jobs.claim(queue)["jobs"] == []
    assert job_id not in jobs.dead_ids()
    assert not jobs.audit("DLQ_ENQUEUE", job_id=job_id)


@pytest.mark.parametrize("fields", [{}, {"retryable": False}, {"retry_after_ms": 0}], ids=str)
def test_d2_a_run_that_fails_after_the_cancel_is_the_last(jobs: Jobs, queue: str, fields: dict[str, Any]) -> None:
    job = _flagged(jobs, queue)
    assert jobs.heartbeat(job)["cancel_requested"]
    told = jobs.fail(job, "Stopped", "the handler saw the cancel", **fields)
    assert (told["state"], told["status"]) == ("failed", "failed")
    assert jobs.fail(job, "Stopped", "the handler saw the cancel", **fields)["dedup"] is True
    _has_ended_cancelled(jobs, job["job_id"], queue)
    assert jobs.get(job["job_id"])["errors"][0]["code"] == "Stopped"


def test_d2_a_deferral_after_the_cancel_ends_the_job(jobs: Jobs, queue: str) -> None:
    job = _flagged(jobs, queue)
    assert jobs.defer(job, 0)["dedup"] is False
    assert jobs.defer(job, 0)["dedup"] is True
    _has_ended_cancelled(jobs, job["job_id"], queue)


def test_d2_a_worker_that_dies_after_the_cancel_leaves_the_job_cancelled(jobs: Jobs, queue: str) -> None:
    job = _flagged(jobs, queue, lease_sec=1)
    eventually(lambda: jobs.get(job["job_id"])["state"] == "failed", "the lease to be reaped")
    _has_ended_cancelled(jobs, job["job_id"], queue)
    jobs.audited("LEASE_REAP", job_id=job["job_id"])
    assert jobs.complete(job, expect=409)["error"] == "lease_lost"


def test_d2_a_forced_cancel_ends_the_job_at_once(jobs: Jobs, queue: str) -> None:
    job = _flagged(jobs, queue)
    assert jobs.cancel(job["job_id"], force=True)["state"] == "failed"
    assert jobs.heartbeat(job, expect=409)["error"] == "lease_lost"
    _has_ended_cancelled(jobs, job["job_id"], queue)


def test_d2_a_completion_after_the_cancel_counts(jobs: Jobs, queue: str) -> None:
    job = _flagged(jobs, queue)
    assert jobs.complete(job, {"done": True})["status"] == "completed"
    assert jobs.get(job["job_id"])["state"] == "completed"


def test_d2_a_cancelled_job_that_is_requeued_runs_as_any_other(jobs: Jobs, queue: str) -> None:
    job = _flagged(jobs, queue)
    jobs.fail(job)
    jobs.requeue(job["job_id"])
    [again] = jobs.claim(queue)["jobs"]
    assert (again["job_id"], again["attempt"], again["cancel_requested"]) == (job["job_id"], 1, False)
    assert jobs.fail(again)["state"] == "scheduled"


def test_d2_a_repeated_claim_tells_the_cancel(jobs: Jobs, queue: str) -> None:
    jobs.submit("k", queue=queue)
    name = fresh("claim")
    [job] = jobs.claim(queue, claim_id=name)["jobs"]
    assert job["cancel_requested"] is False
    jobs.cancel(job["job_id"])
    [again] = jobs.claim(queue, claim_id=name)["jobs"]
    assert (again["lease_token"], again["cancel_requested"]) == (job["lease_token"], True)
