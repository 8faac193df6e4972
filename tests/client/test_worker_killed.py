"""Workers that are killed at every named point of a run: the job is completed by another one, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from semel.client.jobs.calls import AsyncJobs
from tests.client.jobs_room import open_jobs
from tests.client.mortal_worker import POINTS
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.harness.server import RunningServer

UNCHARGED = ("before-claim", "after-claim", "before-heartbeat")
"""Points before the first heartbeat: an offer that lapses is no attempt."""
DOUBLED = ("effect-done", "before-store_step")
"""Points between an effect and its record: the next run does the step again."""
ENDED = ("after-complete",)


def live(url: str, kind: str, file: Path, point: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.client.mortal_worker", url, kind, str(file), point]
    return subprocess.Popen(command)


async def ended(jobs: AsyncJobs, job_id: str) -> bool:
    return (await jobs.get(job_id)).has_ended


@pytest.mark.parametrize("point", POINTS)
async def test_a_job_survives_its_worker_at(server: RunningServer, tmp_path: Path, point: str) -> None:
    kind, file = fresh("kind"), tmp_path / "effects"
    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind, {"n": 7}, max_attempts=2)).job_id
        with live(server.url, kind, file, point) as first:
            assert await asyncio.to_thread(first.wait, PATIENCE_SECONDS) == -signal.SIGKILL
        assert await ended(jobs, job_id) is (point in ENDED)
        with live(server.url, kind, file, "none") as second:
            await until(lambda: ended(jobs, job_id))
            second.terminate()
        job = await jobs.get(job_id)
        assert job.outcome is not None
        assert (job.outcome.ok, job.outcome.result) == (True, {"first": 8})
        assert job.attempt == (1 if point in (*UNCHARGED, *ENDED) else 2)
        assert file.read_text() == "7\n" * (2 if point in DOUBLED else 1)
