"""`make bench WHAT=fanout`: committed events and their fan-out, beside Insieme's own server, in one alternating run.

Every round measures each candidate once at each shape, one after the other, so that a noisy machine disturbs all of
them alike; what counts is the median of the ratios within a round. The load generator sends the same frames of the
Insieme 2.x dialect to both. Insieme's server runs with its SQLite store as it ships, a write-ahead log synced at every
event, and once more with synchronous=NORMAL, which syncs at checkpoints only and promises less than Semel.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.probes import wait_for_listener
from tests.events.insieme.packages import HERE as INSIEME
from tests.events.insieme.packages import installed_node
from tests.harness.server import RunningServer, free_port

SEMEL, PEER, RELAXED = "Semel", "Insieme 2.1.0", "Insieme 2.1.0, synchronous=NORMAL"
SUBSCRIBERS = (1, 100, 1_000)


class Shape(NamedTuple):
    """One way to put load on: the options of the generator, and how many times the peer Semel should be."""

    name: str
    options: tuple[str, ...]
    target: int | None = None


SHAPES = (
    Shape("batch 1, 32 connections", ("--connections", "32"), 5),
    Shape("batch 1, 1 connection, 32 under way", ("--connections", "1", "--in-flight", "32")),
    Shape("batch 1, 32 connections that hear one another", ("--connections", "32", "--shared")),
    Shape("batch 100, 4 connections", ("--connections", "4", "--batch", "100"), 10),
)


class Commits(NamedTuple):
    """One measurement of a shape."""

    per_second: float
    p50_ms: float
    p99_ms: float


class FanOut(NamedTuple):
    """One measurement of a number of subscribers."""

    commit_p50_ms: float
    p50_ms: float
    p99_ms: float


class Figures(NamedTuple):
    """All measurements, in the order of the rounds."""

    commits: dict[tuple[Shape, str], list[Commits]]
    fan_outs: dict[tuple[int, str], list[FanOut]]


@contextmanager
def peer_server(node: str, data: Path, synchronous: str) -> Iterator[int]:
    """Insieme's own server, on the port that is given."""
    port = free_port()
    command = [node, "server.mjs", "--port", str(port), "--data", str(data), "--synchronous", synchronous]
    server = subprocess.Popen(command, cwd=INSIEME)
    try:
        wait_for_listener(port)
        yield port
    finally:
        server.terminate()
        server.wait()


@contextmanager
def candidates(folder: Path) -> Iterator[dict[str, int]]:
    """The ports of all servers; one that nobody asks costs next to nothing."""
    node = installed_node()
    with ExitStack() as running:
        yield {
            SEMEL: running.enter_context(RunningServer(folder / "semel")).port,
            PEER: running.enter_context(peer_server(node, folder / "full.db", "FULL")),
            RELAXED: running.enter_context(peer_server(node, folder / "normal.db", "NORMAL")),
        }


def generate(program: str, port: int, *options: str) -> dict[str, float]:
    """Run a load generator once."""
    command = [sys.executable, "-m", program, "--port", str(port), *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"a measurement failed, the figures would mean nothing:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure_commits(port: int, shape: Shape, project: str, seconds: float) -> Commits:
    """One shape once."""
    got = generate("bench.events_load", port, "--project", project, "--window", str(seconds), *shape.options)
    return Commits(got["per_second"], got["p50_ms"], got["p99_ms"])


def measure_fan_out(port: int, subscribers: int, project: str, seconds: float) -> FanOut:
    """One number of subscribers once."""
    options = ["--project", project, "--subscribers", str(subscribers), "--events", str(round(seconds * 20))]
    got = generate("bench.events_fanout", port, *options)
    if got["missing"]:
        raise SystemExit(f"{got['missing']:.0f} broadcasts never came: the figures would mean nothing")
    return FanOut(got["commit_p50_ms"], got["p50_ms"], got["p99_ms"])


def run(rounds: int, seconds: float) -> Figures:
    """All shapes and all candidates, round after round."""
    figures = Figures({}, {})
    with tempfile.TemporaryDirectory() as folder, candidates(Path(folder)) as ports:
        for number in range(rounds):
            for place, shape in enumerate(SHAPES):
                for name, port in ports.items():
                    tell(f"round {number + 1} of {rounds}: {shape.name}, {name}")
                    found = measure_commits(port, shape, f"shape-{place}-{number}", seconds)
                    figures.commits.setdefault((shape, name), []).append(found)
            for subscribers in SUBSCRIBERS:
                for name in (SEMEL, PEER):
                    tell(f"round {number + 1} of {rounds}: {subscribers} subscribers, {name}")
                    heard = measure_fan_out(ports[name], subscribers, f"fan-out-{subscribers}-{number}", seconds)
                    figures.fan_outs.setdefault((subscribers, name), []).append(heard)
    print(file=sys.stderr)
    return figures


def tell(what: str) -> None:
    """Say what is going on."""
    print(f"\r{what:<99}", end="", file=sys.stderr, flush=True)


def times(figures: Figures, shape: Shape, baseline: str) -> float:
    """How many times the baseline Semel is: the median of the ratios within a round."""
    pairs = zip(figures.commits[shape, SEMEL], figures.commits[shape, baseline], strict=True)
    return median(ours.per_second / theirs.per_second for ours, theirs in pairs)


def print_commits(figures: Figures) -> None:
    """Medians, ratios within a round, and the targets."""
    print("| shape | candidate | events/s | Semel is | batch p50 ms | batch p99 ms |")
    print("|---|---|---|---|---|---|")
    for (shape, name), rows in figures.commits.items():
        print(
            f"| {shape.name} | {name} | {median(row.per_second for row in rows):,.0f} "
            f"| {times(figures, shape, name):.2f} times "
            f"| {median(row.p50_ms for row in rows):.1f} | {median(row.p99_ms for row in rows):.1f} |"
        )
    for shape in SHAPES:
        if shape.target is not None:
            print(f"\n{shape.name}: {times(figures, shape, PEER):.2f} times {PEER} (target {shape.target})")


def print_fan_outs(figures: Figures) -> None:
    """Medians, and ratios within a round."""
    print("\n| subscribers | candidate | commit p50 ms | receipt p50 ms | receipt p99 ms | Semel's p99 is |")
    print("|---|---|---|---|---|---|")
    for (subscribers, name), rows in figures.fan_outs.items():
        pairs = zip(figures.fan_outs[subscribers, SEMEL], rows, strict=True)
        ratio = median(ours.p99_ms / theirs.p99_ms for ours, theirs in pairs)
        print(
            f"| {subscribers:,} | {name} | {median(row.commit_p50_ms for row in rows):.1f} "
            f"| {median(row.p50_ms for row in rows):.1f} | {median(row.p99_ms for row in rows):.1f} "
            f"| {ratio:.2f} of it |"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    figures = run(asked.rounds, asked.seconds)
    print_commits(figures)
    print_fan_outs(figures)


if __name__ == "__main__":
    main()
