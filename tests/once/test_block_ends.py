"""The end of a block that fails, on every driver: it leaves neither effect nor receipt, whatever its caller does."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from semel import once
from tests.once.houses import House, Play
from tests.once.script import Effect, Result


class NoTextCodec:
    """A codec that gives back what it got."""

    def dumps(self, value: Any) -> str:
        """Not a text."""
        return value  # type: ignore[no-any-return] # the mistake of a user

    def loads(self, text: str) -> Any:
        """As it was."""
        return text


UNFIT = {
    "lone surrogate": ("\ud800", {}),
    "nested lone surrogate": ({"name": ["x", "\udfff"]}, {}),
    "no text": (b"bytes", {"codec": NoTextCodec()}),
    "a zero character": ("a\x00b", {"codec": NoTextCodec()}),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_a_result_that_is_no_text_leaves_nothing_for_the_commit_of_who_catches_it(house: House, unfit: str) -> None:
    value, options = UNFIT[unfit]
    with pytest.raises(once.ResultError, match="cannot be stored"):
        house.play(
            Play(actions=(Effect(), Result(value)), options=options, catches=once.ResultError, works_before=True)
        )
    assert (house.charges(), house.receipts()) == (1, 0)
    assert house.play(Play()).fresh


def test_a_statement_that_fails_at_the_end_leaves_nothing(house: House) -> None:
    """The update of the receipt is refused by the database, as on a full disk."""
    trigger = (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON semel_once FOR EACH ROW EXECUTE FUNCTION refuse()"
        if house.is_postgres
        else "CREATE TRIGGER refuse BEFORE UPDATE ON semel_once BEGIN SELECT RAISE(ABORT, 'no space'); END"
    )
    run_script(house, trigger)
    with pytest.raises(Exception, match="no space"):
        house.play(Play(catches=Exception, works_before=True))
    run_script(house, "DROP TRIGGER refuse ON semel_once" if house.is_postgres else "DROP TRIGGER refuse")
    assert (house.charges(), house.receipts()) == (1, 0)
    assert house.play(Play()).fresh


def run_script(house: House, sql: str) -> None:
    """Change the schema from outside."""
    if house.is_postgres:
        with psycopg.connect(house.place, autocommit=True) as connection:
            connection.execute(sql.encode())
        return
    file = sqlite3.connect(house.place, timeout=30)
    file.execute(sql)
    file.close()


class Base(DeclarativeBase):
    """The tables of a program."""


class Order(Base):
    """A row that may be there once."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine(tmp_path: Path) -> sqlalchemy.Engine:
    """A file with the program's tables and the receipts."""
    found = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    Base.metadata.create_all(found)
    once.migrate(found)
    return found


def receipts(session: Session) -> int:
    """How many there are."""
    return int(session.execute(sqlalchemy.text("SELECT count(*) FROM semel_once")).scalar_one())


def add_again(session: Session, flush: Callable[[], None]) -> None:
    """A block that adds an order which is there."""
    with once.transaction(session, "order-7", scope=None) as attempt:
        attempt.result = "done"
        session.add(Order(id=7))
        flush()


@pytest.mark.parametrize("is_flushed_inside", [True, False], ids=["inside", "at the end"])
def test_a_flush_that_fails_leaves_a_session_that_goes_on(engine: sqlalchemy.Engine, is_flushed_inside: bool) -> None:
    with Session(engine) as session:
        session.add(Order(id=7))
        session.commit()
    with Session(engine) as session:
        session.add(Order(id=1))
        session.flush()
        with pytest.raises(IntegrityError):
            add_again(session, session.flush if is_flushed_inside else lambda: None)
        session.add(Order(id=2))
        session.commit()
        assert set(session.scalars(sqlalchemy.select(Order.id))) == {1, 2, 7}
        assert receipts(session) == 0


def test_a_block_that_swallowed_a_failed_flush_is_refused_and_leaves_nothing(engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session:
        session.add(Order(id=7))
        session.commit()

        def swallow() -> None:
            with pytest.raises(IntegrityError):
                session.flush()

        with pytest.raises(once.TransactionEnded):
            add_again(session, swallow)
        session.add(Order(id=8))
        session.commit()
        assert set(session.scalars(sqlalchemy.select(Order.id))) == {7, 8}
        assert receipts(session) == 0


class Other(DeclarativeBase):
    """The tables of another database."""


class Mail(Other):
    """A row of the other database."""

    __tablename__ = "mails"
    id: Mapped[int] = mapped_column(primary_key=True)


def test_a_block_whose_end_reaches_a_second_database_leaves_nothing_in_either(
    engine: sqlalchemy.Engine, tmp_path: Path
) -> None:
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    Other.metadata.create_all(other)
    with Session(binds={Base: engine, Other: other}) as session:
        session.add(Order(id=1))

        def work() -> None:
            with once.transaction(session, "order-7", scope=None, bind=Order) as attempt:
                session.add_all([Order(id=7), Mail(id=7)])
                attempt.result = "done"

        with pytest.raises(once.UnsupportedConnection, match="several databases"):
            work()
        session.add(Order(id=2))
        session.commit()
        assert set(session.scalars(sqlalchemy.select(Order.id))) == {1, 2}
        assert list(session.scalars(sqlalchemy.select(Mail.id))) == []
    with Session(engine) as session:
        assert receipts(session) == 0


def test_the_end_of_an_asynchronous_block_reaches_no_second_database_either(
    engine: sqlalchemy.Engine, tmp_path: Path
) -> None:
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    Other.metadata.create_all(other)

    async def play() -> None:
        engines = [create_async_engine(f"sqlite+aiosqlite:///{tmp_path / name}.db") for name in ("app", "other")]
        async with AsyncSession(binds=dict(zip((Base, Other), engines, strict=True))) as session:
            with pytest.raises(once.UnsupportedConnection, match="several databases"):
                await work(session)
            await session.commit()
        for one in engines:
            await one.dispose()

    async def work(session: AsyncSession) -> None:
        async with once.transaction(session, "order-7", scope=None, bind=Order) as attempt:
            session.add_all([Order(id=7), Mail(id=7)])
            attempt.result = "done"

    asyncio.run(play())
    with Session(engine) as session:
        assert (receipts(session), list(session.scalars(sqlalchemy.select(Order.id)))) == (0, [])
    with Session(other) as session:
        assert list(session.scalars(sqlalchemy.select(Mail.id))) == []
