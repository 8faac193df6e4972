"""The rows of the table that are refused: how each is asked for, and the sentence that says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from semel import once
from semel.once import Once
from tests.once.compat.drivers import Base, Other, alchemy_address

Asked = Callable[[ExitStack, str], object]
AUTOCOMMIT = "The connection is in autocommit mode and no transaction is open: begin one around this call."
KINDS = "Pass a connection or a session of psycopg 3, asyncpg, SQLAlchemy 2, sqlite3, apsw or Django, not a "
SEVERAL = (
    "This session has several databases: pass bind=, a mapped class of the one that gets the effect, or the "
    "session's connection to it."
)
TWO_COMMITS = (
    "This session has transactions on several databases, which commit one after the other: use a session of one "
    "database, or pass its connection."
)
STORES = (
    "Pass the path of a SQLite file, a postgresql:// URL, a synchronous SQLAlchemy engine or a "
    "psycopg_pool.ConnectionPool, not a "
)


def block(target: Any, **options: Any) -> None:
    """A block that must not run."""
    with once.transaction(target, "key", scope="shop", **options):
        raise AssertionError("the block ran")


def opened(stack: ExitStack, place: str, **options: Any) -> psycopg.Connection[Any]:
    """A connection of psycopg."""
    return stack.enter_context(closing(psycopg.connect(place, **options)))


def engine(place: str, **options: Any) -> sqlalchemy.Engine:
    """An engine that keeps no connection."""
    return create_engine(alchemy_address(place), poolclass=NullPool, **options)


def session(stack: ExitStack, place: str, **options: Any) -> Session:
    """A session of one engine."""
    return stack.enter_context(Session(engine(place, **options)))


def in_pipeline(stack: ExitStack, place: str) -> None:
    """The connection answers later."""
    connection = opened(stack, place)
    stack.enter_context(connection.pipeline())
    block(connection)


def two_databases(stack: ExitStack, place: str) -> None:
    """Which one gets the receipt?"""
    binds: dict[Any, Any] = {Base: engine(place), Other: create_engine("sqlite://", poolclass=NullPool)}
    block(stack.enter_context(Session(binds=binds)))


def beside(stack: ExitStack, place: str) -> None:
    """A transaction of another database is open in the session."""
    found = session(stack, place)
    found.execute(text("SELECT 1"), bind_arguments={"bind": engine(place)})
    block(found)


async def asynchronously(place: str, kind: str) -> None:
    """Blocks on asynchronous connections that must not run."""
    if kind == "asyncpg":
        connection = await asyncpg.connect(place)
        try:
            async with once.transaction(connection, "key", scope="shop"):
                raise AssertionError("the block ran")
        finally:
            await connection.close()
    alchemy = create_async_engine(alchemy_address(place, "asyncpg"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with AsyncSession(alchemy) as found:
        if kind == "with":
            block(found)
        async with once.transaction(found, "key", scope="shop"):
            raise AssertionError("the block ran")


REFUSED: dict[str, tuple[Asked, str]] = {
    "psycopg, autocommit": (
        lambda stack, place: block(opened(stack, place, autocommit=True)),
        AUTOCOMMIT,
    ),
    "psycopg, pipeline mode": (
        in_pipeline,
        "This connection is in pipeline mode: use once.transaction outside `connection.pipeline()`.",
    ),
    "psycopg, a cursor": (
        lambda stack, place: block(opened(stack, place).cursor()),
        f"{KINDS}psycopg.Cursor.",
    ),
    "psycopg_pool, the pool itself": (
        lambda _, place: block(AsyncConnectionPool(place, open=False)),
        f"{KINDS}psycopg_pool.pool_async.AsyncConnectionPool.",
    ),
    "asyncpg, no transaction": (lambda _, place: asyncio.run(asynchronously(place, "asyncpg")), AUTOCOMMIT),
    "SQLAlchemy, AUTOCOMMIT": (
        lambda stack, place: block(session(stack, place, isolation_level="AUTOCOMMIT")),
        AUTOCOMMIT,
    ),
    "SQLAlchemy AsyncSession, AUTOCOMMIT": (
        lambda _, place: asyncio.run(asynchronously(place, "AUTOCOMMIT")),
        AUTOCOMMIT,
    ),
    "SQLAlchemy AsyncSession, `with`": (
        lambda _, place: asyncio.run(asynchronously(place, "with")),
        "This connection is asynchronous: write `async with once.transaction(...)`.",
    ),
    "SQLAlchemy, a session of two databases": (
        two_databases,
        SEVERAL,
    ),
    "SQLAlchemy, transactions on two databases": (
        beside,
        TWO_COMMITS,
    ),
    "SQLAlchemy, a session without a database": (
        lambda _, place: block(Session()),
        "This session has no database: give it an engine, or pass a connection.",
    ),
    "SQLAlchemy, bind= of a connection": (
        lambda stack, place: block(stack.enter_context(engine(place).connect()), bind=Base),
        "bind= names a database of a session: a connection has one.",
    ),
    "SQLAlchemy, an engine": (lambda _, place: block(engine(place)), f"{KINDS}sqlalchemy.engine.base.Engine."),
    "Once, an asynchronous engine": (
        lambda _, place: Once(create_async_engine(alchemy_address(place, "asyncpg"))),
        f"{STORES}sqlalchemy.ext.asyncio.engine.AsyncEngine.",
    ),
    "Once, an asynchronous pool": (
        lambda _, place: Once(AsyncConnectionPool(place, open=False)),
        f"{STORES}psycopg_pool.pool_async.AsyncConnectionPool.",
    ),
}
