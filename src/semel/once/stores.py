"""Stores of receipts: a SQLite file, memory, or a PostgreSQL database.

A statement is one transaction, on disk when it returns. Every statement may be repeated: a claim names its owner, so a
call whose answer was lost finds its own claim. If a store does not answer, `StoreUnavailable` is raised.

After a fork the child opens its own connection, because processes that share one would read each other's answers, and
SQLite forbids it. A server that loads its application before it forks its workers needs this.
"""

from __future__ import annotations

import itertools
import os
import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from semel.once.claims import Act, ClaimStatements, ReceiptChange
from semel.once.errors import InvalidKey, OnceError, StoreUnavailable, TableMissing
from semel.once.table import SWEEP_EVERY, SWEPT, OnceDialect, ParameterStyle, Receipts, Row, Statement, ddl, rendered

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

_parents: list[Any] = []
"""Objects of parent processes, kept referenced: closing them here would close them for the parent. One per fork."""


class PerProcess(Generic[T]):
    """An object that a forked child opens again."""

    def __init__(self, make: Callable[[], T], *, is_copied: bool = False) -> None:
        self._make = make
        self._is_copied = is_copied
        """Whether a fork copies it, as it does memory."""
        self._made = make()
        self._process = os.getpid()

    def get(self) -> T:
        """The object of this process, opened by the first call after a fork."""
        process = os.getpid()
        if process != self._process and not self._is_copied:
            _parents.append(self._made)
            self._made = self._make()
            self._process = process
        return self._made

    @property
    def is_parents(self) -> bool:
        """Whether this process has not opened its own, and so has nothing to close."""
        return self._process != os.getpid() and not self._is_copied


Clock = Callable[[], float]
BUSY_SECONDS = 10.0
BUSY_PAUSE_SECONDS = 0.01
CONNECT_SECONDS = 10
TRIES = 3
"""Attempts to run a statement when the connection breaks."""
MAX_IDLE = 8
"""Maximum idle connections."""


class ReceiptStore(ABC):
    """Stores receipts."""

    @abstractmethod
    def change(self, change: ReceiptChange) -> Sequence[Row]:
        """Apply one change and return its rows. It is on disk when this returns."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class TableStore(ReceiptStore):
    """A table of receipts in a database."""

    dialect: ClassVar[OnceDialect]

    def __init__(self, table: str, clock: Clock) -> None:
        self._clock = clock
        self._statements = ClaimStatements(table)
        self._receipts = Receipts(table)
        self._writes = itertools.count(1)

    def change(self, change: ReceiptChange) -> Sequence[Row]:
        """Apply one change as one statement."""
        rows = self.run(self._statements.statement(change, self.now_ms()))
        if change.act is Act.FINISH and next(self._writes) % SWEEP_EVERY == 0:
            with suppress(OnceError):  # the change is stored; the next sweep deletes what this one did not
                self.sweep()
        return rows

    def create(self) -> None:
        """Create the table if it does not exist; a file has it since it was opened."""

    def expired(self) -> int:
        """The number of expired receipts that are still stored."""
        return int(self.run(self._receipts.expired(self.now_ms()))[0][0])

    def sweep(self, limit: int = SWEPT) -> int:
        """Delete at most `limit` expired receipts. Returns how many."""
        return len(self.run(self._receipts.sweep(self.now_ms(), limit)))

    def now_ms(self) -> int:
        """The time of this program, in milliseconds since 1970."""
        return int(self._clock() * 1_000)

    @abstractmethod
    def run(self, statement: Statement) -> Sequence[Row]:
        """Run one statement. It is on disk when this returns."""


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging; wait up to `BUSY_SECONDS` for another process that opens or writes it.

    SQLite's own busy timeout does not cover this switch: while another connection writes to a file that is not in WAL
    mode yet, as processes do that open a new file at the same time, it fails at once.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(BUSY_PAUSE_SECONDS)
        else:
            return


class OnceSqliteStore(TableStore):
    """A file, or memory. Opening it creates the table."""

    dialect = OnceDialect.SQLITE

    def __init__(self, path: str, table: str, clock: Clock, schema: Callable[[str, str], str] = ddl) -> None:
        super().__init__(table, clock)
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=path.startswith("file:")
            )
            try:
                use_wal(self._connection)
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.executescript(schema("sqlite", table))
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The store {path} cannot be opened: {error}.") from error

    def run(self, statement: Statement) -> Sequence[Row]:
        """Run one statement; one thread at a time."""
        sql, parameters = rendered(statement, ParameterStyle.QUESTION, OnceDialect.SQLITE)
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise StoreUnavailable(f"The store refused the statement: {error}.") from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


class OncePostgresStore(TableStore):
    """A table in a PostgreSQL database, created by `semel once init URL`."""

    dialect = OnceDialect.POSTGRESQL

    def __init__(self, url: str, table: str, clock: Clock, schema: Callable[[str, str], str] = ddl) -> None:
        super().__init__(table, clock)
        self._url = url
        self._schema = schema
        self._table = table
        self._idle: queue.LifoQueue[psycopg.Connection[Any]] = queue.LifoQueue(MAX_IDLE)

    def run(self, statement: Statement) -> Sequence[Row]:
        """Run one statement. If the connection is broken, it is run again on a new one."""
        import psycopg  # noqa: PLC0415 - only a PostgreSQL store needs the driver

        sql, parameters = rendered(statement, ParameterStyle.PERCENT, OnceDialect.POSTGRESQL)
        fault: Exception | None = None
        for attempt in range(TRIES):
            connection: psycopg.Connection[Any] | None = None
            try:
                connection = self._connection(is_fresh=attempt > 0)
                rows = connection.execute(sql.encode(), parameters or None).fetchall()
            except psycopg.Error as error:
                if connection is not None:
                    connection.close()
                if isinstance(error, psycopg.errors.UndefinedTable):
                    raise TableMissing(self._table) from error
                if not isinstance(error, psycopg.OperationalError):
                    raise
                fault = error
                continue
            self._give_back(connection)
            return rows
        raise StoreUnavailable(f"The database does not answer: {fault}.") from fault

    def _connection(self, *, is_fresh: bool) -> psycopg.Connection[Any]:

        if not is_fresh:
            try:
                return self._idle.get_nowait()
            except queue.Empty:
                pass
        return _connected(self._url)

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        try:
            self._idle.put_nowait(connection)
        except queue.Full:
            connection.close()

    def create(self) -> None:
        """Create the table if it does not exist."""
        import psycopg  # noqa: PLC0415

        try:
            with _connected(self._url) as connection:
                connection.execute(self._schema("postgresql", self._table).encode())
        except psycopg.Error as error:
            raise StoreUnavailable(f"The table {self._table} cannot be created: {error}.") from error

    def close(self) -> None:
        """Close the idle connections."""
        while not self._idle.empty():
            self._idle.get_nowait().close()


def _connected(url: str) -> psycopg.Connection[Any]:
    """A new connection, with a connect timeout: that of the URL or the environment, if they have one."""
    import psycopg  # noqa: PLC0415
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    timeout = conninfo_to_dict(url).get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT") or CONNECT_SECONDS
    return psycopg.connect(url, autocommit=True, connect_timeout=timeout)


def store_at(place: str, table: str, clock: Clock, token: str | None = None) -> ReceiptStore:
    """The store of a path or a URL."""
    scheme, has_scheme, _ = place.partition("://")
    if not has_scheme:
        return OnceSqliteStore(place, table, clock)
    if scheme in ("postgresql", "postgres"):
        return OncePostgresStore(place, table, clock)
    if scheme in ("http", "https"):
        from semel.once.server_store import ServerStore  # noqa: PLC0415 - only a server store needs HTTP

        return ServerStore(place, table, token)
    raise InvalidKey(
        f"{scheme}:// is not a supported store: pass a file path, or a postgresql://, http:// or https:// URL."
    )
