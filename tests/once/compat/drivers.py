"""The drivers of the table. Each opens what a program keeps for its life, and lends a transaction for each call.

A transaction is a context manager: it yields the connection or session for `once.transaction`, and a function that
runs a statement; it commits when the block ends, and rolls back when it raises.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    contextmanager,
)
from typing import Any

import apsw
import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import Delete, Insert, Update, create_engine, event
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.ext.asyncio import create_async_engine as create_async
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.once.compat.places import BUSY_SECONDS

Begin = Callable[[], AbstractContextManager[tuple[Any, Callable[[str], Any]]]]
AsyncBegin = Callable[[], AbstractAsyncContextManager[tuple[Any, Callable[[str], Any]]]]
Opener = Callable[[str], AbstractContextManager[Begin]]
AsyncOpener = Callable[[str], AbstractAsyncContextManager[AsyncBegin]]
UNPREPARED = {"prepare_threshold": None}
"""What a pooler in transaction mode needs of psycopg."""
POOLED = 4
# Behind a COMMIT that failed, SQLAlchemy puts a SQLite connection back into its pool with the transaction still open.
SQLITE_OPTIONS: Any = {"connect_args": {"timeout": BUSY_SECONDS}, "poolclass": NullPool}


class Base(DeclarativeBase):
    """The models of an application."""


class Charge(Base):
    """Its one table, as SQLAlchemy sees it."""

    __tablename__ = "charges"
    key: Mapped[str] = mapped_column(primary_key=True)
    account: Mapped[int]


class Other(DeclarativeBase):
    """The models of a second database."""


class RoutingSession(Session):
    """The session of SQLAlchemy's manual that writes to one engine and reads from another."""

    def __init__(self, writer: sqlalchemy.Engine, reader: sqlalchemy.Engine) -> None:
        super().__init__()
        self._writer, self._reader = writer, reader

    def get_bind(self, mapper: Any = None, *, clause: Any = None, **_: Any) -> sqlalchemy.Engine:
        """The engine for a statement."""
        if self._flushing or isinstance(clause, Insert | Update | Delete):
            return self._writer
        return self._reader


def _psycopg(**options: Any) -> Opener:
    @contextmanager
    def opened(place: str) -> Iterator[Begin]:
        @contextmanager
        def begin() -> Iterator[tuple[Any, Any]]:
            with closing(psycopg.connect(place, **options)) as connection, connection.transaction():
                yield connection, connection.execute

        @contextmanager
        def begin_by_itself() -> Iterator[tuple[Any, Any]]:
            with closing(psycopg.connect(place, **options)) as connection, connection:
                yield connection, connection.execute

        yield begin if options.get("autocommit") else begin_by_itself

    return opened


@contextmanager
def psycopg_pool(place: str) -> Iterator[Begin]:
    """A pool of psycopg."""
    with ConnectionPool(place, min_size=1, max_size=POOLED, kwargs=UNPREPARED) as pool:

        @contextmanager
        def begin() -> Iterator[tuple[Any, Any]]:
            with pool.connection() as connection:
                yield connection, connection.execute

        yield begin


def engine_at(place: str) -> sqlalchemy.Engine:
    """An engine of an application, on either database."""
    if not place.startswith("postgresql"):
        engine = create_engine(f"sqlite:///{place}", **SQLITE_OPTIONS)
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys = ON"))
        return engine
    return create_engine(alchemy_address(place), connect_args=UNPREPARED, pool_size=POOLED)


def alchemy_address(place: str, driver: str = "psycopg") -> str:
    """A URL for SQLAlchemy."""
    return place.replace("postgresql:", f"postgresql+{driver}:")


def _alchemy(make: Callable[[sqlalchemy.Engine], Callable[[], Any]]) -> Opener:
    """Sessions or connections of one engine; all of them commit in the same way."""

    @contextmanager
    def opened(place: str) -> Iterator[Begin]:
        engine = engine_at(place)
        made = make(engine)

        @contextmanager
        def begin() -> Iterator[tuple[Any, Any]]:
            with made() as target:
                yield target, lambda sql: target.execute(sqlalchemy.text(sql))
                target.commit()

        yield begin
        engine.dispose()

    return opened


def _scoped(engine: sqlalchemy.Engine) -> Callable[[], Any]:
    registry = scoped_session(sessionmaker(engine))

    @contextmanager
    def made() -> Iterator[Any]:
        try:
            yield registry
        finally:
            registry.remove()

    return made


@contextmanager
def alchemy_nested(place: str) -> Iterator[Begin]:
    """A session whose block is inside two savepoints of the application."""
    engine = engine_at(place)

    @contextmanager
    def begin() -> Iterator[tuple[Any, Any]]:
        with Session(engine) as session, session.begin(), session.begin_nested(), session.begin_nested():
            yield session, lambda sql: session.execute(sqlalchemy.text(sql))

    yield begin
    engine.dispose()


def _alchemy_objects(make: Callable[[sqlalchemy.Engine, sqlalchemy.Engine], Callable[[], Session]]) -> Opener:
    """Sessions that find the engine by a model: their effects are objects. The second engine is for reads."""

    @contextmanager
    def opened(place: str) -> Iterator[Begin]:
        writer, reader = engine_at(place), engine_at(place)
        made = make(writer, reader)

        @contextmanager
        def begin() -> Iterator[tuple[Any, Any]]:
            with made() as session:
                yield session, lambda sql: session.add(_object_of(sql))
                session.commit()

        yield begin
        writer.dispose()
        reader.dispose()

    return opened


@contextmanager
def alchemy_two_databases(place: str) -> Iterator[Begin]:
    """A session of two databases, in which each block names a model."""
    engine, elsewhere = engine_at(place), create_engine("sqlite://")

    @contextmanager
    def begin() -> Iterator[tuple[Any, Any]]:
        with Session(binds={Base: engine, Other: elsewhere}) as session:
            yield session, lambda sql: session.execute(sqlalchemy.text(sql), bind_arguments={"mapper": Charge})
            session.commit()

    yield begin
    engine.dispose()


def _object_of(sql: str) -> Charge:
    key, account = sql.partition("VALUES ")[2].strip("()").rsplit(", ", 1)
    return Charge(key=key.strip("'"), account=int(account))


@contextmanager
def sqlite_plain(place: str) -> Iterator[Begin]:
    """The standard library's sqlite3."""

    @contextmanager
    def begin() -> Iterator[tuple[Any, Any]]:
        connection = sqlite3.connect(place, timeout=BUSY_SECONDS)
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            yield connection, connection.execute
            connection.commit()
        finally:
            connection.close()

    yield begin


@contextmanager
def sqlite_apsw(place: str) -> Iterator[Begin]:
    """apsw."""

    @contextmanager
    def begin() -> Iterator[tuple[Any, Any]]:
        connection = apsw.Connection(place)
        try:
            connection.set_busy_timeout(round(BUSY_SECONDS * 1_000))
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN")
            yield connection, connection.execute
            connection.execute("COMMIT")
        finally:
            connection.close(True)

    yield begin


@asynccontextmanager
async def async_psycopg(place: str) -> AsyncIterator[AsyncBegin]:
    """psycopg, asynchronous."""

    @asynccontextmanager
    async def begin() -> AsyncIterator[tuple[Any, Any]]:
        connection = await psycopg.AsyncConnection.connect(place, row_factory=dict_row)
        try:
            async with connection:  # it stays open behind a COMMIT that failed
                yield connection, connection.execute
        finally:
            await connection.close()

    yield begin


@asynccontextmanager
async def async_psycopg_pool(place: str) -> AsyncIterator[AsyncBegin]:
    """An asynchronous pool of psycopg."""
    async with AsyncConnectionPool(place, min_size=1, max_size=POOLED, kwargs=UNPREPARED) as pool:

        @asynccontextmanager
        async def begin() -> AsyncIterator[tuple[Any, Any]]:
            async with pool.connection() as connection:
                yield connection, connection.execute

        yield begin


@asynccontextmanager
async def asyncpg_alone(place: str) -> AsyncIterator[AsyncBegin]:
    """A connection of asyncpg."""

    @asynccontextmanager
    async def begin() -> AsyncIterator[tuple[Any, Any]]:
        connection = await asyncpg.connect(place)
        try:
            async with connection.transaction():
                yield connection, connection.execute
        finally:
            await connection.close()

    yield begin


def _asyncpg_pool(**options: Any) -> AsyncOpener:
    @asynccontextmanager
    async def opened(place: str) -> AsyncIterator[AsyncBegin]:
        async with asyncpg.create_pool(place, min_size=1, max_size=POOLED, **options) as pool:

            @asynccontextmanager
            async def begin() -> AsyncIterator[tuple[Any, Any]]:
                async with pool.acquire() as connection, connection.transaction():
                    yield connection, connection.execute

            yield begin

    return opened


def _async_alchemy(driver: str, make: Callable[[Any], Callable[[], Any]], **options: Any) -> AsyncOpener:
    @asynccontextmanager
    async def opened(place: str) -> AsyncIterator[AsyncBegin]:
        if place.startswith("postgresql"):
            engine = create_async(alchemy_address(place, driver), pool_size=POOLED, connect_args=options)
        else:
            engine = create_async(f"sqlite+{driver}:///{place}", **SQLITE_OPTIONS)
            event.listen(engine.sync_engine, "connect", _enforce)
        made = make(engine)

        @asynccontextmanager
        async def begin() -> AsyncIterator[tuple[Any, Any]]:
            async with made() as target:
                yield target, lambda sql: target.execute(sqlalchemy.text(sql))
                await target.commit()

        yield begin
        await engine.dispose()

    return opened


def _enforce(raw: Any, _: object) -> None:
    cursor = raw.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


POSTGRES: dict[str, Opener] = {
    "psycopg": _psycopg(),
    "psycopg, dict_row": _psycopg(row_factory=dict_row),
    "psycopg, prepare_threshold=None": _psycopg(**UNPREPARED),
    "psycopg, autocommit with transaction()": _psycopg(autocommit=True),
    "psycopg_pool": psycopg_pool,
    "SQLAlchemy Connection": _alchemy(lambda engine: engine.connect),
    "SQLAlchemy Session": _alchemy(sessionmaker),
    "SQLAlchemy sessionmaker(binds=)": _alchemy_objects(lambda engine, _: sessionmaker(binds={Base: engine})),
    "SQLAlchemy RoutingSession": _alchemy_objects(lambda *engines: lambda: RoutingSession(*engines)),
    "SQLAlchemy scoped_session": _alchemy(_scoped),
    "SQLAlchemy begin_nested": alchemy_nested,
}
"""Drivers that block."""
SQLITE: dict[str, Opener] = {
    "sqlite3": sqlite_plain,
    "apsw": sqlite_apsw,
    "SQLAlchemy Session, SQLite": _alchemy(sessionmaker),
}
ASYNC_POSTGRES: dict[str, AsyncOpener] = {
    "psycopg AsyncConnection, dict_row": async_psycopg,
    "psycopg_pool AsyncConnectionPool": async_psycopg_pool,
    "asyncpg": asyncpg_alone,
    "asyncpg pool": _asyncpg_pool(),
    "asyncpg pool, statement_cache_size=0": _asyncpg_pool(statement_cache_size=0),
    "SQLAlchemy AsyncConnection, asyncpg": _async_alchemy("asyncpg", lambda engine: engine.connect),
    "SQLAlchemy AsyncSession, asyncpg": _async_alchemy("asyncpg", async_sessionmaker),
    "SQLAlchemy AsyncSession, psycopg": _async_alchemy("psycopg", async_sessionmaker, **UNPREPARED),
}
ASYNC_SQLITE: dict[str, AsyncOpener] = {
    "SQLAlchemy AsyncSession, aiosqlite": _async_alchemy("aiosqlite", async_sessionmaker),
}
