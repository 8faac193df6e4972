"""A worker that stands still or is cut off swallows no job, although the server has its long poll in hand."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from semel.client import Job, JobRequest, Submitted, Worker
from semel.client.jobs.calls import AsyncJobs
from tests.client.jobs_room import open_jobs
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.harness.server import RunningServer

SETTLE_SECONDS = 1.0
"""Enough for a worker that has just ended a job to ask for the next one."""


@contextmanager
def idle_worker(url: str, file: Path, *kinds: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended, frozen or not."""
    file.touch()
    process = subprocess.Popen([sys.executable, "-m", "tests.client.idle_worker", url, str(file), *kinds])
    try:
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE_SECONDS)


async def _warm(jobs: AsyncJobs, kind: str, file: Path) -> None:
    """Until a worker has run a job of its own kind, and asks for the next one."""
    await jobs.submit(kind, {"name": "warm"})
    await until(lambda: "warm" in file.read_text())
    await asyncio.sleep(SETTLE_SECONDS)


async def test_d1_a_frozen_worker_with_the_older_poll_costs_no_job_and_no_attempt(
    server: RunningServer, tmp_path: Path
) -> None:
    kind, names = fresh("kind"), [f"job {number}" for number in range(3)]
    frozen, healthy = tmp_path / "frozen", tmp_path / "healthy"
    async with open_jobs(server.url) as jobs:
        with idle_worker(server.url, frozen, kind, kind + ".frozen") as first:
            await _warm(jobs, kind + ".frozen", frozen)
            with idle_worker(server.url, healthy, kind, kind + ".healthy"):
                await _warm(jobs, kind + ".healthy", healthy)
                first.send_signal(signal.SIGSTOP)
                asked = [JobRequest(kind, {"name": name}, max_attempts=1, lease=3) for name in names]
                made = [one for one in await jobs.submit_many(asked) if isinstance(one, Submitted)]
                ended = [await jobs.result(one.job_id, wait=PATIENCE_SECONDS) for one in made]
                assert [one.result for one in ended] == ["done"] * 3
                assert [(await jobs.get(one.job_id)).attempt for one in made] == [1, 1, 1]
                # It held the older poll, so it was offered them first.
                assert max([(await jobs.get(one.job_id)).facts["epoch"] for one in made]) > 1
                first.send_signal(signal.SIGCONT)
                await jobs.submit(kind + ".frozen", {"name": "awake"})
                await until(lambda: "awake" in frozen.read_text())
    assert sorted(healthy.read_text().splitlines()[1:]) == names
    assert frozen.read_text().splitlines() == ["warm", "awake"]


def test_d1_the_worker_of_the_sdk_confirms_what_it_is_offered(tmp_path: Path) -> None:
    """A function that takes several times the time of an offer, under a lease whose heartbeats come much later."""

    async def main(url: str) -> None:
        kind, runs = fresh("kind"), list[str]()
        worker = Worker(url, poll=5.0)

        @worker.job(kind)
        def slow(job: Job) -> int:
            runs.append(job.id)
            time.sleep(3.0)
            return job.attempt

        async with open_jobs(url) as jobs:
            serving = asyncio.create_task(worker.serve())
            job = await jobs.submit(kind, max_attempts=1)
            assert (await jobs.result(job.job_id, wait=PATIENCE_SECONDS)).result == 1
            assert (await jobs.get(job.job_id)).facts["epoch"] == 1
            worker.stop()
            await serving
        assert runs == [job.job_id]

    with RunningServer(tmp_path / "data", env={"SEMEL_JOBS_OFFER_SEC": "1"}) as server:
        asyncio.run(main(server.url))
