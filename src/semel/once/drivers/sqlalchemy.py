"""SQLAlchemy 2: connections and sessions, synchronous and asynchronous, on PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, LargeBinary, Text, bindparam, text
from sqlalchemy.engine import Connection, NestedTransaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.sql.elements import BindParameter, TextClause

from semel.once.drivers.base import PATIENCE, RESTORE, AsyncDriver, Driver, milliseconds, needs_transaction
from semel.once.errors import TransactionEnded, UnsupportedConnection
from semel.once.rules import LockPatience, OnceStep, Operation
from semel.once.table import OnceDialect, ParameterStyle, Row, Statement, rendered

_TYPES = {int: BigInteger, bytes: LargeBinary, str: Text}


def _clause(statement: Statement, dialect: OnceDialect) -> tuple[TextClause, dict[str, Any]]:
    """A clause with the type of each parameter: a driver that casts would take a bigint for an integer."""
    sql, parameters = rendered(statement, ParameterStyle.NAMED, dialect)
    values = {f"p{place}": value for place, value in enumerate(parameters, 1)}
    typed: list[BindParameter[Any]] = [
        bindparam(name, type_=_TYPES.get(type(value), Text)) for name, value in values.items()
    ]
    return text(sql).bindparams(*typed), values


class SqlAlchemyDriver(Driver):
    """A connection or a session. The savepoint is SQLAlchemy's own, so a session drops objects that are rolled back."""

    def __init__(self, target: Connection | Session) -> None:
        self._target = target
        self._nested: NestedTransaction | SessionTransaction | None = None
        self._patience: Any = None

    def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        if isinstance(operation, Statement):
            return self._run(operation)
        if isinstance(operation, LockPatience):
            self._bound(operation.seconds)
        elif operation is OnceStep.OPEN:
            self._open()
        else:
            self._close(is_kept=operation is OnceStep.RELEASE)
        return ()

    def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT, and end the transaction that SQLAlchemy begins before it."""
        is_idle = not self._target.in_transaction()
        try:
            return self._run(statement)
        finally:
            if is_idle:
                self._target.rollback()

    @property
    def _connection(self) -> Connection:
        return self._target if isinstance(self._target, Connection) else self._target.connection()

    @property
    def dialect(self) -> OnceDialect:
        """The kind of database."""
        name = self._connection.dialect.name
        try:
            return OnceDialect(name)
        except ValueError:
            raise UnsupportedConnection(f"Only PostgreSQL and SQLite are supported, not {name}.") from None

    def _run(self, statement: Statement) -> Sequence[Row]:
        clause, values = _clause(statement, self.dialect)
        result = self._connection.execute(clause, values)
        return [tuple(row) for row in result] if result.returns_rows else []

    def _open(self) -> None:
        connection = self._connection
        if not connection.in_transaction():
            connection.begin()  # as its first statement would; an event listener of the engine may send BEGIN
        self._need_transaction(connection)
        self._nested = self._target.begin_nested()

    def _need_transaction(self, connection: Connection) -> None:
        """SQLAlchemy reports a transaction even in autocommit mode, so the driver's own connection is asked."""
        if self.dialect is OnceDialect.POSTGRESQL:
            adapted: Any = connection.connection.dbapi_connection
            needs_transaction(not adapted.autocommit)
            return
        raw: Any = connection.connection.driver_connection
        if not raw.in_transaction:
            needs_transaction(raw.isolation_level is not None)
            # The driver begins only before a write: without BEGIN the release of a savepoint would commit.
            connection.exec_driver_sql("BEGIN")

    def _close(self, *, is_kept: bool) -> None:
        assert self._nested is not None, "a savepoint is opened before it is closed"
        if is_kept and not self._nested.is_active:
            raise TransactionEnded("")
        if is_kept:
            self._nested.commit()
        elif self._nested.is_active:
            self._nested.rollback()

    def _bound(self, seconds: float | None) -> None:
        if self.dialect is OnceDialect.POSTGRESQL:
            if seconds is None:
                self._run(Statement(RESTORE, (self._patience,)))
            else:
                self._patience = str(self._run(Statement(PATIENCE, (milliseconds(seconds),)))[0][0])
        elif seconds is None:
            self._run(Statement(f"PRAGMA busy_timeout = {self._patience}"))
        else:
            self._patience = int(self._run(Statement("PRAGMA busy_timeout"))[0][0])
            self._run(Statement(f"PRAGMA busy_timeout = {round(seconds * 1_000)}"))


class AsyncSqlAlchemyDriver(AsyncDriver):
    """The driver of `AsyncConnection` and `AsyncSession`, which run synchronous code in a greenlet."""

    def __init__(self, target: AsyncConnection | AsyncSession) -> None:
        self._target = target
        self._inner: SqlAlchemyDriver | None = None

    async def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        return await self._target.run_sync(self._perform, operation)

    async def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT, and end the transaction that SQLAlchemy begins before it."""
        return await self._target.run_sync(lambda target: SqlAlchemyDriver(target).read(statement))

    def _perform(self, target: Connection | Session, operation: Operation) -> Sequence[Row]:
        if self._inner is None:
            self._inner = SqlAlchemyDriver(target)
        return self._inner.perform(operation)


def driver_of(connection: Any) -> Driver | AsyncDriver:
    """The driver of a connection or session."""
    if isinstance(connection, scoped_session | async_scoped_session):
        connection = connection()
    if isinstance(connection, AsyncConnection | AsyncSession):
        return AsyncSqlAlchemyDriver(connection)
    if isinstance(connection, Connection | Session):
        return SqlAlchemyDriver(connection)
    raise UnsupportedConnection(f"Pass a connection or a session of SQLAlchemy, not {type(connection).__qualname__}.")
