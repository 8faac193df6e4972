"""asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.once.drivers.base import PATIENCE, RESTORE, AsyncDriver, milliseconds, needs_transaction, savepoint_name
from semel.once.rules import LockPatience, OnceStep, Operation
from semel.once.table import OnceDialect, ParameterStyle, Row, Statement, rendered


class AsyncpgDriver(AsyncDriver):
    """An `asyncpg.Connection`, or one acquired from a pool."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._name = savepoint_name()
        self._patience = ""

    async def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        if isinstance(operation, Statement):
            return await self._run(operation)
        if isinstance(operation, LockPatience):
            await self._bound(operation.seconds)
        elif operation is OnceStep.OPEN:
            needs_transaction(self._connection.is_in_transaction())
            await self._connection.execute(f"SAVEPOINT {self._name}")
        elif operation is OnceStep.RELEASE:
            await self._connection.execute(f"RELEASE SAVEPOINT {self._name}")
        else:
            await self._connection.execute(f"ROLLBACK TO SAVEPOINT {self._name}; RELEASE SAVEPOINT {self._name}")
        return ()

    async def _bound(self, seconds: float | None) -> None:
        if seconds is None:
            await self._run(Statement(RESTORE, (self._patience,)))
        else:
            self._patience = (await self._run(Statement(PATIENCE, (milliseconds(seconds),))))[0][0]

    async def _run(self, statement: Statement) -> Sequence[Row]:
        sql, parameters = rendered(statement, ParameterStyle.DOLLAR, OnceDialect.POSTGRESQL)
        return [tuple(row) for row in await self._connection.fetch(sql, *parameters)]


def driver_of(connection: Any) -> AsyncDriver:
    """The driver of a connection."""
    return AsyncpgDriver(connection)
