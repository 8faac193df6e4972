"""Databases of an application that handles events: the effect and the cursor are one transaction, on every driver."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw
import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from semel.client import Event, TransactionCursor
from tests.once.conftest import fresh_schema

SYNC = ("sqlite3", "apsw", "psycopg", "sqlalchemy-connection", "sqlalchemy-session")
ASYNC = ("psycopg-async", "asyncpg", "sqlalchemy-async-session")
EFFECTS = "CREATE TABLE effects (number integer)"
SEARCH_PATH = "?options=-c%20search_path%3D"


class RolledBackError(Exception):
    """The application gives up in the middle of a transaction."""


class Database(ABC):
    """One connection of one driver."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.path = str(folder / "app.db")
        self.connection: Any = None
        self.url = ""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Create the tables and connect."""

    async def close(self) -> None:
        """Disconnect."""
        self.connection.close()

    @abstractmethod
    async def handle(self, follower: Any, event: Event, *, is_kept: bool = True) -> None:
        """Store the effect and the cursor in one transaction, and commit it, or roll it back."""

    async def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return True

    async def effects(self) -> list[int]:
        """The numbers that were handled."""
        if self.url:
            with psycopg.connect(self.url) as other:
                return [number for (number,) in other.execute("SELECT number FROM effects ORDER BY number").fetchall()]
        with sqlite3.connect(self.path) as one:
            found = one.execute("SELECT number FROM effects ORDER BY number").fetchall()
        one.close()
        return [number for (number,) in found]

    def sqlite(self) -> str:
        """Create the tables in a file."""
        with sqlite3.connect(self.path) as one:
            one.execute(EFFECTS)
            TransactionCursor.migrate(one)
        one.close()
        return self.path

    def postgres(self) -> str:
        """Create the tables in a schema of their own."""
        self.url = fresh_schema()
        with psycopg.connect(self.url) as one:
            one.execute(EFFECTS)
            one.execute(TransactionCursor.ddl("postgresql").encode())
        return self.url


class Simple(Database):
    """A connection with `execute`, `commit` and `rollback`."""

    insert = "INSERT INTO effects VALUES (?)"

    async def handle(self, follower: Any, event: Event, *, is_kept: bool = True) -> None:
        self.execute(event.data)
        try:
            await follower.ack(event)
        except BaseException:
            self.connection.rollback()
            raise
        (self.connection.commit if is_kept else self.connection.rollback)()

    def execute(self, number: int) -> None:
        """The effect."""
        self.connection.execute(self.insert, (number,))


class Sqlite(Simple):
    async def open(self) -> None:
        self.connection = sqlite3.connect(self.sqlite(), check_same_thread=False)

    async def is_idle(self) -> bool:
        return not self.connection.in_transaction


class ApswDatabase(Simple):
    async def open(self) -> None:
        self.connection = apsw.Connection(self.sqlite())

    async def handle(self, follower: Any, event: Event, *, is_kept: bool = True) -> None:
        try:
            with self.connection:
                self.execute(event.data)
                await follower.ack(event)
                if not is_kept:
                    raise RolledBackError
        except RolledBackError:
            return


class PsycopgDatabase(Simple):
    insert = "INSERT INTO effects VALUES (%s)"

    async def open(self) -> None:
        self.connection = psycopg.connect(self.postgres())

    async def is_idle(self) -> bool:
        return bool(self.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)


class AlchemyConnectionDatabase(Simple):
    async def open(self) -> None:
        engine = sqlalchemy.create_engine(f"sqlite:///{self.sqlite()}", poolclass=NullPool)
        self.connection = engine.connect()

    def execute(self, number: int) -> None:
        self.connection.exec_driver_sql(self.insert, (number,))

    async def is_idle(self) -> bool:
        return not self.connection.in_transaction()


class AlchemySessionDatabase(Simple):
    async def open(self) -> None:
        url = self.postgres().replace("postgresql://", "postgresql+psycopg://")
        self.connection = Session(sqlalchemy.create_engine(url, poolclass=NullPool))

    def execute(self, number: int) -> None:
        self.connection.execute(sqlalchemy.text("INSERT INTO effects VALUES (:n)"), {"n": number})

    async def is_idle(self) -> bool:
        return not self.connection.in_transaction()


class AsyncPsycopgDatabase(Database):
    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.postgres())

    async def close(self) -> None:
        await self.connection.close()

    async def is_idle(self) -> bool:
        return bool(self.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE)

    async def handle(self, follower: Any, event: Event, *, is_kept: bool = True) -> None:
        async with self.connection.transaction(force_rollback=not is_kept):
            await self.connection.execute("INSERT INTO effects VALUES (%s)", (event.data,))
            await follower.ack(event)


class AsyncpgDatabase(Database):
    async def open(self) -> None:
        base, _, schema = self.postgres().partition(SEARCH_PATH)
        self.connection = await asyncpg.connect(base, server_settings={"search_path": schema})

    async def close(self) -> None:
        await self.connection.close()

    async def is_idle(self) -> bool:
        return not self.connection.is_in_transaction()

    async def handle(self, follower: Any, event: Event, *, is_kept: bool = True) -> None:
        try:
            async with self.connection.transaction():
                await self.connection.execute("INSERT INTO effects VALUES ($1)", event.data)
                await follower.ack(event)
                if not is_kept:
                    raise RolledBackError
        except RolledBackError:
            return


class AsyncAlchemySessionDatabase(Database):
    async def open(self) -> None:
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{self.sqlite()}", poolclass=NullPool)
        self.connection = AsyncSession(self._engine)

    async def close(self) -> None:
        await self.connection.close()
        await self._engine.dispose()

    async def is_idle(self) -> bool:
        return not self.connection.in_transaction()

    async def handle(self, follower: Any, event: Event, *, is_kept: bool = True) -> None:
        await self.connection.execute(sqlalchemy.text("INSERT INTO effects VALUES (:n)"), {"n": event.data})
        try:
            await follower.ack(event)
        except BaseException:
            await self.connection.rollback()
            raise
        await (self.connection.commit() if is_kept else self.connection.rollback())


_KINDS: dict[str, Callable[[Path], Database]] = {
    "sqlite3": Sqlite,
    "apsw": ApswDatabase,
    "psycopg": PsycopgDatabase,
    "psycopg-async": AsyncPsycopgDatabase,
    "asyncpg": AsyncpgDatabase,
    "sqlalchemy-connection": AlchemyConnectionDatabase,
    "sqlalchemy-session": AlchemySessionDatabase,
    "sqlalchemy-async-session": AsyncAlchemySessionDatabase,
}


def database(name: str, folder: Path) -> Database:
    """A database of its own for a driver."""
    return _KINDS[name](folder)
