"""Runs single statements on connections of its own: a SQLite file, memory, PostgreSQL, or the pool of an application.

A statement is one transaction, and on disk when `run` returns. Nothing waits without a limit: not for a connection, not
for a thread, not for a lock in the database. A statement whose connection broke is run again on a new one, so every
statement must be one that may be repeated.

| limit | default |
|---|---|
| connections and threads of a database | 8 |
| wait for a connection, a thread and a lock together | 10 s, or what the caller allows |

No prepared statements are used, so that a pooler may give each transaction another connection. A forked child opens
connections of its own.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from semel.kernel.shown_url import shown_url
from semel.once.deferred_import import DeferredModule
from semel.once.errors import (
    InvalidKey,
    StoreBusy,
    StoreUnavailable,
    TableMissing,
    UnsupportedConnection,
)
from semel.once.forks import PerProcess, take_part
from semel.once.table import (
    DURABLY,
    PATIENCE_SECONDS,
    OnceDialect,
    ParameterStyle,
    Row,
    Statement,
    TableForm,
    create_table,
    rendered,
)

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future, ThreadPoolExecutor

    import psycopg
    from sqlalchemy import Engine
else:
    asyncio = DeferredModule("asyncio")  # it would take a third of this package's import time

T = TypeVar("T")

BUSY_PAUSE_SECONDS = 0.01
CONNECT_SECONDS = 10
TRIES = 3
"""Attempts to run a statement when the connection breaks."""
CONNECTIONS = 8
"""Maximum connections, and maximum threads, of one database."""


class Database(ABC):
    """A place for one table."""

    dialect: ClassVar[OnceDialect]
    is_twin_alike: ClassVar[bool] = True
    """Whether a twin surely sees what this one sees."""

    def __init__(self, form: TableForm) -> None:
        self.form = form
        self._is_checked = False
        self._pool_lock = PerProcess(threading.Lock)
        self._threads: ThreadPoolExecutor | None = None
        take_part(self)

    def run(self, statement: Statement, patience: float = PATIENCE_SECONDS) -> Sequence[Row]:
        """Run one statement; wait at most `patience` seconds for connections and locks. It is on disk on return."""
        limit = TimeLimit(patience)
        if not self._is_checked:
            self.check_form(limit)
        return self.execute(statement, limit)

    def run_unlocked(self, statement: Statement) -> Sequence[Row]:
        """Run one statement if no other transaction holds a lock that it needs; else raise `StoreBusy` at once."""
        return self.run(statement, 0.0)

    @abstractmethod
    def execute(self, statement: Statement, limit: TimeLimit) -> Sequence[Row]:
        """Run one statement within its limit."""

    def check_form(self, limit: TimeLimit) -> None:
        """Refuse a table of another form, once for each process: later statements would fail, or find nothing."""
        self.form.check(self.execute(self.form.look, limit))
        self._is_checked = True

    def twin(self) -> Database:
        """The same place over a connection that nothing else uses, or this one where there is no other."""
        return self

    @abstractmethod
    def create(self) -> None:
        """Create the table if it does not exist."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run a function in a thread of this database."""
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only coroutines need threads

        with self._pool_lock():
            if self._threads is None:
                self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="semel-once")
            return self._threads.submit(work)

    def close_threads(self) -> None:
        """End the threads when they are idle."""
        with self._pool_lock():
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)

    def before_fork(self) -> None:
        """Let no thread be started."""
        self._pool_lock().acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._pool_lock().release()

    def after_fork_in_child(self) -> None:
        """Go on without the threads of the parent, which are not here."""
        self._threads = None


async def wait_for(future: Future[T], patience: float) -> T:
    """Wait for work of `submit`. Work that no thread has begun within `patience` seconds is not done: `StoreBusy`."""
    waited = asyncio.wrap_future(future)
    try:
        await asyncio.wait({waited}, timeout=patience)
        if future.cancel():
            raise StoreBusy("The store is busy: no thread was free in time.")
        return await waited
    finally:
        waited.cancel()


class TimeLimit:
    """The time that is left for one statement."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds

    @property
    def left_ms(self) -> int:
        """Milliseconds until the deadline; at least 1, because PostgreSQL reads 0 as no limit."""
        return max(1, round((self._deadline - time.monotonic()) * 1_000))

    @contextmanager
    def hold(self, lock: threading.Lock | threading.BoundedSemaphore) -> Iterator[None]:
        """Hold a lock; raise `StoreBusy` if it is not free before the deadline."""
        if not lock.acquire(timeout=self.left_ms / 1_000):
            raise StoreBusy("The store is busy: its connections were in use.")
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def hold_own(self, lock: threading.RLock) -> Iterator[None]:
        """`hold` for a lock that knows its thread, and stays held by none.

        A signal handler may raise between any two steps. So what this thread holds is released at the end, also if an
        earlier holder was kept from that.
        """
        try:
            if not lock.acquire(timeout=self.left_ms / 1_000):
                raise StoreBusy("The store is busy: its connections were in use.")
            yield
        finally:
            with suppress(RuntimeError):  # this thread holds it no more
                while True:
                    lock.release()


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging; wait up to `PATIENCE_SECONDS` for another process that uses it.

    SQLite's own busy timeout does not cover this switch: while another connection writes to a file that is not in WAL
    mode yet, as processes do that open a new file at the same time, it fails at once.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
            time.sleep(BUSY_PAUSE_SECONDS)
        else:
            return


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another transaction holds a lock of the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class SqliteFile(Database):
    """A file, or memory. Opening it creates the table."""

    dialect = OnceDialect.SQLITE

    def __init__(self, path: str, form: TableForm) -> None:
        self.path = path
        self.is_memory = ":memory:" in path or "mode=memory" in path
        self._lock = PerProcess(threading.RLock)
        self._connection: sqlite3.Connection | None = None
        self._busy_ms = -1
        super().__init__(form)
        try:
            connection = self._opened()
            create_table(form, "sqlite", lambda one: connection.execute(one.sql, one.parameters).fetchall())
            self._is_checked = True
        except sqlite3.Error as error:
            self.close()
            raise StoreUnavailable(f"The store {shown_url(path)} cannot be opened: {error}.") from error
        except BaseException:
            self.close()
            raise

    def _opened(self) -> sqlite3.Connection:
        """The connection; opened again after a fork or `close`."""
        if self._connection is None:
            connection = sqlite3.connect(
                self.path,
                timeout=PATIENCE_SECONDS,
                isolation_level=None,
                check_same_thread=False,
                uri=self.path.startswith("file:"),
            )
            try:
                use_wal(connection)
                connection.execute("PRAGMA synchronous = FULL")
            except BaseException:
                connection.close()
                raise
            self._connection, self._busy_ms = connection, round(PATIENCE_SECONDS * 1_000)
        return self._connection

    def execute(self, statement: Statement, limit: TimeLimit) -> Sequence[Row]:
        """Run one statement; one thread at a time."""
        sql, parameters = rendered(statement, ParameterStyle.QUESTION, OnceDialect.SQLITE)
        with self.connection(limit) as connection:
            return connection.execute(sql, parameters).fetchall()

    @contextmanager
    def connection(self, limit: TimeLimit) -> Iterator[sqlite3.Connection]:
        """The connection in autocommit mode, for one thread at a time; its errors are those of this package."""
        with limit.hold_own(self._lock()):
            try:
                connection = self._opened()
                self._wait_for(connection, limit.left_ms)
                yield connection
            except sqlite3.Error as error:
                if is_busy(error):
                    raise StoreBusy(f"The store {self.path} is locked: another transaction writes to it.") from error
                raise StoreUnavailable(f"The store refused the statement: {error}.") from error

    def run_unlocked(self, statement: Statement) -> Sequence[Row]:
        """Run one statement if no other transaction holds a lock of the file; else raise `StoreBusy` at once."""
        sql, parameters = rendered(statement, ParameterStyle.QUESTION, OnceDialect.SQLITE)
        with self.connection(TimeLimit(PATIENCE_SECONDS)) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            self._busy_ms = 0
            return connection.execute(sql, parameters).fetchall()

    def _wait_for(self, connection: sqlite3.Connection, milliseconds: int) -> None:
        """Set SQLite's limit for a locked file. A pragma costs as much as a statement, so a similar limit is left."""
        if not milliseconds <= self._busy_ms <= 1.25 * milliseconds:
            connection.execute(f"PRAGMA busy_timeout = {milliseconds}")
            self._busy_ms = milliseconds

    def create(self) -> None:
        """Opening the file has created the table."""

    def twin(self) -> Database:
        """The file over another connection; memory has only one."""
        return self if self.is_memory else SqliteFile(self.path, self.form)

    def close(self) -> None:
        """Close the file."""
        self.close_threads()
        with self._lock():
            self._forget()

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def before_fork(self) -> None:
        """Close the file, because a child that inherits it would believe that it holds the locks of its parent."""
        super().before_fork()
        self._lock().acquire()
        if not self.is_memory:
            self._forget()

    def after_fork_in_parent(self) -> None:
        """The next statement opens the file again."""
        self._lock().release()
        super().after_fork_in_parent()


_BUSY_STATES = ("55P03", "57014")
"""A lock that was not granted in time, and a statement that took too long."""
_GONE_STATES = ("57P", "08")
Connect = Callable[["TimeLimit"], "psycopg.Connection[Any]"]
_parents: list[Any] = []
"""Connections of parent processes, kept referenced: closing them here would close them for the parent."""


class PostgresDatabase(Database):
    """A table in a PostgreSQL database, over connections of its own."""

    dialect = OnceDialect.POSTGRESQL

    def __init__(
        self, url: str, form: TableForm, connections: int = CONNECTIONS, connect: Connect | None = None
    ) -> None:
        super().__init__(form)
        self._url = checked_url(url)
        self._connect = connect or partial(connected, self._url)
        self._free = PerProcess(lambda: threading.BoundedSemaphore(connections))
        self._idle: PerProcess[queue.LifoQueue[psycopg.Connection[Any]]] = PerProcess(queue.LifoQueue)
        self._is_closed = False

    def execute(self, statement: Statement, limit: TimeLimit) -> Sequence[Row]:
        """Run one statement. If the connection is broken, it is run again on a new one."""
        import psycopg  # noqa: PLC0415 - only PostgreSQL needs the driver

        fault = psycopg.Error()
        with limit.hold(self._free()):
            for attempt in range(TRIES):
                try:
                    with self._connection(is_fresh=attempt > 0, limit=limit) as connection:
                        return run_on(connection, statement, limit)
                except psycopg.Error as error:
                    fault = error
                    if not is_transient(error):
                        break
        raise meant(fault, self.form) from fault

    @contextmanager
    def _connection(self, *, is_fresh: bool, limit: TimeLimit) -> Iterator[psycopg.Connection[Any]]:
        """An idle connection or a new one; one whose statement failed is closed."""
        connection: psycopg.Connection[Any] | None = None
        if not is_fresh:
            with suppress(queue.Empty):
                connection = self._idle().get_nowait()
        if connection is None:
            connection = self._connect(limit)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._is_closed:
            connection.close()
        else:
            self._idle().put_nowait(connection)

    def twin(self) -> Database:
        """The table over one more connection."""
        return PostgresDatabase(self._url, self.form, connections=1)

    def create(self) -> None:
        """Create the table if it does not exist."""
        import psycopg  # noqa: PLC0415

        limit = TimeLimit(PATIENCE_SECONDS)
        try:
            with connected(self._url, limit) as connection:
                create_table(self.form, "postgresql", partial(run_on, connection, limit=limit))
        except psycopg.Error as error:
            raise StoreUnavailable(f"The table {self.form.name} cannot be created: {error}.") from error

    def close(self) -> None:
        """Close the idle connections, and those in use when their statements end."""
        self._is_closed = True
        self.close_threads()
        while not self._idle().empty():
            self._idle().get_nowait().close()

    def after_fork_in_child(self) -> None:
        """Leave the parent's connections alone: a client library that closes one would end the parent's session."""
        super().after_fork_in_child()
        _parents.append(self._idle)
        self._idle = PerProcess(queue.LifoQueue)


def run_on(connection: psycopg.Connection[Any], statement: Statement, limit: TimeLimit) -> Sequence[Row]:
    """Run one statement with its limits: one message to the server, and one transaction unless one is open."""
    import psycopg  # noqa: PLC0415
    from psycopg.rows import tuple_row  # noqa: PLC0415

    sql, parameters = rendered(statement, ParameterStyle.PERCENT, OnceDialect.POSTGRESQL)
    limits = f"SET LOCAL lock_timeout = {limit.left_ms}; SET LOCAL statement_timeout = {limit.left_ms}; "
    before = f"{limits}SELECT {DURABLY}; "
    # A cursor that fills in the values itself needs no prepared statement, and may send several statements at once.
    with psycopg.ClientCursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute((before + sql).encode(), parameters or None)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description is not None else []


def is_transient(error: psycopg.Error) -> bool:
    """Whether another try may succeed: the connection broke, or the database chose this transaction to give way."""
    import psycopg  # noqa: PLC0415

    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(_GONE_STATES) or error.sqlstate in ("40001", "40P01")


def meant(error: psycopg.Error, form: TableForm) -> Exception:
    """The error of this package for an error of the database; other errors stay as they are."""
    import psycopg  # noqa: PLC0415

    if isinstance(error, psycopg.errors.UndefinedTable):
        return TableMissing(form.name, form.advice)
    if error.sqlstate in _BUSY_STATES:
        return StoreBusy("The store is locked: another transaction holds its table or its row.")
    if isinstance(error, psycopg.OperationalError):
        return StoreUnavailable(f"The database does not answer: {' '.join(str(error).split())}.")
    return error


def checked_url(url: str) -> str:
    """A URL that libpq can read. Raises `InvalidKey`, which does not repeat it: it may contain a password."""
    import psycopg  # noqa: PLC0415
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    try:
        if urlsplit(url).netloc.count("@") > 1:
            raise ValueError
        conninfo_to_dict(url)
    except (psycopg.ProgrammingError, ValueError):
        raise InvalidKey(
            "The PostgreSQL URL cannot be read: write postgresql://USER@HOST:PORT/DATABASE, with special characters "
            "percent-encoded."
        ) from None
    return url


def connected(url: str, limit: TimeLimit) -> psycopg.Connection[Any]:
    """A new connection, with a connect timeout: that of the URL or the environment, if they have one."""
    import psycopg  # noqa: PLC0415
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415

    timeout = conninfo_to_dict(url).get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT")
    seconds = timeout or connect_seconds(limit)
    return psycopg.connect(url, autocommit=True, prepare_threshold=None, connect_timeout=seconds)


def connect_seconds(limit: TimeLimit) -> int:
    """How long a connection may take to be made; libpq takes 1 for 2."""
    return max(2, min(CONNECT_SECONDS, limit.left_ms // 1_000))


def connected_beside(pool: Any, limit: TimeLimit) -> psycopg.Connection[Any]:
    """A new connection as the pool makes and sets up its own, but in autocommit mode."""
    conninfo = (pool.conninfo() if callable(pool.conninfo) else pool.conninfo) or ""
    options = (pool.kwargs() if callable(pool.kwargs) else pool.kwargs) or {}
    patience = {} if "connect_timeout" in conninfo else {"connect_timeout": connect_seconds(limit)}
    connection: psycopg.Connection[Any] = pool.connection_class.connect(conninfo, **(patience | options))
    try:
        if pool._configure is not None:
            pool._configure(connection)
        connection.autocommit = True
    except BaseException:
        connection.close()
        raise
    return connection


class PoolDatabase(Database):
    """A table over an application's `psycopg_pool.ConnectionPool`."""

    dialect = OnceDialect.POSTGRESQL
    is_twin_alike = False

    def __init__(self, pool: Any, form: TableForm) -> None:
        super().__init__(form)
        self._pool = pool

    def execute(self, statement: Statement, limit: TimeLimit) -> Sequence[Row]:
        """Run one statement on a connection of the pool."""
        import psycopg  # noqa: PLC0415
        from psycopg_pool import PoolTimeout  # noqa: PLC0415

        fault = psycopg.Error()
        for _ in range(TRIES):
            try:
                with self._pool.connection(timeout=limit.left_ms / 1_000) as connection:
                    return run_on(connection, statement, limit)
            except PoolTimeout as error:
                raise StoreBusy("The pool of connections was in use.") from error
            except psycopg.Error as error:
                fault = error
                if not is_transient(error):
                    break
        raise meant(fault, self.form) from fault

    def twin(self) -> Database:
        """The database of the pool over one connection beside it, which the application cannot use up."""
        return PostgresDatabase("", self.form, connections=1, connect=partial(connected_beside, self._pool))

    def create(self) -> None:
        """Create the table if it does not exist."""
        with self._pool.connection() as connection:
            create_table(self.form, "postgresql", partial(run_on, connection, limit=TimeLimit(PATIENCE_SECONDS)))

    def close(self) -> None:
        """The pool stays open: it is the application's."""
        self.close_threads()


class EngineDatabase(Database):
    """A table over an application's SQLAlchemy engine."""

    dialect = OnceDialect.POSTGRESQL
    is_twin_alike = False

    def __init__(self, engine: Engine, form: TableForm) -> None:
        super().__init__(form)
        self._engine = engine
        self.dialect = OnceDialect(engine.dialect.name)  # type: ignore[misc] # each engine has its own

    def execute(self, statement: Statement, limit: TimeLimit) -> Sequence[Row]:
        """Run one statement on a connection of the engine's pool."""
        from sqlalchemy import exc  # noqa: PLC0415

        from semel.once.drivers.base import Failure, failure_of  # noqa: PLC0415
        from semel.once.drivers.sqlalchemy import run_within  # noqa: PLC0415

        for attempt in range(TRIES):
            try:
                with self._engine.connect() as connection:
                    return run_within(connection, statement, limit.left_ms)
            except exc.TimeoutError as error:
                raise StoreBusy("The pool of connections was in use.") from error
            except exc.DBAPIError as error:
                failure = failure_of(error)
                is_last = attempt == TRIES - 1
                if failure is Failure.LOCKED:
                    raise StoreBusy("The store is locked: another transaction holds its table or its row.") from error
                if not is_last and (error.connection_invalidated or failure is Failure.CONFLICT):
                    continue
                raise StoreUnavailable(f"The database does not answer: {type(error.orig).__name__}.") from error
        raise AssertionError("the last try returns or raises")

    def create(self) -> None:
        """Create the table if it does not exist."""
        from semel.once.transaction import create_tables  # noqa: PLC0415

        create_tables(self._engine, self.form)

    def twin(self) -> Database:
        """The engine with a pool of its own, which the application cannot use up; memory has only one connection."""
        from sqlalchemy.pool import SingletonThreadPool  # noqa: PLC0415

        from semel.once.drivers.sqlalchemy import beside, is_memory  # noqa: PLC0415

        engine = self._engine
        if not is_memory(engine):
            return TwinEngineDatabase(beside(engine), self.form)
        if isinstance(engine.pool, SingletonThreadPool):
            raise UnsupportedConnection(
                "This engine has a memory for each thread, so a second connection, which renews leases, sees no "
                "receipts: pass poolclass=StaticPool and connect_args={'check_same_thread': False} to create_engine."
            )
        return self

    def close(self) -> None:
        """The engine stays open: it is the application's."""
        self.close_threads()


class TwinEngineDatabase(EngineDatabase):
    """A table over an engine that is this package's own."""

    def close(self) -> None:
        """Close the connections."""
        super().close()
        self._engine.pool.dispose()
