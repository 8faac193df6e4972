"""SQLite through the standard library's `sqlite3` and through apsw."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semel.once.drivers.base import Driver, needs_transaction, savepoint_name
from semel.once.rules import LockPatience, OnceStep, Operation
from semel.once.table import OnceDialect, ParameterStyle, Row, Statement, rendered

if TYPE_CHECKING:
    import sqlite3

    import apsw


class SqliteDriver(Driver):
    """One connection. Subclasses run statements and detect a transaction."""

    dialect = OnceDialect.SQLITE

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


class StandardSqliteDriver(SqliteDriver):
    """A `sqlite3.Connection`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.row_factory = None

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        return self._cursor.execute(sql, parameters).fetchall()

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
        self._connection = connection

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Row]:
        return [tuple(row) for row in self._connection.execute(sql, tuple(parameters))]

    def _need_transaction(self) -> None:
        needs_transaction(self._connection.in_transaction)


def driver_of(connection: Any) -> Driver:
    """The driver of a connection."""
    if type(connection).__module__.partition(".")[0] == "apsw":
        return ApswDriver(connection)
    return StandardSqliteDriver(connection)
