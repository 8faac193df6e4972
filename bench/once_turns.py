"""One side of `python -m bench.once_costs --against REVISION`: transactions with the library of one tree, on request.

It imports nothing of this project but `semel.once`, which is that of the tree in PYTHONPATH. Each line of its standard
input is `fresh` or `replay` and a number of transactions; the answer is their wall time and their CPU time in seconds.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
import time
from typing import Any

from semel import once

INSERT = "INSERT INTO charges (amount) VALUES (5)"
RESULT = {"charge": 7, "amount": 5, "currency": "EUR"}
ARGUMENTS = {"amount": 5, "customer": "customer-3"}


def connected(place: str) -> Any:
    """A connection to a SQLite file or to PostgreSQL."""
    if place.startswith("postgresql://"):
        import psycopg  # noqa: PLC0415 - the other side needs no driver

        return psycopg.connect(place)
    connection = sqlite3.connect(place, timeout=60)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def charge(connection: Any, key: str) -> None:
    """One transaction."""
    with once.transaction(connection, key, ARGUMENTS, scope="customer-3") as attempt:
        if attempt.fresh:
            connection.execute(INSERT)
            attempt.result = RESULT
    connection.commit()


def main(place: str) -> None:
    """Make the tables, then answer each line."""
    connection = connected(place)
    connection.execute("CREATE TABLE charges (amount int)")
    once.migrate(connection)
    connection.commit()
    numbers, done = itertools.count(), 0
    for line in sys.stdin:
        kind, each = line.split()
        wall, cpu = time.perf_counter(), time.process_time()
        for turn in range(int(each)):
            charge(connection, f"order-{next(numbers) if kind == 'fresh' else turn % done}")
        sys.stdout.write(f"{time.perf_counter() - wall} {time.process_time() - cpu}\n")
        sys.stdout.flush()
        done = max(done, int(each) if kind == "fresh" else 0)
    connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
