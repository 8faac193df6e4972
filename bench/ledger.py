"""`make bench WHAT=ledger_wires`: transactions of the ledger on SQLite and PostgreSQL, over HTTP and gRPC, alternating.

Every round measures each row once, one after the other, so that a noisy machine disturbs all of them alike. Each
measurement has a server with an empty store, all clients write to one vault, and everybody is answered after the sync.
Beside them runs the simplest keyed write that the same server has, an append to a stream; how many times its rate the
others have is the median of the ratios within a round.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx

from bench import machine
from bench.jobs_stores import POSTGRES, database
from bench.ledger_load import BATCH, DUPLICATE, MEASURES, OPERATIONS, WIRES
from bench.probes import STREAM, committed
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import RunningServer

AT_ONCE = 64
PATIENCE_SECONDS = 300
APPEND = "append to a stream"
MEANINGS = {APPEND: "an event of about 200 bytes under a fresh random key, over HTTP"} | MEASURES
LONGER = {BATCH: 3}
"""So many times the window: with 64 large transactions under way each waits for a second or more."""


class Row(NamedTuple):
    """One row of the table: the store, the wire and what is measured."""

    store: str
    wire: str
    measure: str


class Figures(NamedTuple):
    """One measurement."""

    per_second: float
    p50_ms: float
    p99_ms: float
    writes_a_commit: float | None


Serving = Callable[[], AbstractContextManager[RunningServer]]


@contextmanager
def on_sqlite() -> Iterator[RunningServer]:
    """A server with an empty store."""
    with tempfile.TemporaryDirectory() as folder, RunningServer(Path(folder) / "data", grpc=True) as server:
        yield server


@contextmanager
def on_postgres(cluster: Cluster) -> Iterator[RunningServer]:
    """The same on a new database."""
    with (
        tempfile.TemporaryDirectory() as folder,
        database(cluster) as url,
        RunningServer(Path(folder) / "data", env={"SEMEL_STORE": url}, grpc=True) as server,
    ):
        yield server


def measure(server: RunningServer, row: Row, at_once: int, seconds: float) -> Figures:
    """One row once."""
    command = append_load(server, at_once) if row.measure == APPEND else ledger_load(server, row, at_once)
    seconds *= LONGER.get(row.measure, 1)
    command += ["--window", str(seconds), "--warm", str(seconds / 6)]
    writes, commits = committed(server.url)
    done = subprocess.run(
        [sys.executable, "-m", *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS + seconds,
    )
    if done.returncode:
        raise SystemExit(f"{row} failed, the figures would mean nothing:\n{done.stdout}{done.stderr}")
    got: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    if got["errors"]:
        raise SystemExit(f"{row}: {got['errors']:.0f} requests were refused, the figures would mean nothing")
    writes_then, commits_then = committed(server.url)
    synced = commits_then - commits
    return Figures(got["per_second"], got["p50_ms"], got["p99_ms"], (writes_then - writes) / synced if synced else None)


def append_load(server: RunningServer, at_once: int) -> list[str]:
    """Appends to a stream that is made for them."""
    httpx.put(server.url + STREAM, headers={"Content-Type": "application/json"}).raise_for_status()
    options = ["--path", STREAM, "--keys", "random", "--connections", str(at_once)]
    return ["bench.load", "--port", str(server.port), *options]


def ledger_load(server: RunningServer, row: Row, at_once: int) -> list[str]:
    """Transactions in a vault that is made for them."""
    orgs = f"{server.url}/ledger/v1/orgs"
    org = httpx.post(orgs, json={"name": "bench"}).raise_for_status().json()["slug"]["slug"]
    vault = httpx.post(f"{orgs}/{org}/vaults", json={}).raise_for_status().json()["vault"]["slug"]
    port = server.port if row.wire == "http" else server.grpc_port
    options = ["--measure", row.measure, "--wire", row.wire, "--org", org, "--vault", vault, "--at-once", str(at_once)]
    return ["bench.ledger_load", "--port", str(port), *options]


def rows_of(stores: Sequence[str], wires: Sequence[str], measures: Sequence[str]) -> list[Row]:
    """Everything that is measured, in order."""
    found: list[Row] = []
    for store in stores:
        found.append(Row(store, "http", APPEND))
        found += [Row(store, wire, one) for one in measures for wire in wires]
    return found


def measure_all(
    serving: Mapping[str, Serving], rows: Sequence[Row], rounds: int, at_once: int, seconds: float
) -> dict[Row, list[Figures]]:
    """Round after round."""
    figures: dict[Row, list[Figures]] = {row: [] for row in rows}
    for number in range(rounds):
        for row in rows:
            told = f"round {number + 1} of {rounds}: {', '.join(row)}"
            print(f"\r{told:<79}", end="", file=sys.stderr, flush=True)
            with serving[row.store]() as server:
                figures[row].append(measure(server, row, at_once, seconds))
    print(file=sys.stderr)
    return figures


def print_table(figures: Mapping[Row, Sequence[Figures]]) -> None:
    """Medians, and ratios within a round."""
    print("| store | wire | measure | requests/s | operations/s | p50 ms | p99 ms | a commit | times an append |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row, some in figures.items():
        beside = figures[Row(row.store, "http", APPEND)]
        rate = median(one.per_second for one in some)
        times = [a.per_second / b.per_second for a, b in zip(some, beside, strict=True) if b.per_second]
        # A duplicate syncs nothing: the commits are those of what it repeats.
        each = [one.writes_a_commit for one in some if one.writes_a_commit and row.measure != DUPLICATE]
        print(
            f"| {row.store} | {row.wire} | {row.measure} | {rate:,.0f} | {rate * OPERATIONS.get(row.measure, 1):,.0f} "
            f"| {median(one.p50_ms for one in some):.1f} | {median(one.p99_ms for one in some):.1f} "
            f"| {f'{median(each):.0f}' if each else '-'} | {f'{median(times):.2f}' if times else '-'} |"
        )


def print_facts(rows: Sequence[Row], at_once: int) -> None:
    """What was measured, on what."""
    print(f"\n{at_once} clients, each on its own connection with one request under way. Measures:")
    for name in dict.fromkeys(row.measure for row in rows):
        print(f"- {name}: {MEANINGS[name]}")
    print("\nRun on:")
    for fact in machine.facts():
        print(f"- {fact}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    parser.add_argument("--store", choices=("SQLite", "PostgreSQL"), action="append", help="only these")
    parser.add_argument("--wire", choices=sorted(WIRES), action="append", help="only these")
    parser.add_argument("--measure", choices=sorted(MEASURES), action="append", help="only these")
    asked = parser.parse_args()
    stores = asked.store or ["SQLite", "PostgreSQL"]
    rows = rows_of(stores, asked.wire or list(WIRES), asked.measure or list(MEASURES))
    if "PostgreSQL" in stores:
        with Cluster(POSTGRES) as cluster:
            serving: dict[str, Serving] = {"SQLite": on_sqlite, "PostgreSQL": partial(on_postgres, cluster)}
            figures = measure_all(serving, rows, asked.rounds, asked.at_once, asked.seconds)
    else:
        figures = measure_all({"SQLite": on_sqlite}, rows, asked.rounds, asked.at_once, asked.seconds)
    print_table(figures)
    print_facts(rows, asked.at_once)


if __name__ == "__main__":
    main()
