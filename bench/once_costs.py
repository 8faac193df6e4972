"""`make benchonce`: what `once.transaction` costs beside the same transaction without it, alternating.

Both sides insert one row and commit, each with a connection of its own; the second also takes a key and stores a
result. PostgreSQL and SQLite sync every commit. A round is a few hundred transactions of each; what counts is the
median of the ratios within a round, of wall time and of this program's CPU.
"""

from __future__ import annotations

import argparse
import itertools
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psycopg

from semel import once
from tests.postgres.cluster import Cluster

EACH = 300
TARGETS = {"psycopg": 1.3, "sqlite3": 1.5}
INSERT = "INSERT INTO charges (amount) VALUES (5)"
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


def spent(work: Callable[[], None]) -> Spent:
    """Carry out one round."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(EACH):
        work()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def measured(bare: Callable[[], None], kept: Callable[[], None], rounds: int) -> Costs:
    """Both, round after round; the first round warms up."""
    turns = [(spent(bare), spent(kept)) for _ in range(rounds + 1)][1:]
    return Costs(
        1_000 * median(one.wall for one, _ in turns) / EACH,
        1_000 * median(two.wall for _, two in turns) / EACH,
        median(two.wall / one.wall for one, two in turns),
        median(two.cpu / one.cpu for one, two in turns),
    )


def sides(first: Any, second: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    """The same transaction on two connections, without a receipt and with one."""
    numbers = itertools.count()

    def bare() -> None:
        first.execute(INSERT)
        first.commit()

    def kept() -> None:
        with once.transaction(second, f"order-{next(numbers)}", ARGUMENTS, scope="customer-3") as attempt:
            if attempt.fresh:
                second.execute(INSERT)
                attempt.result = RESULT
        second.commit()

    return bare, kept


def on_postgres(rounds: int) -> Costs:
    """By psycopg, against a server of its own."""
    with Cluster() as cluster, psycopg.connect(cluster.url) as first, psycopg.connect(cluster.url) as second:
        first.execute("CREATE TABLE charges (id bigserial PRIMARY KEY, amount int)")
        first.execute(once.ddl("postgresql").encode())
        first.commit()
        return measured(*sides(first, second), rounds)


def on_sqlite(rounds: int) -> Costs:
    """By the standard library, in a file."""
    with tempfile.TemporaryDirectory() as folder:
        connections = [sqlite3.connect(Path(folder) / "shop.db", timeout=60) for _ in range(2)]
        connections[0].execute("PRAGMA journal_mode = WAL")
        connections[0].executescript("CREATE TABLE charges (id integer PRIMARY KEY, amount int);" + once.ddl("sqlite"))
        for connection in connections:
            connection.execute("PRAGMA synchronous = FULL")
        try:
            return measured(*sides(*connections), rounds)
        finally:
            for connection in connections:
                connection.close()


def main() -> int:
    """Print the table; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    found = {"psycopg": on_postgres(rounds), "sqlite3": on_sqlite(rounds)}
    print("| driver | bare, ms | with once, ms | times | times the CPU | target |\n|---|---|---|---|---|---|")
    for name, costs in found.items():
        facts = f"{costs.bare_ms:.2f} | {costs.once_ms:.2f} | {costs.times:.2f} | {costs.times_cpu:.2f}"
        print(f"| {name} | {facts} | at most {TARGETS[name]} |")
    return 0 if all(costs.times <= TARGETS[name] for name, costs in found.items()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
