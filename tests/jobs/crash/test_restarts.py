"""Restarts and crashes: what a client that repeats its call is told by the next life, and what becomes of leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.harness.postgres.proxy import Proxy
from tests.harness.postgres.shared import fresh_url, shared_cluster
from tests.harness.server import STOP_SECONDS, RunningServer
from tests.harness.together import TRIES, eventually, in_time, unless_late
from tests.jobs.wire import PATH, Answer, Jobs, Message, fresh, read_answer, serving
from tests.server.test_faults import FaultyServer

LEASE_SECONDS = 2
WAIT_MS = 30_000
ORDER = "die"
BEFORE, AFTER = "flushed", "committed"
"""The last point at which nothing is stored yet, and the first at which all is, with nobody told."""
LIVE = "semel_live_readers"


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server that dies where a file says, as soon as the file is there."""
    folder = tmp_path_factory.mktemp("mortal")
    env = {"SEMEL_CRASH_FILE": str(folder / ORDER)}
    with serving(folder / "data", store="sqlite", env=env, clean=False) as jobs:
        yield jobs


def dies(jobs: Jobs, point: str, call: Callable[[], object], is_stored: Callable[[], bool]) -> None:
    """Make the call in a life that ends at this point of its commit, then begin another life.

    A server that renews leases commits something of its own, and may die of that before the call has come: then all of
    it happens again.
    """
    server = jobs.server
    assert isinstance(server, RunningServer)
    order = server.data.parent / ORDER
    for _ in range(TRIES):
        order.write_text(point)
        eventually(partial(_is_dead_after, server, call), f"the server dies at {point}")
        order.unlink(missing_ok=True)
        server.start()
        if is_stored() is (point == AFTER):
            return
    raise AssertionError(f"what was done up to {point} is {'not ' if point == AFTER else ''}there")


def _is_dead_after(server: RunningServer, call: Callable[[], object]) -> bool:
    """A connection that broke by itself has not brought the call to the server."""
    with pytest.raises(httpx.TransportError):
        call()
    code = server.wait_for_death(1.0)
    assert code in (-9, None)
    return code is not None


# -- the crash table --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_8_a_submission_around_its_commit(mortal: Jobs, queue: str, point: str) -> None:
    submit = partial(mortal.submit, "k", {"n": 1}, key=fresh("key"), queue=queue)
    dies(mortal, point, submit, lambda: len(mortal.page(queue=queue)["jobs"]) == 1)
    again = submit()
    told = (again["status"], again["dedup"])
    assert told == (("accepted", False) if point == BEFORE else ("in_progress", True))
    job = mortal.claim_one(queue)
    assert (job["job_id"], job["attempt"]) == (again["job_id"], 1)
    assert mortal.claim(queue)["jobs"] == []


def test_8_and_20_a_claim_that_was_committed_and_not_answered(mortal: Jobs, queue: str) -> None:
    first = mortal.submit("k", {}, queue=queue)
    claim = partial(mortal.claim, queue, claim_id=fresh("claim"), worker_id="w")
    dies(mortal, AFTER, claim, lambda: bool(mortal.get(first["job_id"])["state"] == "leased"))
    assert mortal.claim(queue, worker_id="w", claim_id=fresh("claim"))["jobs"] == []
    [job] = claim()["jobs"]
    assert (job["job_id"], job["attempt"], job["epoch"]) == (first["job_id"], 1, 1)
    mortal.complete(job, 1)


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_8_a_completion_around_its_commit(mortal: Jobs, queue: str, point: str) -> None:
    """The token is good in the next life; the other worker's lease is, too."""
    key = fresh("key")
    for number in range(2):
        mortal.submit("k", {}, key=f"{key}-{number}", queue=queue)
    job, other = mortal.claim(queue, max=2)["jobs"]
    mortal.step(job, "s", 1)

    def is_completed() -> bool:
        return bool(mortal.submit("k", {}, key=f"{key}-0")["status"] == "completed")

    dies(mortal, point, partial(mortal.complete, job, "result"), is_completed)
    if point == BEFORE:
        assert mortal.step(job, "s")["result"] == 1
    assert mortal.complete(job, "result")["dedup"] is (point == AFTER)
    assert mortal.complete(job, "another", expect=409)["error"] == "result_conflict"
    assert mortal.heartbeat(other)["cancel_requested"] is False
    assert mortal.complete(other, "result")["dedup"] is False
    assert mortal.submit("k", {}, key=f"{key}-1")["cached_result"]["result"] == "result"


# -- leases over an outage --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def outages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Future[None]]]:
    """Begun before the other tests of this module, because most of it is waiting."""
    stores = ("sqlite", "postgres") if any("test_19_an_outage" in item.name for item in request.session.items) else ()
    folder = tmp_path_factory.mktemp("outage")
    with ThreadPoolExecutor(2) as pool:
        yield [pool.submit(in_time, partial(outlive_an_outage, folder, store), LEASE_SECONDS) for store in stores]


def outlive_an_outage(folder: Path, store: str, lease_seconds: float) -> None:
    with serving(folder / f"{store}-{lease_seconds}", store=store, nodes=1, clean=False) as jobs:
        for _ in range(2):
            jobs.submit("k", {}, lease_sec=lease_seconds)
        held_at = time.monotonic()
        job, silent = jobs.claim(max=2)["jobs"]
        beats = [0, 0]
        """Those that were answered before the new life and after."""
        stop, is_back = threading.Event(), threading.Event()

        def since() -> float:
            return held_at

        def work() -> None:
            nonlocal held_at
            while not stop.wait(lease_seconds / 8):
                asked_at = time.monotonic()
                # Between two lives nobody answers.
                with unless_late(since, lease_seconds), suppress(httpx.TransportError):
                    assert jobs.heartbeat(job)["cancel_requested"] is False
                    held_at = max(held_at, asked_at)
                    beats[is_back.is_set()] += 1

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            try:
                eventually(lambda: beats[0] >= 2 or working.done(), "heartbeats are answered")
                jobs.server.kill()
                time.sleep(2 * lease_seconds)
                held_at = time.monotonic()  # the next life begins with a full lease
                jobs.server.start()
                is_back.set()
                time.sleep(1.3 * lease_seconds)
                eventually(lambda: beats[1] >= 2 or working.done(), "heartbeats are answered again")
            finally:
                stop.set()
            working.result()
        with unless_late(since, lease_seconds):
            jobs.complete(job, "alive")
        assert jobs.audit("LEASE_REAP", job_id=job["job_id"]) == []
        seen = jobs.get(job["job_id"])
        assert (seen["attempt"], seen["epoch"], seen["state"]) == (1, 1, "completed")
        # The other worker has not come back, and loses its job after one more lease.
        again = jobs.claim_one()
        assert (again["job_id"], again["attempt"]) == (silent["job_id"], 2)


# -- an orderly stop --------------------------------------------------------------------------------------------------


def test_21_those_who_wait_are_answered_at_a_stop(tmp_path: Path, queue: str) -> None:
    with serving(tmp_path / "data", store="memory") as jobs, ThreadPoolExecutor(3) as pool:
        first = jobs.submit("k", {}, queue="other")
        started, others = time.monotonic(), jobs.prometheus()[LIVE]
        waiting: list[Future[Answer]] = [
            pool.submit(jobs.claim, queue, wait_ms=WAIT_MS),
            pool.submit(jobs.get, first["job_id"], wait_ms=WAIT_MS),
            pool.submit(partial(jobs.submit, "k", {}, key=fresh("key"), queue="other", wait_ms=WAIT_MS)),
        ]
        # A claim that waits listens for jobs, and for the silence of its worker.
        eventually(lambda: jobs.prometheus()[LIVE] == others + len(waiting) + 1, "all of them wait")
        assert len(jobs.page(queue="other")["jobs"]) == 2
        assert isinstance(jobs.server, RunningServer)
        jobs.server.stop()
        poll, read, submitted = [one.result() for one in waiting]
        # Had it taken their time to be up, it would have taken that long.
        assert time.monotonic() - started < WAIT_MS / 1_000
    assert poll["jobs"] == []
    assert read["state"] == "queued"
    assert (submitted["status"], submitted["dedup"]) == ("accepted", False)


# -- a commit that never was ------------------------------------------------------------------------------------------


def test_9_when_the_winners_commit_fails_a_twin_wins_and_nobody_hears_of_a_phantom(tmp_path: Path, queue: str) -> None:
    """The connection to the database is cut between the decision and COMMIT, with twins waiting behind.

    On a slow machine the twins may be in the commit that fails: then nobody is answered, and others try.
    """
    with Proxy(shared_cluster().port) as proxy:
        url = fresh_url(lanes="1", patience_ms="20000").replace(f":{shared_cluster().port}/", f":{proxy.port}/")
        env = {"SEMEL_STORE": url, "SEMEL_COMMIT_DELAY_MS": "250"}
        with serving(tmp_path / "data", store="sqlite", env=env, clean=False) as jobs, ThreadPoolExecutor(4) as pool:
            jobs.submit("warm", {}, queue="warm")
            is_answered = False
            for number in range(TRIES):
                key, own = fresh("key"), f"{queue}-{number}"
                submit = partial(jobs.submit, "k", {}, key=key, queue=own, expect=None)
                answers = [pool.submit(submit)]
                time.sleep(0.12)
                answers += [pool.submit(submit) for _ in range(3)]
                proxy.cut_all(and_stay_away=False)
                told = [answer.result() for answer in answers]
                check_no_phantom(jobs, told, jobs.submit("k", {}, key=key, queue=own), own)
                is_answered = any(answer.http == 200 for answer in told)
                if is_answered:
                    break
            assert is_answered, "nobody was answered: the run has shown nothing"


def test_a_commit_whose_end_is_unknown_is_told_so_and_the_next_life_knows(tmp_path: Path, queue: str) -> None:
    """The disk fails under the commit: every caller hears that nobody knows, and a fresh start reads what is there."""
    server = FaultyServer(tmp_path)
    with httpx.Client(base_url=server.url, timeout=20) as client:
        body = {"kind": "k", "queue": queue}
        first = read_answer(client.post(PATH, json=body | {"idempotency_key": "before"}))
        server.break_disk("sync")
        broken = read_answer(client.post(PATH, json=body | {"idempotency_key": "during"}))
    assert (broken.http, broken["error"]) == (503, "not_durable")
    assert "job_id" not in broken
    assert server.process.wait(STOP_SECONDS) == 1
    with serving(tmp_path / "data", store="sqlite") as jobs:
        assert jobs.submit("k", key="before", queue=queue)["job_id"] == first["job_id"]
        again = jobs.submit("k", key="during", queue=queue)
        assert jobs.submit("k", key="during", queue=queue)["job_id"] == again["job_id"]
        assert len(jobs.page(queue=queue)["jobs"]) == 2


def check_no_phantom(jobs: Jobs, told: list[Answer], last: Message, queue: str) -> None:
    assert {answer.http for answer in told} <= {200, 503}, [dict(answer) for answer in told]
    assert {answer["error"] for answer in told if answer.http == 503} <= {"not_stored", "not_durable"}
    answered = [answer for answer in told if answer.http == 200]
    assert {answer["job_id"] for answer in answered} <= {last["job_id"]}
    assert [answer["status"] for answer in answered].count("accepted") <= 1
    assert [job["job_id"] for job in jobs.page(queue=queue)["jobs"]] == [last["job_id"]]


# -- the end of what began first --------------------------------------------------------------------------------------


def test_19_an_outage_of_two_leases_takes_no_job_from_its_worker(outages: list[Future[None]]) -> None:
    """On both stores that outlive a server."""
    assert [outage.result() for outage in outages] == [None, None]
