"""Ways to charge once, wrong and right, on SQLite and on PostgreSQL; each call opens its own connection."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psycopg

from semel import once
from semel.once import Once

TABLES = ("CREATE TABLE charges (key text)", "CREATE TABLE seen (key text)")
Charge = Callable[[str], Any]


class Shop:
    """A database with its charges. Statements are written with `%s`."""

    def __init__(self, place: str, folder: Path) -> None:
        self.place = place
        self.lock = folder / "lock"
        self.is_postgres = place.startswith("postgresql")
        self.dialect = "postgresql" if self.is_postgres else "sqlite"
        with closing(self.connect()) as connection:
            for statement in (*TABLES, *once.ddl(self.dialect).split(";\n")):
                if statement.strip():
                    connection.execute(statement)
            connection.commit()

    def connect(self) -> Any:
        """A connection that begins a transaction by itself."""
        return psycopg.connect(self.place) if self.is_postgres else sqlite3.connect(self.place, timeout=30)

    def run(self, connection: Any, sql: str, key: str) -> Any:
        """Carry out a statement about a key."""
        return connection.execute(sql if self.is_postgres else sql.replace("%s", "?"), (key,))

    def charge(self, connection: Any, key: str) -> None:
        """The effect, not yet committed."""
        self.run(connection, "INSERT INTO charges VALUES (%s)", key)

    def count(self) -> int:
        """How many charges there are."""
        with closing(self.connect()) as connection:
            return int(connection.execute("SELECT count(*) FROM charges").fetchone()[0])


def naive(shop: Shop) -> Charge:
    """Charges whenever it is called."""

    def charge(key: str) -> str:
        with closing(shop.connect()) as connection:
            shop.charge(connection, key)
            connection.commit()
        return "charged"

    return charge


def checks_first(shop: Shop) -> Charge:
    """Looks whether there is a charge before it makes one: wrong only beside another call."""

    def charge(key: str) -> str:
        with closing(shop.connect()) as connection:
            if shop.run(connection, "SELECT 1 FROM charges WHERE key = %s", key).fetchone() is None:
                shop.charge(connection, key)
            connection.commit()
        return "charged"

    return charge


@contextmanager
def one_at_a_time(shop: Shop) -> Iterator[None]:
    """A lock that threads and processes respect, and that ends with its process."""
    with shop.lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def effect_first(shop: Shop) -> Charge:
    """Commits the effect, then the note that it happened: wrong only when killed between the two."""

    def charge(key: str) -> str:
        with one_at_a_time(shop), closing(shop.connect()) as connection:
            if shop.run(connection, "SELECT 1 FROM seen WHERE key = %s", key).fetchone() is None:
                shop.charge(connection, key)
                connection.commit()
                shop.run(connection, "INSERT INTO seen VALUES (%s)", key)
            connection.commit()
        return "charged"

    return charge


def note_first(shop: Shop) -> Charge:
    """Commits the note, then the effect: killed between the two, the effect never happens."""

    def charge(key: str) -> str:
        with one_at_a_time(shop), closing(shop.connect()) as connection:
            if shop.run(connection, "SELECT 1 FROM seen WHERE key = %s", key).fetchone() is None:
                shop.run(connection, "INSERT INTO seen VALUES (%s)", key)
                connection.commit()
                shop.charge(connection, key)
            connection.commit()
        return "charged"

    return charge


def remembers_in_memory(shop: Shop) -> Charge:
    """Knows what it did until its process ends: wrong only when killed."""
    seen: set[str] = set()
    lock = threading.Lock()

    def charge(key: str) -> str:
        with lock, closing(shop.connect()) as connection:
            if key not in seen:
                shop.charge(connection, key)
                connection.commit()
                seen.add(key)
        return "charged"

    return charge


def answers_otherwise(shop: Shop) -> Charge:
    """One effect, and another answer to a retry."""

    def charge(key: str) -> str:
        with closing(shop.connect()) as connection:
            with once.transaction(connection, key, scope=None) as attempt:
                if attempt.fresh:
                    shop.charge(connection, key)
            connection.commit()
        return "charged" if attempt.fresh else "was charged before"

    return charge


def in_transaction(shop: Shop) -> Charge:
    """Effect and receipt in one commit."""

    def charge(key: str) -> Any:
        with closing(shop.connect()) as connection:
            with once.transaction(connection, key, scope=None) as attempt:
                if attempt.fresh:
                    shop.charge(connection, key)
                    attempt.result = "charged"
            connection.commit()
            return attempt.result

    return charge


def in_function(shop: Shop, store: Once) -> Charge:
    """The effect is outside of the store: an honest unknown after a crash."""

    @store.once(key=lambda key: key, lease="60s", wait="30s")
    def charge(key: str) -> str:
        return str(naive(shop)(key))

    return charge


def naive_async(url: str) -> Charge:
    """The same wrong ways, for a coroutine."""

    async def charge(key: str) -> str:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute("INSERT INTO charges VALUES (%s)", (key,))
        return "charged"

    return charge


def checks_first_async(url: str) -> Charge:
    """Looks before it charges."""

    async def charge(key: str) -> str:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            found = await connection.execute("SELECT 1 FROM charges WHERE key = %s", (key,))
            if await found.fetchone() is None:
                await connection.execute("INSERT INTO charges VALUES (%s)", (key,))
        return "charged"

    return charge


def remembers_late_async(url: str) -> Charge:
    """Knows what it did, once it has waited: wrong when it is cancelled before that."""
    seen: set[str] = set()
    lock = asyncio.Lock()

    async def charge(key: str) -> str:
        async with lock:
            if key not in seen:
                await naive_async(url)(key)
                await asyncio.sleep(0)
                seen.add(key)
        return "charged"

    return charge


def in_transaction_async(url: str) -> Charge:
    """psycopg."""

    async def charge(key: str) -> Any:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            async with once.transaction(connection, key, scope=None) as attempt:
                if attempt.fresh:
                    await connection.execute("INSERT INTO charges VALUES (%s)", (key,))
                    attempt.result = "charged"
            await connection.commit()
            return attempt.result

    return charge


def in_transaction_asyncpg(url: str) -> Charge:
    """asyncpg."""
    base, _, schema = url.partition("?options=-c%20search_path%3D")

    async def charge(key: str) -> Any:
        connection = await asyncpg.connect(base, server_settings={"search_path": schema})
        try:
            async with connection.transaction(), once.transaction(connection, key, scope=None) as attempt:
                if attempt.fresh:
                    await connection.execute("INSERT INTO charges VALUES ($1)", key)
                    attempt.result = "charged"
            return attempt.result
        finally:
            await connection.close()

    return charge


def in_coroutine_function(shop: Shop, store: Once) -> Charge:
    """As `in_function`."""

    @store.once(key=lambda key: key, lease="60s", wait="30s")
    async def charge(key: str) -> str:
        return str(await naive_async(shop.place)(key)) if shop.is_postgres else str(naive(shop)(key))

    return charge
