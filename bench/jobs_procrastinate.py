"""Procrastinate under the same load as Semel, through its own asyncio application. `bench.suite` starts it.

A key is a queueing lock: a second job with it is refused while the first one waits. A bulk is a `batch_defer`, which
has no keys of its own. The pool has 8 connections, which beat 4, 16, 32 and 64 on two cores, and the loop is uvloop.
The worker is Procrastinate's own; it keeps what it has done, as it does when nobody says otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

import procrastinate
import psycopg
from procrastinate import exceptions

from bench.jobs_measures import (
    ANSWERED,
    BULK,
    BULK_CALLERS,
    BULK_JOBS,
    CLOSED,
    CYCLE,
    DONE,
    DUPLICATE,
    KEYS,
    KIND,
    OPENED,
    PARAMS,
    QUEUE,
    figures,
    fresh_key,
    measure_cycles,
    options,
    tell_edge,
)
from bench.tally import Tally, new_loop

POOL = 8
PREFILL = 500
DONE_SO_FAR = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"

Call = Callable[[], Awaitable[object]]


async def handle(**params: object) -> dict[str, bool]:
    """The job."""
    return DONE


class Peer:
    """An application with one task, on a new database."""

    def __init__(self, url: str) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=url, min_size=POOL, max_size=POOL)
        self.app = procrastinate.App(connector=connector)
        self.task = self.app.task(name=KIND, queue=QUEUE)(handle)

    async def submit(self, key: str) -> None:
        """One job."""
        await self.task.configure(queueing_lock=key).defer_async(**PARAMS)

    async def submit_fresh(self) -> None:
        """One job that nobody knows."""
        await self.submit(fresh_key())

    async def repeat(self, keys: itertools.cycle[str]) -> None:
        """One job that is there already."""
        try:
            await self.submit(next(keys))
        except exceptions.AlreadyEnqueued:
            return
        raise SystemExit("a duplicate was taken for a new job")

    async def submit_many(self, jobs: int = BULK_JOBS) -> None:
        """So many in one call."""
        await self.task.batch_defer_async(*[PARAMS] * jobs)


async def closed_loop(callers: int, call: Call, warm: float, window: float) -> tuple[Tally, float]:
    """So many callers, each with one call under way; with the seconds that the window took."""
    tally = Tally()

    async def caller() -> None:
        while not tally.is_over:
            began = time.perf_counter()
            await call()
            tally.count(ANSWERED, time.perf_counter() - began)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
        await asyncio.sleep(warm)
        tally.is_open, began = True, time.perf_counter()
        tell_edge(OPENED)
        await asyncio.sleep(window)
        seconds = time.perf_counter() - began
        tell_edge(CLOSED)
        tally.is_open, tally.is_over = False, True
    return tally, seconds


async def cycles(peer: Peer, asked: argparse.Namespace) -> dict[str, float]:
    """Fill the queue, then let the worker run."""
    for _ in range(0, asked.jobs, PREFILL):
        await peer.submit_many(PREFILL)
    with psycopg.connect(asked.url, autocommit=True) as connection:
        connection.execute("ANALYZE")  # the planner would otherwise know of an empty table until autovacuum comes by

        def count() -> int:
            row = connection.execute(DONE_SO_FAR).fetchone()
            assert row is not None
            return int(row[0])

        worker = asyncio.create_task(
            peer.app.run_worker_async(queues=[QUEUE], concurrency=asked.at_once, install_signal_handlers=False)
        )
        try:
            return await asyncio.to_thread(measure_cycles, count, asked.jobs, asked.warm, asked.window)
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


async def measure(asked: argparse.Namespace) -> dict[str, float]:
    """One measure once."""
    peer = Peer(asked.url)
    async with peer.app.open_async():
        await peer.app.schema_manager.apply_schema_async()
        if asked.measure == CYCLE:
            return await cycles(peer, asked)
        callers, each, call = asked.at_once, 1, peer.submit_fresh
        if asked.measure == BULK:
            callers, each, call = BULK_CALLERS, BULK_JOBS, peer.submit_many
        elif asked.measure == DUPLICATE:
            keys = [fresh_key() for _ in range(KEYS)]
            for key in keys:
                await peer.submit(key)
            call = partial(peer.repeat, itertools.cycle(keys))
        tally, seconds = await closed_loop(callers, call, asked.warm, asked.window)
        return figures(tally, seconds, each)


def main() -> None:
    """Measure once and print it."""
    parser = options(__doc__)
    parser.add_argument("--url", required=True)
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        print(json.dumps(runner.run(measure(parser.parse_args()))))


if __name__ == "__main__":
    main()
