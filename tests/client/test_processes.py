"""Functions in processes: spawned, talked to, killed at a time limit and with a lost lease, and replaced."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from semel.client import ConfigurationError, JobFailedError, Worker
from tests.client import process_jobs
from tests.client.jobs_room import open_jobs
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_loop")


@pytest.fixture
def worker(server: RunningServer) -> Iterator[Worker]:
    process_jobs.worker.configure(url=server.url)
    yield process_jobs.worker
    process_jobs.worker.close()


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def started(command: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=env)


def served(worker: Worker, use: Callable[[], Awaitable[None]]) -> None:
    """Use a running worker."""

    async def main() -> None:
        serving = asyncio.create_task(worker.serve())
        try:
            await use()
        finally:
            worker.stop()
            await serving
            await worker.aclose()

    asyncio.run(main())


def test_a_function_runs_in_a_process_that_is_kept_for_the_next_job(worker: Worker) -> None:
    async def use() -> None:
        first = await (await process_jobs.where.submit_async()).result(PATIENCE_SECONDS)
        second = await (await process_jobs.where.submit_async()).result(PATIENCE_SECONDS)
        assert (first.attempt, first.pid != os.getpid(), first.pid == second.pid) == (1, True, True)
        pids.append(first.pid)
        assert is_alive(first.pid)

    pids = list[int]()
    served(worker, use)
    assert not is_alive(pids[0])


def test_steps_progress_and_errors_come_from_the_process(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "effects"

    async def use() -> None:
        handle = await process_jobs.steps.submit_async(str(file))
        assert await handle.result(PATIENCE_SECONDS) == [1, 2]
        assert file.read_text() == "effect\n"
        [error] = (await handle.info()).facts["errors"]
        assert (error["code"], error["message"]) == ("ValueError", "the first run fails")
        with pytest.raises(JobFailedError, match=r"no \[refused\]"):
            await (await process_jobs.refuse.submit_async()).result(PATIENCE_SECONDS)
        assert await (await process_jobs.parent.submit_async()).result(PATIENCE_SECONDS) == 1
        noted = await (await process_jobs.odd.submit_async()).outcome(PATIENCE_SECONDS)
        assert noted.ok
        assert "set" in noted.result["no_result"]

    served(worker, use)


def test_a_process_that_dies_fails_its_run_and_the_next_one_gets_another(worker: Worker) -> None:
    async def use() -> None:
        handle = await process_jobs.die.submit_async()
        assert await handle.result(PATIENCE_SECONDS) == 2
        [error] = (await handle.info()).facts["errors"]
        assert (error["code"], error["message"]) == ("ProcessEndedError", "The process of the run ended with code 9.")

    served(worker, use)


def test_a_process_over_its_time_limit_is_killed(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pid"

    async def use() -> None:
        for seconds in (1.5, 6.0, 24.0):  # a slow machine may need longer to begin
            handle = await process_jobs.spin.with_options(timeout=seconds).submit_async(str(file))
            with pytest.raises(JobFailedError, match="timeout"):
                await handle.result(PATIENCE_SECONDS)
            if file.exists():
                break
        await until(lambda: not is_alive(int(file.read_text())))

    served(worker, use)


def test_a_process_whose_lease_is_lost_is_killed(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pid"

    async def use() -> None:
        handle = await process_jobs.spin.submit_async(str(file))
        await until(lambda: file.exists() and bool(file.read_text()))
        pid = int(file.read_text())
        assert is_alive(pid)
        await handle.cancel(force=True)
        await until(lambda: not is_alive(pid))

    served(worker, use)


def test_a_process_is_told_of_a_cancellation(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pid"

    async def use() -> None:
        handle = await process_jobs.wait.submit_async(str(file))
        await until(lambda: file.exists() and bool(file.read_text()))
        await handle.cancel()
        assert await handle.result(PATIENCE_SECONDS) == "saw it"

    served(worker, use)


def test_a_worker_that_stops_kills_its_processes_and_gives_their_jobs_back(worker: Worker, tmp_path: Path) -> None:
    file = tmp_path / "pid"

    async def use() -> None:
        handles.append((await process_jobs.spin.submit_async(str(file))).job_id)
        await until(lambda: file.exists() and bool(file.read_text()))

    handles = list[str]()
    served(worker, use)
    assert not is_alive(int(file.read_text()))
    info = process_jobs.spin.handle(handles[0]).info()
    assert (info.state, info.attempt) == ("queued", 0)
    process_jobs.spin.handle(handles[0]).cancel()


def test_a_function_without_the_decorators_name_is_found(server: RunningServer) -> None:
    process_jobs.plain.configure(url=server.url)

    async def use() -> None:
        assert await (await process_jobs.plain_job.submit_async(n=1)).result(PATIENCE_SECONDS) == 2

    served(process_jobs.plain, use)


def test_an_asynchronous_function_is_refused() -> None:
    async def on_loop() -> None: ...

    with pytest.raises(ConfigurationError, match="asynchronous"):
        Worker("http://127.0.0.1:1").job(fresh("kind"), process=True)(on_loop)


async def test_a_worker_that_is_killed_leaves_no_process_and_its_job_runs_again(
    server: RunningServer, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    env = {**os.environ, "SEMEL_URL": server.url}
    command = [sys.executable, "-c", "from tests.client.process_jobs import worker; worker.run()"]
    async with open_jobs(server.url) as jobs:
        job = await jobs.submit("process.wait", {"file": str(file)}, max_attempts=2)
        with started(command, env) as first:
            await until(lambda: file.exists() and bool(file.read_text()))
            pid = int(file.read_text())
            first.kill()
        await until(lambda: not is_alive(pid))
        file.unlink()
        process_jobs.worker.configure(url=server.url)
        serving = asyncio.create_task(process_jobs.worker.serve())
        await until(lambda: file.exists() and bool(file.read_text()))
        await jobs.cancel(job.job_id)
        assert (await jobs.result(job.job_id, wait=PATIENCE_SECONDS)).result == "saw it"
        assert (await jobs.get(job.job_id)).attempt == 2
        process_jobs.worker.stop()
        await serving
