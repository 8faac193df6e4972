"""Unique and debounced submissions over real sockets: one job for several submissions, and each key once."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from tests.harness.together import at_once, eventually
from tests.jobs.wire import PATH, Answer, Jobs, fresh, ms_of

HOUR_MS = 3_600_000


def listed(jobs: Jobs, queue: str) -> list[str]:
    return [job["job_id"] for job in jobs.listed(limit=100, queue=queue)]


def submit(jobs: Jobs, queue: str, params: Any = None, **fields: Any) -> Answer:
    return jobs.submit("k", {"of": queue} if params is None else params, queue=queue, **fields)


# -- unique ------------------------------------------------------------------------------------------------------------


def test_a_further_submission_is_answered_with_the_job_that_waits(jobs: Jobs, queue: str) -> None:
    first = submit(jobs, queue, unique={})
    again = submit(jobs, queue, unique={})
    assert "unique" not in first
    assert (again["job_id"], again["dedup"], again["unique"], again["status"]) == (
        first["job_id"],
        True,
        True,
        "in_progress",
    )
    assert submit(jobs, queue, {"of": queue, "other": 1}, unique={})["job_id"] != first["job_id"]
    assert submit(jobs, queue)["job_id"] != first["job_id"], "a submission that does not ask for it is a job of its own"
    assert len(listed(jobs, queue)) == 3


def test_the_job_stands_for_others_until_it_has_ended(jobs: Jobs, queue: str) -> None:
    key = fresh("unique")
    first = submit(jobs, queue, unique={"key": key})
    job = jobs.claim_one(queue)
    assert submit(jobs, queue, {"n": 2}, unique={"key": key})["job_id"] == first["job_id"]
    jobs.complete(job, "done")
    again = submit(jobs, queue, {"n": 3}, unique={"key": key})
    assert again["job_id"] != first["job_id"]
    assert again["dedup"] is False


def test_a_window_counts_completed_jobs_too_and_failed_ones_only_if_asked(jobs: Jobs, queue: str) -> None:
    for end, states, is_found in [
        ("complete", None, True),
        ("fail", None, False),
        ("fail", ["failed"], True),
        ("complete", ["failed", "leased"], False),
    ]:
        unique = {"key": fresh("unique"), "for_ms": HOUR_MS} | ({} if states is None else {"states": states})
        first = submit(jobs, queue, unique=unique)
        job = jobs.claim_one(queue)
        if end == "complete":
            jobs.complete(job, 42)
        else:
            jobs.fail(job, retryable=False)
        again = submit(jobs, queue, unique=unique)
        assert (again["job_id"] == first["job_id"]) is is_found, (end, states)
        if is_found:
            assert again["status"] == again["state"] == ("completed" if end == "complete" else "failed")
            assert again["unique"] is True
        else:
            jobs.complete(jobs.claim_one(queue))


def test_after_its_window_a_job_no_longer_stands_for_others(jobs: Jobs, queue: str) -> None:
    unique = {"key": fresh("unique"), "for_ms": 1}
    first = submit(jobs, queue, unique=unique)
    eventually(lambda: submit(jobs, queue, unique=unique)["job_id"] != first["job_id"], "a second job")


def test_the_idempotency_key_of_a_submission_that_made_no_job_points_to_the_one_found(jobs: Jobs, queue: str) -> None:
    unique, own, other = {"key": fresh("unique")}, fresh("key"), fresh("key")
    first = submit(jobs, queue, key=own, unique=unique)
    found = submit(jobs, queue, {"n": 2}, key=other, unique=unique)
    assert (found["job_id"], found["unique"], found["dedup"]) == (first["job_id"], True, True)
    jobs.complete(jobs.claim_one(queue), "done")
    again = submit(jobs, queue, {"n": 2}, key=other, unique=unique)
    assert (again["job_id"], again["status"], again["unique"]) == (first["job_id"], "completed", True)
    assert again["cached_result"] == {"ok": True, "result": "done"}
    assert again["expires_utc"] is not None
    assert "unique" not in submit(jobs, queue, key=own, unique=unique)
    refused = submit(jobs, queue, {"n": 3}, key=other, unique=unique, expect=409)
    assert refused["error"] == "IDEMPOTENCY_KEY_COLLISION"
    assert jobs.lookup(idempotency_key=other)["job_id"] == first["job_id"]
    jobs.release(other)
    jobs.lookup(idempotency_key=other, expect=404)
    assert jobs.lookup(idempotency_key=own)["job_id"] == first["job_id"]
    assert len(listed(jobs, queue)) == 1


@pytest.mark.each_store
def test_of_submissions_that_race_one_makes_the_job(jobs: Jobs, queue: str) -> None:
    unique = {"key": fresh("unique")}
    told = at_once([partial(submit, jobs, queue, {"n": n}, key=fresh("key"), unique=unique) for n in range(16)])
    assert len({answer["job_id"] for answer in told}) == 1
    assert [answer["dedup"] for answer in told].count(False) == 1
    assert len(listed(jobs, queue)) == 1


def test_the_unique_keys_of_two_callers_are_two_and_a_batch_sees_its_own_jobs(jobs: Jobs, queue: str) -> None:
    key = fresh("unique")
    items = [{"kind": "k", "params": {"n": n}, "queue": queue, "unique": {"key": key}} for n in range(3)]
    told = jobs.batch(items)
    assert len({answer["job_id"] for answer in told}) == 1
    assert [answer.get("unique", False) for answer in told] == [False, True, True]


def test_a_job_tells_its_unique_key(jobs: Jobs, queue: str) -> None:
    key = fresh("unique")
    assert jobs.get(submit(jobs, queue, unique={"key": key})["job_id"])["unique"] == {"key": key}
    assert jobs.get(submit(jobs, queue, unique={})["job_id"])["unique"] == {"key": None}
    plain = jobs.get(submit(jobs, queue)["job_id"])
    assert not {"unique", "debounce"} & set(plain)


# -- debounce ----------------------------------------------------------------------------------------------------------


def test_a_debounced_submission_replaces_params_and_moves_the_start(jobs: Jobs, queue: str) -> None:
    debounce = {"key": fresh("debounce"), "delay_ms": HOUR_MS}
    first = submit(jobs, queue, {"n": 1}, debounce=debounce)
    assert first["state"] == "scheduled"
    before = jobs.get(first["job_id"])
    large = {"n": "x" * 5_000}
    for params in ({"n": 2}, large, {"n": 3}):
        again = submit(jobs, queue, params, debounce=debounce)
        assert (again["job_id"], again["debounced"], again["dedup"]) == (first["job_id"], True, True)
        assert jobs.get(first["job_id"])["params"] == params
    after = jobs.get(first["job_id"])
    assert ms_of(after["run_at_utc"]) >= ms_of(before["run_at_utc"])
    assert after["debounce"] == {"key": debounce["key"]}
    submit(jobs, queue, {"n": 4}, debounce=debounce | {"delay_ms": 1})
    job = jobs.claim_one(queue)
    assert (job["job_id"], job["params"]) == (first["job_id"], {"n": 4})
    assert len(listed(jobs, queue)) == 1


def test_a_job_is_not_moved_beyond_the_longest_time_from_its_first_submission(jobs: Jobs, queue: str) -> None:
    debounce = {"key": fresh("debounce"), "delay_ms": HOUR_MS, "max_ms": HOUR_MS}
    first = submit(jobs, queue, {"n": 1}, debounce=debounce)
    time.sleep(0.002)
    submit(jobs, queue, {"n": 2}, debounce=debounce)
    job = jobs.get(first["job_id"])
    assert ms_of(job["run_at_utc"]) == ms_of(job["created_utc"]) + HOUR_MS
    assert job["params"] == {"n": 2}


def test_after_the_claim_the_next_submission_is_a_new_job(jobs: Jobs, queue: str) -> None:
    debounce = {"key": fresh("debounce"), "delay_ms": 1}
    first = submit(jobs, queue, {"n": 1}, debounce=debounce)
    job = jobs.claim_one(queue)
    second = submit(jobs, queue, {"n": 2}, debounce=debounce)
    assert second["job_id"] != first["job_id"]
    assert second["dedup"] is False
    jobs.defer(job, 0)
    assert jobs.get(first["job_id"])["params"] == {"n": 1}


def test_a_retry_of_a_debounced_submission_moves_nothing(jobs: Jobs, queue: str) -> None:
    debounce = {"key": fresh("debounce"), "delay_ms": HOUR_MS}
    keys = [fresh("key") for _ in range(2)]
    first = submit(jobs, queue, {"n": 1}, key=keys[0], debounce=debounce)
    submit(jobs, queue, {"n": 2}, key=keys[1], debounce=debounce)
    before = jobs.get(first["job_id"])
    for number, key in enumerate(keys, 1):
        again = submit(jobs, queue, {"n": number}, key=key, debounce=debounce)
        assert (again["job_id"], again["dedup"], again.get("debounced", False)) == (first["job_id"], True, number == 2)
    after = jobs.get(first["job_id"])
    assert (after["params"], after["run_at_utc"]) == ({"n": 2}, before["run_at_utc"])


def test_jobs_of_another_kind_are_debounced_apart(jobs: Jobs, queue: str) -> None:
    debounce = {"key": fresh("debounce"), "delay_ms": HOUR_MS}
    told = [jobs.submit(kind, {}, queue=queue, debounce=debounce)["job_id"] for kind in ("a", "b", "a")]
    assert told[0] == told[2] != told[1]


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"unique": 1}, "unique"),
        ({"unique": []}, "unique"),
        ({"unique": {"key": ""}}, "unique.key"),
        ({"unique": {"key": "x" * 257}}, "unique.key"),
        ({"unique": {"for_ms": 0}}, "unique.for_ms"),
        ({"unique": {"for_ms": 2_678_400_001}}, "unique.for_ms"),
        ({"unique": {"states": []}}, "unique.states"),
        ({"unique": {"states": "queued"}}, "unique.states"),
        ({"unique": {"states": ["running"]}}, "unique.states"),
        ({"debounce": {"delay_ms": 1}}, "debounce.key"),
        ({"debounce": {"key": "k"}}, "debounce.delay_ms"),
        ({"debounce": {"key": "k", "delay_ms": 0}}, "debounce.delay_ms"),
        ({"debounce": {"key": "k", "delay_ms": 5, "max_ms": 4}}, "debounce.max_ms"),
        ({"debounce": {"key": "k", "delay_ms": 1}, "unique": {}}, "debounce"),
        ({"debounce": {"key": "k", "delay_ms": 1}, "delay_ms": 1}, "delay_ms"),
        ({"debounce": {"key": "k", "delay_ms": 1}, "run_at": "2026-01-01T00:00:00Z"}, "run_at"),
    ],
)
def test_what_makes_no_sense_is_refused(jobs: Jobs, queue: str, fields: dict[str, Any], field: str) -> None:
    assert submit(jobs, queue, expect=400, **fields)["field"] == field
    assert listed(jobs, queue) == []


def test_submissions_that_found_a_job_are_counted(jobs: Jobs, queue: str) -> None:
    before = jobs.metrics()
    for _ in range(3):
        submit(jobs, queue, unique={})
        submit(jobs, queue, debounce={"key": queue, "delay_ms": HOUR_MS})
    after = jobs.metrics()
    assert after["unique_1m"] - before["unique_1m"] >= 2
    assert after["debounced_1m"] - before["debounced_1m"] >= 2
    assert jobs.call("GET", f"{PATH}?queue={queue}")["jobs"]
