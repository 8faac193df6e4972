"""A request whose handler joins it, on each door and driver: a script of its acts, and a model of what must happen.

| act | the handler |
|---|---|
| B | runs a block of `once.transaction` without a key: one charge |
| C, R | commits, or rolls back |
| A | gives the last piece of its answer |
| X | raises |
| K | is killed: its connection is cut, and nothing of its process reaches a store any more |

When a script ends, the connection is closed, which rolls back what was not committed.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from semel import once
from semel.once import Middleware, Once, WsgiMiddleware
from semel.once.errors import StoreUnavailable
from semel.testing.apps import UNSAID, AppRequest, Interruption, asgi_answer, send
from tests.once.conftest import fresh_schema

ORDERS = ("A", "AB", "BA", "BAC", "BCA", "BAR", "BRA")
"""All orders of a block, an answer and the end of its transaction; nobody ends it in AB and BA."""
SCRIPTS = sorted({
    script[:place] + end for script in ORDERS for place in range(len(script) + 1) for end in ("X", "K")
} | set(ORDERS))  # fmt: skip
GOOD = "BCA"
NOTHING = "nothing"


class BrokenHandlerError(Exception):
    """What a handler raises."""


class Killed(BaseException):
    """Leaves a process that has died."""


@dataclass(frozen=True)
class Known:
    """What is stored about a key."""

    row: int | None = None
    """The attempt whose charge was committed."""
    answer: str | None = None
    is_open: bool = False
    is_marked: bool = False


@dataclass(frozen=True)
class Reply:
    """What a client gets; without a status it gets nothing, or an error of its server."""

    status: int = 0
    body: str = ""


def expected(known: Known, number: int, script: str, on_crash: str, *, is_eager: bool) -> tuple[Reply, Known]:
    """The model: the reply to an attempt, and what is stored behind it.

    `is_eager` is a server that sends an answer while its application still runs.
    """
    if known.answer is not None:
        return Reply(200, known.answer), known
    if known.is_open and not known.is_marked and on_crash == "refuse":
        return Reply(409, "outcome_unknown"), known
    run = _Run(replace(known, is_open=True), number, is_eager=is_eager)
    return run.played(script)


class _Run:
    """One run of the handler, as the model has it."""

    def __init__(self, known: Known, number: int, *, is_eager: bool) -> None:
        self.known, self._number, self._is_eager = known, number, is_eager
        self._has_joined = self._is_open = False
        self._pending: int | None = None
        self._body = NOTHING
        self._reply: Reply | None = None

    def played(self, script: str) -> tuple[Reply, Known]:
        """The reply, and what is stored behind it."""
        answer: str | None = None
        for act in script:
            if act == "K":
                return self._reply or Reply(), self.known
            if act == "X" or (act == "B" and self._reply is not None):
                self._pending = None
                if self._reply is None:
                    self._settle(None)
                return self._reply or Reply(), self.known
            if act == "B":
                self._has_joined = self._is_open = True
                self.known = replace(self.known, is_marked=True)
                self._pending = self._number if self.known.row is None else None
                self._body = f"charge {self.known.row or self._number}"
            elif act == "A":
                answer = self._body
                if self._is_eager and not self._is_open:
                    self._reply = self._settle(answer)
            else:
                if act == "C" and self._pending is not None:
                    self.known = replace(self.known, row=self._pending)
                self._pending, self._is_open = None, False
        self._pending = None
        if self._reply is None and answer is not None:
            self._reply = self._settle(answer)
        return self._reply or Reply(), self.known

    def _settle(self, answer: str | None) -> Reply:
        if self._has_joined and self.known.row is None:
            self.known = Known()
        elif answer is not None:
            self.known = Known(self.known.row, answer)
        return Reply(200, answer or "")


class World(ABC):
    """A door, a driver and the place of the receipts."""

    is_eager = True

    def __init__(self, folder: Path, receipts: str) -> None:
        self._receipts = receipts
        self._folder = folder
        self._numbers = itertools.count(1)
        self._stores: list[Once] = []
        self.script, self.key, self.number = "", "", 0
        self.store = self._opened()

    @abstractmethod
    def connect(self) -> Any:
        """A connection with `commit`, `rollback` and `close`."""

    @abstractmethod
    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look from outside."""

    @abstractmethod
    def change(self, sql: str) -> None:
        """Change from outside."""

    def run(self, target: Any, sql: str) -> Any:
        """Run a statement."""
        return target.execute(sqlalchemy.text(sql) if isinstance(target, Session | AsyncSession) else sql)

    def commit(self, target: Any) -> Any:
        """Commit."""
        return target.commit()

    def rollback(self, target: Any) -> Any:
        """Roll back."""
        return target.rollback()

    def protected(self, on_crash: Any) -> Any:
        """The application behind its middleware."""
        return Middleware(self.handle, self.store, scope=None, on_crash=on_crash)

    def begin(self) -> None:
        """A new key."""
        self.key, self.number = f"k{next(self._numbers)}", 0

    def attempt(self, script: str, on_crash: str) -> Reply:
        """Send the request once more."""
        self.number += 1
        self.script = script
        request = AppRequest(self.protected(on_crash), "/charges", "POST", {}, UNSAID, b"5", {}, 25.0, self.key)
        sent: list[dict[str, Any]] = []

        class Client(Interruption):
            """Keeps what arrives."""

            def answer(self, message: dict[str, Any]) -> None:
                sent.append(message)

        try:
            if self.is_eager:
                asyncio.run(asgi_answer(request, 0, Client()))
            else:
                found = send(request, 0, Client())
                if found.status:
                    sent[:0] = [{"type": "http.response.start", "status": found.status}]
        except Killed:
            self.restart()
        return _reply_of(sent)

    def restart(self) -> None:
        """A new process over what the dead one left. The leases that nobody renews end."""
        self.store = self._opened()
        self.store.store.end_leases()

    def rows(self) -> list[int]:
        """The attempts whose charges are committed."""
        return [number for (number,) in self.query(f"SELECT attempt FROM charges WHERE name = '{self.key}'")]

    def close(self) -> None:
        """Close all stores."""
        for store in self._stores:
            store.close()

    def _opened(self) -> Once:
        self._stores.append(Once(self._receipts))
        return self._stores[-1]

    @property
    def charge(self) -> str:
        """The effect of this attempt."""
        return f"INSERT INTO charges VALUES ('{self.key}', {self.number})"

    def die(self) -> None:
        """Let nothing of this process reach its store."""

        def unreachable(_: Any) -> Any:
            raise StoreUnavailable("this process is dead")

        self.store.store.change = unreachable  # type: ignore[assignment,method-assign]

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        """Play the script."""
        if scope["type"] != "http":
            raise BrokenHandlerError
        target, body = await done(self.connect()), NOTHING
        try:
            for act in self.script:
                if act == "B":
                    async with entered(once.transaction(target)) as attempt:
                        if attempt.fresh:
                            await done(self.run(target, self.charge))
                            attempt.result = f"charge {self.number}"
                    body = attempt.result
                elif act == "A":
                    await send({"type": "http.response.start", "status": 200, "headers": []})
                    await send({"type": "http.response.body", "body": body.encode()})
                elif act == "X":
                    raise BrokenHandlerError
                elif act == "K":
                    raise Killed
                else:
                    await done((self.commit if act == "C" else self.rollback)(target))
        except Killed:
            self.die()
            raise
        finally:
            await done(target.close())


class WsgiWorld(World):
    """The same behind a server that has the whole body before it sends."""

    is_eager = False

    def protected(self, on_crash: Any) -> Any:
        """The application behind its middleware."""
        return WsgiMiddleware(self.handle_blocking, self.store, scope=None, on_crash=on_crash)

    def handle_blocking(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        """Play the script."""
        target, body = self.connect(), NOTHING
        try:
            for act in self.script:
                if act == "B":
                    with once.transaction(target) as attempt:
                        if attempt.fresh:
                            self.run(target, self.charge)
                            attempt.result = f"charge {self.number}"
                    body = attempt.result
                elif act == "A":
                    start_response("200 OK", [])
                    yield body.encode()
                elif act == "X":
                    raise BrokenHandlerError
                elif act == "K":
                    raise Killed
                else:
                    (self.commit if act == "C" else self.rollback)(target)
        except Killed:
            self.die()
            raise
        finally:
            target.close()


async def done(value: Any) -> Any:
    """The result of a call that may block, or have to be awaited."""
    return await value if inspect.isawaitable(value) else value


@asynccontextmanager
async def entered(block: once.Transaction[Any] | once.AsyncTransaction[Any]) -> AsyncIterator[once.Attempt[Any]]:
    """A block of either kind."""
    if isinstance(block, once.AsyncTransaction):
        async with block as attempt:
            yield attempt
    else:
        with block as attempt:
            yield attempt


def _reply_of(sent: list[dict[str, Any]]) -> Reply:
    if not sent:
        return Reply()
    body = b"".join(message.get("body", b"") for message in sent)
    status = sent[0]["status"]
    return Reply(status, "outcome_unknown" if b'"outcome_unknown"' in body else body.decode())


class SqliteWorld(World):
    """Charges in a file."""

    def __init__(self, folder: Path, receipts: str) -> None:
        self.file = str(folder / "shop.db")
        with closing(sqlite3.connect(self.file)) as connection:
            connection.executescript("CREATE TABLE charges (name text, attempt int);" + once.ddl("sqlite"))
        super().__init__(folder, receipts or str(folder / "receipts.db"))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look from outside."""
        with closing(sqlite3.connect(self.file, timeout=25)) as connection:
            return connection.execute(sql).fetchall()

    def change(self, sql: str) -> None:
        """Change from outside."""
        with closing(sqlite3.connect(self.file, timeout=25)) as connection:
            connection.executescript(sql)

    def connect(self) -> Any:
        """A connection of the standard library."""
        return sqlite3.connect(self.file, timeout=25)


class PostgresWorld(World):
    """Charges in a schema, beside the receipts of requests."""

    def __init__(self, folder: Path, receipts: str) -> None:
        self.url = fresh_schema()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(b"CREATE TABLE charges (name text, attempt int)")
            connection.execute(once.ddl("postgresql").encode())
        super().__init__(folder, receipts or self.url)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look from outside."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def change(self, sql: str) -> None:
        """Change from outside."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.encode())

    def connect(self) -> Any:
        """A connection of psycopg."""
        return psycopg.connect(self.url)


class Sqlite3Asgi(SqliteWorld):
    """sqlite3 in an event loop."""


class ApswAsgi(SqliteWorld):
    """apsw, whose transactions are begun by hand."""

    def connect(self) -> Any:
        """A connection in a transaction."""
        connection = apsw.Connection(self.file)
        connection.set_busy_timeout(25_000)
        connection.execute("BEGIN")
        return connection

    def commit(self, target: Any) -> Any:
        """Commit."""
        return target.execute("COMMIT")

    def rollback(self, target: Any) -> Any:
        """Roll back."""
        return target.execute("ROLLBACK")


class Sqlite3Wsgi(WsgiWorld, SqliteWorld):
    """sqlite3 in a thread."""


class PsycopgWsgi(WsgiWorld, PostgresWorld):
    """psycopg in a thread."""


class SessionAsgi(SqliteWorld):
    """A session of SQLAlchemy on SQLite."""

    def connect(self) -> Any:
        """A session."""
        return Session(_engine(f"sqlite:///{self.file}"))


class SessionWsgi(WsgiWorld, PostgresWorld):
    """A session of SQLAlchemy on PostgreSQL."""

    def connect(self) -> Any:
        """A session."""
        return Session(_engine(_address(self.url, "psycopg")))


class SessionPostgresAsgi(PostgresWorld):
    """A session of SQLAlchemy on PostgreSQL, in an event loop."""

    def connect(self) -> Any:
        """A session."""
        return Session(_engine(_address(self.url, "psycopg")))


class AsyncPsycopgAsgi(PostgresWorld):
    """psycopg in an event loop."""

    def connect(self) -> Any:
        """An asynchronous connection."""
        return psycopg.AsyncConnection.connect(self.url)


class AsyncSessionSqlite(SqliteWorld):
    """An asynchronous session on SQLite."""

    def connect(self) -> Any:
        """A session."""
        return AsyncSession(_async_engine(f"sqlite+aiosqlite:///{self.file}"))


class AsyncSessionPostgres(PostgresWorld):
    """An asynchronous session on PostgreSQL."""

    def connect(self) -> Any:
        """A session."""
        return AsyncSession(_async_engine(_address(self.url, "psycopg")))


class AsyncpgAsgi(PostgresWorld):
    """asyncpg, whose transactions are objects."""

    def __init__(self, folder: Path, receipts: str) -> None:
        super().__init__(folder, receipts)
        self._transactions: dict[Any, Any] = {}

    async def connect(self) -> Any:
        """A connection with an open transaction."""
        base, _, schema = self.url.partition("?options=-c%20search_path%3D")
        connection = await asyncpg.connect(base, server_settings={"search_path": schema})
        self._transactions[connection] = connection.transaction()
        await self._transactions[connection].start()
        return connection

    def commit(self, target: Any) -> Any:
        """Commit."""
        return self._transactions[target].commit()

    def rollback(self, target: Any) -> Any:
        """Roll back."""
        return self._transactions[target].rollback()


def _address(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


_engines: dict[str, Any] = {}


def _engine(url: str) -> sqlalchemy.Engine:
    if url not in _engines:
        _engines[url] = sqlalchemy.create_engine(url, poolclass=NullPool)
    found: sqlalchemy.Engine = _engines[url]
    return found


def _async_engine(url: str) -> Any:
    return create_async_engine(url, poolclass=NullPool)
