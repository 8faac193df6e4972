"""What `make bench WHAT=jobs` measures, and what its programs for the peers share.

Each candidate is driven by a program of its own, through the candidate's own client, and prints one JSON object. All of
them take the same options: a measure, how many callers there are at once, and how long the window is. This module runs
in the peers' environment too, so it needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from bench.load_keys import BODY

SUBMIT, DUPLICATE, BULK, CYCLE = "submit", "duplicate", "bulk", "cycle"
MEASURES = {
    SUBMIT: "one job a call, each under a fresh key",
    DUPLICATE: "the same, under keys that are stored already",
    BULK: "100 jobs a call, 4 calls at once",
    CYCLE: "from the claim of a queued job to its completion",
}
BULK_JOBS = 100
BULK_CALLERS = 4
KIND = "clicked"
PARAMS: dict[str, Any] = json.loads(BODY)
"""About 200 bytes as JSON."""

DONE: dict[str, bool] = {"ok": True}
"""What every handler returns; it does nothing else."""

ANSWERED = b"200"
OPENED, CLOSED = "window opened", "window closed"
PATIENCE_SECONDS = 60.0


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
