"""`make bench WHAT=outbox`: what a backlog costs an outbox, in posts and in deliveries, beside one without a backlog.

Two outboxes, of which one has 100,000 messages of a kind, take turns in one database. A post is a transaction of the
caller. A delivery is a request to a service of this process. What counts is the median of the ratios of a round. Kinds:
messages that are due; that wait for their next attempt; of one order behind a poison message; of many such orders.
"""

from __future__ import annotations

import argparse
import itertools
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psycopg

from semel import once
from semel.once import Outbox
from semel.once.delivery import Sending, delivered
from semel.once.messages import Delivery, OutboxMessage
from semel.once.table import OnceDialect
from tests.harness.postgres.cluster import Cluster
from tests.once.backlog import backlog_of
from tests.once.counter import counting

BACKLOG, EACH = 100_000, 300
NUMBERED = "SELECT setval(pg_get_serial_sequence('{}', 'number'), {})"
KINDS = ("due", "not due", "blocked", "many orders")
MOST_POST, LEAST_DELIVERY = 1.2, 0.9


class Side(NamedTuple):
    """An outbox: how it is opened, and a connection of the caller's."""

    place: str
    table: str
    connection: Any


class Ratios(NamedTuple):
    """A backlog beside none."""

    post_ms: float
    post_times: float
    delivered_per_second: float
    delivery_times: float


def seconds_of(work: Callable[[], None]) -> float:
    """How long work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def post(side: Side, url: str, keys: itertools.count[int]) -> None:
    """Post in transactions of the caller."""
    for _ in range(EACH):
        box = Outbox.in_transaction(side.connection, table=side.table)
        box.post(url, json={"amount": 5}, key=f"key-{next(keys)}")
        side.connection.commit()


def deliver(side: Side, most: int) -> None:
    """Deliver as many messages."""
    counted, is_over = itertools.count(1), threading.Event()
    sending = Sending(10.0, lambda _: None, time.time)

    def transport(message: OutboxMessage, deadline: float) -> Delivery:
        found = delivered(message, deadline, sending)
        if next(counted) >= most:
            is_over.set()
        return found

    box = Outbox(side.place, table=side.table, transport=transport, max_messages=10 * BACKLOG)
    thread = threading.Thread(target=box.run)
    thread.start()
    is_over.wait(120)
    box.stop()
    thread.join()
    box.close()


def settle(side: Side) -> None:
    """Let a dispatcher note which messages are behind others, as it does while a backlog grows."""
    box = Outbox(side.place, table=side.table)
    while box.store.run(box._statements.park(box._now())):
        pass
    box.close()


def measured(kind: str, sides: list[Side], url: str, rounds: int) -> Ratios:
    """Rounds of both in turn; the first one warms up."""
    keys = itertools.count()
    posts: list[list[float]] = []
    deliveries: list[list[float]] = []
    for number in range(rounds + 1):
        turn = sides if number % 2 else sides[::-1]
        posted = {side.table: seconds_of(lambda side=side: post(side, url, keys)) for side in turn}  # type: ignore[misc]
        sent = {side.table: seconds_of(lambda side=side: deliver(side, EACH)) for side in turn}  # type: ignore[misc]
        posts.append([posted[side.table] for side in sides])
        deliveries.append([sent[side.table] for side in sides])
    return Ratios(
        1_000 * median(full for _, full in posts[1:]) / EACH,
        median(full / none for none, full in posts[1:]),
        EACH / median(full for _, full in deliveries[1:]),
        median(none / full for none, full in deliveries[1:]),
    )


def filled(sides: list[Side], kind: str, dialect: OnceDialect, url: str) -> None:
    """Two outboxes with delivered messages; the second one also has the backlog."""
    for size, side in zip((0, BACKLOG), sides, strict=True):
        done, backlog = backlog_of(kind, BACKLOG, dialect, int(time.monotonic() * 1_000), side.table, url)
        for statement in (done, backlog)[: 1 + bool(size)]:
            side.connection.execute(statement)
        side.connection.commit()


def on_postgres(kind: str, url: str, rounds: int) -> Ratios:
    """Two tables of one server of its own."""
    with Cluster() as cluster, psycopg.connect(cluster.url) as connection:
        sides = [Side(cluster.url, table, connection) for table in ("small", "large")]
        for side in sides:
            connection.execute(once.outbox_ddl("postgresql", side.table).encode())
        filled(sides, kind, OnceDialect.POSTGRESQL, url)
        for side in sides:
            connection.execute(NUMBERED.format(side.table, 2 * BACKLOG).encode())
        connection.commit()
        settle(sides[1])
        with psycopg.connect(cluster.url, autocommit=True) as owner:
            owner.execute("VACUUM ANALYZE small, large")  # as autovacuum does, which is slower than this filling
        return measured(kind, sides, url, rounds)


def on_sqlite(kind: str, url: str, rounds: int) -> Ratios:
    """Two files."""
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for table in ("small", "large"):
            place = str(Path(folder) / f"{table}.db")
            Outbox(place, table=table).close()
            sides.append(Side(place, table, sqlite3.connect(place, timeout=60)))
        filled(sides, kind, OnceDialect.SQLITE, url)
        settle(sides[1])
        try:
            return measured(kind, sides, url, rounds)
        finally:
            for side in sides:
                side.connection.close()


def main() -> int:
    """Print the table; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    is_met = True
    print(f"| store | backlog of {BACKLOG} | post, ms | times none | delivered a second | times none |")
    print("|---|---|---|---|---|---|")
    with counting() as service:
        for store, measure in (("sqlite", on_sqlite), ("postgresql", on_postgres)):
            for kind in [options.only] if options.only else KINDS:
                found = measure(kind, f"{service.url}/x", options.rounds)
                is_met = is_met and found.post_times <= MOST_POST and found.delivery_times >= LEAST_DELIVERY
                facts = f"{found.post_ms:.2f} | {found.post_times:.2f} | {found.delivered_per_second:.0f}"
                print(f"| {store} | {kind} | {facts} | {found.delivery_times:.2f} |", flush=True)
    print(f"A post at most {MOST_POST} times as long, at least {LEAST_DELIVERY} times as many deliveries.")
    return 0 if is_met else 1


if __name__ == "__main__":
    raise SystemExit(main())
