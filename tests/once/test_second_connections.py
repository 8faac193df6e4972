"""The connection that renews leases, beside those of the application: it sees what they see, in each process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool
from sqlalchemy import StaticPool, create_engine, event

from semel import once
from semel.once import Once, UnsupportedConnection
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema
from tests.once.keeping import with_driver
from tests.once.test_forks import forked
from tests.once.test_witnesses import sessions_of

LEASE, LEASE_SECONDS = "0.6s", 0.6
SET_UP = "SET search_path = {}"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closes what a test has opened."""
    with ExitStack() as found:
        yield found


def plain(url: str) -> tuple[str, str]:
    """A URL without its schema, and the statement that chooses the schema."""
    bare, _, schema = url.partition("?options=-c%20search_path%3D")
    return bare, SET_UP.format(schema)


def migrated() -> str:
    """The URL of a schema with the table of receipts."""
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(once.ddl("postgresql").encode())
    return url


def pool_with_configure(stack: ExitStack) -> Any:
    """A pool that sets up each of its connections."""
    url, sql = plain(migrated())

    def configure(connection: psycopg.Connection[Any]) -> None:
        connection.execute(sql.encode())
        connection.commit()

    return stack.enter_context(ConnectionPool(url, min_size=1, configure=configure))


class SetUpConnection(psycopg.Connection[Any]):
    """A connection that sets itself up, as one does that gets its password anew."""

    sql = ""

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Any:
        """Connect and choose the schema."""
        found = super().connect(conninfo, **kwargs)
        found.execute(cls.sql.encode())
        found.commit()
        return found


def pool_of_a_class(stack: ExitStack) -> Any:
    """A pool with a class of connections of its own."""
    url, SetUpConnection.sql = plain(migrated())
    return stack.enter_context(ConnectionPool(url, min_size=1, connection_class=SetUpConnection))


def engine_on(stack: ExitStack, moment: str) -> Any:
    """An engine whose listener sets up a connection when it is made, or each transaction."""
    url, sql = plain(migrated())
    engine = create_engine(with_driver(url))
    stack.callback(engine.dispose)

    def begin(connection: Any) -> None:
        connection.exec_driver_sql(sql)

    def connect(connection: Any, _: Any) -> None:
        connection.execute(sql)
        connection.commit()

    # A statement at `engine_connect` begins a transaction, as the usual check of a connection does.
    event.listen(engine, moment, connect if moment == "connect" else begin)
    return engine


def engine_in_memory(stack: ExitStack) -> Any:
    """An engine with one connection, which is its database."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    stack.callback(engine.dispose)
    once.migrate(engine)
    return engine


PLACES: dict[str, Callable[[ExitStack], Any]] = {
    "pool with configure=": pool_with_configure,
    "pool with connection_class=": pool_of_a_class,
    "engine with a listener of begin": lambda stack: engine_on(stack, "begin"),
    "engine with a listener of engine_connect": lambda stack: engine_on(stack, "engine_connect"),
    "engine with a listener of connect": lambda stack: engine_on(stack, "connect"),
    "engine in memory": engine_in_memory,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_lease_is_renewed_over_a_connection_that_the_application_has_set_up(
    stack: ExitStack, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Once(PLACES[place](stack))
    stack.callback(store.close)
    left: list[float] = []

    @store.once(key="key", lease=LEASE)
    def charge(key: str) -> str:
        for _ in range(6):
            time.sleep(LEASE_SECONDS / 2)
            left.append(once.current_call().lease_left)
        return key

    with caplog.at_level(logging.WARNING):
        assert charge("k") == charge("k") == "k"
    assert min(left) > 0
    assert "could not be renewed" not in caplog.text
    assert "its lease is renewed" in caplog.text


def pool_set_up_by_hand(stack: ExitStack) -> Any:
    """A pool of which one connection was set up."""
    url, sql = plain(migrated())
    pool = stack.enter_context(ConnectionPool(url, min_size=1, max_size=1))
    with pool.connection() as connection:
        connection.execute(sql.encode())
    return pool


def memory_for_each_thread(stack: ExitStack) -> Any:
    """An engine that gives each thread a database of its own."""
    engine = create_engine("sqlite://")
    stack.callback(engine.dispose)
    once.migrate(engine)
    return engine


@pytest.mark.parametrize("made", [pool_set_up_by_hand, memory_for_each_thread])
def test_nothing_runs_under_a_lease_that_could_not_be_renewed(
    stack: ExitStack, made: Callable[[ExitStack], Any]
) -> None:
    place = made(stack)
    store = Once(place)
    stack.callback(store.close)
    runs: list[str] = []

    @store.once(key="key")
    def charge(key: str) -> None:
        runs.append(key)

    for _ in range(2):
        with pytest.raises(UnsupportedConnection, match="second connection"):
            charge("k")
    assert runs == []
    assert charge.inspect("k") is None


def test_a_lease_that_cannot_be_renewed_is_not_called_renewed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Once(str(tmp_path / "receipts.db"))

    @store.once(key="key", lease="0.3s")
    def charge(key: str) -> None:
        store.store._twin().execute = refuse  # type: ignore[assignment,method-assign] # a store that is away
        time.sleep(1)

    def refuse(*_: object) -> Any:
        raise once.StoreUnavailable("It is away.")

    with caplog.at_level(logging.WARNING):
        charge("k")
    store.close()
    assert "could not be renewed: It is away." in caplog.text
    assert "its lease could not be renewed" in caplog.text
    assert "its lease is renewed" not in caplog.text


NOTING = """
CREATE TABLE renewals (key text, pid int);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO renewals VALUES (NEW.key, pg_backend_pid()); RETURN NULL; END $$;
CREATE TRIGGER note AFTER UPDATE ON semel_once FOR EACH ROW WHEN (NEW.state = 'running') EXECUTE FUNCTION note();
"""


@pytest.mark.parametrize("kind", ["url", "engine", "pool"])
def test_a_child_renews_nothing_of_its_parent_and_its_own_over_a_connection_of_its_own(
    stack: ExitStack, kind: str
) -> None:
    url = migrated()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(NOTING.encode())
    engine = create_engine(with_driver(url))
    stack.callback(engine.dispose)
    pool = stack.enter_context(ConnectionPool(url, min_size=1))
    store = Once({"url": url, "engine": engine, "pool": pool}[kind])
    stack.callback(store.close)
    has_begun, may_end = threading.Event(), threading.Event()

    @store.once(key="key", lease=LEASE)
    def charge(key: str) -> bool:
        if key == "parent":
            has_begun.set()
            may_end.wait(25)
        else:
            time.sleep(3 * LEASE_SECONDS)
        return once.current_call().lease_left > 0

    def child() -> bool:
        engine.dispose(close=False)  # as SQLAlchemy has it
        if kind != "pool":
            return charge("child")
        time.sleep(3 * LEASE_SECONDS)  # the threads of the pool are the parent's: the child cannot use it
        return True

    told: list[bool] = []
    thread = threading.Thread(target=lambda: told.append(charge("parent")))
    thread.start()
    assert has_begun.wait(25)
    time.sleep(LEASE_SECONDS)  # it was renewed
    try:
        assert forked(child) == 0
    finally:
        may_end.set()
        thread.join(25)
    assert told == [True]
    with psycopg.connect(url) as connection:
        rows = connection.execute(b"SELECT DISTINCT key, pid FROM renewals").fetchall()
    servers: dict[str, int] = dict(rows)
    assert len(servers) == len(rows) == (1 if kind == "pool" else 2), "one connection renews all of a process"
    assert len(set(servers.values())) == len(rows), "no connection is shared"


@pytest.mark.parametrize("kind", ["engine", "pool"])
def test_a_call_that_ends_before_a_renewal_leaves_no_second_connection(stack: ExitStack, kind: str) -> None:
    url = f"{migrated()}&application_name=lone"
    if kind == "pool":
        place: Any = stack.enter_context(ConnectionPool(url, min_size=1, max_size=1))
    else:
        place = create_engine(with_driver(url))
        stack.callback(place.dispose)
    store = Once(place)
    stack.callback(store.close)
    charge = store.once(key=lambda key: key, scope="shop")(lambda key: key)
    assert [charge(key) for key in "aab"] == ["a", "a", "b"]
    observer = url.replace("=lone", "=observer")
    eventually(lambda: sessions_of(observer, "lone") == 1, "that of the application")
