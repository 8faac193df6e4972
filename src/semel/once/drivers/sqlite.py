"""SQLite through the standard library's `sqlite3` and through apsw."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semel.once.drivers.base import Driver, Witness, needs_transaction, savepoint_name
from semel.once.errors import StoreUnavailable
from semel.once.rules import LockPatience, OnceStep, Operation
from semel.once.table import PATIENCE_SECONDS, OnceDialect, ParameterStyle, Row, Statement, rendered

if TYPE_CHECKING:
    import sqlite3

    import apsw


_CLOSED = frozenset({"ProgrammingError", "ConnectionClosedError"})
"""What `sqlite3` and apsw raise for a closed connection."""


class SqliteDriver(Driver):
    """One connection. Subclasses run statements and detect a transaction."""

    dialect = OnceDialect.SQLITE

    _connection: sqlite3.Connection | apsw.Connection

    def __init__(self) -> None:
        self._name = savepoint_name()
        self._patience_ms = 0

    def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        if isinstance(operation, Statement):
            return self._run(*rendered(operation, ParameterStyle.QUESTION, OnceDialect.SQLITE))
        if isinstance(operation, LockPatience):
            self._bound(operation.seconds)
        elif operation is OnceStep.OPEN:
            # A savepoint outside a transaction would start one, and its release would commit it.
            self._need_transaction()
            self._run(f"SAVEPOINT {self._name}")
        elif operation is OnceStep.RELEASE:
            self._run(f"RELEASE SAVEPOINT {self._name}")
        else:
            self._run(f"ROLLBACK TO SAVEPOINT {self._name}")
            self._run(f"RELEASE SAVEPOINT {self._name}")
        return ()

    def _bound(self, seconds: float | None) -> None:
        if seconds is None:
            self._run(f"PRAGMA busy_timeout = {self._patience_ms}")
            return
        self._patience_ms = int(self._run("PRAGMA busy_timeout")[0][0])
        self._run(f"PRAGMA busy_timeout = {round(seconds * 1_000)}")

    @abstractmethod
    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]: ...

    @abstractmethod
    def _need_transaction(self) -> None: ...

    @abstractmethod
    def connect(self, path: str) -> Any:
        """Another connection, through the same library: two copies of SQLite in one process undo each other's locks."""

    @property
    def file(self) -> str | None:
        """The path of the database; None for memory."""
        found = [path for _, name, path in self._run("PRAGMA database_list") if name == "main"]
        return found[0] or None if found else None

    def witness(self, table: str) -> Witness:
        """Another connection to the file. Memory has one connection, which is read when its transaction is over."""
        return SqliteWitness(self, self.file)

    def is_open(self) -> bool:
        """Whether a transaction may be open; a connection that was closed has none."""
        try:
            return bool(self._connection.in_transaction)
        except Exception as error:  # noqa: BLE001 - of apsw, one that another thread uses does not say
            return type(error).__name__ not in _CLOSED

    def is_over(self) -> bool:
        """Whether the connection has no open transaction."""
        return not self._connection.in_transaction


class SqliteWitness(Witness):
    """Connects anew for each look, which costs less than a write."""

    def __init__(self, driver: SqliteDriver, path: str | None) -> None:
        self._driver = driver
        self._path = path
        self.place = path or driver.target

    def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT."""
        if self._path is None:
            if self._driver.is_open():
                raise StoreUnavailable("A transaction is open on the only connection to this memory.")
            return self._driver.perform(statement)
        connection = self._driver.connect(self._path)
        try:
            sql, parameters = rendered(statement, ParameterStyle.QUESTION, OnceDialect.SQLITE)
            return [tuple(row) for row in connection.execute(sql, parameters)]
        finally:
            connection.close()


class StandardSqliteDriver(SqliteDriver):
    """A `sqlite3.Connection`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self.target = connection
        self._connection: sqlite3.Connection = connection
        self._cursor = connection.cursor()
        self._cursor.row_factory = None

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        return self._cursor.execute(sql, parameters).fetchall()

    def connect(self, path: str) -> Any:
        import sqlite3  # noqa: PLC0415

        return sqlite3.connect(path, timeout=PATIENCE_SECONDS)

    def _need_transaction(self) -> None:
        """Begin a transaction, as `sqlite3` would before the next write, unless the connection is in autocommit
        mode."""
        connection = self._connection
        if connection.in_transaction:
            return
        is_legacy = getattr(connection, "autocommit", -1) == -1  # `sqlite3.LEGACY_TRANSACTION_CONTROL`, since 3.12
        needs_transaction(is_legacy and connection.isolation_level is not None)
        self._run(f"BEGIN {connection.isolation_level}")


class ApswDriver(SqliteDriver):
    """An `apsw.Connection`."""

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__()
        self.target = connection
        self._connection: apsw.Connection = connection

    @property
    def has_own_sqlite(self) -> bool:
        """Whether it is the apsw of the wheels, which brings its own SQLite."""
        import apsw  # noqa: PLC0415

        return bool(apsw.using_amalgamation)

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        return [tuple(row) for row in self._connection.execute(sql, tuple(parameters))]

    def connect(self, path: str) -> Any:
        import apsw  # noqa: PLC0415

        connection = apsw.Connection(path)
        connection.set_busy_timeout(round(PATIENCE_SECONDS * 1_000))
        return connection

    def _need_transaction(self) -> None:
        needs_transaction(self._connection.in_transaction)


def driver_of(connection: Any) -> Driver | None:
    """The driver of a connection."""
    if not hasattr(connection, "in_transaction"):
        return None
    return StandardSqliteDriver(connection) if hasattr(connection, "isolation_level") else ApswDriver(connection)
