"""`make bench WHAT=once`: what `once.transaction` costs beside the same transaction without it, alternating.

Three sides insert one row and commit, each with a connection of its own. One does nothing else; one also inserts a key
into a table with a primary key, the least that anything with receipts must do; one takes a key with `once.transaction`
and stores a result. PostgreSQL and SQLite sync every commit. A round is a few hundred transactions of each; what counts
is the median of the ratios within a round, of wall time and of this program's CPU.

`python -m bench.once_costs --against REVISION` sets the library beside that of another revision: fresh calls and
replays, in two processes that take turns. It exits with 1 if either costs more CPU or more time than before.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psycopg

from bench.host_cpu import ROOT, checked_out
from semel import once
from tests.harness.postgres.cluster import Cluster

EACH = 300
TARGETS = {"psycopg": 1.3, "sqlite3": 1.5}
INSERT = "INSERT INTO charges (amount) VALUES (5)"
KEYS = "CREATE TABLE keys (scope text, key text, PRIMARY KEY (scope, key))"
RESULT = {"charge": 7, "amount": 5, "currency": "EUR"}
ARGUMENTS = {"amount": 5, "customer": "customer-3"}


class Spent(NamedTuple):
    """What a round took."""

    wall: float
    cpu: float


class Costs(NamedTuple):
    """A driver's medians."""

    bare_ms: float
    once_ms: float
    times: float
    times_cpu: float
    times_with_a_key: float
    """What one more insert costs."""


def spent(work: Callable[[], None]) -> Spent:
    """Carry out one round."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(EACH):
        work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def measured(work: Sides, rounds: int) -> Costs:
    """All of them, round after round; the first round warms up."""
    turns = [Sides(*map(spent, work)) for _ in range(rounds + 1)][1:]
    return Costs(
        1_000 * median(turn.bare.wall for turn in turns) / EACH,
        1_000 * median(turn.kept.wall for turn in turns) / EACH,
        median(turn.kept.wall / turn.bare.wall for turn in turns),
        median(turn.kept.cpu / turn.bare.cpu for turn in turns),
        median(turn.keyed.wall / turn.bare.wall for turn in turns),
    )


class Sides(NamedTuple):
    """The same transaction in three ways, or what each of them took."""

    bare: Any
    keyed: Any
    kept: Any


def sides(insert_key: str, first: Any, second: Any, third: Any) -> Sides:
    """Each on a connection of its own."""
    numbers = itertools.count()

    def bare() -> None:
        first.execute(INSERT)
        first.commit()

    def keyed() -> None:
        second.execute(insert_key, ("customer-3", f"order-{next(numbers)}"))
        second.execute(INSERT)
        second.commit()

    def kept() -> None:
        with once.transaction(third, f"order-{next(numbers)}", ARGUMENTS, scope="customer-3") as attempt:
            if attempt.fresh:
                third.execute(INSERT)
                attempt.result = RESULT
        third.commit()

    return Sides(bare, keyed, kept)


def on_postgres(rounds: int) -> Costs:
    """By psycopg, against a server of its own."""
    with Cluster() as cluster, ExitStack() as stack:
        first, second, third = (stack.enter_context(psycopg.connect(cluster.url)) for _ in range(3))
        first.execute("CREATE TABLE charges (id bigserial PRIMARY KEY, amount int)")
        first.execute(KEYS)
        once.migrate(first)
        first.commit()
        return measured(sides("INSERT INTO keys VALUES (%s, %s)", first, second, third), rounds)


def on_sqlite(rounds: int) -> Costs:
    """By the standard library, in a file."""
    with tempfile.TemporaryDirectory() as folder:
        connections = [sqlite3.connect(Path(folder) / "shop.db", timeout=60) for _ in range(3)]
        connections[0].execute("PRAGMA journal_mode = WAL")
        connections[0].executescript(f"CREATE TABLE charges (id integer PRIMARY KEY, amount int); {KEYS} WITHOUT ROWID")
        once.migrate(connections[0])
        connections[0].commit()
        for connection in connections:
            connection.execute("PRAGMA synchronous = FULL")
        try:
            return measured(sides("INSERT INTO keys VALUES (?, ?)", *connections), rounds)
        finally:
            for connection in connections:
                connection.close()


class Library:
    """The library of one tree, in a process of its own."""

    def __init__(self, tree: Path, place: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, ROOT / "bench" / "once_turns.py", place],
            env=os.environ | {"PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def spend(self, kind: str) -> Spent:
        """What one round takes there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {EACH}\n")
        self._process.stdin.flush()
        return Spent(*map(float, self._process.stdout.readline().split()))

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


def beside(places: tuple[str, str], other: Path, rounds: int) -> Iterator[tuple[str, float, float]]:
    """For each kind of call the medians of the ratios of this tree to another one: of wall time and of CPU."""
    with ExitStack() as stack:
        both = [Library(tree, place) for tree, place in zip((ROOT, other), places, strict=True)]
        for one in both:
            stack.callback(one.close)
        for kind in ("fresh", "replay"):
            turns = []
            for turn in range(rounds + 1):
                spent_by = {one: one.spend(kind) for one in (both if turn % 2 else both[::-1])}
                turns.append([spent_by[one] for one in both])
            pairs = turns[1:]
            yield (
                kind,
                median(now.wall / before.wall for now, before in pairs),
                median(now.cpu / before.cpu for now, before in pairs),
            )


def compare(revision: str, rounds: int) -> int:
    """Print how the library compares with that of a revision; 1 if a call costs more."""
    most = 0.0
    print("| driver | call | wall time, times | CPU, times |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, checked_out(revision, Path(folder)) as other, Cluster() as cluster:
        for database in ("now", "before"):
            cluster.execute(f"CREATE DATABASE {database}")
        at = cluster.url.rpartition("/")[0]
        places = {
            "psycopg": (f"{at}/now", f"{at}/before"),
            "sqlite3": (f"{folder}/now.db", f"{folder}/before.db"),
        }
        for driver, pair in places.items():
            for kind, wall, cpu in beside(pair, other, rounds):
                print(f"| {driver} | {kind} | {wall:.2f} | {cpu:.2f} |", flush=True)
                most = max(most, wall, cpu)
    return int(most > 1.0)


def main() -> int:
    """Print the table; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--against", help="a revision to compare with")
    options = parser.parse_args()
    rounds = options.rounds
    if options.against:
        return compare(options.against, rounds)
    found = {"psycopg": on_postgres(rounds), "sqlite3": on_sqlite(rounds)}
    print("| driver | bare, ms | with once, ms | times | times the CPU | times with one more insert alone | target |")
    print("|---|---|---|---|---|---|---|")
    for name, costs in found.items():
        facts = " | ".join(f"{fact:.2f}" for fact in costs)
        print(f"| {name} | {facts} | at most {TARGETS[name]} |")
    return 0 if all(costs.times <= TARGETS[name] for name, costs in found.items()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
