"""A worker in a process of its own whose functions take what a worker itself could need: its event loop, its threads.

python -m tests.client.blocking_worker URL KIND FILE LOOP LEASE

Its kinds are KIND and one of `WAYS`. It writes a line into FILE when a function begins and when it ends, and prints its
counts at its end.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import uvloop

from semel.client import AsyncJob, Job, Worker

WAYS = ("loop", "executor", "thread", "fork", "limited")
THREADS = 64
"""More than the default executor of an event loop has."""
PATIENCE_SECONDS = 120.0
"""More than a test waits for another worker."""


class Diary:
    """What functions did, one line each: `WHAT PROCESS ATTEMPT`."""

    def __init__(self, file: str) -> None:
        self._file = file

    def note(self, what: str, job: Job | AsyncJob) -> None:
        """Write a line."""
        with Path(self._file).open("a") as lines:
            lines.write(f"{what} {os.getpid()} {job.attempt}\n")

    def wait_for(self, what: str) -> None:
        """Block until a line begins so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any(line.startswith(what) for line in Path(self._file).read_text().splitlines()):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def worker_of(url: str, kind: str, diary: Diary, lease: int) -> Worker:
    """A worker with a function for each way."""
    worker = Worker(url, lease=lease, poll=5.0, grace=0.0)

    @worker.job(f"{kind}.loop")
    async def block_the_loop(job: AsyncJob, seconds: float) -> int:
        diary.note("begin", job)
        time.sleep(seconds)  # noqa: ASYNC251 - what the test is about
        diary.note("end", job)
        return os.getpid()

    @worker.job(f"{kind}.executor")
    async def use_all_threads(job: AsyncJob, seconds: float) -> int:
        diary.note("begin", job)
        await asyncio.gather(*(asyncio.to_thread(time.sleep, seconds / 2) for _ in range(THREADS)))
        diary.note("end", job)
        return os.getpid()

    @worker.job(f"{kind}.thread")
    def wait_in_a_thread(job: Job) -> int:
        diary.note("begin", job)
        if job.attempt == 1:
            diary.wait_for("go")
        diary.note("end", job)
        return os.getpid()

    @worker.job(f"{kind}.fork")
    def fork(job: Job) -> int:
        if job.attempt == 1:
            child = os.fork()
            diary.note("begin" if child else "forked", job)
            time.sleep(PATIENCE_SECONDS)
            os._exit(0)
        return os.getpid()

    @worker.job(f"{kind}.limited", timeout=1.0)
    async def block_beyond_a_limit(job: AsyncJob) -> int:
        diary.note("begin", job)
        if job.attempt == 1:
            diary.wait_for("go")
        return os.getpid()

    return worker


def main(url: str, kind: str, file: str, loop: str, lease: str) -> None:
    """Run until SIGTERM."""
    worker = worker_of(url, kind, Diary(file), int(lease))

    async def serve() -> None:
        signal.signal(signal.SIGTERM, lambda *_: asyncio.get_running_loop().call_soon_threadsafe(worker.stop))
        sys.stdout.write(json.dumps(dict(await worker.serve())))

    (uvloop.run if loop == "uvloop" else asyncio.run)(serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
