"""Rows of the table of `once.transaction` that need more than a block: lost answers, clocks, other work, nesting."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import apsw
import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from semel import once
from semel.testing import assert_idempotent
from tests.harness.postgres.proxy import Proxy
from tests.harness.together import at_once
from tests.once.conftest import POSTGRES, SQLITE, Built
from tests.once.houses import CHARGE_ONE, House, Play
from tests.once.houses_django import DjangoPostgres, DjangoSqlite, opened
from tests.once.script import CHARGE, BrokenError, Call, Effect, Nested, Result, Rollback, fail

YEAR_NS = 365 * 86_400 * 1_000_000_000
PATIENCE_SECONDS = 25.0


def test_a_process_that_is_killed_at_any_statement_charges_once(house: House) -> None:
    def charge(key: str) -> Any:
        return house.play(Play(key=key)).result

    charge("what an engine asks its first connection is asked here")
    # A transaction has no outcome that is unknown: an error that says so is a fault here.
    report = assert_idempotent(charge, effects=house.charges, schedules=["killed"], unknown=lambda found: False)
    assert report.runs["killed"] >= 8, report.places


def test_a_lost_answer_to_commit_is_told_by_the_retry(postgres_house: House) -> None:
    port = urlsplit(postgres_house.place).port
    assert port is not None
    with Proxy(port) as proxy:
        proxied = type(postgres_house)(postgres_house.place.replace(f":{port}/", f":{proxy.port}/"))
        with pytest.raises(Exception) as lost:  # noqa: PT011 - each driver has its own
            proxied.play(Play(before_commit=proxy.cut_after))
        assert not isinstance(lost.value, once.OnceError)
        assert proxy.cuts == 1
    again = postgres_house.play(Play())
    assert (again.replayed, again.result) == (True, {"charge": 7})
    assert postgres_house.charges() == 1


def test_a_commit_that_never_arrived_leaves_nothing_and_the_retry_runs(postgres_house: House) -> None:
    port = urlsplit(postgres_house.place).port
    assert port is not None
    with Proxy(port) as proxy:
        proxied = type(postgres_house)(postgres_house.place.replace(f":{port}/", f":{proxy.port}/"))
        with pytest.raises(Exception):  # noqa: B017, PT011 - each driver has its own
            proxied.play(Play(before_commit=proxy.cut_before))
    assert postgres_house.play(Play()).fresh
    assert postgres_house.charges() == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock of this program forward or back by some nanoseconds."""
    real = time.time_ns
    return lambda by: monkeypatch.setattr(time, "time_ns", lambda: real() + by)


def test_a_clock_that_is_set_back_forgets_nothing(house: House, clock: Callable[[int], None]) -> None:
    house.play(Play())
    clock(-YEAR_NS)
    assert house.play(Play()).replayed
    assert house.charges() == 1


def test_a_clock_that_jumps_ahead_expires_nothing(house: House, clock: Callable[[int], None]) -> None:
    house.play(Play())
    clock(YEAR_NS)
    assert house.play(Play()).replayed
    clock(0)
    assert house.play(Play()).replayed
    assert house.charges() == 1


@pytest.mark.parametrize(
    ("play", "error"),
    [
        (Play("other", actions=(Effect(), Call(fail))), BrokenError),
        (Play("other", actions=(Effect(), Result(object()))), once.ResultError),
        (Play("key", "other arguments"), once.KeyMismatch),
        (Play("other", options={"table": "elsewhere"}), once.TableMissing),
    ],
    ids=["exception", "result", "mismatch", "table"],
)
def test_other_work_of_a_transaction_is_kept_when_its_caller_catches_the_error(
    house: House, play: Play, error: type[Exception]
) -> None:
    house.play(Play())
    with pytest.raises(error):
        house.play(play._replace(works_before=True, catches=error))
    assert (house.charges(), house.receipts()) == (2, 1)


def test_other_work_is_kept_when_the_key_is_in_flight(postgres_house: House) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def stand() -> bool:
        entered.set()
        return go_on.wait(PATIENCE_SECONDS)

    def first() -> bool:
        return postgres_house.play(Play(actions=(Effect(), Call(stand), Result(1)))).fresh

    def second() -> bool:
        assert entered.wait(PATIENCE_SECONDS)
        try:
            with pytest.raises(once.InFlight):
                postgres_house.play(Play(options={"wait": "0.1s"}, works_before=True, catches=once.InFlight))
        finally:
            go_on.set()
        return True

    assert at_once([first, second]) == [True, True]
    assert postgres_house.charges() == 2


def test_a_replay_keeps_other_work_too(house: House) -> None:
    house.play(Play())
    assert house.play(Play(works_before=True)).replayed
    assert house.charges() == 2


def test_a_rollback_inside_of_the_block_is_told_and_the_retry_runs(house: House) -> None:
    if not house.can_end_inside:
        return
    with pytest.raises(once.TransactionEnded):
        house.play(Play(actions=(Effect(), Rollback(), Result(1))))
    assert (house.charges(), house.receipts()) == (0, 0)
    assert house.play(Play()).fresh


@pytest.mark.parametrize("driver", ["psycopg", "sqlalchemy-session", "sqlite3", "sqlite-sqlalchemy-session"])
def test_a_rollback_inside_of_the_block_runs_again_although_its_caller_commits(built: Built, driver: str) -> None:
    house = built(driver)
    with pytest.raises(once.TransactionEnded):
        house.play(Play(actions=(Rollback(), Effect(), Result(1)), catches=once.TransactionEnded))
    assert house.play(Play()).fresh


def test_two_keys_in_one_transaction_are_both_kept(house: House) -> None:
    both = (Effect(), Nested("inner", CHARGE), Result(2))
    assert house.play(Play(actions=both)).fresh
    assert house.play(Play(actions=both)).result == 2
    assert house.play(Play("inner")).result == {"charge": 7}
    assert (house.charges(), house.receipts()) == (2, 2)


def test_an_inner_block_that_fails_leaves_the_outer_one_alone(house: House) -> None:
    inner = Nested("inner", (Effect(), Call(fail)), catches=BrokenError)
    assert house.play(Play(actions=(Effect(), inner, Result(2)))).fresh
    assert (house.charges(), house.receipts()) == (1, 1)
    assert house.play(Play("inner")).fresh


def test_an_outer_block_that_fails_undoes_the_inner_one(house: House) -> None:
    with pytest.raises(BrokenError):
        house.play(Play(actions=(Nested("inner", CHARGE), Call(fail)), catches=BrokenError))
    assert (house.charges(), house.receipts()) == (0, 0)
    assert house.play(Play("inner")).fresh


class Shouting:
    """A codec of a user's own."""

    def dumps(self, value: Any) -> str:
        """In capitals; only texts can be shouted."""
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no text")
        return json.dumps(value.upper())

    def loads(self, text: str) -> Any:
        """As it was shouted."""
        return json.loads(text)


def test_a_codec_of_the_users_own_is_used_and_its_errors_undo_all(house: House) -> None:
    options = {"codec": Shouting()}
    house.play(Play(actions=(Effect(), Result("paid")), options=options))
    assert house.play(Play(options=options)).result == "PAID"
    with pytest.raises(once.ResultError, match="5 is no text"):
        house.play(Play("other", actions=(Effect(), Result(5)), options=options, catches=once.ResultError))
    assert (house.charges(), house.receipts()) == (1, 1)


def blocked(connection: Any) -> None:
    """A block on a connection that blocks."""
    with once.transaction(connection, "key", scope=None):
        raise AssertionError("the block must not run")


async def waited(connection: Any) -> None:
    """The same for one that does not."""
    async with once.transaction(connection, "key", scope=None):
        raise AssertionError("the block must not run")


def _alchemy(place: str, kind: Any) -> None:
    with kind(sqlalchemy.create_engine(place, poolclass=NullPool, isolation_level="AUTOCOMMIT")) as connection:
        blocked(connection)


async def _async_alchemy(place: str, kind: Any) -> None:
    engine = create_async_engine(place, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with kind(engine) as connection:
        await waited(connection)


def _psycopg(place: str) -> None:
    with psycopg.connect(place, autocommit=True) as connection:
        blocked(connection)


async def _async_psycopg(place: str) -> None:
    async with await psycopg.AsyncConnection.connect(place, autocommit=True) as connection:
        await waited(connection)


async def _asyncpg(place: str) -> None:
    connection = await asyncpg.connect(place.partition("?")[0])
    try:
        await waited(connection)
    finally:
        await connection.close()


def _sqlite3(place: str) -> None:
    connection = sqlite3.connect(place, isolation_level=None)
    try:
        blocked(connection)
    finally:
        connection.close()


def _apsw(place: str) -> None:
    connection = apsw.Connection(place)
    try:
        blocked(connection)
    finally:
        connection.close()


def _django(house: House) -> None:
    assert isinstance(house, DjangoPostgres | DjangoSqlite)
    with opened(house.facts()) as connection:
        blocked(connection)


def _engine_connection(engine: sqlalchemy.Engine) -> sqlalchemy.Connection:
    return engine.connect()


def _url(place: str, driver: str) -> str:
    if "://" not in place:
        return f"sqlite{driver}:///{place}"
    return place.partition("?")[0].replace("postgresql", f"postgresql{driver}")


AUTOCOMMIT: dict[str, Callable[[House], object]] = {
    "psycopg": lambda house: _psycopg(house.place),
    "psycopg-async": lambda house: asyncio.run(_async_psycopg(house.place)),
    "asyncpg": lambda house: asyncio.run(_asyncpg(house.place)),
    "sqlalchemy-connection": lambda house: _alchemy(_url(house.place, "+psycopg"), _engine_connection),
    "sqlalchemy-session": lambda house: _alchemy(_url(house.place, "+psycopg"), Session),
    "sqlalchemy-async-connection": lambda house: asyncio.run(
        _async_alchemy(_url(house.place, "+psycopg"), AsyncConnection)
    ),
    "sqlalchemy-async-session": lambda house: asyncio.run(_async_alchemy(_url(house.place, "+asyncpg"), AsyncSession)),
    "django": _django,
    "sqlite3": lambda house: _sqlite3(house.place),
    "apsw": lambda house: _apsw(house.place),
    "sqlite-sqlalchemy-connection": lambda house: _alchemy(_url(house.place, ""), _engine_connection),
    "sqlite-sqlalchemy-session": lambda house: _alchemy(_url(house.place, ""), Session),
    "sqlite-sqlalchemy-async-session": lambda house: asyncio.run(
        _async_alchemy(_url(house.place, "+aiosqlite"), AsyncSession)
    ),
    "sqlite-django": _django,
}


@pytest.mark.parametrize("driver", AUTOCOMMIT)
def test_a_connection_that_commits_by_itself_is_refused_and_nothing_runs(driver: str, built: Built) -> None:
    house = built(driver)
    with pytest.raises(once.NotInTransaction, match="begin one around"):
        AUTOCOMMIT[driver](house)
    assert (house.charges(), house.receipts()) == (0, 0)


def test_every_driver_is_tried_in_autocommit_mode() -> None:
    assert set(AUTOCOMMIT) == {*POSTGRES, *SQLITE}


def test_an_engine_of_sqlite_that_says_begin_by_itself_is_in_a_transaction(built: Built) -> None:
    house = built("sqlite-sqlalchemy-connection")
    engine = sqlalchemy.create_engine(f"sqlite:///{house.place}", poolclass=NullPool)

    @sqlalchemy.event.listens_for(engine, "connect")
    def connected(raw: Any, _: Any) -> None:
        raw.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begun(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    for is_fresh in (True, False):
        with engine.connect() as connection:
            with once.transaction(connection, "key", scope=None) as attempt:
                assert attempt.fresh is is_fresh
                if is_fresh:
                    connection.exec_driver_sql(CHARGE_ONE)
            connection.commit()
    assert (house.charges(), house.receipts()) == (1, 1)
