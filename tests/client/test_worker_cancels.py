"""A cancelled job seen from its worker: a handler that raises ends the job, and so does a worker that dies."""

from __future__ import annotations

import asyncio
import time

import pytest

from semel.client import Job, Worker
from tests.client.jobs_room import open_jobs
from tests.client.names import fresh, until
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_loop")


async def test_d2_a_handler_that_raises_on_the_cancel_runs_once(server: RunningServer) -> None:
    kind, runs = fresh("kind"), list[str]()
    worker = Worker(server.url, lease=1, poll=1.0)

    @worker.job(kind)
    def raise_when_asked(job: Job) -> None:
        runs.append(job.id)
        while not job.is_cancelled:
            time.sleep(0.02)
        raise RuntimeError("the owner does not want it any more")

    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind, max_attempts=5)).job_id
        serving = asyncio.create_task(worker.serve())
        try:
            await until(lambda: bool(runs))
            await jobs.cancel(job_id)
            outcome = await jobs.result(job_id, wait=20)
            assert not outcome.ok
            assert (await jobs.get(job_id)).reason == "cancelled"
            assert runs == [job_id]
        finally:
            await jobs.cancel(job_id, force=True)
            worker.stop()
            await serving
