"""The looks of many joined requests at once, on drivers whose connections belong to an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from semel import once
from semel.once.drivers import looking
from semel.once.drivers.base import AsyncDriver, AsyncWitness
from semel.once.drivers.looking import LOOKS
from semel.once.table import Statement
from semel.once.transaction import driver_of
from tests.once.conftest import fresh_schema
from tests.once.test_witnesses import sessions_of

REQUESTS = 60


async def witness_of(driver: str, url: str) -> AsyncWitness:
    """What a block leaves behind."""
    if driver == "asyncpg":
        schema = url.partition("search_path%3D")[2].partition("&")[0]
        connection = await asyncpg.connect(
            url.partition("?")[0], server_settings={"search_path": schema, "application_name": "looks"}
        )
        found = await _driver(connection).witness("semel_once")
        await connection.close()
    else:
        engine = create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        async with engine.connect() as connection:
            found = await _driver(connection).witness("semel_once")
        await engine.dispose()
    assert isinstance(found, AsyncWitness)
    return found


def _driver(connection: Any) -> AsyncDriver:
    found = driver_of(connection)
    assert isinstance(found, AsyncDriver)
    return found


def migrated() -> str:
    """The URL of a schema with the table of receipts."""
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(once.ddl("postgresql").encode())
    return f"{url}&application_name=looks"


@pytest.mark.parametrize("driver", ["asyncpg", "sqlalchemy"])
def test_the_looks_of_many_requests_use_a_few_connections(driver: str) -> None:
    url = migrated()

    async def play() -> int:
        witnesses = [await witness_of(driver, url) for _ in range(REQUESTS)]
        with psycopg.connect(url.replace("=looks", "=lock")) as lock:
            lock.execute(b"LOCK TABLE semel_once IN ACCESS EXCLUSIVE MODE")
            looks = [asyncio.create_task(one.look(Statement("SELECT key FROM semel_once"))) for one in witnesses]
            most = 0
            for _ in range(20):
                await asyncio.sleep(0.05)
                most = max(most, await asyncio.to_thread(sessions_of, url.replace("=looks", "=observer"), "looks"))
            lock.rollback()
            assert await asyncio.gather(*looks) == [[]] * REQUESTS
        return most

    assert 0 < asyncio.run(play()) <= LOOKS
    assert not looking._free, "no event loop is remembered"


@pytest.mark.parametrize("driver", ["asyncpg", "sqlalchemy"])
def test_a_look_that_gets_no_connection_in_time_says_so(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = migrated()
    monkeypatch.setattr(looking, "PATIENCE_SECONDS", 0.3)

    async def play() -> list[BaseException | Any]:
        witnesses = [await witness_of(driver, url) for _ in range(LOOKS + 1)]
        with psycopg.connect(url.replace("=looks", "=lock")) as lock:
            lock.execute(b"LOCK TABLE semel_once IN ACCESS EXCLUSIVE MODE")
            looks = [asyncio.create_task(one.look(Statement("SELECT key FROM semel_once"))) for one in witnesses]
            await asyncio.sleep(1)
            lock.rollback()
            return await asyncio.gather(*looks, return_exceptions=True)

    told = asyncio.run(play())
    assert [type(one) for one in told if one != []] == [once.StoreBusy]
