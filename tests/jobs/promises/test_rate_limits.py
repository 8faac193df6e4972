"""Rate limits of queues over real sockets: never more starts than allowed, and no poll sleeps past them."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from tests.harness.together import at_once
from tests.jobs.wire import PATH, Answer, Jobs, Together


def limit(jobs: Jobs, queue: str, rate: Any, expect: int = 200, **fields: Any) -> Answer:
    return jobs.call("PUT", f"{PATH}/queues/{queue}", {"rate_limit": rate} | fields, expect=expect)


def fill(jobs: Jobs, queue: str, count: int) -> None:
    jobs.batch([{"kind": "k", "queue": queue} for _ in range(count)])


def test_a_queue_shows_its_rate_limit_and_null_or_0_or_delete_removes_it(jobs: Jobs, queue: str) -> None:
    told = limit(jobs, queue, {"count": 10, "per_ms": 60_000}, max_inflight=5)
    assert told["rate_limit"] == {"count": 10, "per_ms": 60_000, "left": 10}
    fill(jobs, queue, 2)
    assert len(jobs.claim(queue, max=2)["jobs"]) == 2
    shown = jobs.call("GET", f"{PATH}/queues/{queue}")
    assert (shown["rate_limit"]["left"], shown["max_inflight"]) == (8, 5)
    assert limit(jobs, queue, {"count": 10, "per_ms": 60_000})["rate_limit"]["left"] == 8
    for nothing in (None, 0, {"count": 0}):
        told = limit(jobs, queue, nothing)
        assert (told["rate_limit"], told["max_inflight"]) == (None, 5)
        limit(jobs, queue, {"count": 1, "per_ms": 60_000})
    assert jobs.call("DELETE", f"{PATH}/queues/{queue}")["rate_limit"] is None


@pytest.mark.parametrize(
    ("rate", "field"),
    [
        (True, "rate_limit"),
        (10, "rate_limit"),
        ("10/s", "rate_limit"),
        ([], "rate_limit"),
        ({}, "rate_limit.count"),
        ({"count": -1, "per_ms": 1}, "rate_limit.count"),
        ({"count": 1_000_001, "per_ms": 1}, "rate_limit.count"),
        ({"count": 1.5, "per_ms": 1}, "rate_limit.count"),
        ({"count": 1}, "rate_limit.per_ms"),
        ({"count": 1, "per_ms": 0}, "rate_limit.per_ms"),
        ({"count": 1, "per_ms": 86_400_001}, "rate_limit.per_ms"),
    ],
)
def test_a_rate_limit_that_makes_no_sense_is_refused(jobs: Jobs, queue: str, rate: Any, field: str) -> None:
    assert limit(jobs, queue, rate, expect=400)["field"] == field
    assert jobs.call("GET", f"{PATH}/queues/{queue}")["rate_limit"] is None


@pytest.mark.each_store
def test_workers_that_race_on_all_nodes_start_no_more_than_the_bucket_holds(jobs: Jobs, queue: str) -> None:
    limit(jobs, queue, {"count": 5, "per_ms": 86_400_000})
    fill(jobs, queue, 40)
    told = at_once([partial(jobs.claim, queue, max=3, worker_id=f"w{number}") for number in range(12)])
    assert sum(len(answer["jobs"]) for answer in told) == 5
    empty = jobs.claim(queue)
    assert (empty["jobs"], empty["defer_ms"]) == ([], 1_000)


def test_an_empty_claim_is_told_when_a_token_comes_back(jobs: Jobs, queue: str) -> None:
    limit(jobs, queue, {"count": 1, "per_ms": 900})
    fill(jobs, queue, 2)
    assert len(jobs.claim(queue, max=2)["jobs"]) == 1
    assert 0 < jobs.claim(queue)["defer_ms"] <= 900


def test_a_queue_without_tokens_does_not_keep_others_waiting(jobs: Jobs, queue: str) -> None:
    limit(jobs, queue, {"count": 1, "per_ms": 86_400_000})
    fill(jobs, queue, 3)
    other = f"{queue}-other"
    fill(jobs, other, 2)
    taken = jobs.claim(queue, other, max=10)["jobs"]
    assert sorted(job["queue"] for job in taken) == [queue, other, other]


def test_a_long_poll_wakes_when_a_token_comes_back(together: Together) -> None:
    """Each job after the first comes with a token, every 1.5 s: more than the second after which polls look anyway."""

    def body(jobs: Jobs, queue: str) -> None:
        limit(jobs, queue, {"count": 1, "per_ms": 1_500})
        fill(jobs, queue, 3)
        began = time.monotonic()
        for _ in range(3):
            [job] = jobs.claim(queue, wait_ms=20_000)["jobs"]
            jobs.complete(job)
        assert time.monotonic() - began >= 2.9, "three jobs started within the time of two tokens"

    together(body)


@pytest.mark.each_store
def test_long_polls_of_many_workers_share_the_tokens(jobs: Jobs, queue: str) -> None:
    limit(jobs, queue, {"count": 2, "per_ms": 86_400_000})
    fill(jobs, queue, 10)
    told = at_once([partial(jobs.claim, queue, wait_ms=300, worker_id=f"w{number}") for number in range(6)])
    assert sorted(len(answer["jobs"]) for answer in told) == [0, 0, 0, 0, 1, 1]


def test_claims_that_a_rate_limit_keeps_empty_are_counted(jobs: Jobs, queue: str) -> None:
    limit(jobs, queue, {"count": 1, "per_ms": 86_400_000})
    fill(jobs, queue, 2)
    jobs.claim(queue)
    before = jobs.metrics()["rate_limited_1m"]
    for _ in jobs.nodes:
        assert jobs.claim(queue)["jobs"] == []
    assert jobs.metrics()["rate_limited_1m"] > before
