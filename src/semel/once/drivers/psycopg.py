"""psycopg 3, blocking and asynchronous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semel.once.drivers.base import AsyncDriver, Driver, needs_transaction, savepoint_name
from semel.once.drivers.postgresql import PATIENCE, RESTORE, milliseconds
from semel.once.rules import Operation, Patience, Step
from semel.once.table import Dialect, Marks, Rendered, Row, Statement, rendered

if TYPE_CHECKING:
    import psycopg


def _rendered(statement: Statement) -> Rendered:
    return rendered(statement, Marks.PERCENT, Dialect.POSTGRESQL)


class _Script:
    """The statements of one block, in the words of the driver."""

    def __init__(self) -> None:
        self._name = savepoint_name()
        self._patience = ""

    def of(self, operation: Operation) -> Rendered:
        """The statement of an operation."""
        if isinstance(operation, Statement):
            return _rendered(operation)
        if isinstance(operation, Patience):
            if operation.seconds is None:
                return _rendered(Statement(RESTORE, (self._patience,)))
            return _rendered(Statement(PATIENCE, (milliseconds(operation.seconds),)))
        if operation is Step.OPEN:
            return Rendered(f"SAVEPOINT {self._name}", ())
        if operation is Step.RELEASE:
            return Rendered(f"RELEASE SAVEPOINT {self._name}", ())
        return Rendered(f"ROLLBACK TO SAVEPOINT {self._name}; RELEASE SAVEPOINT {self._name}", ())

    def took(self, operation: Operation, rows: Sequence[Row]) -> None:
        """Remember what has to be restored."""
        if isinstance(operation, Patience) and operation.seconds is not None:
            self._patience = str(rows[0][0])


class PsycopgDriver(Driver):
    """A `psycopg.Connection`."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._script = _Script()

    def perform(self, operation: Operation) -> Sequence[Row]:
        """Carry out one operation."""
        if operation is Step.OPEN:
            needs_transaction(not self._connection.autocommit or self._connection.info.transaction_status != _IDLE)
        sql, parameters = self._script.of(operation)
        with self._connection.cursor(row_factory=_rows()) as cursor:
            cursor.execute(sql, parameters or None)
            rows = cursor.fetchall() if cursor.description is not None else []
        self._script.took(operation, rows)
        return rows


class AsyncPsycopgDriver(AsyncDriver):
    """A `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._script = _Script()

    async def perform(self, operation: Operation) -> Sequence[Row]:
        """Carry out one operation."""
        if operation is Step.OPEN:
            needs_transaction(not self._connection.autocommit or self._connection.info.transaction_status != _IDLE)
        sql, parameters = self._script.of(operation)
        async with self._connection.cursor(row_factory=_rows()) as cursor:
            await cursor.execute(sql, parameters or None)
            rows = await cursor.fetchall() if cursor.description is not None else []
        self._script.took(operation, rows)
        return rows


_IDLE = 0
"""`psycopg.pq.TransactionStatus.IDLE`: no transaction is open."""


def _rows() -> Any:
    from psycopg.rows import tuple_row  # noqa: PLC0415 - a caller with this connection has it already

    return tuple_row


def driver_of(connection: Any) -> Driver | AsyncDriver:
    """The driver of a connection."""
    import psycopg  # noqa: PLC0415 - as above

    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncPsycopgDriver(connection)
    return PsycopgDriver(connection)
