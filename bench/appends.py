"""`make bench`: durable appends beside the bare HTTP host, in one alternating run.

Every round measures each candidate once, in the same order, so that a noisy machine disturbs all of them alike; what
counts is the median of the ratios within a round. The ceiling is the same host, loop and protocol class answering the
same headers with nothing behind them.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx

from tests.harness.server import RunningServer, free_port

STREAM = "/v1/stream/bench"


class Candidate(NamedTuple):
    """One row of the table."""

    name: str
    keys: str


CEILING = Candidate("no-op on the same host", "random")
CANDIDATES = (
    Candidate("append, no key", "none"),
    Candidate("append, time-ordered keys", "ordered"),
    Candidate("append, random keys", "random"),
    Candidate("duplicate of a stored append", "repeated"),
)


class Figures(NamedTuple):
    """One measurement."""

    per_second: float
    p50_ms: float
    p99_ms: float
    writes_a_commit: float | None


def load(port: int, keys: str, connections: int, seconds: float) -> dict[str, float]:
    """Run the load generator once."""
    command = [sys.executable, "-m", "bench.load", "--port", str(port), "--path", STREAM, "--keys", keys]
    command += ["--connections", str(connections), "--window", str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answered: dict[str, float] = json.loads(done.stdout)
    if answered["errors"]:
        raise SystemExit(f"{answered['errors']:.0f} requests were refused: the figures would mean nothing")
    return answered


def committed(url: str) -> tuple[float, float]:
    """Writes so far, and batches that were synced to disk."""
    metrics = httpx.get(f"{url}/metrics").json()
    return metrics["semel_engine_writes_total"], metrics.get("semel_engine_commits_total{kind=durable}", 0.0)


def measure(server: RunningServer, candidate: Candidate, connections: int, seconds: float) -> Figures:
    """One candidate once."""
    writes, commits = committed(server.url)
    got = load(server.port, candidate.keys, connections, seconds)
    writes_then, commits_then = committed(server.url)
    synced = commits_then - commits
    each = (writes_then - writes) / synced if synced > 1 else None
    return Figures(got["per_second"], got["p50_ms"], got["p99_ms"], each)


def wait_for_listener(port: int) -> None:
    """Until somebody listens there."""
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the bare host did not start")


def run(rounds: int, connections: int, seconds: float) -> dict[Candidate, list[Figures]]:
    """All candidates, round after round."""
    figures: dict[Candidate, list[Figures]] = {candidate: [] for candidate in (CEILING, *CANDIDATES)}
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder) / "data") as server:
        httpx.put(server.url + STREAM, headers={"Content-Type": "application/json"}).raise_for_status()
        bare = subprocess.Popen([sys.executable, "-m", "bench.noop_server", "--port", str(port)])
        try:
            wait_for_listener(port)
            for number in range(rounds):
                print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
                got = load(port, CEILING.keys, connections, seconds)
                figures[CEILING].append(Figures(got["per_second"], got["p50_ms"], got["p99_ms"], None))
                for candidate in CANDIDATES:
                    figures[candidate].append(measure(server, candidate, connections, seconds))
        finally:
            bare.terminate()
            bare.wait()
            print(file=sys.stderr)
    return figures


def print_table(figures: dict[Candidate, list[Figures]]) -> None:
    """Medians, and ratios within a round."""
    ceiling = [row.per_second for row in figures[CEILING]]
    print("| candidate | requests/s | of the ceiling | p50 ms | p99 ms | writes a sync |")
    print("|---|---|---|---|---|---|")
    for candidate, rows in figures.items():
        ratio = median(row.per_second / top for row, top in zip(rows, ceiling, strict=True))
        each = [row.writes_a_commit for row in rows if row.writes_a_commit is not None]
        together = f"{median(each):.0f}" if each else "no sync"
        print(
            f"| {candidate.name} | {median(row.per_second for row in rows):,.0f} | {ratio:.2f} "
            f"| {median(row.p50_ms for row in rows):.1f} | {median(row.p99_ms for row in rows):.1f} "
            f"| {'-' if candidate is CEILING else together} |"
        )
    plain, ordered, chance = (figures[candidate] for candidate in CANDIDATES[:3])
    for name, keyed in (("time-ordered", ordered), ("random", chance)):
        cost = median(p.per_second / k.per_second for p, k in zip(plain, keyed, strict=True))
        print(f"\nA keyed append ({name} keys) costs {cost:.2f} times an unkeyed one (median of ratios).")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    print_table(run(asked.rounds, asked.connections, asked.seconds))


if __name__ == "__main__":
    main()
