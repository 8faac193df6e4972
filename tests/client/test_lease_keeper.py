"""A job keeps its lease whatever its function does to the worker, and loses it with its process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from semel.client import AsyncJob, Cancelled, Client, Worker
from tests.client import process_jobs
from tests.client.jobs_room import open_jobs
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.harness.server import RunningServer
from tests.harness.together import in_time, unless_held_up

LEASE_SECONDS = 3
EACH_LOOP = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


class Line(NamedTuple):
    """A line of a diary."""

    what: str
    pid: int
    attempt: int


class Pair:
    """Two workers of the same functions."""

    def __init__(self, server: RunningServer, folder: Path, loop: str, lease_seconds: int) -> None:
        self.kind, self.file = fresh("kind"), folder / fresh("diary")
        self.file.touch()
        command = [sys.executable, "-m", "tests.client.blocking_worker", server.url, self.kind, str(self.file)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        both = [subprocess.Popen([*command, loop, str(lease_seconds)], **options) for _ in range(2)]  # type: ignore[call-overload]
        self.workers: dict[int, subprocess.Popen[str]] = {one.pid: one for one in both}

    def diary(self, what: str) -> list[Line]:
        """Its lines of one kind."""
        lines = [line.split() for line in self.file.read_text().splitlines()]
        return [Line(line[0], int(line[1]), int(line[2])) for line in lines if line[0] == what]

    def write(self, what: str) -> None:
        """Tell the functions."""
        with self.file.open("a") as file:
            file.write(f"{what} 0 0\n")

    async def begun(self, count: int = 1) -> Line:
        """The worker of the last of so many runs, when it has begun."""
        await until(lambda: len(self.diary("begin")) >= count)
        return self.diary("begin")[count - 1]

    def end(self, pid: int) -> tuple[dict[str, int], str]:
        """Stop a worker. Returns its counts and its log."""
        self.workers[pid].terminate()
        counts, log = self.workers[pid].communicate(timeout=PATIENCE_SECONDS)
        return json.loads(counts), log


@contextmanager
def two_workers(
    server: RunningServer, folder: Path, loop: str = "asyncio", lease_seconds: int = LEASE_SECONDS
) -> Iterator[Pair]:
    """Two workers, in processes of their own."""
    pair = Pair(server, folder, loop, lease_seconds)
    try:
        yield pair
    finally:
        for line in pair.diary("forked"):
            os.kill(line.pid, signal.SIGKILL)
        for one in pair.workers.values():
            one.kill()
            one.communicate(timeout=PATIENCE_SECONDS)


def on_a_machine_that_runs(body: Callable[[float], None], lease_seconds: float) -> None:
    """Run a test again, with longer leases, if the machine stood still for too long."""

    def check(seconds: float) -> None:
        with unless_held_up(seconds / 2):
            body(seconds)

    in_time(check, lease_seconds)


@EACH_LOOP
@pytest.mark.parametrize("way", ["loop", "executor"])
def test_a_job_that_blocks_its_worker_for_three_leases_runs_once(
    server: RunningServer, tmp_path: Path, loop: str, way: str
) -> None:
    async def main(lease_seconds: int) -> None:
        with two_workers(server, tmp_path, loop, lease_seconds) as pair:
            async with open_jobs(server.url) as jobs:
                params = {"seconds": 3.0 * lease_seconds}
                job_id = (await jobs.submit(f"{pair.kind}.{way}", params)).job_id
                outcome = await jobs.result(job_id, wait=PATIENCE_SECONDS)
                assert (await jobs.get(job_id)).attempt == 1
            pid = (await pair.begun()).pid
            assert (outcome.result, len(pair.diary("begin")), len(pair.diary("end"))) == (pid, 1, 1)
            counts, log = pair.end(pid)
            assert counts["completed"] == 1
            function = "block_the_loop" if way == "loop" else "use_all_threads"
            assert f"{function} has been running for" in log
            assert ("block_the_loop has blocked the event loop for" in log) is (way == "loop"), log

    on_a_machine_that_runs(lambda seconds: asyncio.run(main(round(seconds))), LEASE_SECONDS)


async def test_a_worker_that_is_stopped_for_longer_than_its_lease_reports_too_late(
    server: RunningServer, tmp_path: Path
) -> None:
    with two_workers(server, tmp_path) as pair:
        async with open_jobs(server.url) as jobs:
            job_id = (await jobs.submit(f"{pair.kind}.thread")).job_id
            first = await pair.begun()
            pair.workers[first.pid].send_signal(signal.SIGSTOP)
            second = await pair.begun(2)
            assert second.pid != first.pid
            assert (await jobs.result(job_id, wait=PATIENCE_SECONDS)).result == second.pid
            pair.write("go")
            pair.workers[first.pid].send_signal(signal.SIGCONT)
            await until(lambda: len(pair.diary("end")) == 2)
            assert pair.end(first.pid)[0] == {"completed": 0, "failed": 0, "deferred": 0, "dropped": 1}
            assert (await jobs.result(job_id)).result == second.pid


@pytest.mark.parametrize("way", ["thread", "fork"])
async def test_a_job_of_a_worker_that_is_killed_is_run_by_another_one(
    server: RunningServer, tmp_path: Path, way: str
) -> None:
    """Also if a process that the function has forked lives on: it renews nothing."""
    with two_workers(server, tmp_path) as pair:
        async with open_jobs(server.url) as jobs:
            job_id = (await jobs.submit(f"{pair.kind}.{way}")).job_id
            first = await pair.begun()
            await until(lambda: way != "fork" or bool(pair.diary("forked")))
            pair.workers[first.pid].kill()
            outcome = await jobs.result(job_id, wait=PATIENCE_SECONDS)
            assert outcome.result in set(pair.workers) - {first.pid}
            assert (await jobs.get(job_id)).attempt == 2


async def test_a_time_limit_ends_the_renewal_of_a_job_that_blocks_its_worker(
    server: RunningServer, tmp_path: Path
) -> None:
    """The limit of the function, which the server does not know."""
    with two_workers(server, tmp_path) as pair:
        async with open_jobs(server.url) as jobs:
            job_id = (await jobs.submit(f"{pair.kind}.limited")).job_id
            first, second = await pair.begun(), await pair.begun(2)
            assert second.pid != first.pid
            assert (await jobs.result(job_id, wait=PATIENCE_SECONDS)).result == second.pid
            pair.write("go")


@pytest.mark.usefixtures("each_loop")
def test_a_job_that_is_claimed_beside_one_that_blocks_keeps_its_lease(server: RunningServer) -> None:
    async def main(lease_seconds: float) -> None:
        kind, runs = fresh("kind"), list[int]()
        worker = Worker(server.url, lease=round(lease_seconds))

        @worker.job(kind)
        async def block_the_loop(job: AsyncJob) -> None:
            runs.append(job.attempt)
            time.sleep(2.5 * lease_seconds)  # noqa: ASYNC251 - what the test is about

        async with open_jobs(server.url) as jobs:
            for _ in range(2):
                await jobs.submit(kind)
            assert (await worker.serve(until_idle=True))["completed"] == 2
        assert runs == [1, 1]

    on_a_machine_that_runs(lambda seconds: asyncio.run(main(seconds)), 2)


@pytest.mark.usefixtures("each_loop")
def test_jobs_in_threads_and_processes_keep_their_leases_beside_one_that_blocks(server: RunningServer) -> None:
    async def main() -> None:
        process_jobs.worker.configure(url=server.url)
        serving = asyncio.create_task(process_jobs.worker.serve())
        try:
            async with open_jobs(server.url) as jobs:
                beside = [
                    (await jobs.submit(f"process.{name}", {"seconds": 7.0})).job_id for name in ("slow", "slow_thread")
                ]

                async def both_run() -> bool:
                    return all([(await jobs.get(one)).state == "leased" for one in beside])

                await until(both_run)
                blocking = (await jobs.submit("process.block", {"seconds": 6.0})).job_id
                outcomes = [await jobs.result(one, wait=PATIENCE_SECONDS) for one in (*beside, blocking)]
                assert [outcome.result for outcome in outcomes] == [1, 1, 1]
        finally:
            process_jobs.worker.stop()
            await serving

    on_a_machine_that_runs(lambda _: asyncio.run(main()), 2)


@pytest.mark.usefixtures("each_loop")
def test_a_function_that_blocks_its_loop_sees_that_it_is_cancelled(server: RunningServer) -> None:
    kind, began, seen = fresh("kind"), threading.Event(), list[bool]()
    worker = Worker(server.url, lease=1)

    @worker.job(kind)
    async def stop_when_asked(job: AsyncJob) -> None:
        began.set()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not job.is_cancelled and time.monotonic() < deadline:
            time.sleep(0.02)  # noqa: ASYNC251 - what the test is about
        seen.append(job.is_cancelled)
        raise Cancelled

    with Client(server.url) as client:
        job_id = client.jobs.submit(kind).job_id
        serving = threading.Thread(target=lambda: asyncio.run(worker.serve(until_idle=True)))
        serving.start()
        assert began.wait(PATIENCE_SECONDS)
        client.jobs.cancel(job_id)
        serving.join(PATIENCE_SECONDS)
        job = client.jobs.get(job_id)
        assert (seen, job.reason, job.attempt) == ([True], "cancelled", 1)
