"""What a driver does for a flow, and how errors of databases are told apart.

A driver performs one operation at a time on a connection that belongs to the caller. It opens no connection, begins no
transaction that the caller's connection would not begin by itself, and never commits.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, TypeVar

from semel.once.errors import InFlight, NotInTransaction, RunAgain, TableMissing, TransactionEnded
from semel.once.identity import Identity
from semel.once.rules import Flow, Operation
from semel.once.table import Row

T = TypeVar("T")

_numbers = itertools.count(1)


class Failure(Enum):
    """What an error of a database means."""

    LOCKED = "locked"
    CONFLICT = "conflict"
    NO_TABLE = "no table"
    ENDED = "ended"
    OTHER = "other"


_SQLSTATES = {
    "55P03": Failure.LOCKED,  # lock_not_available
    "40001": Failure.CONFLICT,  # serialization_failure
    "40P01": Failure.CONFLICT,  # deadlock_detected
    "42P01": Failure.NO_TABLE,  # undefined_table
    "3B001": Failure.ENDED,  # invalid_savepoint_specification
    "25P01": Failure.ENDED,  # no_active_sql_transaction
}
SQLITE_BUSY, SQLITE_LOCKED, SQLITE_BUSY_SNAPSHOT = 5, 6, 517


def savepoint_name() -> str:
    """A name that no other block of this process has."""
    return f"semel_once_{next(_numbers)}"


def failure_of(error: BaseException) -> Failure:
    """What an error means, by its SQLSTATE or SQLite's code; errors that wrap another one are looked into."""
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
    return Failure.NO_TABLE if "no such table" in words else Failure.OTHER


def raised_for(error: BaseException, who: Identity, table: str) -> BaseException:
    """The error that the caller gets; the database's own where this package has nothing to say of it."""
    if isinstance(error, TransactionEnded):
        return TransactionEnded(who.key)
    failure = failure_of(error)
    if failure is Failure.LOCKED:
        return InFlight(who.key)
    if failure is Failure.CONFLICT:
        return RunAgain(who.key)
    if failure is Failure.NO_TABLE and table.rpartition(".")[2] in str(error):
        return TableMissing(table)
    return TransactionEnded(who.key) if failure is Failure.ENDED else error


class Driver(ABC):
    """A blocking driver."""

    @abstractmethod
    def perform(self, operation: Operation) -> Sequence[Row]:
        """Carry out one operation; the rows that came back."""


class AsyncDriver(ABC):
    """An asynchronous driver."""

    @abstractmethod
    async def perform(self, operation: Operation) -> Sequence[Row]:
        """Carry out one operation; the rows that came back."""


def drive(driver: Driver, flow: Flow[T]) -> T:
    """Carry out a flow."""
    try:
        operation = next(flow)
        while True:
            try:
                rows = driver.perform(operation)
            except Exception as error:  # noqa: BLE001 - the flow undoes what it has begun, and raises it again
                operation = flow.throw(error)
            else:
                operation = flow.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


async def drive_async(driver: AsyncDriver, flow: Flow[T]) -> T:
    """The same for an asynchronous driver; a cancelled task undoes what it has begun."""
    try:
        operation = next(flow)
        while True:
            try:
                rows = await driver.perform(operation)
            except BaseException as error:  # noqa: BLE001 - the flow undoes what it has begun, and raises it again
                operation = flow.throw(error)
            else:
                operation = flow.send(rows)
    except StopIteration as end:
        found: T = end.value
        return found


def needs_transaction(is_open: bool) -> None:
    """Refuse a connection that commits every statement by itself."""
    if not is_open:
        raise NotInTransaction


def family(connection: Any) -> set[str]:
    """The packages that a connection's class and its bases come from."""
    return {base.__module__.partition(".")[0] for base in type(connection).__mro__}
