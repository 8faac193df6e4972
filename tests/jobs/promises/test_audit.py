"""The lines of the audit file that nobody waits for: each event of a job's life is written once, with its facts.

Lines that are there before the answer, and those of limits, credentials and schedules, are checked where those are.
"""

from __future__ import annotations

from tests.harness.together import eventually
from tests.jobs.wire import Jobs, Message, fresh


def test_every_event_of_a_jobs_life_is_written_once(jobs: Jobs, queue: str) -> None:
    key = fresh("planted-key")
    job_id = jobs.submit("k", {}, key=key, queue=queue, max_attempts=2)["job_id"]
    jobs.submit("k", {}, key=key)
    jobs.fail(jobs.claim_one(queue), retry_after_ms=0)
    jobs.fail(jobs.claim_one(queue))
    jobs.submit("k", {}, key=key)
    jobs.submit("k", {}, key=key, on_failed="retry")
    jobs.cancel(job_id)
    jobs.release(key)
    expected: list[tuple[str, Message]] = [
        ("IDEMPOTENCY_HIT", {"key_prefix": key[:8], "status": "in_progress"}),
        ("RETRY_SCHEDULED", {"attempt": 1}),
        ("RETRY_EXHAUSTED", {}),
        ("DLQ_ENQUEUE", {"reason": "exhausted", "attempts": 2}),
        ("IDEMPOTENCY_HIT", {"key_prefix": key[:8], "status": "failed"}),
        ("JOB_REVIVED", {}),
        ("IDEMPOTENCY_HIT", {"key_prefix": key[:8], "status": "in_progress"}),
        ("JOB_CANCELLED", {"by": "owner", "principal": "default"}),
        ("IDEMPOTENCY_KEY_RELEASED", {}),
    ]
    eventually(lambda: len(jobs.audit(job_id=job_id)) >= len(expected), "all lines: they are in two files")
    lines = [line for line in jobs.audit_lines() if line["details"].get("job_id") == job_id]
    told = [(line["event"], line["details"]) for line in lines]
    assert sorted(name for name, _ in told) == sorted(name for name, _ in expected), told
    for event, facts in expected:
        found = sum(name == event and facts.items() <= details.items() for name, details in told)
        assert found == expected.count((event, facts)), (event, facts, told)
    assert sorted(line["ts"] for line in lines) == [line["ts"] for line in lines]
    assert key not in str(lines)


def test_a_job_that_is_revived_by_a_caller_or_requeued_by_an_operator(jobs: Jobs, queue: str) -> None:
    """Both are a second life, and the lines say by whom."""
    key = fresh("key")
    job_id = jobs.submit("k", {}, key=key, queue=queue)["job_id"]
    jobs.fail(jobs.claim_one(queue), retryable=False)
    jobs.requeue(job_id)
    jobs.fail(jobs.claim_one(queue), retryable=False)
    jobs.submit("k", {}, key=key, on_failed="retry")
    eventually(lambda: len(jobs.audit("JOB_REVIVED", job_id=job_id)) == 2, "two lives")
    assert [line["reason"] for line in jobs.audit("DLQ_ENQUEUE", job_id=job_id)] == ["permanent"] * 2
    assert jobs.audit("RETRY_EXHAUSTED", job_id=job_id) == []
