"""Lists and cursors, limits of single queues, and the steps of a job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.harness.together import at_once
from tests.jobs.wire import PATH, Answer, Jobs, Message, Together, fresh

# -- lists ------------------------------------------------------------------------------------------------------------


def ids(jobs: list[Message]) -> list[str]:
    return [job["job_id"] for job in jobs]


def test_the_newest_job_comes_first_and_pages_join(jobs: Jobs, queue: str) -> None:
    made = [jobs.submit("k", {"n": number}, queue=queue)["job_id"] for number in range(7)]
    newest_first = made[::-1]
    assert ids(jobs.page(queue=queue)["jobs"]) == newest_first
    assert jobs.page(queue=queue)["next"] is None
    for limit in (1, 2, 3, 6, 7, 8, 1_000):
        assert ids(jobs.listed(limit=limit, queue=queue)) == newest_first
    page = jobs.page(queue=queue, limit=3)
    assert ids(page["jobs"]) == newest_first[:3]
    assert isinstance(page["next"], str)


def test_an_entry_has_facts_and_nothing_of_the_callers(jobs: Jobs, queue: str) -> None:
    key = fresh("planted-key")
    jobs.submit("k", {"p": "planted-param"}, key=key, queue=queue, priority=7, client={"node_id": "planted-client"})
    job = jobs.claim_one(queue, worker_id="w")
    jobs.fail(job, "code", "planted-error", retry_after_ms=0)
    jobs.complete(jobs.claim_one(queue), "planted-result")
    page = jobs.page(queue=queue)
    [entry] = page["jobs"]
    expected = {"job_id": job["job_id"], "kind": "k", "queue": queue, "priority": 7, "state": "completed"}
    expected |= {"status": "completed", "attempt": 2, "revision": 0, "created_utc": job["created_utc"]}
    assert expected.items() <= entry.items()
    assert b"planted" not in page.raw


def test_filters_hold_together(jobs: Jobs, queue: str) -> None:
    kind, other = fresh("kind"), fresh("queue")
    done = jobs.submit(kind, queue=queue)["job_id"]
    jobs.complete(jobs.claim_one(queue), 1)
    gone = jobs.submit(kind, queue=queue)["job_id"]
    jobs.cancel(gone)
    held = jobs.submit(kind, queue=queue)["job_id"]
    jobs.claim_one(queue)
    late = jobs.submit(kind, queue=queue, delay_ms=3_600_000)["job_id"]
    waiting = jobs.submit(kind, queue=queue)["job_id"]
    elsewhere = jobs.submit(kind, queue=other)["job_id"]
    another = jobs.submit(fresh("kind"), queue=queue)["job_id"]
    wanted: list[tuple[Message, list[str]]] = [
        ({"kind": kind}, [elsewhere, waiting, late, held, gone, done]),
        ({"kind": kind, "queue": queue}, [waiting, late, held, gone, done]),
        ({"queue": queue, "state": "queued"}, [another, waiting]),
        ({"queue": queue, "state": "queued", "kind": kind}, [waiting]),
        ({"queue": queue, "state": "scheduled"}, [late]),
        ({"queue": queue, "state": "leased"}, [held]),
        ({"queue": queue, "state": "failed"}, [gone]),
        ({"queue": queue, "state": "completed"}, [done]),
        ({"queue": other, "state": "completed"}, []),
        ({"queue": fresh("nowhere")}, []),
    ]
    for filters, expected in wanted:
        assert ids(jobs.page(**filters)["jobs"]) == expected, filters
        assert ids(jobs.listed(limit=1, **filters)) == expected, filters


def test_a_scheduled_job_is_queued_when_its_time_has_come(together: Together) -> None:
    """Nothing is written for it: the list and the job itself tell it by the clock."""

    def check(jobs: Jobs, queue: str) -> None:
        job_id = jobs.submit("k", queue=queue, delay_ms=150)["job_id"]
        assert jobs.get(job_id, wait_ms=400)["state"] == "queued"
        assert ids(jobs.page(queue=queue, state="queued")["jobs"]) == [job_id]
        assert jobs.page(queue=queue, state="scheduled")["jobs"] == []

    together(check)


def test_what_changes_meanwhile_is_listed_once(jobs: Jobs, queue: str) -> None:
    """Jobs that are claimed, ended and added between two pages move nothing: creation never changes."""
    made = [jobs.submit("k", queue=queue)["job_id"] for _ in range(6)]
    page = jobs.page(queue=queue, limit=2)
    seen = ids(page["jobs"])
    while page["next"] is not None:
        jobs.complete(jobs.claim_one(queue), 1)
        jobs.submit("k", queue=queue)
        page = jobs.page(queue=queue, limit=2, after=page["next"])
        seen += ids(page["jobs"])
    assert seen == made[::-1]


def test_a_cursor_belongs_to_its_list(jobs: Jobs, queue: str) -> None:
    for _ in range(3):
        jobs.submit("k", queue=queue)
        jobs.fail(jobs.claim_one(queue), retryable=False)
    cursor = jobs.page(queue=queue, limit=1)["next"]
    assert len(jobs.page(queue=queue, limit=1, after=cursor)["jobs"]) == 1
    dead = jobs.dead(limit=1)["next"]
    calls: list[Callable[[], Answer]] = [
        lambda: jobs.page(after=dead, expect=400),
        lambda: jobs.dead(after=cursor, expect=400),
        lambda: jobs.page(queue=queue, after=cursor[:-1], expect=400),
        lambda: jobs.page(queue=queue, after=cursor + "A", expect=400),
    ]
    for call in calls:
        assert call()["field"] == "after"


# -- limits of queues -------------------------------------------------------------------------------------------------


def test_a_queue_limit_is_kept_and_told(jobs: Jobs, queue: str) -> None:
    jobs.set_queue(queue, 3)
    told = jobs.call("GET", f"{PATH}/queues/{queue}")
    assert (told["queue"], told["max_inflight"]) == (queue, 3)
    assert queue in [one["queue"] for one in jobs.call("GET", f"{PATH}/queues")["queues"]]
    jobs.submit("k", queue=queue)
    jobs.submit("k", queue=queue)
    jobs.claim_one(queue)
    told = jobs.call("GET", f"{PATH}/queues/{queue}")
    assert (told["inflight"], told["waiting"]) == (1, 1)
    jobs.call("DELETE", f"{PATH}/queues/{queue}")
    assert jobs.call("GET", f"{PATH}/queues/{queue}", expect=None).get("max_inflight", 0) == 0


@pytest.mark.parametrize("limit", [-1, "2", 1.5, None, True])
def test_a_bad_queue_limit_is_named(jobs: Jobs, queue: str, limit: object) -> None:
    refused = jobs.set_queue(queue, limit, expect=400)
    assert (refused["error"], refused["field"]) == ("invalid_request", "max_inflight")
    refused = jobs.set_queue("q" * 65, 1, expect=400)
    assert (refused["error"], refused["field"]) == ("invalid_request", "queue")


def test_a_full_queue_is_passed_over_and_others_are_served(jobs: Jobs, queue: str) -> None:
    other = fresh("queue")
    jobs.set_queue(queue, 1)
    for name in (queue, queue, queue, other):
        jobs.submit("k", queue=name)
    first = jobs.claim(queue, other, max=10)["jobs"]
    assert sorted(job["queue"] for job in first) == sorted([queue, other])
    full = jobs.claim(queue)
    assert (full["jobs"], full["defer_ms"]) == ([], 500)
    assert jobs.claim(queue, other)["jobs"] == []
    [held] = [job for job in first if job["queue"] == queue]
    jobs.defer(held, 3_600_000)
    assert len(jobs.claim(queue, max=10)["jobs"]) == 1


def test_a_lowered_limit_ends_no_lease(jobs: Jobs, queue: str) -> None:
    for _ in range(5):
        jobs.submit("k", queue=queue)
    held = jobs.claim(queue, max=3)["jobs"]
    assert len(held) == 3
    jobs.set_queue(queue, 2)
    assert jobs.claim(queue)["jobs"] == []
    for job in held[:2]:
        assert jobs.heartbeat(job)["cancel_requested"] is False
        jobs.complete(job, 1)
    assert len(jobs.claim(queue, max=10)["jobs"]) == 1
    jobs.set_queue(queue, 0)
    assert len(jobs.claim(queue, max=10)["jobs"]) == 1


@pytest.mark.each_store
def test_a_long_poll_gets_what_a_full_queue_lets_go(jobs: Jobs, queue: str) -> None:
    jobs.set_queue(queue, 1)
    jobs.submit("k", queue=queue)
    jobs.submit("k", queue=queue)
    held = jobs.claim_one(queue)
    polls: list[Callable[[], Answer]] = [
        partial(jobs.claim, queue, wait_ms=10_000),
        partial(jobs.complete, held, 1),
    ]
    answer, _ = at_once(polls)
    [job] = answer["jobs"] or jobs.claim(queue, wait_ms=10_000)["jobs"]
    assert job["job_id"] != held["job_id"]


# -- steps ------------------------------------------------------------------------------------------------------------


def test_a_step_is_stored_once(jobs: Jobs, queue: str) -> None:
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    assert jobs.step(job, "charge")["known"] is False
    first = jobs.step(job, "charge", {"id": 1})
    assert (first.get("dedup", False), first["result"]) == (False, {"id": 1})
    for result in ({"id": 1}, {"id": 2}, None):
        again = jobs.step(job, "charge", result)
        assert (again["dedup"], again["result"]) == (True, {"id": 1})
    asked = jobs.step(job, "charge")
    assert (asked["known"], asked["result"]) == (True, {"id": 1})
    assert jobs.step(job, "Charge")["known"] is False


@pytest.mark.parametrize("result", [None, False, 0, "", [], {"a": [1.5, "\u20ac"]}])
def test_any_json_is_a_steps_result(jobs: Jobs, queue: str, result: object) -> None:
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    jobs.step(job, "s", result)
    asked = jobs.step(job, "s")
    assert (asked["known"], asked["result"]) == (True, result)


def test_steps_belong_to_their_job(jobs: Jobs, queue: str) -> None:
    jobs.submit("k", queue=queue)
    jobs.submit("k", queue=queue)
    one, other = jobs.claim(queue, max=2)["jobs"]
    jobs.step(one, "s", 1)
    assert jobs.step(other, "s")["known"] is False
    assert jobs.step(other, "s", 2)["result"] == 2
    assert jobs.step(one, "s")["result"] == 1


def test_steps_are_kept_over_attempts_requeue_and_revival(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    job_id = jobs.submit("k", {}, key=key, queue=queue)["job_id"]
    job = jobs.claim_one(queue)
    jobs.step(job, "s", 1)
    jobs.fail(job, retry_after_ms=0)
    assert jobs.step(job, "s", 2, expect=409)["error"] == "lease_lost"
    job = jobs.claim_one(queue)
    assert jobs.step(job, "s")["result"] == 1
    jobs.fail(job, retryable=False)
    assert jobs.step(job, "s", expect=409)["error"] == "lease_lost"
    jobs.submit("k", {}, key=key, on_failed="retry")
    job = jobs.claim_one(queue)
    assert jobs.step(job, "s")["result"] == 1
    jobs.fail(job, retryable=False)
    jobs.requeue(job_id)
    job = jobs.claim_one(queue)
    assert jobs.step(job, "s")["result"] == 1
    jobs.complete(job, 1)
    assert jobs.step(job, "s", expect=409)["error"] == "lease_lost"


def test_a_job_has_at_most_a_thousand_steps(jobs: Jobs, queue: str) -> None:
    """Sent by a few threads, because each is stored before it is answered."""
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)

    def store(start: int) -> None:
        for number in range(start, 1_000, 8):
            jobs.step(job, f"step {number}", number)

    at_once([partial(store, start) for start in range(8)])
    assert jobs.step(job, "one more", 1, expect=413)["error"] == "too_large"
    assert jobs.step(job, "step 999", 1)["result"] == 999
    jobs.complete(job, 1)
