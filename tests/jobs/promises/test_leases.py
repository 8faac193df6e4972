"""Claims, leases and their ends: who holds a job, who is told so, and what becomes of workers that come late.

Jobs whose leases must run out are claimed together once, so that all tests wait for the same second.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from http.client import HTTPConnection

import pytest

from tests.harness.server import HOST
from tests.harness.together import STOOD_STILL, at_once, eventually, in_time, log_of, unless_late
from tests.jobs.wire import (
    CLAIM,
    PATH,
    PATIENCE_SECONDS,
    Answer,
    Jobs,
    Message,
    Together,
    fresh,
    ms_of,
)
from tests.stores import each

LEASE_SECONDS = 1
LONG_POLL_MS = 30_000
"""As long as one may last: whoever is answered earlier was not answered because the time was up."""
FENCED, REAPED = "LEASE_FENCED", "LEASE_REAP"
LOST = ("zombie", "reaped", "twice", "doomed", "once", "steps")


class Lost:
    """Jobs whose first worker has gone silent: what was submitted and what that worker holds, by the test's name."""

    def __init__(self, jobs: Jobs) -> None:
        self.queue = {name: fresh(f"lost-{name}") for name in LOST}
        self.key = {name: fresh("key") for name in LOST}
        budget = {"doomed": 2, "once": 1, "steps": 50}
        for name in LOST:
            jobs.submit(
                "k",
                {"name": name},
                key=self.key[name],
                queue=self.queue[name],
                max_attempts=budget.get(name, 5),
            )
        # Only the first leases are short: those who come next have time.
        self.job = {name: self._lease(jobs, name) for name in LOST if name != "steps"}
        self.job["steps"] = self._lease(jobs, "steps")
        while jobs.step(self.job["steps"], "paid", {"receipt": 1}, expect=None).http != 200:
            self.job["steps"] = self._lease(jobs, "steps")  # it came too late
        for name in LOST:
            wanted = "failed" if name == "once" else "queued"
            wait_for_state(jobs, self.job[name]["job_id"], wanted)
        self.doomed = self._lease(jobs, "doomed")
        wait_for_state(jobs, self.doomed["job_id"], "failed")

    def _lease(self, jobs: Jobs, name: str) -> Message:
        return jobs.claim_one(self.queue[name], worker_id="silent", lease_sec=LEASE_SECONDS)


def wait_for_state(jobs: Jobs, job_id: str, state: str) -> None:
    eventually(lambda: bool(jobs.get(job_id)["state"] == state), f"{job_id} is {state}")


@pytest.fixture(scope="module")
def all_lost(every_store: Callable[[str], Jobs]) -> dict[Jobs, Lost]:
    servers = [every_store(store) for store in each.STORES]
    return dict(zip(servers, at_once([partial(Lost, one) for one in servers]), strict=True))


@pytest.fixture
def lost(all_lost: dict[Jobs, Lost], jobs: Jobs) -> Lost:
    return all_lost[jobs]


# -- leases that ran out ----------------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_16_a_silent_worker_loses_its_job_and_the_next_gets_the_same(jobs: Jobs, lost: Lost) -> None:
    first = lost.job["reaped"]
    assert jobs.submit("k", {"name": "reaped"}, key=lost.key["reaped"])["status"] == "in_progress"
    line = jobs.audited(REAPED, job_id=first["job_id"])
    assert (line["attempt"], line["worker_id"]) == (1, "silent")
    second = jobs.claim_one(lost.queue["reaped"])
    assert (second["job_id"], second["attempt"], second["epoch"]) == (first["job_id"], 2, 2)
    assert second["lease_token"] != first["lease_token"]
    assert second["request_id"] == first["request_id"]
    hit = jobs.submit("k", {"name": "reaped"}, key=lost.key["reaped"])
    assert (hit["status"], hit["state"], hit["job_id"]) == ("in_progress", "leased", first["job_id"])
    jobs.complete(second, "second")


@pytest.mark.each_store
def test_17_a_zombie_is_turned_away_before_and_after_the_next_claim(jobs: Jobs, lost: Lost) -> None:
    zombie, queue = lost.job["zombie"], lost.queue["zombie"]
    counted = jobs.prometheus()["semel_jobs_lease_fenced_total"]
    assert jobs.complete(zombie, "zombie", expect=409)["error"] == "lease_lost"
    [line] = jobs.audited_first(FENCED, job_id=zombie["job_id"])
    assert {"worker_id", "remote_addr"} <= set(line)
    second = jobs.claim_one(queue)
    for refused in (
        jobs.complete(zombie, "zombie", expect=409),
        jobs.fail(zombie, expect=409),
        jobs.fail(zombie, retryable=False, expect=409),
        jobs.defer(zombie, expect=409),
        jobs.heartbeat(zombie, expect=409),
        jobs.step(zombie, "paid", 1, expect=409),
        jobs.report(zombie["job_id"], result="zombie", lease_token=zombie["lease_token"], expect=409),
    ):
        assert refused["error"] == "lease_lost"
    assert jobs.get(zombie["job_id"])["state"] == "leased"
    jobs.complete(second, "second")
    late = jobs.complete(zombie, "zombie", expect=409)
    assert (late["error"], late["status"]) == ("lease_lost", "completed")
    assert jobs.complete(zombie, "second", expect=409)["error"] == "lease_lost"
    assert jobs.result(zombie["job_id"])["result"] == "second"
    if STOOD_STILL in log_of(jobs.server):
        eventually(lambda: len(jobs.audit(FENCED, job_id=zombie["job_id"])) >= 4, "four audit lines")
    assert len(jobs.audit(FENCED, job_id=zombie["job_id"])) >= 4
    assert jobs.prometheus()["semel_jobs_lease_fenced_total"] - counted >= 4


@pytest.mark.each_store
def test_18_one_name_may_hold_two_attempts_and_only_the_second_counts(jobs: Jobs, lost: Lost) -> None:
    first = lost.job["twice"]
    second = jobs.claim_one(lost.queue["twice"], worker_id="silent")
    assert jobs.complete(first, "first", expect=409)["error"] == "lease_lost"
    assert jobs.heartbeat(second)["cancel_requested"] is False
    jobs.complete(second, "second")
    assert jobs.result(first["job_id"])["result"] == "second"


@pytest.mark.each_store
def test_23_a_job_that_kills_its_workers_ends(jobs: Jobs, lost: Lost) -> None:
    once = jobs.submit("k", {"name": "once"}, key=lost.key["once"])
    assert (once["status"], once["attempt"]) == ("failed", 1)
    assert once["cached_result"]["error"]["outcome"] == "unknown"
    assert jobs.get(once["job_id"])["reason"] == "lease_exhausted"
    assert jobs.claim(lost.queue["once"])["jobs"] == []
    assert jobs.complete(lost.job["once"], 1, expect=409)["status"] == "failed"

    second = lost.doomed
    assert second["attempt"] == second["max_attempts"] == 2
    doomed = jobs.submit("k", {"name": "doomed"}, key=lost.key["doomed"])
    assert (doomed["status"], doomed["cached_result"]["error"]["outcome"]) == ("failed", "unknown")
    job = jobs.get(second["job_id"])
    assert (job["reason"], job["attempt"]) == ("lease_exhausted", 2)
    jobs.audited("DLQ_ENQUEUE", job_id=second["job_id"], reason="lease_exhausted")
    assert {once["job_id"], second["job_id"]} <= set(jobs.dead_ids())


@pytest.mark.each_store
def test_steps_outlive_the_attempt_that_stored_them(jobs: Jobs, lost: Lost) -> None:
    second = jobs.claim_one(lost.queue["steps"])
    assert jobs.step(second, "paid").items() >= {"known": True, "result": {"receipt": 1}}.items()
    again = jobs.step(second, "paid", {"receipt": 2})
    assert (again["dedup"], again["result"]) == (True, {"receipt": 1})
    jobs.complete(second)


def test_19_heartbeats_hold_a_lease_for_as_long_as_they_come(together: Together) -> None:
    together(lambda jobs, _: in_time(partial(hold_a_lease, jobs), LEASE_SECONDS))


def hold_a_lease(jobs: Jobs, lease_seconds: float) -> None:
    queue = fresh("queue")
    jobs.submit("k", queue=queue, lease_sec=lease_seconds)
    begun = asked = time.monotonic()
    job = jobs.claim_one(queue)
    until = ms_of(job["lease_until_utc"])
    with unless_late(lambda: asked, lease_seconds):
        while time.monotonic() < begun + 1.6 * lease_seconds:
            now = time.monotonic()
            beat = jobs.heartbeat(job, progress={"percent": 5})
            asked = now
            assert ms_of(beat["lease_until_utc"]) >= until
            until = ms_of(beat["lease_until_utc"])
            assert jobs.claim(queue)["jobs"] == []
            time.sleep(lease_seconds / 5)
        seen = jobs.get(job["job_id"])
        assert (seen["state"], seen["attempt"], seen["epoch"], seen["progress"]) == ("leased", 1, 1, {"percent": 5})
        jobs.complete(job, "alive")
    assert jobs.audit(REAPED, job_id=job["job_id"]) == []


def test_a_claim_may_shorten_a_lease_and_never_lengthen_it(jobs: Jobs, queue: str) -> None:
    for _ in range(2):
        jobs.submit("k", queue=queue, lease_sec=60)
    short, long = jobs.claim_one(queue, lease_sec=5), jobs.claim_one(queue, lease_sec=600)
    assert short["lease_ms"] == 5_000
    assert long["lease_ms"] == 60_000


# -- reports ----------------------------------------------------------------------------------------------------------


def test_18_a_repeated_report_is_answered_and_another_result_is_refused(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    jobs.submit("k", key=key, queue=queue)
    job = jobs.claim_one(queue)
    first = jobs.complete(job, {"n": 1, "m": 2})
    again = [jobs.complete(job, {"m": 2.0, "n": 1}), jobs.complete(job, {"n": 1, "m": 2})]
    again.append(jobs.report(job["job_id"], result={"n": 1, "m": 2}, lease_token=job["lease_token"]))
    assert first["dedup"] is False
    assert {(one["dedup"], one["result_sha256"]) for one in again} == {(True, first["result_sha256"])}
    for refused in (
        jobs.complete(job, {"n": 2}, expect=409),
        jobs.fail(job, expect=409),
        jobs.fail(job, retryable=False, expect=409),
    ):
        assert refused["error"] == "result_conflict"
    assert jobs.audited_first("RESULT_CONFLICT", job_id=job["job_id"])
    assert jobs.submit("k", key=key)["cached_result"]["result"] == {"n": 1, "m": 2}


def test_18_a_repeated_fail_or_defer_is_answered(jobs: Jobs, queue: str) -> None:
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    failed = [jobs.fail(job, retry_after_ms=0) for _ in range(3)]
    assert [one.get("dedup", False) for one in failed] == [False, True, True]
    assert {one["next_run_utc"] for one in failed} == {failed[0]["next_run_utc"]}
    job = jobs.claim_one(queue)
    assert job["attempt"] == 2
    deferred = [jobs.defer(job, 0) for _ in range(3)]
    assert [one.get("dedup", False) for one in deferred] == [False, True, True]
    assert jobs.complete(job, 1, expect=409)["error"] == "lease_lost"
    assert jobs.get(job["job_id"])["deferrals"] == 1
    job = jobs.claim_one(queue)
    assert (job["attempt"], job["epoch"]) == (2, 3)
    last = [jobs.fail(job, "boom", "no", retryable=False) for _ in range(2)]
    assert [(one["status"], one.get("dedup", False)) for one in last] == [("failed", False), ("failed", True)]
    assert jobs.fail(job, "other", "no", retryable=False, expect=409)["error"] == "result_conflict"


def test_an_outside_completion_is_taken_once_and_only_before_the_first_claim(jobs: Jobs, queue: str) -> None:
    """Before a first claim there is no zombie; after it a token is needed, even if the job waits again."""
    unclaimed, claimed = jobs.submit("k", queue=queue), jobs.submit("k", queue=fresh("other"))
    assert jobs.report(unclaimed["job_id"], result=1)["dedup"] is False
    assert jobs.report(unclaimed["job_id"], result=1)["dedup"] is True
    assert jobs.report(unclaimed["job_id"], result=2, expect=409)["error"] == "result_conflict"
    assert jobs.claim(queue)["jobs"] == []
    job = jobs.claim_one(jobs.get(claimed["job_id"])["queue"])
    assert jobs.report(job["job_id"], result=1, expect=409)["error"] == "lease_required"
    jobs.defer(job, 0)
    assert jobs.report(job["job_id"], result=1, expect=409)["error"] == "lease_required"
    job = jobs.claim_one(job["queue"])
    assert jobs.report(job["job_id"], result=1, lease_token=job["lease_token"], path="/mesh/submit_result")["ok"]
    assert jobs.report(job["job_id"], result=1, expect=409)["error"] in ("lease_required", "lease_lost")


def test_an_outside_failure_is_an_end_too(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    first = jobs.submit("k", key=key, queue=queue)
    error = {"code": "boom", "message": "no"}
    answer = jobs.report(first["job_id"], ok=False, error=error, retryable=False)
    assert answer["status"] == "failed"
    assert jobs.submit("k", key=key)["cached_result"]["error"].items() >= error.items()


# -- claims -----------------------------------------------------------------------------------------------------------


def test_20_a_lost_claim_is_asked_for_again(jobs: Jobs, queue: str) -> None:
    for _ in range(5):
        jobs.submit("k", queue=queue)
    claim_id = fresh("claim")
    first = jobs.claim(queue, max=3, claim_id=claim_id)["jobs"]
    again = jobs.claim(queue, max=3, claim_id=claim_id)["jobs"]
    told = ("job_id", "lease_token", "attempt", "epoch")
    assert [[job[name] for name in told] for job in again] == [[job[name] for name in told] for job in first]
    assert [job["attempt"] for job in again] == [1, 1, 1]
    other = jobs.claim(queue, max=3, claim_id=fresh("claim"))["jobs"]
    assert len(other) == 2
    assert jobs.claim(queue, max=3, claim_id=claim_id, worker_id="another")["jobs"] == []
    jobs.complete(first[0], 1)
    rest = jobs.claim(queue, max=3, claim_id=claim_id)["jobs"]
    assert [job["job_id"] for job in rest] == [job["job_id"] for job in first[1:]]


def test_24_order_is_priority_then_readiness(together: Together) -> None:
    def check(jobs: Jobs, queue: str) -> None:
        later = jobs.submit("k", queue=queue, priority="critical", delay_ms=3_600_000)
        for priority in (9, 4, 0, 4, "low", "high"):
            jobs.submit("k", {"priority": priority}, queue=queue, priority=priority)
        claimed = jobs.claim(queue, max=10)["jobs"]
        assert [job["params"]["priority"] for job in claimed] == [0, "high", 4, 4, "low", 9]
        same = [job for job in claimed if job["priority"] == 4]
        assert ms_of(same[0]["created_utc"]) <= ms_of(same[1]["created_utc"])
        assert later["state"] == "scheduled"
        soon = jobs.submit("k", queue=queue, priority="critical", delay_ms=300)
        run_at = ms_of(jobs.get(soon["job_id"])["run_at_utc"])
        delayed = jobs.claim_one(queue)
        assert (delayed["job_id"], delayed["priority"]) == (soon["job_id"], 0)
        assert ms_of(delayed["lease_until_utc"]) - delayed["offer_ms"] >= run_at

    together(check)


def test_24_a_delayed_job_takes_its_place_by_its_ready_instant(together: Together) -> None:
    together(lambda jobs, _: in_time(partial(submit_around_a_delay, jobs), 0.25))


def submit_around_a_delay(jobs: Jobs, seconds: float) -> None:
    queue, asked = fresh("queue"), time.monotonic()
    delayed = jobs.submit("delayed", queue=queue, delay_ms=round(seconds * 1_000))
    with unless_late(lambda: asked, seconds):
        early = jobs.submit("early", queue=queue)
        assert early_enough(jobs, early, delayed)
    eventually(lambda: bool(jobs.get(delayed["job_id"])["state"] == "queued"), "the delay is over")
    jobs.submit("late", queue=queue)
    claimed = jobs.claim(queue, max=10)["jobs"]
    assert [job["kind"] for job in claimed] == ["early", "delayed", "late"]
    assert claimed[1]["job_id"] == delayed["job_id"]


def early_enough(jobs: Jobs, early: Message, delayed: Message) -> bool:
    """Whether the one was ready before the other."""
    first, second = (ms_of(jobs.get(one["job_id"])["run_at_utc"]) for one in (early, delayed))
    return first < second


def test_24_a_deferral_costs_no_attempt(jobs: Jobs, queue: str) -> None:
    first = jobs.submit("k", queue=queue, max_attempts=1)
    for number in range(1, 4):
        job = jobs.claim_one(queue)
        assert (job["attempt"], job["epoch"]) == (1, number)
        jobs.defer(job, 0, reason="not yet")
    job = jobs.claim_one(queue)
    assert (job["job_id"], job["attempt"], job["epoch"]) == (first["job_id"], 1, 4)
    jobs.complete(job, "at last")
    seen = jobs.get(job["job_id"])
    assert (seen["state"], seen["deferrals"], seen["attempt"]) == ("completed", 3, 1)


def test_a_deferred_job_waits_for_its_instant(jobs: Jobs, queue: str) -> None:
    jobs.submit("k", queue=queue)
    deferred = jobs.defer(jobs.claim_one(queue), 3_600_000)
    job = jobs.page(queue=queue)["jobs"][0]
    assert job["state"] == "scheduled"
    assert jobs.get(job["job_id"])["run_at_utc"] == deferred["next_run_utc"]
    assert jobs.claim(queue)["jobs"] == []


def test_claims_keep_to_their_kinds_and_queues(jobs: Jobs, queue: str) -> None:
    other = fresh("queue")
    for kind in ("a", "b", "c"):
        jobs.submit(kind, queue=queue)
        jobs.submit(kind, queue=other)
    taken = jobs.claim(queue, kinds=["b", "c"], max=10)["jobs"]
    assert [(job["kind"], job["queue"]) for job in taken] == [("b", queue), ("c", queue)]
    taken = jobs.claim(queue, other, max=10)["jobs"]
    assert [(job["kind"], job["queue"]) for job in taken] == [("a", queue), ("a", other), ("b", other), ("c", other)]


def test_an_empty_claim_says_when_to_come_back(jobs: Jobs, queue: str) -> None:
    assert jobs.claim(queue)["defer_ms"] == 1_000
    assert jobs.claim(queue, wait_ms=50)["defer_ms"] == 0
    assert jobs.claim(queue, path=CLAIM)["jobs"] == []


# -- long polls -------------------------------------------------------------------------------------------------------


def test_21_a_long_poll_ends_with_the_first_job(together: Together) -> None:
    def check(jobs: Jobs, queue: str) -> None:
        with ThreadPoolExecutor(1) as pool:
            started = time.monotonic()
            waiting = pool.submit(jobs.claim, queue, max=10, wait_ms=LONG_POLL_MS)
            time.sleep(0.3)
            assert not waiting.done()
            first = jobs.submit("k", queue=queue)
            [job] = waiting.result()["jobs"]
            assert time.monotonic() - started < LONG_POLL_MS / 1_000
        assert (job["job_id"], job["attempt"]) == (first["job_id"], 1)

    together(check)


def test_21_a_long_poll_sees_a_job_become_ready(together: Together) -> None:
    """By time: nobody submits anything while it waits."""

    def check(jobs: Jobs, queue: str) -> None:
        first = jobs.submit("k", queue=queue, delay_ms=300)
        started = time.monotonic()
        [job] = jobs.claim(queue, wait_ms=LONG_POLL_MS)["jobs"]
        assert time.monotonic() - started < LONG_POLL_MS / 1_000
        assert job["job_id"] == first["job_id"]

    together(check)


def test_21_of_fifty_waiters_one_gets_the_job(together: Together) -> None:
    def check(jobs: Jobs, queue: str) -> None:
        is_taken = threading.Event()
        answers: list[Answer] = []

        def wait(number: int) -> None:
            """Until somebody has it: on a slow machine the job may come after the first wait."""
            while True:
                answers.append(jobs.claim(queue, wait_ms=900, worker_id=f"w{number}"))
                if answers[-1]["jobs"]:
                    is_taken.set()
                if is_taken.is_set():
                    return

        with ThreadPoolExecutor(50) as pool:
            waiting = [pool.submit(wait, number) for number in range(50)]
            time.sleep(0.3)
            first = jobs.submit("k", queue=queue)
            for one in waiting:
                one.result(PATIENCE_SECONDS)
        taken = [job["job_id"] for answer in answers for job in answer["jobs"]]
        assert taken == [first["job_id"]]
        empty = [answer["defer_ms"] for answer in answers if not answer["jobs"]]
        assert len(empty) >= 49
        assert set(empty) == {0}

    together(check)


def test_21_a_waiter_that_hung_up_gets_nothing(together: Together) -> None:
    def check(jobs: Jobs, queue: str) -> None:
        body = json.dumps({"worker_id": "gone", "queues": [queue], "wait_ms": 20_000}).encode()
        for node in jobs.nodes:
            with socket.create_connection((HOST, node.port)) as gone:
                head = f"POST {PATH}/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                time.sleep(0.1)
        time.sleep(0.1)
        first = jobs.submit("k", queue=queue)
        job = jobs.claim_one(queue)
        assert (job["job_id"], job["attempt"], job["epoch"]) == (first["job_id"], 1, 1)

    together(check)


def test_long_polls_of_other_queues_sleep_on(together: Together) -> None:
    def check(jobs: Jobs, queue: str) -> None:
        other = fresh("queue")
        with ThreadPoolExecutor(2) as pool:
            elsewhere = pool.submit(jobs.claim, other, wait_ms=700)
            kinds = pool.submit(jobs.claim, queue, kinds=["wanted"], wait_ms=700)
            time.sleep(0.1)
            jobs.submit("unwanted", queue=queue)
            assert (elsewhere.result()["jobs"], kinds.result()["jobs"]) == ([], [])
        assert jobs.claim_one(queue)["kind"] == "unwanted"

    together(check)


def test_waiters_are_served_first_come_first(jobs: Jobs, queue: str) -> None:
    """On one node; among several nobody can tell who came first."""
    with ExitStack() as stack:
        waiting = []
        for number in range(4):
            connection = stack.enter_context(closing(HTTPConnection(HOST, jobs.server.port, timeout=PATIENCE_SECONDS)))
            body = json.dumps({"worker_id": f"w{number}", "queues": [queue], "wait_ms": 30_000})
            connection.request("POST", f"{PATH}/claim", body, {"Content-Type": "application/json"})
            jobs.page(queue=queue)  # what was asked before this is with the server
            waiting.append(connection)
        for connection in waiting:
            submitted = jobs.submit("k", queue=queue)
            [job] = json.loads(connection.getresponse().read())["jobs"]
            assert job["job_id"] == submitted["job_id"]
