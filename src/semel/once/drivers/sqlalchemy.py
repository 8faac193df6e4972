"""SQLAlchemy 2: connections and sessions, synchronous and asynchronous, on PostgreSQL and SQLite."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any
from weakref import WeakSet

from sqlalchemy import BigInteger, LargeBinary, Text, bindparam, event, inspect, table, text, update
from sqlalchemy.engine import Connection, Engine, NestedTransaction
from sqlalchemy.exc import InvalidRequestError, UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session
from sqlalchemy.sql.elements import BindParameter, TextClause
from sqlalchemy.util import greenlet_spawn

from semel.once.drivers.base import (
    PATIENCE,
    RESTORE,
    AsyncDriver,
    AsyncWitness,
    Driver,
    Witness,
    milliseconds,
    needs_transaction,
)
from semel.once.drivers.looking import connection_for_look
from semel.once.errors import StoreUnavailable, UnsupportedConnection
from semel.once.rules import LockPatience, OnceBatch, OnceStep, Operation
from semel.once.table import DURABLY, PATIENCE_SECONDS, OnceDialect, ParameterStyle, Row, Statement, rendered

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

    def __init__(self, target: Connection | Session, bind: Any = None) -> None:
        self.target = target
        self._bind = bind
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

    def perform_batch(self, batch: OnceBatch) -> Sequence[Row]:
        """Run a step and a statement."""
        if batch.step is OnceStep.RELEASE:
            self.flush()
        return super().perform_batch(batch)

    def flush(self) -> None:
        """Send the pending changes of a session while they can be undone: they may reach a second database."""
        if isinstance(self.target, Session) and not self.is_over():
            self.target.flush()
            _refuse_several(self.target)

    def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT, and end the transaction that SQLAlchemy begins before it."""
        is_idle = not self.target.in_transaction()
        try:
            return self._run(statement)
        finally:
            if is_idle:
                self.target.rollback()

    @property
    def _connection(self) -> Connection:
        target = self.target
        return target if isinstance(target, Connection) else _connection_of_writes(target, self._bind)

    @property
    def dialect(self) -> OnceDialect:
        """The kind of database."""
        name = self._connection.dialect.name
        try:
            return OnceDialect(name)
        except ValueError:
            raise UnsupportedConnection(f"Only PostgreSQL and SQLite are supported, not {name}.") from None

    def _run(self, statement: Statement) -> Sequence[Row]:
        return run_on(self._connection, statement)

    def _open(self) -> None:
        connection = self._connection
        _refuse_several(self.target)
        if not connection.in_transaction():
            connection.begin()  # as its first statement would; an event listener of the engine may send BEGIN
        self._need_transaction(connection)
        self._nested = self.target.begin_nested()

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

    def is_open(self) -> bool:
        """Whether a transaction is open, of a session or of the connection that it was given."""
        target = self.target
        if target.in_transaction():
            return True
        bound = target.bind if isinstance(target, Session) else None
        return isinstance(bound, Connection) and bound.in_transaction()

    @property
    def file(self) -> str | None:
        """The path of a SQLite database; None for memory."""
        return None if self.dialect is OnceDialect.POSTGRESQL else _file_of(self._connection.engine)

    def witness(self, table: str) -> Witness:
        """The engine of this connection, with a pool of its own."""
        return EngineWitness(self, self._connection.engine)

    def is_over(self) -> bool:
        """Whether the savepoint is gone; after a failed flush it waits for its rollback."""
        return self._nested is not None and not self._nested.is_active

    def _close(self, *, is_kept: bool) -> None:
        assert self._nested is not None, "a savepoint is opened before it is closed"
        if is_kept:
            self._nested.commit()  # a listener of this may have changes of its own
            _refuse_several(self.target)
            return
        with suppress(InvalidRequestError):  # the transaction is over, and the savepoint with it
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


def _connection_of_writes(session: Session, bind: Any) -> Connection:
    """The connection that a session would write to: some sessions read from another one."""
    arguments: dict[str, Any] = {"clause": _WRITE}
    if bind is not None:
        arguments["mapper"] = inspect(bind)
    try:
        return session.connection(bind_arguments=arguments)
    except UnboundExecutionError:
        known = vars(session)  # the name is `binds` since SQLAlchemy 2.1
        engines = {_engine_of(one) for one in (known.get("binds") or known.get("_Session__binds") or {}).values()}
        if len(engines) > 1:
            raise UnsupportedConnection(
                "This session has several databases: pass bind=, a mapped class of the one that gets the effect, or "
                "the session's connection to it."
            ) from None
        if not engines:
            raise UnsupportedConnection(
                "This session has no database: give it an engine, or pass a connection."
            ) from None
        return session.connection(bind_arguments={"bind": engines.pop()})


_WRITE = update(table("semel_once"))


def _engine_of(bind: Engine | Connection) -> Engine:
    return bind.engine


def _refuse_several(target: Connection | Session) -> None:
    """Refuse a session that has begun transactions on several connections: they are several commits."""
    begun = target.get_transaction() if isinstance(target, Session) else None
    if begun is not None and len({id(found[0]) for found in begun._connections.values()}) > 1:
        raise UnsupportedConnection(
            "This session has transactions on several databases, which commit one after the other: use a session of "
            "one database, or pass its connection."
        )


def _file_of(engine: Engine) -> str | None:
    name = engine.url.database
    return None if not name or name == ":memory:" or "mode=memory" in str(engine.url) else name


def is_memory(engine: Engine) -> bool:
    """Whether the database is in memory."""
    return engine.dialect.name == "sqlite" and _file_of(engine) is None


def beside(engine: Engine) -> Engine:
    """An engine of the same listeners and options with a pool of its own, whose connections are set up alike.

    Only the pool is disposed of: the engine would tell the application's listeners that theirs is. Listeners of a
    file's transactions are left out: they say how one begins, perhaps with a lock that a look must not take.
    """
    found = Engine(
        engine.pool.recreate(),
        engine.dialect,
        engine.url,
        hide_parameters=engine.hide_parameters,
        execution_options=engine.get_execution_options(),
    )
    if engine.dialect.name == "postgresql":
        # As SQLAlchemy does for an engine that `execution_options` makes: a listener may set each transaction up.
        found.dispatch = found.dispatch._join(engine.dispatch)
        found._has_events = True
    return found


def _place_of(engine: Engine) -> object:
    return engine.pool if is_memory(engine) else engine.url


class EngineWitness(Witness):
    """The engine with a pool of its own, kept for all looks. Memory has one connection."""

    def __init__(self, driver: SqlAlchemyDriver, engine: Engine) -> None:
        self._driver, self._engine, self.place = driver, engine, _place_of(engine)

    def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT."""
        engine = self._engine
        if is_memory(engine):
            if self._driver.is_open():
                raise StoreUnavailable("A transaction is open on the only connection to this memory.")
        else:
            engine = _beside_of(engine)
        with engine.connect() as connection:
            return run_within(connection, statement, round(PATIENCE_SECONDS * 1_000))


_BESIDE = "_semel_beside"
"""Attribute of an engine of the caller's: an engine with a second pool, which is disposed of and collected with it."""
_with_beside: WeakSet[Engine] = WeakSet()
_of_parents: list[object] = []


def _beside_of(engine: Engine) -> Engine:
    found: Engine | None = getattr(engine, _BESIDE, None)
    if found is None:  # of two threads that come here at once one pool is kept
        found = vars(engine).setdefault(_BESIDE, beside(engine))
        _with_beside.add(engine)
        if not event.contains(engine, "engine_disposed", _dispose_beside):
            event.listen(engine, "engine_disposed", _dispose_beside)
    return found


def _dispose_beside(engine: Engine) -> None:
    found = vars(engine).pop(_BESIDE, None)
    if found is not None:
        found.pool.dispose()


def _leave_to_parent() -> None:
    """Leave the parent's connections alone in a forked child: closing one would end the parent's session."""
    _of_parents.extend(vars(engine).pop(_BESIDE, None) for engine in _with_beside)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


class AsyncEngineWitness(AsyncWitness):
    """The engine with a pool of its own, for each look: a pool of connections would belong to one event loop."""

    def __init__(self, driver: AsyncSqlAlchemyDriver, engine: Engine) -> None:
        self._driver, self._engine, self.place = driver, engine, _place_of(engine)

    async def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT."""
        engine = self._engine
        if is_memory(engine):
            if self._driver.is_open():
                raise StoreUnavailable("A transaction is open on the only connection to this memory.")
            return await _looked(engine, statement)
        async with connection_for_look():
            own = beside(engine)
            try:
                return await _looked(own, statement)
            finally:
                await greenlet_spawn(own.pool.dispose)


async def _looked(engine: Engine, statement: Statement) -> Sequence[Row]:
    async with AsyncEngine(engine).connect() as connection:
        rows: Sequence[Row] = await connection.run_sync(run_on, statement)
        return rows


def run_on(connection: Connection, statement: Statement) -> Sequence[Row]:
    """Run one statement."""
    clause, values = _clause(statement, OnceDialect(connection.dialect.name))
    result = connection.execute(clause, values)
    return [tuple(row) for row in result] if result.returns_rows else []


def run_within(connection: Connection, statement: Statement, milliseconds: int) -> Sequence[Row]:
    """Run one statement in a transaction of its own; limit its waits for locks, from its BEGIN to its COMMIT."""
    if connection.in_transaction():
        connection.commit()  # a listener has set the connection up; a rollback would undo what it has set
    if connection.dialect.name == "sqlite":
        with closing(connection.connection.cursor()) as cursor:  # a listener of the engine may begin with a lock
            cursor.execute("PRAGMA busy_timeout")
            [[before]] = cursor.fetchall()
            cursor.execute(f"PRAGMA busy_timeout = {milliseconds}")
            try:
                with connection.begin():
                    return run_on(connection, statement)
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {before}")
    # The engine may be in autocommit mode, where each statement is a transaction.
    with connection.execution_options(isolation_level="READ COMMITTED").begin():
        run_on(connection, Statement(_LIMITS, (f"{milliseconds}ms", f"{milliseconds}ms")))
        return run_on(connection, statement)


_LIMITS = f"SELECT set_config('lock_timeout', ?, true), set_config('statement_timeout', ?, true), {DURABLY}"


class AsyncSqlAlchemyDriver(AsyncDriver):
    """The driver of `AsyncConnection` and `AsyncSession`, which run synchronous code in a greenlet."""

    def __init__(self, target: AsyncConnection | AsyncSession, bind: Any = None) -> None:
        self.target = target
        self._bind = bind
        self._inner: SqlAlchemyDriver | None = None
        self._file: str | None = None

    async def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation."""
        rows: Sequence[Row] = await self.target.run_sync(self._perform, operation)
        return rows

    async def perform_batch(self, batch: OnceBatch) -> Sequence[Row]:
        """Run a step and a statement."""
        if batch.step is OnceStep.RELEASE and self._inner is not None:
            inner = self._inner
            await self.target.run_sync(lambda _: inner.flush())
        return await super().perform_batch(batch)

    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._inner is not None and self._inner.is_open()

    @property
    def file(self) -> str | None:
        """The path of a SQLite database; None for memory, and before the first statement."""
        return self._file

    async def witness(self, table: str) -> AsyncWitness:
        """The engine of this connection, with a pool of its own."""
        engine = await self.target.run_sync(self._look_at)
        return AsyncEngineWitness(self, engine)

    def _look_at(self, target: Connection | Session) -> Engine:
        self._inner = self._inner or SqlAlchemyDriver(target, self._bind)
        self._file = self._inner.file
        return self._inner._connection.engine

    def is_over(self) -> bool:
        """Whether the savepoint is gone."""
        return self._inner is not None and self._inner.is_over()

    async def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT, and end the transaction that SQLAlchemy begins before it."""
        rows: Sequence[Row] = await self.target.run_sync(lambda target: SqlAlchemyDriver(target).read(statement))
        return rows

    def _perform(self, target: Connection | Session, operation: Operation) -> Sequence[Row]:
        self._inner = self._inner or SqlAlchemyDriver(target, self._bind)
        return self._inner.perform(operation)


def driver_of(connection: Any, bind: Any = None) -> Driver | AsyncDriver | None:
    """The driver of a connection or session."""
    if isinstance(connection, scoped_session | async_scoped_session):
        connection = connection()
    if bind is not None and not isinstance(connection, Session | AsyncSession):
        raise UnsupportedConnection("bind= names a database of a session: a connection has one.")
    if isinstance(connection, AsyncConnection | AsyncSession):
        return AsyncSqlAlchemyDriver(connection, bind)
    return SqlAlchemyDriver(connection, bind) if isinstance(connection, Connection | Session) else None
