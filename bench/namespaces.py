"""`make bench WHAT=namespaces`: two nodes over one PostgreSQL, in one namespace and each in its own, alternating.

Events and jobs have one lock each, on which all nodes of a namespace take turns. Both nodes serve both namespaces, so
the arrangements differ in nothing but the paths of the requests: both loads in one namespace, each in its own, and for
comparison one node alone. Every round measures each arrangement once, and what counts is the median of the ratios
within a round. On a machine with few cores the CPU binds before the lock does, so a commit is made to take longer: with
`commit_delay`, as a database that is further away does, whose commits overlap; or with a slower sync, as a slower disk
has, whose syncs do not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psycopg

from bench.jobs_stores import LIFTED
from bench.postgres import SETTINGS, run_together
from bench.probes import committed
from bench.suite.servers import delay_environment
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer

DELAY_MS = 8.0
PROBES = 30
CONNECTIONS = 16
"""Of each node."""
SURFACES = ("event", "job")
OVERLAPPING, SERIAL = "overlapping", "serial"
"""The kinds of a delay: of the commit, or of the sync."""
ALONE, SHARED, APART = "one node", "two nodes, one namespace", "two nodes, a namespace each"
PLACES = {ALONE: ("a",), SHARED: ("a", "a"), APART: ("a", "b")}
"""The namespace of the load on each node."""


class LoadPoint(NamedTuple):
    """What was measured with one arrangement."""

    delay: str
    surface: str
    arrangement: str
    per_second: float
    writes_a_commit: float
    p50_ms: float


@contextmanager
def cluster_with(delay: str, delay_ms: float) -> Iterator[Cluster]:
    """PostgreSQL whose commits take longer."""
    settings = dict(SETTINGS)
    variables: Mapping[str, str] = {}
    if delay == OVERLAPPING:
        settings |= {"commit_delay": str(round(delay_ms * 1_000)), "commit_siblings": "0"}
    else:
        variables = delay_environment(delay_ms)
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        with Cluster(settings) as cluster:
            os.environ.clear()
            os.environ.update(before)
            yield cluster
    finally:
        os.environ.clear()
        os.environ.update(before)


def measured(nodes: Sequence[RunningServer], delay: str, surface: str, arrangement: str, seconds: float) -> LoadPoint:
    """Load on each node in its namespace, at the same time."""
    bases = [f"/ns/{name}" for name in PLACES[arrangement]]
    used = list(zip(nodes, bases, strict=False))
    options = ["--kind", surface, "--connections", str(CONNECTIONS), "--window", str(seconds)]
    before = [committed(node.url + base) for node, base in used]
    got = run_together([["bench.load", "--port", str(node.port), "--base", base, *options] for node, base in used])
    after = [committed(node.url + base) for node, base in used]
    writes = sum(now[0] - then[0] for now, then in zip(after, before, strict=True))
    commits = sum(now[1] - then[1] for now, then in zip(after, before, strict=True))
    rate = sum(one["per_second"] for one in got)
    return LoadPoint(delay, surface, arrangement, rate, writes / commits, max(one["p50_ms"] for one in got))


def commit_ms(url: str) -> float:
    """The median time of one small commit, in milliseconds, while nothing else runs."""
    times = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE probe (number int)")
        for number in range(PROBES):
            began = time.perf_counter()
            connection.execute("INSERT INTO probe VALUES (%s)", (number,))
            times.append((time.perf_counter() - began) * 1_000)
    return round(median(times), 1)


def run(rounds: int, seconds: float, delay_ms: float) -> tuple[list[list[LoadPoint]], dict[str, float]]:
    """All arrangements, round after round, under each kind of delay; and the time of a commit under each."""
    found: list[list[LoadPoint]] = []
    commits: dict[str, float] = {}
    for delay in (OVERLAPPING, SERIAL):
        with ExitStack() as running:
            folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
            url = running.enter_context(cluster_with(delay, delay_ms)).url
            commits[delay] = commit_ms(url)
            env = {**LIFTED, "SEMEL_STORE": url, "SEMEL_NAMESPACES": "a,b"}
            nodes = [running.enter_context(RunningServer(folder / name, env=env)) for name in ("first", "second")]
            for number in range(rounds):
                print(f"\r{delay} delay, round {number + 1} of {rounds}   ", end="", file=sys.stderr, flush=True)
                found.append(
                    [measured(nodes, delay, surface, place, seconds) for surface in SURFACES for place in PLACES]
                )
    print(file=sys.stderr)
    return found, commits


def medians(rounds: Sequence[Sequence[LoadPoint]]) -> list[dict[str, object]]:
    """One row for each delay, surface and arrangement, with the median ratio to one node and to one namespace."""
    by_row: dict[tuple[str, str, str], list[tuple[LoadPoint, Mapping[str, float]]]] = {}
    for points in rounds:
        for one in points:
            beside = {other.arrangement: other.per_second for other in points if other.surface == one.surface}
            by_row.setdefault(one[:3], []).append((one, beside))
    return [
        {
            "delay": delay,
            "surface": surface,
            "arrangement": arrangement,
            "per_second": round(median(one.per_second for one, _ in some)),
            "writes_a_commit": round(median(one.writes_a_commit for one, _ in some), 1),
            "p50_ms": round(median(one.p50_ms for one, _ in some), 1),
            "of_one_node": round(median(one.per_second / beside[ALONE] for one, beside in some), 2),
            "of_one_namespace": round(median(one.per_second / beside[SHARED] for one, beside in some), 2),
        }
        for (delay, surface, arrangement), some in by_row.items()
    ]


def print_table(rows: Sequence[Mapping[str, object]]) -> None:
    """Medians and ratios."""
    print("| delay | load | arrangement | writes/s | writes a commit | p50 ms | of one node | of one namespace |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


def main() -> None:
    """Measure and print; with --points, also store the medians for the simulation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--delay-ms", type=float, default=DELAY_MS)
    parser.add_argument("--points", type=Path, help="file for the medians, which `make bench WHAT=scaling` compares")
    asked = parser.parse_args()
    found, commits = run(asked.rounds, asked.seconds, asked.delay_ms)
    rows = medians(found)
    print_table(rows)
    print("\none commit alone:", ", ".join(f"{delay} {took} ms" for delay, took in commits.items()))
    if asked.points is not None:
        facts = {
            "delay_ms": asked.delay_ms,
            "commit_ms": commits,
            "connections": CONNECTIONS,
            "rounds": asked.rounds,
            "rows": rows,
        }
        asked.points.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
