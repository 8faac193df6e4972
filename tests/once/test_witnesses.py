"""What reads the receipt of a joined block beside its connection: few connections, which belong to one process."""

from __future__ import annotations

import gc
import sqlite3
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest
from django.db import OperationalError as DjangoOperationalError
from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from semel import once
from semel.once.drivers import django, sqlalchemy
from semel.once.drivers.base import Driver, Witness
from semel.once.table import Statement
from semel.once.transaction import driver_of
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema
from tests.once.houses_django import DjangoPostgres, opened
from tests.once.test_forks import forked

drivers = {"django": django, "sqlalchemy": sqlalchemy}
LOOKS = 40
THREADS = 4


def witness_of(engine: Engine) -> Witness:
    """What a block on a session leaves behind."""
    with Session(engine) as session:
        driver = driver_of(session)
        assert isinstance(driver, Driver)
        witness = driver.witness("semel_once")
    assert isinstance(witness, Witness)
    return witness


PROCESS = Statement("SELECT pg_backend_pid()")


def test_a_child_looks_over_connections_of_its_own() -> None:
    engine = create_engine(fresh_schema().replace("postgresql:", "postgresql+psycopg:"))
    witness = witness_of(engine)
    server = witness.look(PROCESS)

    def child() -> bool:
        engine.dispose(close=False)  # as SQLAlchemy has it
        return witness.look(PROCESS) != server

    assert witness.look(PROCESS) == server
    assert forked(child) == 0
    assert witness.look(PROCESS) == server
    engine.dispose()


def test_a_listener_that_checks_each_connection_is_in_no_ones_way() -> None:
    """Its statement begins a transaction, which is not that of the look."""
    engine = create_engine(fresh_schema().replace("postgresql:", "postgresql+psycopg:"))

    def check(connection: Connection) -> None:
        connection.exec_driver_sql("SET application_name = 'checked'")

    event.listen(engine, "engine_connect", check)
    asked = Statement("SELECT current_setting('application_name')")
    assert witness_of(engine).look(asked) == [("checked",)]
    engine.dispose()


def test_an_engine_is_collected_with_its_second_pool(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", poolclass=NullPool)
    assert witness_of(engine).look(Statement("SELECT 1")) == [(1,)]
    found = weakref.ref(engine)
    del engine
    gc.collect()
    assert found() is None


def test_the_second_pool_of_an_engine_is_disposed_of_with_it() -> None:
    url = f"{fresh_schema()}&application_name=disposed"
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    for _ in range(2):  # an engine may be used again
        assert witness_of(engine).look(PROCESS)
        assert sessions_of(url, "disposed") == 2  # one of each pool
        engine.dispose()
        eventually(lambda: sessions_of(url, "disposed") == 0, "the server has ended them")


def sessions_of(url: str, name: str) -> int:
    """How many sessions of a name the server has."""
    with psycopg.connect(url, autocommit=True, application_name="observer") as connection:
        [(count,)] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (name,)
        ).fetchall()
    return int(count)


def test_the_looks_of_all_requests_share_the_connections_of_one_pool() -> None:
    url = f"{fresh_schema()}&application_name=witnesses"
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))

    def look(_: int) -> object:
        return witness_of(engine).look(Statement("SELECT 1"))

    look(0)
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(look, range(LOOKS))) == [[(1,)]] * LOOKS
    count = sessions_of(url, "witnesses")
    engine.dispose()
    assert count <= 2 * THREADS


@pytest.mark.parametrize("framework", ["sqlalchemy", "django"])
def test_no_look_waits_for_a_lock_without_a_limit(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(once.ddl("postgresql").encode())
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    monkeypatch.setattr(drivers[framework], "PATIENCE_SECONDS", 0.3)
    with psycopg.connect(url) as lock, ExitStack() as stack:
        if framework == "django":
            driver = driver_of(stack.enter_context(opened(DjangoPostgres(url).facts())))
            assert isinstance(driver, Driver)
            witness = driver.witness("semel_once")
        else:
            witness = witness_of(engine)
        assert isinstance(witness, Witness)
        lock.execute(b"LOCK TABLE semel_once IN ACCESS EXCLUSIVE MODE")
        looking = Statement("SELECT key FROM semel_once")
        with pytest.raises((OperationalError, DjangoOperationalError), match="timeout"):
            witness.look(looking)
        lock.rollback()
        assert witness.look(looking) == []
    engine.dispose()


def test_a_look_at_a_file_takes_no_write_lock_although_the_engine_begins_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlalchemy, "PATIENCE_SECONDS", 0.3)
    file = str(tmp_path / "app.db")
    engine = create_engine(f"sqlite:///{file}", connect_args={"isolation_level": None})
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    once.migrate(engine)
    witness = witness_of(engine)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert witness.look(Statement("SELECT key FROM semel_once")) == []
    engine.dispose()
