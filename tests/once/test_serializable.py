"""SERIALIZABLE: a transaction of the user's reads no row of other keys, so no other key makes the database abort it.

PostgreSQL aborts a transaction for what another one wrote where it has read. Of a small table it reads every page, and
through an index the whole page that a key is on: so both are looked for in the database's own list of such locks.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

from semel import once
from semel.client import Client, EventOutbox, Worker
from semel.once import Outbox
from semel.once.table import SWEEP_EVERY
from tests.once.conftest import fresh_schema
from tests.once.houses import House, Play
from tests.once.test_outbox_transactions import posts

SIZES = (0, 60, 150, 600, 20_000)
"""Rows of an analysed table: the planner reads a small one without its index."""
LOCKS = (
    "SELECT DISTINCT class.relname FROM pg_locks JOIN pg_class AS class ON class.oid = relation "
    "WHERE mode = 'SIReadLock' AND tuple IS NULL AND class.relnamespace = current_schema()::regnamespace "
    "AND class.relname LIKE 'semel_%'"
)
CALLERS, ROUNDS, ALTERNATIONS = 16, 5, 2
NOWHERE = "http://127.0.0.1:1"
numbers = itertools.count(1)


def fill(place: str, size: int) -> None:
    """Receipts and messages of other keys, in tables that were analysed with so many rows."""
    facts = f"FROM generate_series(1, {size}) AS n"
    with psycopg.connect(place, autocommit=True) as owner:
        for table in ("semel_outbox", "semel_event_outbox"):
            owner.execute(once.outbox_ddl("postgresql", table).encode())
            due = "next_at"
            names = f"key, fingerprint, method, url, headers, body, created_at, {due}"
            values = "SELECT 'old-' || n, '', 'POST', 'http://x/', '{}', '', 1, 1"
            owner.execute(f"INSERT INTO {table} ({names}) {values} {facts}".encode())
        names = "scope, key, fingerprint, state, created_at, expires_at"
        values = "SELECT 'shop', 'old-' || n, '', 'done', 1, 9000000000000"
        owner.execute(f"INSERT INTO semel_once ({names}) {values} {facts}".encode())
        owner.execute("CREATE TABLE bare AS SELECT key FROM semel_once")
        owner.execute("ALTER TABLE bare ADD PRIMARY KEY (key)")
        owner.execute("VACUUM ANALYZE semel_once, semel_outbox, semel_event_outbox, bare")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "play", [Play(isolation="SERIALIZABLE"), posts(isolation="SERIALIZABLE")], ids=["block", "post"]
)
def test_a_transaction_reads_its_own_row_alone(postgres_house: House, play: Play, size: int) -> None:
    fill(postgres_house.place, size)
    looks: list[list[tuple[Any, ...]]] = []

    def look() -> None:
        looks.append(postgres_house.query(LOCKS))

    for key in ("new", "new", f"key {size}"):  # the second one finds what the first one stored
        postgres_house.play(play._replace(key=key, before_commit=look))
    assert looks == [[]] * 3


async def bare(connection: Any, key: str) -> AsyncIterator[None]:
    """What is compared with: one row under a key, without this library."""
    await connection.execute("INSERT INTO bare VALUES (%s)", (key,))
    yield


async def block(connection: Any, key: str) -> AsyncIterator[None]:
    """A block whose transaction is open beside others."""
    async with once.transaction(connection, key, scope="shop") as attempt:
        yield
        attempt.result = key


async def post(connection: Any, key: str) -> AsyncIterator[None]:
    """A message."""
    await Outbox.in_transaction(connection).post_async(NOWHERE, json=1, key=key)
    yield


async def event(connection: Any, key: str) -> AsyncIterator[None]:
    """An event."""
    with Client(NOWHERE) as client, EventOutbox(":memory:", client) as box:
        await box.submit_async("n", 1, partitions="p", id=key, using=connection)
    yield


async def job(connection: Any, key: str) -> AsyncIterator[None]:
    """A job."""
    worker = Worker(NOWHERE)

    @worker.job("bill")
    def bill() -> None: ...

    await bill.with_options(key=key).submit_in_async(connection)
    worker.close()
    yield


Work = Callable[[Any, str], AsyncIterator[None]]


async def side_by_side(connections: list[Any], work: Work) -> int:
    """Work on every connection at once, each with keys of its own, and commit when all have done it: how many fail?"""
    failed = 0

    async def attempt(step: Awaitable[object]) -> bool:
        try:
            await step
        except (once.RunAgain, psycopg.errors.SerializationFailure):
            return False
        return True

    for _ in range(ROUNDS):
        plays = [work(connection, f"new-{next(numbers):09}") for connection in connections]
        for _ in range(2):
            is_done = await asyncio.gather(*[attempt(anext(play, None)) for play in plays])
            failed += is_done.count(False)
        is_done = await asyncio.gather(*[attempt(connection.commit()) for connection in connections])
        failed += is_done.count(False)
        for connection in connections:
            await connection.rollback()
    return failed


async def failures(place: str, works: list[Work]) -> list[int]:
    """How often each kind of work fails, in alternating rounds on the same connections."""
    connections = [await psycopg.AsyncConnection.connect(place) for _ in range(CALLERS)]
    for connection in connections:
        await connection.set_isolation_level(psycopg.IsolationLevel.SERIALIZABLE)
    found = [0] * len(works)
    for _ in range(ALTERNATIONS):
        for place_of, work in enumerate(works):
            found[place_of] += await side_by_side(connections, work)
    for connection in connections:
        await connection.close()
    return found


@pytest.mark.parametrize("size", SIZES)
def test_transactions_of_different_keys_fail_no_more_often_than_a_bare_insert(size: int) -> None:
    place = fresh_schema()
    with psycopg.connect(place) as owner:
        owner.execute(once.ddl("postgresql").encode())
    fill(place, size)
    assert CALLERS * ROUNDS * ALTERNATIONS > 2 * SWEEP_EVERY  # some of the blocks delete expired receipts
    plain, *others = asyncio.run(failures(place, [bare, block, post, event, job]))
    assert max(others) <= plain
