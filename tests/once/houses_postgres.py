"""The drivers of PostgreSQL."""

from __future__ import annotations

import asyncio
import functools
import threading

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from semel import once
from tests.once.houses import CHARGE_ONE, AsyncStage, Play, PostgresHouse, Stage

LEVELS = {
    "READ COMMITTED": psycopg.IsolationLevel.READ_COMMITTED,
    "REPEATABLE READ": psycopg.IsolationLevel.REPEATABLE_READ,
    "SERIALIZABLE": psycopg.IsolationLevel.SERIALIZABLE,
}


class Psycopg(PostgresHouse):
    """psycopg 3."""

    def play(self, play: Play) -> once.Attempt:
        """On a connection that begins by itself."""
        with psycopg.connect(self.place) as connection:
            if play.isolation is not None:
                connection.isolation_level = LEVELS[play.isolation]
            effect = lambda: connection.execute(CHARGE_ONE)  # noqa: E731
            return Stage(connection, effect, connection.commit, connection.rollback).play(play)


class AsyncPsycopg(PostgresHouse):
    """psycopg 3, asynchronous."""

    def play(self, play: Play) -> once.Attempt:
        """In a loop of its own."""
        return asyncio.run(self._play(play))

    async def _play(self, play: Play) -> once.Attempt:
        async with await psycopg.AsyncConnection.connect(self.place) as connection:
            if play.isolation is not None:
                await connection.set_isolation_level(LEVELS[play.isolation])
            effect = lambda: connection.execute(CHARGE_ONE)  # noqa: E731
            return await AsyncStage(connection, effect, connection.commit, connection.rollback).play(play)


class Asyncpg(PostgresHouse):
    """asyncpg."""

    def play(self, play: Play) -> once.Attempt:
        """In a loop of its own."""
        return asyncio.run(self._play(play))

    async def _play(self, play: Play) -> once.Attempt:
        base, _, options = self.place.partition("?options=-c%20search_path%3D")
        connection = await asyncpg.connect(base, server_settings={"search_path": options})
        try:
            level = None if play.isolation is None else play.isolation.lower().replace(" ", "_")
            transaction = connection.transaction(isolation=level)
            await transaction.start()
            effect = lambda: connection.execute(CHARGE_ONE)  # noqa: E731

            async def rollback() -> None:
                if connection.is_in_transaction():
                    await transaction.rollback()

            return await AsyncStage(connection, effect, transaction.commit, rollback).play(play)
        finally:
            await connection.close()


class AlchemyConnection(PostgresHouse):
    """A connection of SQLAlchemy."""

    def play(self, play: Play) -> once.Attempt:
        """That begins by itself."""
        engine = _engine(self.place, play)
        with engine.connect() as connection:
            effect = lambda: connection.exec_driver_sql(CHARGE_ONE)  # noqa: E731
            return Stage(connection, effect, connection.commit, connection.rollback).play(play)


class AlchemySession(PostgresHouse):
    """A session of SQLAlchemy."""

    def play(self, play: Play) -> once.Attempt:
        """That begins by itself."""
        with Session(_engine(self.place, play)) as session:
            effect = lambda: session.execute(sqlalchemy.text(CHARGE_ONE))  # noqa: E731
            return Stage(session, effect, session.commit, session.rollback).play(play)


class AsyncAlchemyConnection(PostgresHouse):
    """An asynchronous connection of SQLAlchemy, by psycopg."""

    def play(self, play: Play) -> once.Attempt:
        """In a loop of its own."""
        return asyncio.run(self._play(play))

    async def _play(self, play: Play) -> once.Attempt:
        engine = _async_engine(_address(self.place, "psycopg"), play.isolation)
        async with AsyncConnection(engine) as connection:
            effect = lambda: connection.exec_driver_sql(CHARGE_ONE)  # noqa: E731
            return await AsyncStage(connection, effect, connection.commit, connection.rollback).play(play)


class AsyncAlchemySession(PostgresHouse):
    """An asynchronous session of SQLAlchemy, by asyncpg."""

    def play(self, play: Play) -> once.Attempt:
        """In a loop of its own."""
        return asyncio.run(self._play(play))

    async def _play(self, play: Play) -> once.Attempt:
        base, _, schema = self.place.partition("?options=-c%20search_path%3D")
        engine = _async_engine(base.replace("postgresql://", "postgresql+asyncpg://"), play.isolation, schema)
        async with AsyncSession(engine) as session:
            effect = lambda: session.execute(sqlalchemy.text(CHARGE_ONE))  # noqa: E731
            return await AsyncStage(session, effect, session.commit, session.rollback).play(play)


def _address(place: str, driver: str) -> str:
    return place.replace("postgresql://", f"postgresql+{driver}://")


def _level(isolation: str | None) -> dict[str, str]:
    return {} if isolation is None else {"isolation_level": isolation}


def _engine(place: str, play: Play) -> sqlalchemy.Engine:
    return _made(_address(place, "psycopg"), play.isolation)


# An application has one engine for all of its requests.
@functools.lru_cache(maxsize=64)
def _made(address: str, isolation: str | None) -> sqlalchemy.Engine:
    return sqlalchemy.create_engine(address, poolclass=NullPool, **_level(isolation))


def _async_engine(address: str, isolation: str | None, schema: str = "") -> AsyncEngine:
    return _made_async(address, isolation, schema, threading.get_ident())


@functools.lru_cache(maxsize=64)
def _made_async(address: str, isolation: str | None, schema: str, _thread: int) -> AsyncEngine:
    """Each thread has a loop of its own, and an engine belongs to one loop at a time."""
    settings = {"server_settings": {"search_path": schema}} if schema else {}
    return create_async_engine(address, poolclass=NullPool, connect_args=settings, **_level(isolation))
