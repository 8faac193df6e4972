"""Failures and what follows: backoff, the end of the budget, dead letters, revival, cancellation, released keys."""

from __future__ import annotations

from functools import partial

import pytest

from tests.harness.together import at_once
from tests.jobs.wire import Jobs, Message, fresh, ms_of

FAULT: Message = {"code": "boom", "message": "it broke"}


def failed_for_good(jobs: Jobs, queue: str, key: str) -> str:
    """A job that has failed and is not tried again."""
    first = jobs.submit("k", {}, key=key, queue=queue)
    jobs.fail(jobs.claim_one(queue), **FAULT, retryable=False)
    return str(first["job_id"])


# -- backoff ----------------------------------------------------------------------------------------------------------


def test_22_delays_double_from_half_a_second(jobs: Jobs, queue: str) -> None:
    """Seen without waiting: a worker's own `retry_after_ms` of 0 brings a job to any attempt at once."""
    for attempt, delay in ((1, 500), (2, 1_000), (3, 2_000), (4, 4_000)):
        first = jobs.submit("k", queue=queue)
        for _ in range(attempt - 1):
            jobs.fail(jobs.claim_one(queue), retry_after_ms=0)
        job = jobs.claim_one(queue)
        assert (job["job_id"], job["attempt"]) == (first["job_id"], attempt)
        told = jobs.fail(job, **FAULT)
        assert (told["status"], told["state"]) == ("in_progress", "scheduled")
        seen = jobs.get(job["job_id"])
        assert ms_of(told["next_run_utc"]) - ms_of(seen["errors"][-1]["at_utc"]) == delay
        assert (seen["state"], seen["run_at_utc"], seen["attempt"]) == ("scheduled", told["next_run_utc"], attempt)
        assert jobs.claim(queue)["jobs"] == []
        jobs.cancel(job["job_id"])


def test_22_five_failures_end_a_job_and_an_operator_may_run_it_again(jobs: Jobs, queue: str) -> None:
    key, dead = fresh("key"), jobs.metrics()["dlq_size"]
    first = jobs.submit("k", {}, key=key, queue=queue)
    told: list[Message] = []
    for attempt in range(1, 6):
        job = jobs.claim_one(queue)
        assert (job["job_id"], job["attempt"]) == (first["job_id"], attempt)
        told.append(jobs.fail(job, "boom", f"failure {attempt}", retry_after_ms=0))
    assert [one["status"] for one in told] == ["in_progress"] * 4 + ["failed"]
    seen = jobs.get(first["job_id"])
    assert (seen["reason"], [error["attempt"] for error in seen["errors"]]) == ("exhausted", [1, 2, 3, 4, 5])
    assert [error["message"] for error in seen["errors"]] == [f"failure {attempt}" for attempt in range(1, 6)]
    hit = jobs.submit("k", {}, key=key)
    assert (hit["status"], hit["dedup"]) == ("failed", True)
    assert hit["cached_result"]["error"].items() >= {"code": "boom", "message": "failure 5"}.items()
    assert jobs.metrics()["dlq_size"] == dead + 1

    [letter] = [job for job in jobs.dead(limit=1_000)["jobs"] if job["job_id"] == first["job_id"]]
    assert (letter["reason"], letter["attempts"], letter["error"]["code"]) == ("exhausted", 5, "boom")
    assert ms_of(letter["finished_utc"]) == ms_of(seen["finished_utc"])
    assert jobs.requeue(first["job_id"])["job_id"] == first["job_id"]
    assert first["job_id"] not in jobs.dead_ids()
    assert jobs.metrics()["dlq_size"] == dead
    again = jobs.submit("k", {}, key=key)
    assert (again["status"], again["revision"], again["expires_utc"]) == ("in_progress", 1, None)
    job = jobs.claim_one(queue)
    assert (job["job_id"], job["attempt"], job["epoch"]) == (first["job_id"], 1, 6)
    jobs.complete(job, "well")
    assert jobs.submit("k", {}, key=key)["cached_result"] == {"ok": True, "result": "well"}


def test_the_worker_may_say_when_and_at_most_a_day_ahead(jobs: Jobs, queue: str) -> None:
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    told = jobs.fail(job, retry_after_ms=86_400_000)
    assert ms_of(told["next_run_utc"]) - ms_of(jobs.get(job["job_id"])["errors"][0]["at_utc"]) == 86_400_000


def test_only_the_last_ten_errors_are_kept_and_long_messages_are_cut(jobs: Jobs, queue: str) -> None:
    first = jobs.submit("k", queue=queue, max_attempts=13)
    for attempt in range(1, 13):
        jobs.fail(jobs.claim_one(queue, worker_id="w"), "c", f"{attempt} " + "\u20ac" * 2_000, retry_after_ms=0)
    errors = jobs.get(first["job_id"])["errors"]
    assert [error["attempt"] for error in errors] == list(range(3, 13))
    for error in errors:
        assert len(error["message"].encode()) <= 1_024
        assert error["message"].startswith(f"{error['attempt']} \u20ac")
        assert (error["code"], error["worker_id"]) == ("c", "w")


def test_a_permanent_failure_is_not_tried_again(jobs: Jobs, queue: str) -> None:
    job_id = failed_for_good(jobs, queue, fresh("key"))
    assert jobs.claim(queue)["jobs"] == []
    seen = jobs.get(job_id)
    assert (seen["state"], seen["reason"], seen["attempt"]) == ("failed", "permanent", 1)
    assert job_id in jobs.dead_ids()
    whole = jobs.result(job_id)
    assert (whole["ok"], whole["error"]["code"]) == (False, "boom")


def test_dead_letters_are_paged(jobs: Jobs, queue: str) -> None:
    made = [failed_for_good(jobs, queue, fresh("key")) for _ in range(3)]
    page = jobs.dead(limit=1)
    found: list[str] = []
    while True:
        assert len(page["jobs"]) <= 1
        found += [job["job_id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        page = jobs.dead(limit=1, after=page["next"])
    assert len(found) == len(set(found))
    assert set(made) <= set(found)


# -- revival ----------------------------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_10_a_failed_job_is_returned_and_revived_only_on_request_and_once(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    job_id = failed_for_good(jobs, queue, key)
    hit = jobs.submit("k", {}, key=key)
    assert (hit["status"], hit["dedup"], hit["revision"]) == ("failed", True, 0)
    assert hit["cached_result"]["ok"] is False
    assert hit["cached_result"]["error"].items() >= FAULT.items()
    assert jobs.claim(queue)["jobs"] == []

    answers = at_once([partial(jobs.submit, "k", {}, key=key, on_failed="retry", expect=None)] * 2)
    for one in answers:
        told = (one.http, one["status"], one["dedup"], one["job_id"], one["revision"])
        assert told == (200, "in_progress", True, job_id, 1)
    job = jobs.claim_one(queue)
    assert (job["job_id"], job["attempt"], job["epoch"]) == (job_id, 1, 2)
    assert jobs.claim(queue)["jobs"] == []
    assert job_id not in jobs.dead_ids()
    jobs.complete(job, "second life")
    done = jobs.submit("k", {}, key=key, on_failed="retry")
    assert (done["status"], done["revision"]) == ("completed", 1)


def test_10_another_payload_revives_nothing(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    job_id = failed_for_good(jobs, queue, key)
    assert jobs.submit("k", {"n": 1}, key=key, on_failed="retry", expect=409)["job_id"] == job_id
    assert jobs.get(job_id)["state"] == "failed"


def test_10_revivals_are_counted(jobs: Jobs, queue: str) -> None:
    name = 'semel_jobs_idempotent_total{outcome="revived"}'
    before = jobs.prometheus().get(name, 0)
    for key in (fresh("key"), fresh("key")):
        failed_for_good(jobs, queue + key, key)
        jobs.submit("k", {}, key=key, on_failed="retry")
    assert jobs.prometheus()[name] == before + 2


# -- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [0, 3_600_000], ids=["queued", "scheduled"])
def test_25_a_waiting_job_is_cancelled_at_once(jobs: Jobs, queue: str, delay_ms: int) -> None:
    key = fresh("key")
    first = jobs.submit("k", {}, key=key, queue=queue, delay_ms=delay_ms)
    jobs.cancel(first["job_id"])
    seen = jobs.get(first["job_id"])
    assert (seen["state"], seen["reason"]) == ("failed", "cancelled")
    assert jobs.claim(queue)["jobs"] == []
    assert jobs.submit("k", {}, key=key)["status"] == "failed"
    revived = jobs.submit("k", {}, key=key, on_failed="retry")
    assert (revived["status"], revived["revision"]) == ("failed", 0)
    assert first["job_id"] not in jobs.dead_ids()


def test_25_a_running_job_is_told_and_may_still_complete(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    jobs.submit("k", {}, key=key, queue=queue)
    job = jobs.claim_one(queue)
    assert jobs.heartbeat(job)["cancel_requested"] is False
    jobs.cancel(job["job_id"])
    assert jobs.heartbeat(job)["cancel_requested"] is True
    seen = jobs.get(job["job_id"])
    assert (seen["state"], seen["cancel_requested"]) == ("leased", True)
    jobs.complete(job, "too late to stop")
    assert jobs.submit("k", {}, key=key)["status"] == "completed"


def test_25_force_takes_the_job_from_its_worker(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    jobs.submit("k", {}, key=key, queue=queue)
    job = jobs.claim_one(queue)
    jobs.cancel(job["job_id"], force=True)
    assert jobs.heartbeat(job, expect=409)["error"] == "lease_lost"
    late = jobs.complete(job, 1, expect=409)
    assert (late["error"], late["status"]) == ("lease_lost", "failed")
    assert jobs.get(job["job_id"])["reason"] == "cancelled"
    assert jobs.submit("k", {}, key=key)["status"] == "failed"
    assert jobs.metrics()["inflight"] == jobs.metrics()["inflight_jobs"]


def test_25_the_end_is_the_end(jobs: Jobs, queue: str) -> None:
    """Cancelling what is over changes nothing, whatever the answer."""
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    jobs.complete(job, "done")
    before = jobs.get(job["job_id"])
    for fields in ({}, {"force": True}):
        assert jobs.cancel(job["job_id"], expect=None, **fields).http in (200, 409)
    assert jobs.get(job["job_id"]) == before


def test_a_job_that_has_not_failed_is_not_requeued(jobs: Jobs, queue: str) -> None:
    job_id = jobs.submit("k", queue=queue)["job_id"]
    jobs.requeue(job_id, expect=409)
    job = jobs.claim_one(queue)
    jobs.requeue(job_id, expect=409)
    jobs.complete(job, 1)
    jobs.requeue(job_id, expect=409)
    assert jobs.get(job_id)["revision"] == 0


def test_a_cancelled_job_may_be_requeued_by_an_operator(jobs: Jobs, queue: str) -> None:
    job_id = jobs.submit("k", queue=queue)["job_id"]
    jobs.cancel(job_id)
    jobs.requeue(job_id)
    job = jobs.claim_one(queue)
    assert (job["job_id"], jobs.get(job_id)["revision"]) == (job_id, 1)


# -- released keys ----------------------------------------------------------------------------------------------------


def test_32_a_key_is_released_after_the_end_and_before_it_only_by_force(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    first = jobs.submit("k", {"n": 1}, key=key, queue=queue)
    assert jobs.release(key, expect=409)["error"] == "job_active"
    job = jobs.claim_one(queue)
    assert jobs.release(key, expect=409)["error"] == "job_active"
    jobs.complete(job, 1)
    jobs.release(key)
    second = jobs.submit("k", {"n": 2}, key=key, queue=queue)
    assert (second["status"], second["dedup"]) == ("accepted", False)
    assert second["job_id"] != first["job_id"]
    assert jobs.get(first["job_id"])["state"] == "completed"
    assert jobs.release(fresh("key"), expect=404)["error"] == "not_found"
    assert jobs.release(key, principal="nobody", expect=404)["error"] == "not_found"


@pytest.mark.parametrize("is_used_again", [True, False], ids=["used again", "not used again"])
def test_32_a_job_that_ends_after_its_key_was_released_touches_no_record(
    jobs: Jobs, queue: str, is_used_again: bool
) -> None:
    key = fresh("key")
    jobs.submit("k", {"n": 1}, key=key, queue=queue)
    old = jobs.claim_one(queue)
    jobs.release(key, force=True)
    new: Message | None = jobs.submit("k", {"n": 2}, key=key, queue=queue) if is_used_again else None
    records = jobs.metrics()["idempotency_store_size"]
    jobs.complete(old, "old")
    assert jobs.metrics()["idempotency_store_size"] == records
    assert jobs.result(old["job_id"])["result"] == "old"
    if new is None:
        assert jobs.lookup(idempotency_key=key, expect=404)["error"] == "not_found"
        assert jobs.submit("k", {"n": 1}, key=key, queue=queue)["status"] == "accepted"
    else:
        hit = jobs.submit("k", {"n": 2}, key=key)
        assert (hit["status"], hit["job_id"]) == ("in_progress", new["job_id"])
        assert jobs.submit("k", {"n": 1}, key=key, expect=409)["job_id"] == new["job_id"]
