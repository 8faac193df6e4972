"""A worker watches its leases by its own clock, ends what its owner or its limit ends, and gives slots back."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from semel.client import AsyncClient, AsyncJob, Cancelled, Job, Worker
from semel.client.jobs.values import Lease
from semel.client.worker import attempt
from semel.client.worker.attempt import WorkerAttempt, WorkerEnding
from semel.client.worker.handler import Handler
from semel.client.worker.lease_keeper import LeaseKeeper
from semel.client.worker.threads import Threads
from tests.client.conftest import QUICK
from tests.client.jobs_room import open_jobs
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_loop")


def lease(lease_ms: int) -> Lease:
    now = datetime.now(UTC)
    return Lease("job_" + "0" * 32, "r", "k", {}, "q", 5, 1, 1, 1, "t", lease_ms, now, now)


async def test_d4_a_claim_that_is_older_than_its_lease_is_dropped_and_its_function_does_not_begin() -> None:
    began: list[str] = []
    handler = Handler("k", lambda job: began.append(job.id))
    nowhere = AsyncClient("http://127.0.0.1:1")
    async with open_jobs(nowhere.access.url) as client, LeaseKeeper(nowhere) as keeper:
        stale = WorkerAttempt(client, lease(1_000), handler, Threads(1), keeper, time.monotonic() - 1.5)
        assert await stale.run() is WorkerEnding.DROPPED
    assert not began


async def test_d4_a_lease_that_no_heartbeat_renews_is_lost_by_the_workers_clock_and_found_again(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env=QUICK) as server:
        kind, seen, enough = fresh("kind"), list[bool](), threading.Event()
        worker = Worker(server.url, lease=2, poll=5.0)

        @worker.job(kind)
        def watch_the_lease(job: Job) -> str:
            while not enough.is_set():
                seen.append(job.is_lost)
                time.sleep(0.02)
            return "done"

        async with open_jobs(server.url) as jobs:
            job_id = (await jobs.submit(kind)).job_id
            serving = asyncio.create_task(worker.serve())
            try:
                await until(lambda: bool(seen))
                assert not seen[-1]
                await asyncio.to_thread(server.kill)
                await until(lambda: seen[-1])
                await asyncio.to_thread(server.start)
                await until(lambda: not seen[-1])
                enough.set()
                assert (await jobs.result(job_id, wait=20)).result == "done"
            finally:
                enough.set()
                worker.stop()
                await serving


async def test_d2_an_asynchronous_function_is_cancelled_with_its_job(server: RunningServer) -> None:
    kind, runs = fresh("kind"), list[str]()
    worker = Worker(server.url, lease=1, poll=5.0)

    @worker.job(kind)
    async def sleep(job: AsyncJob) -> None:
        runs.append(job.id)
        await asyncio.sleep(PATIENCE_SECONDS)

    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind, max_attempts=5)).job_id
        serving = asyncio.create_task(worker.serve())
        await until(lambda: bool(runs))
        await jobs.cancel(job_id)
        outcome = await jobs.result(job_id, wait=20)
        worker.stop()
        await serving
        assert not outcome.ok
        assert (await jobs.get(job_id)).reason == "cancelled"
        assert runs == [job_id]


async def test_d2_a_function_that_raises_cancelled_ends_its_job(server: RunningServer) -> None:
    kind, runs = fresh("kind"), list[str]()
    worker = Worker(server.url, lease=1, poll=5.0)

    @worker.job(kind)
    def stop_when_asked(job: Job) -> None:
        runs.append(job.id)
        while not job.is_cancelled:
            time.sleep(0.02)
        raise Cancelled("as its owner wants")

    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind, max_attempts=5)).job_id
        serving = asyncio.create_task(worker.serve())
        await until(lambda: bool(runs))
        await jobs.cancel(job_id)
        await jobs.result(job_id, wait=20)
        worker.stop()
        await serving
        assert (await jobs.get(job_id)).reason == "cancelled"
        assert runs == [job_id]


async def test_d2_a_forced_cancel_gives_the_slot_of_a_function_that_goes_on_to_the_next_job(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "CANCEL_SECONDS", 0.2)
    kind, stuck, ended = fresh("kind"), threading.Event(), threading.Event()
    worker = Worker(server.url, lease=1, poll=5.0, concurrency=1)

    @worker.job(kind)
    def go_on(job: Job) -> str:
        if job.params["sticks"]:
            stuck.set()
            ended.wait(PATIENCE_SECONDS)
        return "ran"

    async with open_jobs(server.url) as jobs:
        first = (await jobs.submit(kind, {"sticks": True})).job_id
        serving = asyncio.create_task(worker.serve())
        try:
            await until(stuck.is_set)
            await jobs.cancel(first, force=True)
            second = (await jobs.submit(kind, {"sticks": False})).job_id
            assert (await jobs.result(second, wait=30)).result == "ran"
            assert not ended.is_set()
        finally:
            ended.set()
            worker.stop()
            await serving


@pytest.mark.parametrize("is_async", [True, False])
async def test_d3_a_run_that_takes_longer_than_its_job_may_is_ended_and_gives_its_slot_back(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr(attempt, "CANCEL_SECONDS", 0.2)
    kind, over = fresh("kind"), threading.Event()
    worker = Worker(server.url, lease=2, poll=5.0, concurrency=1)

    async def sleep(job: AsyncJob) -> str:
        if job.params["sticks"]:
            await asyncio.sleep(PATIENCE_SECONDS)
        return "ran"

    def block(job: Job) -> str:
        if job.params["sticks"]:
            over.wait(PATIENCE_SECONDS)
        return "ran"

    if is_async:
        worker.job(kind)(sleep)
    else:
        worker.job(kind)(block)
    async with open_jobs(server.url) as jobs:
        stuck = (await jobs.submit(kind, {"sticks": True}, max_attempts=1, timeout=1.0)).job_id
        serving = asyncio.create_task(worker.serve())
        try:
            outcome = await jobs.result(stuck, wait=30)
            assert not outcome.ok
            assert outcome.error is not None
            assert outcome.error["code"] == "timeout"
            other = (await jobs.submit(kind, {"sticks": False})).job_id
            assert (await jobs.result(other, wait=30)).result == "ran"
        finally:
            over.set()
            worker.stop()
            await serving
