"""What the calls of one process use at once: connections, threads, and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from semel import once
from semel.once import Once
from tests.once.conftest import fresh_schema
from tests.once.test_witnesses import sessions_of

CALLERS = 40
CONNECTIONS = 8
"""Which the page names."""
PATIENCE_SECONDS = 2.0
NAME = "bounded"


@pytest.fixture
def url() -> str:
    """A schema with the table of receipts."""
    found = fresh_schema()
    with psycopg.connect(found, autocommit=True) as connection:
        connection.execute(once.ddl("postgresql").encode())
    return f"{found}&application_name={NAME}"


@pytest.fixture
def store(url: str) -> Iterator[Once]:
    """Its store."""
    found = Once(url)
    yield found
    found.close()


def locked(url: str) -> psycopg.Connection[Any]:
    """Hold the table, so that each statement waits."""
    connection = psycopg.connect(url.replace(NAME, "lock"))
    connection.execute(b"LOCK TABLE semel_once IN ACCESS EXCLUSIVE MODE")
    return connection


def test_all_calls_of_a_process_share_a_few_connections(url: str, store: Once) -> None:
    charge = store.once(key="number", scope="shop", wait="25s")(lambda number: number)
    charge(-1)
    with ThreadPoolExecutor(CALLERS) as pool, locked(url) as lock:
        calls = [pool.submit(charge, number) for number in range(CALLERS)]
        most = 0
        for _ in range(20):
            time.sleep(0.05)
            most = max(most, sessions_of(url.replace(NAME, "observer"), NAME))
        lock.rollback()
        assert [call.result(25) for call in calls] == list(range(CALLERS))
    assert 1 < most <= CONNECTIONS
    assert sessions_of(url.replace(NAME, "observer"), NAME) <= CONNECTIONS


def test_a_locked_table_ends_the_patience_of_its_callers_and_leaves_the_programs_threads_free(
    url: str, store: Once
) -> None:
    """Callers in an event loop wait in threads of the store, not in those of `asyncio.to_thread`."""
    runs: list[int] = []

    @store.once(key="number", wait=f"{PATIENCE_SECONDS}s")
    async def charge(number: int) -> None:
        runs.append(number)

    async def play() -> tuple[list[Any], float, float]:
        await charge(-1)
        runs.clear()
        with locked(url):
            began = time.monotonic()
            calls = [asyncio.create_task(charge(number)) for number in range(CALLERS)]
            longest = 0.0
            while not all(call.done() for call in calls):
                sent = time.monotonic()
                await asyncio.to_thread(time.sleep, 0.01)
                longest = max(longest, time.monotonic() - sent)
            told = await asyncio.gather(*calls, return_exceptions=True)
            return told, time.monotonic() - began, longest

    told, seconds, longest = asyncio.run(play())
    assert {type(one) for one in told} <= {once.InFlight, once.StoreBusy}
    assert len(told) == CALLERS
    assert runs == []
    assert seconds < 4 * PATIENCE_SECONDS, "each caller waits for itself"
    assert longest < PATIENCE_SECONDS / 2, "a thread of the program was free at once"
