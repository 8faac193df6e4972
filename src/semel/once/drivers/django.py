"""Django's connections, inside `transaction.atomic`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.once.drivers.base import PATIENCE, RESTORE, Driver, Witness, milliseconds, needs_transaction
from semel.once.errors import UnsupportedConnection
from semel.once.rules import LockPatience, OnceStep, Operation
from semel.once.table import PATIENCE_SECONDS, OnceDialect, ParameterStyle, Row, Statement, rendered


class DjangoDriver(Driver):
    """`django.db.connection`, or one of `django.db.connections`."""

    def __init__(self, connection: Any) -> None:
        if connection.vendor not in ("postgresql", "sqlite"):
            raise UnsupportedConnection(f"Only PostgreSQL and SQLite are supported, not {connection.vendor}.")
        # `django.db.connection` is another connection in each thread, and an event loop asks from a thread of its own.
        self.target = self._connection = connection.ops.connection
        self._savepoint: Any = None
        self._patience: Any = None

    @property
    def dialect(self) -> OnceDialect:
        """The kind of database."""
        return OnceDialect(self._connection.vendor)

    def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        connection = self._connection
        if isinstance(operation, Statement):
            return self._run(operation)
        if isinstance(operation, LockPatience):
            self._bound(operation.seconds)
        elif operation is OnceStep.OPEN:
            needs_transaction(connection.in_atomic_block)
            self._savepoint = connection.savepoint()
        elif operation is OnceStep.RELEASE:
            connection.savepoint_commit(self._savepoint)
        else:
            self._undo()
        return ()

    def _undo(self) -> None:
        """Roll back as Django's own nested `atomic` does: an error of Django's has marked the transaction as broken."""
        connection = self._connection
        connection.needs_rollback = False
        try:
            connection.savepoint_rollback(self._savepoint)
            connection.savepoint_commit(self._savepoint)
        except Exception:
            connection.needs_rollback = True
            raise

    @property
    def file(self) -> str | None:
        """The path of a SQLite database."""
        return str(self._connection.settings_dict["NAME"]) if self._connection.vendor == "sqlite" else None

    def is_open(self) -> bool:
        """Whether an `atomic` block is open, or a transaction without one."""
        connection = self._connection
        return bool(connection.in_atomic_block or (connection.connection is not None and not connection.autocommit))

    def witness(self, table: str) -> Witness:
        """Another connection with the settings of this one."""
        return DjangoWitness(self._connection)

    def is_over(self) -> bool:
        """Whether no `atomic` block is open."""
        return not self._connection.in_atomic_block

    def _run(self, statement: Statement) -> Sequence[Row]:
        sql, parameters = rendered(statement, ParameterStyle.PERCENT, self.dialect)
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters or None)
            return cursor.fetchall() if cursor.description is not None else []

    def _bound(self, seconds: float | None) -> None:
        if self._connection.vendor == "postgresql":
            if seconds is None:
                self._run(Statement(RESTORE, (self._patience,)))
            else:
                self._patience = str(self._run(Statement(PATIENCE, (milliseconds(seconds),)))[0][0])
        elif seconds is None:
            self._run(Statement(f"PRAGMA busy_timeout = {self._patience}"))
        else:
            self._patience = int(self._run(Statement("PRAGMA busy_timeout"))[0][0])
            self._run(Statement(f"PRAGMA busy_timeout = {round(seconds * 1_000)}"))


_LIMIT = "SELECT set_config('statement_timeout', %s, false)"


class DjangoWitness(Witness):
    """Connects anew for each look: Django's connections belong to one thread."""

    def __init__(self, connection: Any) -> None:
        self._copy = connection.copy
        self.place = [str(connection.settings_dict[name]) for name in ("NAME", "HOST", "PORT")]

    def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT."""
        connection = self._copy()
        try:
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute(_LIMIT, [milliseconds(PATIENCE_SECONDS)])
            return DjangoDriver(connection).perform(statement)
        finally:
            connection.close()


def driver_of(connection: Any) -> Driver | None:
    """The driver of a connection."""
    return DjangoDriver(connection) if hasattr(connection, "in_atomic_block") else None
