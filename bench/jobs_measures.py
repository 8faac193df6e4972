"""What `make bench WHAT=jobs` measures, and what its programs for the peers share.

Each candidate is driven by a program of its own, through the candidate's own client, and prints one JSON object. All of
them take the same options: a measure, how many callers there are at once, and how long the window is. This module runs
in the peers' environment too, so it needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from bench.load_keys import BODY
from bench.tally import Tally

SUBMIT, DUPLICATE, BULK, CYCLE = "submit", "duplicate", "bulk", "cycle"
MEASURES = {
    SUBMIT: "one job a call, each under a fresh key",
    DUPLICATE: "the same, under keys that are stored already",
    BULK: "100 jobs a call, 4 calls at once",
    CYCLE: "from the claim of a queued job to its completion",
}
BULK_JOBS = 100
BULK_CALLERS = 4
KEYS = 1_000
"""So many stored keys are repeated in turn: a single one would measure how a database bears one hot row."""

KIND = "clicked"
QUEUE = "bench"
PARAMS: dict[str, Any] = json.loads(BODY)
"""About 200 bytes as JSON."""

DONE: dict[str, bool] = {"ok": True}
"""What every handler returns; it does nothing else."""

ANSWERED = b"200"
OPENED, CLOSED = "window opened", "window closed"
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02


def options(about: str | None) -> argparse.ArgumentParser:
    """The options that all programs have."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--measure", choices=sorted(MEASURES), required=True)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs in the queue before cycles begin")
    parser.add_argument("--warm", type=float, default=0.5)
    parser.add_argument("--window", type=float, default=3.0)
    return parser


def tell_edge(edge: str) -> None:
    """Say on stderr that the window opens or closes."""
    print(edge, file=sys.stderr, flush=True)


def fresh_key() -> str:
    """A random UUID, as most callers make them."""
    return str(uuid.uuid4())


def figures(tally: Tally, seconds: float, jobs_each: int = 1) -> dict[str, float]:
    """What a program prints: jobs a second, and how long a call took."""
    found = tally.figures(seconds)
    return found | {"per_second": found["per_second"] * jobs_each}


def measure_cycles(count: Callable[[], int], jobs: int, warm: float, window: float) -> dict[str, float]:
    """Completions a second while a worker runs, by counting what the database holds at two instants.

    The second instant is the end of the window, or the last job when they run out before.
    """
    _wait_for(lambda: count() > 0)
    time.sleep(warm)
    before, began = count(), time.perf_counter()
    if before == jobs:
        raise SystemExit("the jobs ran out before the window opened")
    tell_edge(OPENED)
    while True:
        time.sleep(POLL_SECONDS)
        done, seconds = count(), time.perf_counter() - began
        if seconds >= window or done == jobs:
            tell_edge(CLOSED)
            return {"per_second": (done - before) / seconds, "p50_ms": 0.0, "p99_ms": 0.0, "errors": 0.0}


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit("no job was completed")
        time.sleep(POLL_SECONDS)
