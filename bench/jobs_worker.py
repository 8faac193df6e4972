"""The SDK's worker under the same load as the peers' workers: a queue full of jobs, and a function that does nothing.

It counts how often the function is called; as many calls as run at once may not be completed yet when the window ends.
It runs in a process of its own and prints one JSON object; `bench.suite` starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time

from bench.jobs_measures import CLOSED, CYCLE, DONE, KIND, OPENED, PATIENCE_SECONDS, options, tell_edge
from bench.load_jobs import fill_jobs
from bench.load_loop import HOST
from bench.tally import new_loop
from semel.client import AsyncJob, Worker


async def measure(asked: argparse.Namespace) -> dict[str, float]:
    """Fill the queue, let the worker run, and count."""
    assert asked.measure == CYCLE, "a worker does nothing else"
    fill_jobs(asked.port, asked.jobs)
    worker = Worker(f"http://{HOST}:{asked.port}", concurrency=asked.at_once)
    calls, first, last = 0, asyncio.Event(), asyncio.Event()

    @worker.job(KIND)
    async def handle(job: AsyncJob) -> dict[str, bool]:
        nonlocal calls
        calls += 1
        first.set()
        if calls == asked.jobs:
            last.set()
        return DONE

    serving = asyncio.create_task(worker.serve())
    await asyncio.wait_for(first.wait(), PATIENCE_SECONDS)
    await asyncio.sleep(asked.warm)
    tell_edge(OPENED)
    before, began = calls, time.perf_counter()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(last.wait(), asked.window)
    done, seconds = calls - before, time.perf_counter() - began
    tell_edge(CLOSED)
    worker.stop()
    ended = await asyncio.wait_for(serving, PATIENCE_SECONDS)
    if ended["completed"] != calls or not done:
        raise SystemExit(f"of {calls} calls {ended}: the figures would mean nothing")
    return {"per_second": done / seconds, "p50_ms": 0.0, "p99_ms": 0.0, "errors": 0.0}


def main() -> None:
    """Measure once and print it."""
    parser = options(__doc__)
    parser.add_argument("--port", type=int, required=True)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        print(json.dumps(runner.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
