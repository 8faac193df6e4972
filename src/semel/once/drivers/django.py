"""Django's connections, inside `transaction.atomic`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.once.drivers.base import PATIENCE, RESTORE, Driver, milliseconds, needs_transaction
from semel.once.errors import UnsupportedConnection
from semel.once.rules import LockPatience, OnceStep, Operation
from semel.once.table import OnceDialect, ParameterStyle, Row, Statement, rendered


class DjangoDriver(Driver):
    """`django.db.connection`, or one of `django.db.connections`."""

    def __init__(self, connection: Any) -> None:
        if connection.vendor not in ("postgresql", "sqlite"):
            raise UnsupportedConnection(f"Only PostgreSQL and SQLite are supported, not {connection.vendor}.")
        self._connection = connection
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
            connection.savepoint_rollback(self._savepoint)
            connection.savepoint_commit(self._savepoint)
        return ()

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


def driver_of(connection: Any) -> Driver:
    """The driver of a connection."""
    return DjangoDriver(connection)
