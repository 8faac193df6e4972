"""`make bench WHAT=nodes`: durable keyed appends on PostgreSQL beside one transaction a request, alternating.

Every round measures each candidate once, in the same order, so that a noisy machine disturbs all of them alike; what
counts is the median of the ratios within a round. The baselines are in `bench.naive`. Keys are random UUIDs, the harder
case for an index; appends are spread over a few streams, because one stream is one lock. The database server is made
for the run, with its commits synced to disk, and each candidate has a database of its own in it, so that no candidate
meets another one's rows, locks or notifications.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import httpx

from bench import naive
from bench.load_sources import paths
from bench.probes import committed, wait_for_listener
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer, free_port

PATH = "/v1/stream/bench"
STREAMS = 16
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
CONNECTIONS = (64, 256)
WRITERS = 256

HTTP, STORE = "HTTP", "store"
BLOCK, LEAN = "BEGIN, INSERT, COMMIT", "INSERT, autocommit"
ONE_NODE, TWO_NODES, ENGINE = "Semel, 1 node", "Semel, 2 nodes", "Semel's engine"


class Row(NamedTuple):
    """One row of the table: where it is measured, what, and with how many requests under way."""

    where: str
    name: str
    at_once: int

    def against(self, baseline: str) -> Row:
        """What this row is compared with."""
        return self._replace(name=baseline)


class Figures(NamedTuple):
    """One measurement."""

    per_second: float
    p50_ms: float
    p99_ms: float
    writes_a_commit: float = 1.0


Measure = Callable[[int, float], Figures]
"""Measures a candidate with so many requests at once, for so many seconds."""


def run_together(commands: Sequence[Sequence[str]]) -> list[dict[str, float]]:
    """Programs that measure, at the same time; the JSON object that each has printed."""
    running = [
        subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True) for command in commands
    ]
    printed = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("a measurement failed: the figures would mean nothing")
    answered: list[dict[str, float]] = [json.loads(text) for text in printed]
    refused = sum(one["errors"] for one in answered)
    if refused:
        raise SystemExit(f"{refused:.0f} requests were refused: the figures would mean nothing")
    return answered


def over_http(ports: Sequence[int], connections: int, seconds: float) -> Figures:
    """One load generator a server, the connections shared out; rates add up, and of latencies the worse p99 counts."""
    each = str(connections // len(ports))
    options = ["--path", PATH, "--streams", str(STREAMS), "--keys", "random", "--window", str(seconds)]
    got = run_together([["bench.load", "--port", str(port), "--connections", each, *options] for port in ports])
    return Figures(
        sum(one["per_second"] for one in got), mean(one["p50_ms"] for one in got), max(one["p99_ms"] for one in got)
    )


def measure_nodes(nodes: Sequence[RunningServer]) -> Measure:
    """Semel over HTTP."""

    def measure(connections: int, seconds: float) -> Figures:
        before = [committed(node.url) for node in nodes]
        figures = over_http([node.port for node in nodes], connections, seconds)
        after = [committed(node.url) for node in nodes]
        writes = sum(now[0] - then[0] for now, then in zip(after, before, strict=True))
        commits = sum(now[1] - then[1] for now, then in zip(after, before, strict=True))
        return figures._replace(writes_a_commit=writes / commits)

    return measure


def measure_writers(through: str, url: str) -> Measure:
    """One side without HTTP."""

    def measure(writers: int, seconds: float) -> Figures:
        options = ["--streams", str(STREAMS), "--writers", str(writers), "--window", str(seconds)]
        (got,) = run_together([["bench.writers", "--through", through, "--url", url, *options]])
        return Figures(got["per_second"], got["p50_ms"], got["p99_ms"], got["writes_a_commit"])

    return measure


def database(cluster: Cluster, name: str) -> str:
    """The URL of a new database."""
    cluster.execute(f"CREATE DATABASE {name}")
    return f"{cluster.url.rpartition('/')[0]}/{name}"


@contextmanager
def naive_server(url: str, *options: str) -> Iterator[int]:
    """A baseline over HTTP, on the port that is given."""
    naive.create(url)
    port = free_port()
    options = ("--port", str(port), "--url", url, "--connections", str(naive.CONNECTIONS), *options)
    server = subprocess.Popen([sys.executable, "-m", "bench.naive_server", *options])
    try:
        wait_for_listener(port)
        yield port
    finally:
        server.terminate()
        server.wait()


@contextmanager
def semel_nodes(url: str, folders: Sequence[Path]) -> Iterator[list[RunningServer]]:
    """A node for each folder, all on one database, with the streams in it."""
    with ExitStack() as running:
        nodes = [running.enter_context(RunningServer(folder, env={"SEMEL_STORE": url})) for folder in folders]
        for path in paths(PATH, STREAMS):
            httpx.put(nodes[0].url + path, headers={"Content-Type": "application/json"}).raise_for_status()
        yield nodes


@contextmanager
def candidates(cluster: Cluster, folder: Path) -> Iterator[dict[Row, Measure]]:
    """Everything that is measured, in order, with its servers running; one that nobody asks costs next to nothing."""
    block_store, lean_store = database(cluster, "block_store"), database(cluster, "lean_store")
    naive.create(block_store)
    naive.create(lean_store)
    with ExitStack() as running:
        block = running.enter_context(naive_server(database(cluster, "block_http"), "--block"))
        lean = running.enter_context(naive_server(database(cluster, "lean_http")))
        one = running.enter_context(semel_nodes(database(cluster, "one_node"), [folder / "single"]))
        two = running.enter_context(semel_nodes(database(cluster, "two_nodes"), [folder / "first", folder / "second"]))
        found: dict[Row, Measure] = {}
        for connections in CONNECTIONS:
            found[Row(HTTP, BLOCK, connections)] = partial(over_http, [block])
            found[Row(HTTP, LEAN, connections)] = partial(over_http, [lean])
            found[Row(HTTP, ONE_NODE, connections)] = measure_nodes(one)
            found[Row(HTTP, TWO_NODES, connections)] = measure_nodes(two)
        found[Row(STORE, BLOCK, WRITERS)] = measure_writers("block", block_store)
        found[Row(STORE, LEAN, WRITERS)] = measure_writers("lean", lean_store)
        found[Row(STORE, ENGINE, WRITERS)] = measure_writers("engine", database(cluster, "engine"))
        yield found


def run(rounds: int, seconds: float) -> dict[Row, list[Figures]]:
    """All candidates, round after round."""
    with tempfile.TemporaryDirectory() as folder, Cluster(SETTINGS) as cluster:
        with candidates(cluster, Path(folder)) as measures:
            figures: dict[Row, list[Figures]] = {row: [] for row in measures}
            for number in range(rounds):
                for row, measure in measures.items():
                    told = f"round {number + 1} of {rounds}: {row.where}, {row.name}, {row.at_once} at once"
                    print(f"\r{told:<79}", end="", file=sys.stderr, flush=True)
                    figures[row].append(measure(row.at_once, seconds))
        print(file=sys.stderr)
    return figures


def times(figures: dict[Row, list[Figures]], row: Row, baseline: str) -> float:
    """The median of the ratios within a round."""
    pairs = zip(figures[row], figures[row.against(baseline)], strict=True)
    return median(ours.per_second / theirs.per_second for ours, theirs in pairs)


def print_table(figures: dict[Row, list[Figures]]) -> None:
    """Medians, ratios within a round, and both targets."""
    print(f"| measured at | candidate | at once | appends/s | of {BLOCK} | of {LEAN} | p50 ms | p99 ms | a commit |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row, some in figures.items():
        print(
            f"| {row.where} | {row.name} | {row.at_once} | {median(one.per_second for one in some):,.0f} "
            f"| {times(figures, row, BLOCK):.2f} | {times(figures, row, LEAN):.2f} "
            f"| {median(one.p50_ms for one in some):.1f} | {median(one.p99_ms for one in some):.1f} "
            f"| {median(one.writes_a_commit for one in some):.1f} |"
        )
    for where, row, target in (
        ("over HTTP, one node", Row(HTTP, ONE_NODE, 256), 3),
        ("over HTTP, two nodes", Row(HTTP, TWO_NODES, 256), 3),
        ("at the store", Row(STORE, ENGINE, WRITERS), 5),
    ):
        block, lean = times(figures, row, BLOCK), times(figures, row, LEAN)
        print(f"\n{where}, 256 at once: {block:.2f} times {BLOCK}, {lean:.2f} times {LEAN} (target {target})")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    asked = parser.parse_args()
    print_table(run(asked.rounds, asked.seconds))


if __name__ == "__main__":
    main()
