"""DBOS under the same load as Semel, through its own client and its own queue worker. `bench.suite` starts it.

A key is a workflow id: enqueueing it again attaches to the first. A bulk is one transaction with 100 enqueues, the only
way that its client has. Its calls block, so callers are threads; they share 8 connections, which beat 16, 32 and 64 on
two cores, as the workflow id beat the deduplication id. Workflows are asynchronous functions and the queue is polled
every 10 ms, both of which are faster than their alternatives here.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient

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
from bench.tally import Tally

POOL = 8
POLL_QUEUE_SECONDS = 0.01
VERSION = "1"
DONE_SO_FAR = sqlalchemy.text("SELECT count(*) FROM dbos.workflow_status WHERE status = 'SUCCESS'")


async def handle(params: dict[str, Any]) -> dict[str, bool]:
    """The job."""
    return DONE


class Peer:
    """A client, and an application beside it whose queue is registered last, so that nothing is taken before."""

    def __init__(self, url: str) -> None:
        address = url.replace("postgresql://", "postgresql+psycopg://")
        config = {"system_database_url": address, "sys_db_pool_size": POOL, "application_version": VERSION}
        DBOS(config={"name": QUEUE, "log_level": "ERROR", "executor_id": "1", **config})
        DBOS.workflow(name=KIND)(handle)
        DBOS.launch()
        self.client = DBOSClient(system_database_url=address, system_database_pool_size=POOL)
        self.engine = sqlalchemy.create_engine(address)

    def submit(self, key: str) -> None:
        """One job."""
        self.client.enqueue(self._asked(key), PARAMS)

    def submit_fresh(self) -> None:
        """One job that nobody knows."""
        self.submit(fresh_key())

    def repeat(self, keys: itertools.cycle[str]) -> None:
        """One job that is there already."""
        self.submit(next(keys))

    def submit_many(self, jobs: int = BULK_JOBS) -> None:
        """So many in one transaction."""
        with self.engine.begin() as connection:
            for _ in range(jobs):
                self.client.enqueue_in_transaction(connection, self._asked(fresh_key()), PARAMS)

    def work(self, at_once: int) -> None:
        """Let the queue be worked off."""
        DBOS.register_queue(QUEUE, worker_concurrency=at_once, polling_interval_sec=POLL_QUEUE_SECONDS)

    def done(self) -> int:
        """How many are done."""
        with self.engine.begin() as connection:
            return int(connection.execute(DONE_SO_FAR).scalar_one())

    @staticmethod
    def _asked(key: str) -> dict[str, str]:
        return {"workflow_name": KIND, "queue_name": QUEUE, "workflow_id": key, "app_version": VERSION}


def closed_loop(callers: int, call: Callable[[], object], warm: float, window: float) -> tuple[Tally, float]:
    """So many callers, each with one call under way; with the seconds that the window took."""
    tally = Tally()

    def caller() -> None:
        while not tally.is_over:
            began = time.perf_counter()
            call()
            tally.count(ANSWERED, time.perf_counter() - began)

    threads = [threading.Thread(target=caller) for _ in range(callers)]
    for thread in threads:
        thread.start()
    time.sleep(warm)
    tally.is_open, began = True, time.perf_counter()
    tell_edge(OPENED)
    time.sleep(window)
    seconds = time.perf_counter() - began
    tell_edge(CLOSED)
    tally.is_open, tally.is_over = False, True
    for thread in threads:
        thread.join()
    return tally, seconds


def measure(asked: argparse.Namespace) -> dict[str, float]:
    """One measure once."""
    peer = Peer(asked.url)
    if asked.measure == CYCLE:
        for _ in range(0, asked.jobs, BULK_JOBS):
            peer.submit_many()
        peer.work(asked.at_once)
        return measure_cycles(peer.done, asked.jobs, asked.warm, asked.window)
    callers, each, call = asked.at_once, 1, peer.submit_fresh
    if asked.measure == BULK:
        callers, each, call = BULK_CALLERS, BULK_JOBS, peer.submit_many
    elif asked.measure == DUPLICATE:
        keys = [fresh_key() for _ in range(KEYS)]
        for key in keys:
            peer.submit(key)
        call = partial(peer.repeat, itertools.cycle(keys))
    tally, seconds = closed_loop(callers, call, asked.warm, asked.window)
    return figures(tally, seconds, each)


def main() -> None:
    """Measure once and print it."""
    parser = options(__doc__)
    parser.add_argument("--url", required=True)
    print(json.dumps(measure(parser.parse_args())))
    sys.stdout.flush()
    os._exit(0)  # its threads would wait for the jobs that are left


if __name__ == "__main__":
    main()
