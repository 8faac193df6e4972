"""`once.migrate` on every kind of connection, and on an engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from semel import once
from tests.once.conftest import fresh_schema


def alchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_engine_is_given_the_table_and_commits_it(tmp_path: Path, kind: str) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db" if kind == "sqlite" else alchemy(fresh_schema()))
    for _ in range(2):
        once.migrate(engine)
    with engine.begin() as connection, once.transaction(connection, "k", scope=None) as attempt:
        assert attempt.fresh
        attempt.result = 1
    with engine.begin() as connection, once.transaction(connection, "k", scope=None) as attempt:
        assert attempt.result == 1
    engine.dispose()


def test_a_table_with_a_name_of_ones_own(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    once.migrate(engine, table="receipts")
    with engine.begin() as connection, once.transaction(connection, "k", scope=None, table="receipts") as attempt:
        assert attempt.fresh
    engine.dispose()


def test_a_connection_keeps_it_in_the_callers_transaction() -> None:
    url = fresh_schema()
    with psycopg.connect(url) as connection:
        once.migrate(connection)
        connection.rollback()
        with pytest.raises(once.TableMissing), once.transaction(connection, "k", scope=None):
            pass
        connection.rollback()
        once.migrate(connection)
        connection.commit()
        with once.transaction(connection, "k", scope=None) as attempt:
            assert attempt.fresh


def test_an_asynchronous_one_says_what_to_write() -> None:
    url = fresh_schema()

    async def migrated() -> None:
        engine = create_async_engine(alchemy(url))
        with pytest.raises(once.UnsupportedConnection, match="run_sync"):
            once.migrate(engine)
        async with engine.begin() as connection:
            await connection.run_sync(made)
        await engine.dispose()
        async with await psycopg.AsyncConnection.connect(url) as plain:
            with pytest.raises(once.UnsupportedConnection, match=r"once\.ddl"):
                once.migrate(plain)
            async with once.transaction(plain, "k", scope=None) as attempt:
                assert attempt.fresh

    asyncio.run(migrated())


def made(connection: Connection) -> None:
    once.migrate(connection)


def test_what_is_no_connection_is_refused() -> None:
    with pytest.raises(once.UnsupportedConnection):
        once.migrate(object())
