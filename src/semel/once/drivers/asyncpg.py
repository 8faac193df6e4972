"""asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg
from asyncpg.connect_utils import SSLMode

from semel.once.drivers.base import (
    PATIENCE,
    RESTORE,
    AsyncDriver,
    AsyncWitness,
    milliseconds,
    needs_transaction,
    savepoint_name,
)
from semel.once.drivers.looking import connection_for_look
from semel.once.rules import LockPatience, OnceStep, Operation
from semel.once.table import OnceDialect, ParameterStyle, Row, Statement, rendered

CONNECT_SECONDS = 10


class AsyncpgDriver(AsyncDriver):
    """An `asyncpg.Connection`, or one acquired from a pool."""

    def __init__(self, connection: Any) -> None:
        self.target = self._connection = connection
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

    def is_over(self) -> bool:
        """Whether the connection has no open transaction."""
        return not self._connection.is_in_transaction()

    def is_open(self) -> bool:
        """Whether a transaction is open; a connection that went back to its pool has none."""
        try:
            return bool(self._connection.is_in_transaction())
        except asyncpg.InterfaceError:
            return False

    async def witness(self, table: str) -> AsyncWitness:
        """Another connection with the parameters of this one."""
        return AsyncpgWitness(self._connection)

    async def _bound(self, seconds: float | None) -> None:
        if seconds is None:
            await self._run(Statement(RESTORE, (self._patience,)))
        else:
            self._patience = (await self._run(Statement(PATIENCE, (milliseconds(seconds),))))[0][0]

    async def _run(self, statement: Statement) -> Sequence[Row]:
        sql, parameters = rendered(statement, ParameterStyle.DOLLAR, OnceDialect.POSTGRESQL)
        return [tuple(row) for row in await self._connection.fetch(sql, *parameters)]


class AsyncpgWitness(AsyncWitness):
    """Connects anew for each look. asyncpg tells nobody how a connection was made, so its own notes are read."""

    def __init__(self, connection: Any) -> None:
        address, given = connection._addr, connection._params
        at = {"host": address} if isinstance(address, str) else {"host": address[0], "port": address[1]}
        if isinstance(address, str):
            folder, _, port = address.rpartition("/.s.PGSQL.")
            at = {"host": folder, "port": int(port)}
        self.place = address, given.database, str(given.server_settings)
        names = ("user", "password", "database", "ssl", "server_settings")
        self._options = at | {name: getattr(given, name, None) for name in names}
        if given.sslmode < SSLMode.require:
            # asyncpg keeps a context for a mode that may go without TLS, and takes a context for one that may not.
            self._options["ssl"] = given.sslmode.name

    async def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT."""
        sql, parameters = rendered(statement, ParameterStyle.DOLLAR, OnceDialect.POSTGRESQL)
        async with connection_for_look():
            connection = await asyncpg.connect(**self._options, timeout=CONNECT_SECONDS, statement_cache_size=0)
            try:
                return [tuple(row) for row in await connection.fetch(sql, *parameters, timeout=CONNECT_SECONDS)]
            finally:
                await connection.close(timeout=CONNECT_SECONDS)


def driver_of(connection: Any) -> AsyncDriver | None:
    """The driver of a connection, also of one that a pool lends."""
    return AsyncpgDriver(connection) if hasattr(connection, "is_in_transaction") else None
