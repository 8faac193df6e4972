"""Job functions that run in processes of their own, for tests: a child process imports this module."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semel.client import AsyncJob, Job, Permanent, Worker

worker = Worker(processes=2, lease=2, poll=2.0, grace=0.2)
plain = Worker(processes=1, lease=2, poll=2.0)
told: list[str] = []
"""The jobs for which the middleware has run in this process."""


@dataclass
class Where:
    """The process of a run."""

    pid: int
    attempt: int


@worker.middleware
def tell(job: Job, call: Any) -> Any:
    """Runs in the child, around the function."""
    told.append(job.id)
    return call()


@worker.job("process.where", process=True)
def where(job: Job) -> Where:
    """Tells its process; the middleware has run in it."""
    assert told[-1] == job.id
    return Where(os.getpid(), job.attempt)


@worker.job("process.steps", process=True)
def steps(job: Job, file: str) -> list[int]:
    """Does a step once, though the first run fails."""

    def effect() -> int:
        with Path(file).open("a") as effects:
            effects.write("effect\n")
        return job.attempt

    first = job.once("effect", effect)
    job.progress = {"step": first}
    if job.attempt == 1:
        raise ValueError("the first run fails")
    return [first, job.attempt]


@worker.job("process.refuse", process=True)
def refuse() -> None:
    """Fails for good."""
    raise Permanent("no", code="refused")


@worker.job("process.die", process=True, attempts=2, backoff=0)
def die(job: Job) -> int:
    """Ends its process in the first run, as a fault in native code does."""
    if job.attempt == 1:
        os._exit(9)
    return job.attempt


@worker.job("process.spin", process=True, attempts=1)
def spin(file: str) -> None:
    """Never returns, and never looks up."""
    Path(file).write_text(str(os.getpid()))
    while True:
        pass


@worker.job("process.wait", process=True)
def wait(job: Job, file: str) -> str:
    """Waits for a sign of its job."""
    Path(file).write_text(str(os.getpid()))
    while not job.is_cancelled:
        time.sleep(0.01)
    return "saw it"


@worker.job("process.slow", process=True)
def slow(job: Job, seconds: float) -> int:
    """Takes its time, in a process."""
    time.sleep(seconds)
    return job.attempt


@worker.job("process.slow_thread")
def slow_thread(job: Job, seconds: float) -> int:
    """Takes its time, in a thread."""
    time.sleep(seconds)
    return job.attempt


@worker.job("process.block")
async def block(job: AsyncJob, seconds: float) -> int:
    """Blocks the event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - what its tests are about
    return job.attempt


@worker.job("process.parent", process=True)
def parent(job: Job) -> int:
    """Has a child in another process, and waits for it."""
    job.submit_child("child", where.request())
    [child] = job.wait_children().values()
    return int(child.result["attempt"])


@worker.job("process.large_step", process=True, attempts=1)
def large_step(job: Job) -> int:
    """Has a step whose result is larger than the server stores."""
    return len(job.once("large", lambda: "x" * 1_500_000))


@worker.job("process.odd", process=True)
def odd() -> Any:
    """Returns what is not JSON."""
    return {1, 2}


def undecorated(n: int) -> int:
    """Is registered without the decorator's name."""
    return n + 1


plain_job = plain.job("process.plain", process=True)(undecorated)
