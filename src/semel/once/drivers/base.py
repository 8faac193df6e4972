"""The interface of a driver, the classification of database errors, and what PostgreSQL drivers share.

A driver performs one operation at a time on the caller's connection. It opens no connection, begins a transaction only
where that connection would begin one itself, and never commits.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, NoReturn, TypeVar

from semel.once.errors import (
    InFlight,
    NotInTransaction,
    OnceError,
    RunAgain,
    TableMismatch,
    TableMissing,
    TransactionEnded,
)
from semel.once.identity import OnceIdentity
from semel.once.rules import Flow, LockPatience, OnceBatch, OnceStep, Operation
from semel.once.table import OnceDialect, Row, Statement

PATIENCE = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', ?, true)"
"""Set `lock_timeout` until the transaction ends. Returns the old value."""
RESTORE = "SELECT set_config('lock_timeout', ?, true)"


def milliseconds(seconds: float) -> str:
    """A timeout as PostgreSQL reads it; at least 1 ms, because 0 means no limit."""
    return f"{max(1, round(seconds * 1_000))}ms"


T = TypeVar("T")

_numbers = itertools.count(1)
_NAMES = [f"semel_once_{number}" for number in range(16)]


class Failure(Enum):
    """The kinds of database errors."""

    LOCKED = "locked"
    CONFLICT = "conflict"
    NO_TABLE = "no table"
    NO_COLUMN = "no column"
    ENDED = "ended"
    OTHER = "other"


_SQLSTATES = {
    "55P03": Failure.LOCKED,  # lock_not_available
    "40001": Failure.CONFLICT,  # serialization_failure
    "40P01": Failure.CONFLICT,  # deadlock_detected
    "42P01": Failure.NO_TABLE,  # undefined_table
    "42703": Failure.NO_COLUMN,  # undefined_column
    "3B001": Failure.ENDED,  # invalid_savepoint_specification
    "25P01": Failure.ENDED,  # no_active_sql_transaction
}
SQLITE_BUSY, SQLITE_LOCKED, SQLITE_BUSY_SNAPSHOT = 5, 6, 517


def savepoint_name() -> str:
    """A savepoint name that another open block of this connection is unlikely to have.

    Nested blocks may share a name: it refers to the innermost savepoint. Names repeat so that a driver can reuse its
    prepared statements.
    """
    return _NAMES[next(_numbers) % len(_NAMES)]


def failure_of(error: BaseException) -> Failure:
    """The kind of an error, by its SQLSTATE or SQLite code. Wrapped errors are unwrapped."""
    seen: BaseException | None = error
    while seen is not None:
        state = getattr(seen, "sqlstate", None) or getattr(seen, "pgcode", None)
        if isinstance(state, str):
            return _SQLSTATES.get(state, Failure.OTHER)
        code = getattr(seen, "sqlite_errorcode", None) or getattr(seen, "extendedresult", None)
        if isinstance(code, int):
            return _sqlite_failure(code, str(seen))
        seen = getattr(seen, "orig", None) or seen.__cause__
    return Failure.OTHER


def _sqlite_failure(code: int, words: str) -> Failure:
    if code == SQLITE_BUSY_SNAPSHOT:
        return Failure.CONFLICT
    if code & 0xFF in (SQLITE_BUSY, SQLITE_LOCKED):
        return Failure.LOCKED
    if "no such savepoint" in words:
        return Failure.ENDED
    if "no such column" in words or "has no column named" in words:
        return Failure.NO_COLUMN
    return Failure.NO_TABLE if "no such table" in words else Failure.OTHER


def raised_for(error: BaseException, who: OnceIdentity, table: str) -> BaseException:
    """The error for the caller: one of this package, or the database's own if none fits."""
    if isinstance(error, TransactionEnded):
        return TransactionEnded(who.key)
    failure = failure_of(error)
    if failure is Failure.LOCKED:
        return InFlight(who.key)
    if failure is Failure.CONFLICT:
        return RunAgain(who.key)
    if failure is Failure.NO_TABLE and table.rpartition(".")[2] in str(error):
        return TableMissing(table)
    if failure is Failure.NO_COLUMN:
        return TableMismatch(table)
    return TransactionEnded(who.key) if failure is Failure.ENDED else error


def raise_meant(error: BaseException, meant: BaseException) -> NoReturn:
    """Raise what the caller gets for an error: itself, or one of this package that names the driver's as its cause."""
    if meant is error:
        raise error  # an error that is its own cause would send those who follow causes round for ever
    raise meant from (error.__cause__ if isinstance(error, OnceError) else error)


class Witness(ABC):
    """Reads on another connection, made like the caller's: in a transaction of its own, whatever the caller's does."""

    place: object
    """Equal to that of another witness only if both read one database."""

    @abstractmethod
    def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT; blocks."""


class AsyncWitness(ABC):
    """A witness for an asynchronous driver."""

    place: object
    """As that of a witness."""

    @abstractmethod
    async def look(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT."""


class Driver(ABC):
    """A synchronous driver."""

    is_async = False
    target: Any
    """The caller's connection or session."""

    @property
    def file(self) -> str | None:
        """The path of a SQLite database; None for memory, and for another database."""
        return None

    @property
    def has_own_sqlite(self) -> bool:
        """Whether its SQLite is another copy than that of Python. POSIX locks do not part copies in one process."""
        return False

    @property
    @abstractmethod
    def dialect(self) -> OnceDialect:
        """The kind of database."""

    @abstractmethod
    def is_open(self) -> bool:
        """Whether a transaction may be open on the connection now: that of a block, or a later one."""

    @abstractmethod
    def witness(self, table: str) -> Witness:
        """Reads the receipts of this block when its connection may be closed, or serve somebody else."""

    def has_write_lock(self, table: str) -> bool:
        """Whether the open transaction of this connection holds the write lock of its SQLite file."""
        self.perform(LockPatience(0.0))
        try:
            self.perform(Statement(f"UPDATE {table} SET key = key WHERE 0"))
        except Exception:  # noqa: BLE001 - another connection holds it
            return False
        finally:
            self.perform(LockPatience(None))
        return True

    @abstractmethod
    def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation and return its rows."""

    def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT. It leaves no transaction open: drivers that begin one before it override this."""
        return self.perform(statement)

    @abstractmethod
    def is_over(self) -> bool:
        """Whether the transaction of the savepoint is certainly over."""

    def perform_batch(self, batch: OnceBatch) -> Sequence[Row]:
        """Run a step and a statement. Drivers that need only one round trip override this."""
        step, statement = batch
        if step is OnceStep.RELEASE:
            if self.is_over():
                raise TransactionEnded("")
            rows = self.perform(statement)
            self.perform(step)
            return rows
        self.perform(step)
        try:
            return self.perform(statement)
        except Exception:
            self.undo()
            raise

    def undo(self) -> None:
        """Roll back to the savepoint if possible. Errors are suppressed, so that the original one is raised."""
        with suppress(Exception):
            self.perform(OnceStep.UNDO)


class AsyncDriver(ABC):
    """An asynchronous driver."""

    is_async = True
    target: Any
    """The caller's connection or session."""

    @property
    def file(self) -> str | None:
        """The path of a SQLite database; None for memory, and for another database."""
        return None

    @abstractmethod
    def is_open(self) -> bool:
        """Whether a transaction may be open on the connection now: that of a block, or a later one."""

    @abstractmethod
    async def witness(self, table: str) -> AsyncWitness | Witness:
        """Reads the receipts of this block when its connection may be closed, or serve somebody else."""

    async def has_write_lock(self, table: str) -> bool:
        """Whether the open transaction of this connection holds the write lock of its SQLite file."""
        await self.perform(LockPatience(0.0))
        try:
            await self.perform(Statement(f"UPDATE {table} SET key = key WHERE 0"))
        except Exception:  # noqa: BLE001 - another connection holds it
            return False
        finally:
            await self.perform(LockPatience(None))
        return True

    @abstractmethod
    async def perform(self, operation: Operation) -> Sequence[Row]:
        """Run one operation and return its rows."""

    async def read(self, statement: Statement) -> Sequence[Row]:
        """Run a SELECT. It leaves no transaction open: drivers that begin one before it override this."""
        return await self.perform(statement)

    @abstractmethod
    def is_over(self) -> bool:
        """Whether the transaction of the savepoint is certainly over."""

    async def perform_batch(self, batch: OnceBatch) -> Sequence[Row]:
        """Run a step and a statement. Drivers that need only one round trip override this."""
        step, statement = batch
        if step is OnceStep.RELEASE:
            if self.is_over():
                raise TransactionEnded("")
            rows = await self.perform(statement)
            await self.perform(step)
            return rows
        await self.perform(step)
        try:
            return await self.perform(statement)
        except BaseException:
            await self.undo()
            raise

    async def undo(self) -> None:
        """Roll back to the savepoint if possible. Errors are suppressed, so that the original one is raised."""
        with suppress(Exception):
            await self.perform(OnceStep.UNDO)


def drive(driver: Driver, flow: Flow[T]) -> T:
    """Run a flow."""
    try:
        operation = next(flow)
        while True:
            try:
                rows = (
                    driver.perform_batch(operation) if isinstance(operation, OnceBatch) else driver.perform(operation)
                )
            except Exception as error:  # noqa: BLE001 - the flow rolls back and raises it again
                operation = flow.throw(error)
            else:
                operation = flow.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


async def drive_async(driver: AsyncDriver, flow: Flow[T]) -> T:
    """Run a flow on an asynchronous driver. A cancelled task rolls back."""
    try:
        operation = next(flow)
        while True:
            try:
                if isinstance(operation, OnceBatch):
                    rows = await driver.perform_batch(operation)
                else:
                    rows = await driver.perform(operation)
            except BaseException as error:  # noqa: BLE001 - the flow rolls back and raises it again
                operation = flow.throw(error)
            else:
                operation = flow.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


def needs_transaction(is_open: bool) -> None:
    """Raise `NotInTransaction` for a connection in autocommit mode."""
    if not is_open:
        raise NotInTransaction


def family(kind: type) -> set[str]:
    """The packages of a connection's class and its base classes."""
    return {base.__module__.partition(".")[0] for base in kind.__mro__}
