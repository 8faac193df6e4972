"""Faults around a running job: strange answers to its heartbeats and its report, dead connections, a worker that stops
too early or too late. The job runs once, and its lease is not lost by the worker's own fault.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from semel.client import AsyncClient, AsyncJob, Worker, errors
from semel.client.errors import LeaseLostError, NoAnswerError, OutcomeUnknown, SemelError, refusal
from semel.client.identity import JobKey
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import Claimed, Lease, Reported
from semel.client.worker import attempt, processes
from semel.client.worker.handler import Handler
from semel.client.worker.lease_keeper import LeaseKeeper
from semel.client.worker.loop import WorkerLoop, WorkerPlan
from semel.client.worker.processes import ProcessEndedError, ProcessPool
from semel.client.worker.threads import Threads
from tests.client.forging_proxy import ForgingProxy, Meddle
from tests.client.jobs_room import open_jobs
from tests.client.names import PATIENCE_SECONDS, fresh
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_loop")

PAGE = (404, b"<html>no such host</html>")
MOVED = (302, b"")


def on_calls(end: str, answers: dict[int, tuple[int, bytes] | float]) -> Meddle:
    """What happens to requests whose path ends so, by their number from 1: an answer, or seconds of silence."""
    count = 0

    def meddle(path: str) -> tuple[int, bytes] | None:
        nonlocal count
        if not path.endswith(end):
            return None
        count += 1
        answer = answers.get(count)
        if isinstance(answer, float):
            time.sleep(answer)
            return None
        return answer

    return meddle


def ran_once(server: RunningServer, meddle: Meddle, seconds: float, *, lease: int) -> None:
    """A job that takes so long runs once and completes, although a proxy meddles."""

    async def main() -> None:
        kind, runs = fresh("kind"), list[int]()
        with ForgingProxy(server.url) as proxy:
            worker = Worker(proxy.url, lease=lease, poll=2.0)

            @worker.job(kind)
            async def work(job: AsyncJob) -> str:
                runs.append(job.attempt)
                await asyncio.sleep(seconds)
                return "done"

            async with open_jobs(server.url) as jobs:
                job_id = (await jobs.submit(kind)).job_id
                proxy.meddle = meddle
                serving = asyncio.create_task(worker.serve())
                try:
                    assert (await jobs.result(job_id, wait=PATIENCE_SECONDS)).result == "done"
                finally:
                    worker.stop()
                    tally = await serving
                assert (runs, (await jobs.get(job_id)).attempt, tally["completed"]) == ([1], 1, 1)

    asyncio.run(main())


@pytest.fixture
def _quick_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "PROXY_SECONDS", 0.1)


@pytest.mark.usefixtures("_quick_reports")
@pytest.mark.parametrize("call", ["/heartbeat", "/complete"])
def test_the_404_of_a_proxy_does_not_end_a_run(server: RunningServer, call: str) -> None:
    first = 2 if call == "/heartbeat" else 1  # the first heartbeat confirms an offer
    ran_once(server, on_calls(call, {first: PAGE, first + 1: PAGE}), 2.5, lease=3)


@pytest.mark.usefixtures("_quick_reports")
def test_the_400_of_a_proxy_does_not_lose_a_result(server: RunningServer) -> None:
    ran_once(server, on_calls("/complete", {1: (400, b"<html>"), 2: (403, b"<html>")}), 0.0, lease=30)


def test_heartbeats_go_on_after_one_that_failed(server: RunningServer) -> None:
    ran_once(server, on_calls("/heartbeat", {2: MOVED}), 5.0, lease=3)


def test_a_heartbeat_without_an_answer_does_not_cost_the_lease(server: RunningServer) -> None:
    ran_once(server, on_calls("/heartbeat", {2: 10.0}), 6.0, lease=3)


async def test_progress_that_changes_later_does_not_end_the_heartbeats(server: RunningServer) -> None:
    kind = fresh("kind")
    worker = Worker(server.url, lease=2, poll=2.0)

    @worker.job(kind)
    async def work(job: AsyncJob) -> str:
        mine: dict[str, Any] = {"done": 1}
        job.progress = mine
        mine["open"] = {"a", "set"}
        await asyncio.sleep(4.0)
        return "done"

    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind)).job_id
        serving = asyncio.create_task(worker.serve())
        assert (await jobs.result(job_id, wait=PATIENCE_SECONDS)).result == "done"
        worker.stop()
        await serving
        job = await jobs.get(job_id)
        assert (job.attempt, job.progress) == (1, {"done": 1})


# -- Stopping ----------------------------------------------------------------------------------------------------------


async def test_a_worker_with_schedules_stops_although_no_server_is_there() -> None:
    worker = Worker("http://127.0.0.1:1")

    @worker.cron("@daily")
    @worker.job(fresh("kind"))
    async def work() -> None: ...

    serving = asyncio.create_task(worker.serve())
    await asyncio.sleep(0.3)
    worker.stop()
    async with asyncio.timeout(20):
        tally = await serving
    assert not any(tally.values())


def lease_of(number: int) -> Lease:
    now = datetime.now(UTC)
    return Lease(f"job_{number}", "r", "k", {}, "q", 5, 1, 1, 1, f"t{number}", 1_000, now, now)


class LostClaims(AsyncJobs):
    """Answers no first claim, and tells the leases of it at the second; the first of them has lapsed."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.given_back: list[str] = []

    @property
    def observer(self) -> None:
        return None

    async def claim(self, worker_id: str, **asked: Any) -> Claimed:
        self.asked.append(asked["claim_id"])
        if len(self.asked) == 1:
            raise OutcomeUnknown("It cannot be read.", JobKey("k"))
        return Claimed((lease_of(1), lease_of(2)), 0.0)

    async def defer(self, lease: Lease, *_: Any, **__: Any) -> Reported:
        if lease.job_id == "job_1":
            raise refusal(409, {"error": "lease_lost", "message": "It has lapsed."})
        self.given_back.append(lease.job_id)
        return Reported(None, False, None, {})


async def test_the_jobs_of_a_claim_that_failed_are_given_back_each_on_its_own() -> None:
    client = LostClaims()
    plan = WorkerPlan("w", None, 2, None, 1.0, 0.0)
    keeper = LeaseKeeper(AsyncClient("http://127.0.0.1:1"))
    loop = WorkerLoop(client, plan, {"k": Handler("k", lambda job: None)}, keeper)
    with pytest.raises(OutcomeUnknown):
        await loop.run(until_idle=False)
    assert (len(client.asked), len(set(client.asked))) == (2, 1), "the claim was not repeated by its id"
    assert client.given_back == ["job_2"]


# -- Threads, steps and processes --------------------------------------------------------------------------------------


async def test_a_function_that_waits_behind_an_abandoned_one_gets_its_thread() -> None:
    threads, stuck = Threads(1), threading.Event()
    held = threads.run(lambda: stuck.wait(PATIENCE_SECONDS))
    behind = threads.run(lambda: "next")
    assert threads.leave(held)
    try:
        async with asyncio.timeout(10):
            assert (await behind).value == "next"
    finally:
        stuck.set()
    await held
    threads.close()


def every_error(kind: type[SemelError] = SemelError) -> Iterator[type[SemelError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from every_error(below)


def test_every_error_can_be_pickled() -> None:
    made: list[SemelError] = [
        refusal(409, {"error": "lease_lost", "message": "It is lost."}),
        refusal(413, {"error": "too_large", "message": "Too large."}),
        NoAnswerError("Lost.", is_unsettled=True),
        OutcomeUnknown("Lost.", JobKey("k")),
        errors.JobFailedError("job_1", {"code": "c", "message": "m"}),
        errors.UnexpectedResultError("job_1", "why", {"a": 1}),
    ]
    for error in made:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
    assert isinstance(made[0], LeaseLostError)
    for kind in every_error():
        bare = kind.__new__(kind, "text")
        bare.args = ("text",)
        assert type(pickle.loads(pickle.dumps(bare))) is kind


def is_there(pid: int | None) -> bool:
    assert pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_pool_that_is_closed_has_ended_its_processes_and_starts_no_more() -> None:
    pool = ProcessPool()
    busy, idle = pool.take(), pool.take()
    pool.give_back(idle)
    pool.close()
    assert not is_there(busy.process.pid)
    assert not is_there(idle.process.pid)
    with pytest.raises(ProcessEndedError):
        pool.take()


def test_a_pool_that_is_closed_waits_for_a_process_that_another_thread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, ends, may_end = ProcessPool(), threading.Event(), threading.Event()
    busy, whole = pool.take(), processes.end

    def slow_end(child: Any) -> None:
        ends.set()
        may_end.wait(PATIENCE_SECONDS)
        whole(child)

    monkeypatch.setattr(processes, "end", slow_end)
    forgets = threading.Thread(target=pool.forget, args=(busy,))
    forgets.start()
    ends.wait(PATIENCE_SECONDS)
    pool.close()
    assert not is_there(busy.process.pid)
    may_end.set()
    forgets.join(PATIENCE_SECONDS)


async def test_a_step_that_is_refused_in_a_process_fails_the_run(server: RunningServer) -> None:
    from tests.client import process_jobs  # noqa: PLC0415 - its workers belong to the tests that configure them

    process_jobs.worker.configure(url=server.url)
    serving = asyncio.create_task(process_jobs.worker.serve())
    try:
        handle = await process_jobs.large_step.submit_async()
        with pytest.raises(errors.JobFailedError, match="TooLargeError"):
            await handle.result(PATIENCE_SECONDS)
    finally:
        process_jobs.worker.stop()
        await serving
        await process_jobs.worker.aclose()
