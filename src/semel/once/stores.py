"""Where the receipts of functions are: a file of SQLite, memory, or a database of PostgreSQL.

A statement is one transaction, on disk when it returns. Every statement may be repeated: a claim names its owner, so
one whose answer was lost is found again as this call's own. A store that does not answer raises `StoreUnavailable`.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from semel.once.errors import InvalidKey, StoreUnavailable, TableMissing
from semel.once.table import Dialect, Marks, Row, Statement, ddl, rendered

if TYPE_CHECKING:
    import psycopg

Clock = Callable[[], float]
BUSY_SECONDS = 10.0
TRIES = 3
"""A statement is tried so often when the connection breaks."""
MAX_IDLE = 8
"""Connections that are kept for the next statement."""


class ReceiptStore(ABC):
    """A table of receipts of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        """The time of this program."""
        return int(self._clock() * 1_000)

    @abstractmethod
    def run(self, statement: Statement) -> Sequence[Row]:
        """Carry out one statement: on disk when this returns."""

    @abstractmethod
    def close(self) -> None:
        """Close its connections."""


class SqliteStore(ReceiptStore):
    """A file, or memory; the table is made with it."""

    def __init__(self, path: str, table: str, clock: Clock) -> None:
        super().__init__(clock)
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(
                path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=path.startswith("file:")
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(ddl("sqlite", table))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"The store {path} cannot be opened: {error}.") from error

    def run(self, statement: Statement) -> Sequence[Row]:
        """Carry out one statement; threads take turns."""
        sql, parameters = rendered(statement, Marks.QUESTION, Dialect.SQLITE)
        with self._lock:
            try:
                return self._connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise StoreUnavailable(f"The store does not take the statement: {error}.") from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


class PostgresStore(ReceiptStore):
    """A table in a database of PostgreSQL, which `semel once init URL` has made."""

    def __init__(self, url: str, table: str, clock: Clock) -> None:
        super().__init__(clock)
        self._url = url
        self._table = table
        self._idle: queue.LifoQueue[psycopg.Connection[Any]] = queue.LifoQueue(MAX_IDLE)

    def run(self, statement: Statement) -> Sequence[Row]:
        """Carry out one statement; on a new connection when the one at hand is broken."""
        import psycopg  # noqa: PLC0415 - only who has such a store needs the driver

        sql, parameters = rendered(statement, Marks.PERCENT, Dialect.POSTGRESQL)
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
        import psycopg  # noqa: PLC0415

        if not is_fresh:
            try:
                return self._idle.get_nowait()
            except queue.Empty:
                pass
        return psycopg.connect(self._url, autocommit=True)

    def _give_back(self, connection: psycopg.Connection[Any]) -> None:
        try:
            self._idle.put_nowait(connection)
        except queue.Full:
            connection.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        while not self._idle.empty():
            self._idle.get_nowait().close()


def store_at(place: str, table: str, clock: Clock = time.time) -> ReceiptStore:
    """The store of a path or a URL."""
    scheme, has_scheme, _ = place.partition("://")
    if not has_scheme:
        return SqliteStore(place, table, clock)
    if scheme in ("postgresql", "postgres"):
        return PostgresStore(place, table, clock)
    raise InvalidKey(f"{scheme}:// is no store that is known: give a path, or a URL that begins with postgresql://.")
