"""A worker in a process of its own that kills itself at a named point of its first job.

python -m tests.client.mortal_worker URL KIND FILE POINT

It writes a line into FILE for each effect. A point is a call of the client, before it is sent or after it was answered,
or a place in the function.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semel.client import Job, Worker
from semel.client.jobs.calls import AsyncJobs

CALLS = ("claim", "heartbeat", "step", "store_step", "complete")
POINTS = (
    *(f"{when}-{call}" for call in CALLS for when in ("before", "after")),
    "begun",
    "effect-done",
    "step-kept",
    "returning",
)


def die() -> None:
    """End at once, as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(call: Callable[..., Any], name: str, point: str) -> Callable[..., Any]:
    """A call that is the last one."""

    async def called(self: AsyncJobs, *args: Any, **kwargs: Any) -> Any:
        if point == f"before-{name}":
            die()
        answer = await call(self, *args, **kwargs)
        if point == f"after-{name}":
            die()
        return answer

    return called


def main(url: str, kind: str, file: str, point: str) -> None:
    """Run until the point, or until no job is ready."""
    for name in CALLS:
        setattr(AsyncJobs, name, mortal(getattr(AsyncJobs, name), name, point))
    worker = Worker(url, lease=2, poll=2.0, concurrency=1, worker_id=f"worker-{point}")

    def reach(place: str) -> None:
        if point == place:
            die()

    @worker.job(kind)
    def work(job: Job, n: int) -> dict[str, int]:
        reach("begun")

        def effect() -> int:
            with Path(file).open("a") as effects:
                effects.write(f"{n}\n")
            reach("effect-done")
            return n + 1

        first = job.once("effect", effect)
        reach("step-kept")
        reach("returning")
        return {"first": first}

    worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
