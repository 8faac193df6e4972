"""The drivers of SQLite."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading

import apsw
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from semel import once
from tests.once.houses import BUSY_SECONDS, CHARGE_ONE, AsyncStage, Play, SqliteHouse, Stage


class Sqlite3(SqliteHouse):
    """The standard library's."""

    def play(self, play: Play) -> once.Attempt:
        """On a connection that begins by itself."""
        connection = sqlite3.connect(self.place, timeout=BUSY_SECONDS)
        try:
            effect = lambda: connection.execute(CHARGE_ONE)  # noqa: E731
            return Stage(connection, effect, connection.commit, connection.rollback).play(play)
        finally:
            connection.close()


class Apsw(SqliteHouse):
    """apsw."""

    def play(self, play: Play) -> once.Attempt:
        """In a transaction that is begun by hand."""
        connection = apsw.Connection(self.place)
        try:
            connection.set_busy_timeout(round(BUSY_SECONDS * 1_000))
            connection.execute("BEGIN")
            effect = lambda: connection.execute(CHARGE_ONE)  # noqa: E731
            commit = lambda: connection.execute("COMMIT")  # noqa: E731
            rollback = lambda: connection.in_transaction and connection.execute("ROLLBACK")  # noqa: E731
            return Stage(connection, effect, commit, rollback).play(play)
        finally:
            connection.close()


class SqliteAlchemyConnection(SqliteHouse):
    """A connection of SQLAlchemy."""

    def play(self, play: Play) -> once.Attempt:
        """That begins by itself."""
        with _engine(self.place).connect() as connection:
            effect = lambda: connection.exec_driver_sql(CHARGE_ONE)  # noqa: E731
            return Stage(connection, effect, connection.commit, connection.rollback).play(play)


class SqliteAlchemySession(SqliteHouse):
    """A session of SQLAlchemy."""

    def play(self, play: Play) -> once.Attempt:
        """That begins by itself."""
        with Session(_engine(self.place)) as session:
            effect = lambda: session.execute(sqlalchemy.text(CHARGE_ONE))  # noqa: E731
            return Stage(session, effect, session.commit, session.rollback).play(play)


class AsyncSqliteAlchemySession(SqliteHouse):
    """An asynchronous session of SQLAlchemy, by aiosqlite."""

    def play(self, play: Play) -> once.Attempt:
        """In a loop of its own."""
        return asyncio.run(self._play(play))

    async def _play(self, play: Play) -> once.Attempt:
        async with AsyncSession(_async_engine(self.place, threading.get_ident())) as session:
            effect = lambda: session.execute(sqlalchemy.text(CHARGE_ONE))  # noqa: E731
            return await AsyncStage(session, effect, session.commit, session.rollback).play(play)


@functools.lru_cache(maxsize=64)
def _async_engine(place: str, _thread: int) -> AsyncEngine:
    """Each thread has a loop of its own, and an engine belongs to one loop at a time."""
    address = f"sqlite+aiosqlite:///{place}"
    return create_async_engine(address, poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})


@functools.lru_cache(maxsize=64)
def _engine(place: str) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(f"sqlite:///{place}", poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})
