"""psycopg 3, synchronous and asynchronous.

The savepoint and the receipt are one message to the server, with the BEGIN that psycopg would send first; so are the
savepoint's release and the result. A block costs one round trip more than the same work without it. These messages
bypass psycopg's cursors, whose overhead is higher than the server's time; waiting, locking and errors stay psycopg's
own. Where one cannot be sent (an encoding other than UTF-8, an isolation level set on the connection, another build of
psycopg), the statements run one by one through a cursor.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from psycopg import AsyncConnection, Connection, errors
from psycopg.conninfo import make_conninfo
from psycopg.pq import Escaping, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from semel.once.database import Database, PostgresDatabase
from semel.once.drivers.base import (
    PATIENCE,
    RESTORE,
    AsyncDriver,
    Driver,
    Witness,
    milliseconds,
    needs_transaction,
    savepoint_name,
)
from semel.once.errors import UnsupportedConnection
from semel.once.rules import LockPatience, OnceBatch, OnceStep, Operation
from semel.once.table import OnceDialect, ParameterStyle, Rendered, Row, Statement, receipts_form, rendered

try:
    from psycopg.generators import execute
except ImportError:  # not part of psycopg's documented interface
    execute = None

Exchange = Generator[Any, Any, Sequence[Row]]
"""Sends a message and reads the answer, while psycopg waits in a thread or a task."""


def _rendered(statement: Statement) -> Rendered:
    return rendered(statement, ParameterStyle.PERCENT, OnceDialect.POSTGRESQL)


class _Script:
    """The statements of one block, as the driver takes them."""

    def __init__(self, connection: Connection[Any] | AsyncConnection[Any]) -> None:
        self._connection = connection
        self._name = savepoint_name()
        self._patience = ""

    def of(self, operation: Operation) -> Rendered:
        """The statement of an operation."""
        if isinstance(operation, Statement):
            return _rendered(operation)
        if isinstance(operation, LockPatience):
            if operation.seconds is None:
                return _rendered(Statement(RESTORE, (self._patience,)))
            return _rendered(Statement(PATIENCE, (milliseconds(operation.seconds),)))
        if operation is OnceStep.OPEN:
            self._need_transaction()
            return Rendered(f"SAVEPOINT {self._name}", ())
        if operation is OnceStep.RELEASE:
            return Rendered(f"RELEASE SAVEPOINT {self._name}", ())
        return Rendered(f"ROLLBACK TO SAVEPOINT {self._name}; RELEASE SAVEPOINT {self._name}", ())

    def took(self, operation: Operation, rows: Sequence[Row]) -> None:
        """Remember the setting to restore."""
        if isinstance(operation, LockPatience) and operation.seconds is not None:
            self._patience = str(rows[0][0])

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self._connection.pgconn.transaction_status == TransactionStatus.IDLE

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open on a connection that is not lost."""
        status = self._connection.pgconn.transaction_status
        return status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)

    def exchange(self, batch: OnceBatch) -> Exchange | None:
        """Both operations as one message; None if they must run one by one."""
        step = self.of(batch.step).sql
        connection, wire = self._connection, self._connection.pgconn
        status = wire.transaction_status
        is_opening = batch.step is OnceStep.OPEN
        is_fit = execute is not None and wire.parameter_status(b"client_encoding") == b"UTF8"
        if is_fit and is_opening and status == TransactionStatus.IDLE and not connection.autocommit:
            is_fit = (connection.isolation_level, connection.read_only, connection.deferrable) == (None, None, None)
            step = f"BEGIN; {step}"
        elif status != TransactionStatus.INTRANS:  # in a failed transaction the savepoint alone raises the error
            is_fit = False
        if not is_fit:
            return None
        text = _filled(_rendered(batch.statement), Escaping(wire).escape_literal)
        if text is None:
            return None
        parts = (step.encode(), text) if is_opening else (text, step.encode())
        return _exchange(wire, b"%s; %s" % parts, place=-1 if is_opening else 0)

    def _need_transaction(self) -> None:
        connection = self._connection
        if connection.pgconn.pipeline_status != PipelineStatus.OFF:
            raise UnsupportedConnection(
                "This connection is in pipeline mode: use once.transaction outside `connection.pipeline()`."
            )
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        needs_transaction(not (connection.autocommit and is_idle))


@lru_cache(maxsize=256)
def _pieces(sql: str) -> tuple[bytes, ...]:
    return tuple(sql.encode().split(b"%s"))


def _filled(statement: Rendered, quoted: Callable[[bytes], bytes]) -> bytes | None:
    """A statement with its parameters, quoted by libpq; None if it has one of another type."""
    first, *pieces = _pieces(statement.sql)
    text = [first]
    for value, piece in zip(statement.parameters, pieces, strict=True):
        if value is None:
            text.append(b"NULL")
        elif isinstance(value, bytes):
            text.append(quoted(b"\\x" + value.hex().encode()))
        elif isinstance(value, str):
            text.append(quoted(value.encode()))
        else:
            return None
        text.append(piece)
    return b"".join(text)


def _exchange(wire: Any, message: bytes, place: int) -> Exchange:
    """Send a message; the rows of the result at a place. A message of which one statement fails has no effect."""
    wire.send_query(message)
    results = yield from execute(wire)
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result)
    found = results[place]
    readers = [_READERS.get(found.ftype(at), bytes.decode) for at in range(found.nfields)]
    return [
        tuple([None if (value := found.get_value(row, at)) is None else read(value) for at, read in enumerate(readers)])
        for row in range(found.ntuples)
    ]


_BYTEA, _BIGINT = 17, 20
_READERS: dict[int, Callable[[bytes], Any]] = {_BYTEA: Escaping().unescape_bytea, _BIGINT: int}
"""By the OID of a column's type: how its text is read. All other columns of these statements are text."""


class PsycopgWitness(Witness):
    """A few connections with the parameters of the caller's, kept for all looks of this process."""

    def __init__(self, connection: Connection[Any] | AsyncConnection[Any], table: str) -> None:
        info = connection.info
        self.place = self._conninfo = make_conninfo(**info.get_parameters(), password=info.password or None)
        self._table = table

    def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT."""
        return _database(self._conninfo, self._table).run(statement)


_beside: dict[tuple[str, str], Database] = {}
MAX_BESIDE = 16
"""Databases of which connections are kept."""


def _database(conninfo: str, table: str) -> Database:
    found = _beside.get((conninfo, table))
    if found is None:
        while len(_beside) >= MAX_BESIDE:
            with suppress(KeyError, RuntimeError, StopIteration):  # another thread was faster
                _beside.pop(next(iter(_beside))).close()
        # Of two threads that come here at once one database is kept; the other has no connection yet.
        found = _beside.setdefault((conninfo, table), PostgresDatabase(conninfo, receipts_form(table)))
    return found


@atexit.register
def _close() -> None:
    """Nobody else could close these connections."""
    for database in list(_beside.values()):
        database.close()


class PsycopgDriver(Driver):
    """A `psycopg.Connection`."""

    dialect = OnceDialect.POSTGRESQL

    def __init__(self, connection: Connection[Any]) -> None:
        self.target = self._connection = connection
        self._script = _Script(connection)

    def is_open(self) -> bool:
        """Whether a transaction is open; a connection that was lost has none."""
        return self._script.is_open

    def witness(self, table: str) -> Witness:
        """Another connection with the parameters of this one."""
        return PsycopgWitness(self._connection, table)

    def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        sql, parameters = self._script.of(operation)
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(sql, parameters or None)
            rows = cursor.fetchall() if cursor.description is not None else []
        self._script.took(operation, rows)
        return rows

    def is_over(self) -> bool:
        """Whether the connection has no open transaction."""
        return self._script.is_idle

    def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT, and end the transaction that psycopg begins before it."""
        is_idle = self._script.is_idle
        try:
            return self.perform(statement)
        finally:
            if is_idle and not self._connection.closed:
                self._connection.rollback()

    def perform_batch(self, batch: OnceBatch) -> Sequence[Row]:
        """Run a step and a statement in one round trip."""
        exchange = self._script.exchange(batch)
        if exchange is None:
            return super().perform_batch(batch)
        try:
            with self._connection.lock:
                return self._connection.wait(exchange)
        except Exception:
            if batch.step is OnceStep.OPEN:
                self.undo()
            raise


class AsyncPsycopgDriver(AsyncDriver):
    """A `psycopg.AsyncConnection`."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self.target = self._connection = connection
        self._script = _Script(connection)

    def is_open(self) -> bool:
        """Whether a transaction is open; a connection that was lost has none."""
        return self._script.is_open

    async def witness(self, table: str) -> Witness:
        """Another connection with the parameters of this one."""
        return PsycopgWitness(self._connection, table)

    async def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        sql, parameters = self._script.of(operation)
        async with self._connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(sql, parameters or None)
            rows = await cursor.fetchall() if cursor.description is not None else []
        self._script.took(operation, rows)
        return rows

    def is_over(self) -> bool:
        """Whether the connection has no open transaction."""
        return self._script.is_idle

    async def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT, and end the transaction that psycopg begins before it."""
        is_idle = self._script.is_idle
        try:
            return await self.perform(statement)
        finally:
            if is_idle and not self._connection.closed:
                await self._connection.rollback()

    async def perform_batch(self, batch: OnceBatch) -> Sequence[Row]:
        """Run a step and a statement in one round trip."""
        exchange = self._script.exchange(batch)
        if exchange is None:
            return await super().perform_batch(batch)
        try:
            async with self._connection.lock:
                return await self._connection.wait(exchange)
        except BaseException:
            if batch.step is OnceStep.OPEN:
                await self.undo()
            raise


def driver_of(connection: Any) -> Driver | AsyncDriver | None:
    """The driver of a connection."""
    if isinstance(connection, AsyncConnection):
        return AsyncPsycopgDriver(connection)
    return PsycopgDriver(connection) if isinstance(connection, Connection) else None
