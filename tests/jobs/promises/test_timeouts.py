"""A run has a time limit if its job or its queue says so: its lease is not extended beyond it, heartbeats or not."""

from __future__ import annotations

import time
from threading import Event, Thread

import pytest

from tests.harness.together import eventually
from tests.jobs.wire import ABSENT, PATH, Jobs, Message, fresh


def _hold_on(jobs: Jobs, job: Message, until: Event) -> Thread:
    """Heartbeats of a worker whose function never returns."""

    def beat() -> None:
        while not until.is_set() and jobs.heartbeat(job, expect=None).http == 200:
            time.sleep(0.1)

    thread = Thread(target=beat, daemon=True)
    thread.start()
    return thread


def _run_for_ever(jobs: Jobs, queue: str) -> Message:
    job = jobs.claim_one(queue)
    over = Event()
    thread = _hold_on(jobs, job, over)
    try:
        eventually(lambda: jobs.get(job["job_id"])["state"] != "leased", "the run to be ended")
    finally:
        over.set()
        thread.join()
    return job


@pytest.mark.each_store
def test_d3_a_run_that_holds_on_for_ever_ends_at_its_timeout(jobs: Jobs, queue: str) -> None:
    job_id = jobs.submit(queue=queue, timeout_ms=700, max_attempts=2)["job_id"]
    first = _run_for_ever(jobs, queue)
    assert first["timeout_ms"] == 700
    seen = jobs.get(job_id)
    assert (seen["state"] in ("scheduled", "queued"), seen["attempt"]) == (True, 1), dict(seen)
    assert [error["code"] for error in seen["errors"]] == ["timeout"]
    assert jobs.complete(first, expect=409)["error"] == "lease_lost"
    jobs.audited("JOB_TIMEOUT", job_id=job_id, attempt=1, timeout_ms=700)
    _run_for_ever(jobs, queue)
    seen = jobs.get(job_id)
    assert (seen["state"], seen["reason"]) == ("failed", "exhausted")
    assert seen["cached_result"]["error"]["code"] == "timeout"
    assert [error["code"] for error in seen["errors"]] == ["timeout", "timeout"]
    assert job_id in jobs.dead_ids()


def test_d3_a_queue_has_a_default_that_a_job_may_lift(jobs: Jobs, queue: str) -> None:
    told = jobs.call("PUT", f"{PATH}/queues/{queue}", {"default_timeout_ms": 600}, expect=200)
    assert (told["default_timeout_ms"], told["max_inflight"]) == (600, 0)
    for timeout_ms in (ABSENT, 0, 5_000):
        jobs.submit(queue=queue, max_attempts=1, timeout_ms=timeout_ms)
    told_to_worker = [job["timeout_ms"] for job in jobs.claim(queue, max=3)["jobs"]]
    assert told_to_worker == [600, 0, 5_000]
    jobs.set_queue(queue, 2)
    told = jobs.call("GET", f"{PATH}/queues/{queue}", expect=200)
    assert (told["default_timeout_ms"], told["max_inflight"]) == (600, 2)
    told = jobs.call("DELETE", f"{PATH}/queues/{queue}", expect=200)
    assert (told["default_timeout_ms"], told["max_inflight"]) == (0, 0)


def test_d3_a_completion_in_time_counts_and_a_timeout_is_no_part_of_the_payload(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    jobs.submit("k", key=key, queue=queue, timeout_ms=60_000)
    again = jobs.submit("k", key=key, queue=queue, timeout_ms=1_000)
    assert (again["dedup"], again["ignored_fields"]) == (True, ["timeout_ms"])
    assert jobs.complete(jobs.claim_one(queue))["status"] == "completed"


@pytest.mark.parametrize("value", [-1, 604_800_001, "1", 1.5])
def test_d3_a_timeout_has_bounds(jobs: Jobs, queue: str, value: object) -> None:
    assert jobs.submit(queue=queue, timeout_ms=value, expect=400)["field"] == "timeout_ms"
    body = {"default_timeout_ms": value}
    assert jobs.call("PUT", f"{PATH}/queues/{queue}", body, expect=400)["field"] == "default_timeout_ms"
