"""`once.transaction`: a receipt in the caller's own transaction; `once.migrate`: creates its table.

Effect and receipt commit together, with the caller's commit. A crash before it leaves neither, and the retry runs; a
crash after it leaves both, and the retry gets the result. There is no lease, and so no unknown outcome.

Run `once.migrate` where the application creates its tables, put `once.ddl()` into an Alembic or Django migration, or
run `semel once init URL`. All may be run again: an existing table is not changed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from types import TracebackType
from typing import Any

from semel.kernel.verdict import Verdict
from semel.once.codec import JSON, Codec
from semel.once.drivers.base import AsyncDriver, Driver, drive, drive_async, family, raised_for
from semel.once.errors import InvalidKey, OnceError, ResultError, UnsupportedConnection
from semel.once.identity import JoinedRequest, current_request, fingerprint, identity
from semel.once.rules import Decision, Flow, OnceCall, finished, opened, undone
from semel.once.table import SWEEP_EVERY, TABLE, Receipts, Statement, ddl, receipts_of
from semel.once.units import Duration, milliseconds, seconds


class Attempt:
    """The value of the `with` statement.

    If `fresh`, the block does its work and sets `result`; else `result` is that of the first call.
    """

    __slots__ = ("_created_ms", "_previous_ms", "fresh", "key", "result", "scope")

    def __init__(
        self,
        key: str,
        scope: str,
        fresh: bool = False,
        result: Any = None,
        created_ms: int = 0,
        previous_ms: int | None = None,
    ) -> None:
        self.key = key
        self.scope = scope
        self.fresh = fresh
        """Whether this is the first call with the key, which must do the work."""
        self.result = result
        """Set by the block in a fresh attempt; in a replay, the result of the first call."""
        self._created_ms = created_ms
        self._previous_ms = previous_ms

    @property
    def replayed(self) -> bool:
        """Whether an earlier call has done the work."""
        return not self.fresh

    @property
    def created_at(self) -> datetime:
        """When the receipt was created."""
        return datetime.fromtimestamp(self._created_ms / 1_000, UTC)

    @property
    def expired_before(self) -> datetime | None:
        """When the expired receipt of this key was created; None for a new key."""
        return None if self._previous_ms is None else datetime.fromtimestamp(self._previous_ms / 1_000, UTC)

    def __repr__(self) -> str:
        return f"Attempt(key={self.key!r}, scope={self.scope!r}, fresh={self.fresh}, result={self.result!r})"


KEEP = "7d"
UNSAID: Any = object()
"""Default of a required argument."""

_writes = itertools.count(1)
_DRIVERS = {
    "psycopg": "psycopg",
    "asyncpg": "asyncpg",
    "sqlalchemy": "sqlalchemy",
    "sqlite3": "sqlite",
    "apsw": "sqlite",
    "django": "django",
}


def driver_of(connection: Any) -> Driver | AsyncDriver:
    """The driver for the caller's connection or session."""
    kind: type = type(connection)
    return _driver_maker(kind)(connection)


@lru_cache(maxsize=64)
def _driver_maker(kind: type) -> Callable[[Any], Driver | AsyncDriver]:
    """The factory of drivers for a class of connections."""
    for package in family(kind) & _DRIVERS.keys():
        maker: Callable[[Any], Driver | AsyncDriver]
        maker = import_module(f"semel.once.drivers.{_DRIVERS[package]}").driver_of
        return maker
    raise UnsupportedConnection(
        "Pass a connection or a session of psycopg 3, asyncpg, SQLAlchemy 2, sqlite3, apsw or Django, not a "
        f"{kind.__qualname__}."
    )


class Transaction:
    """A block in the caller's transaction: `with` for a synchronous connection, `async with` for an asynchronous
    one."""

    def __init__(
        self,
        driver: Driver | AsyncDriver,
        receipts: Receipts,
        wanted: OnceCall,
        codec: Codec,
        joined: JoinedRequest | None = None,
    ) -> None:
        self._driver = driver
        self._receipts = receipts
        self._wanted = wanted
        self._codec = codec
        self._joined = joined
        self._attempt: Attempt | None = None

    def __enter__(self) -> Attempt:
        if self._joined is not None:
            self._joined.mark()
        try:
            return self._begun(drive(self._blocking(), opened(self._receipts, self._wanted)))
        except Exception as error:  # noqa: BLE001 - any driver's error
            raise self._meant(error) from _cause(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flow = self._ending(error)
        if flow is None:
            return
        try:
            drive(self._blocking(), flow)
        except Exception as fault:  # noqa: BLE001 - any driver's error
            if error is None:  # else the caller gets the error that its block raised
                raise self._meant(fault) from _cause(fault)

    async def __aenter__(self) -> Attempt:
        if self._joined is not None:
            from asyncio import to_thread  # noqa: PLC0415 - a synchronous program needs no asyncio

            await to_thread(self._joined.mark)
        try:
            return self._begun(await drive_async(self._asynchronous(), opened(self._receipts, self._wanted)))
        except Exception as error:  # noqa: BLE001 - any driver's error
            raise self._meant(error) from _cause(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flow = self._ending(error)
        if flow is None:
            return
        try:
            await drive_async(self._asynchronous(), flow)
        except Exception as fault:  # noqa: BLE001 - any driver's error
            if error is None:
                raise self._meant(fault) from _cause(fault)

    def _begun(self, decision: Decision) -> Attempt:
        is_fresh = decision.verdict is Verdict.FRESH
        result = None if is_fresh or decision.result is None else self._codec.loads(decision.result)
        who = self._wanted.who
        self._attempt = Attempt(who.key, who.scope, is_fresh, result, decision.created_ms, decision.previous_ms)
        return self._attempt

    def _ending(self, error: BaseException | None) -> Flow[None] | None:
        """The flow that ends the block; None for a replay."""
        attempt = self._attempt
        if attempt is None or not attempt.fresh:
            return None
        if error is not None:
            return undone()
        try:
            text = None if attempt.result is None else self._codec.dumps(attempt.result)
        except Exception as unfit:  # noqa: BLE001 - a user's codec may raise any exception
            return undone(
                unfit if isinstance(unfit, ResultError) else ResultError(f"The result cannot be stored: {unfit}")
            )
        is_sweeping = next(_writes) % SWEEP_EVERY == 0
        return finished(self._receipts, self._wanted, text, is_sweeping=is_sweeping)

    def _meant(self, error: Exception) -> BaseException:
        return raised_for(error, self._wanted.who, self._receipts.table)

    def _blocking(self) -> Driver:
        if isinstance(self._driver, Driver):
            return self._driver
        raise UnsupportedConnection("This connection is asynchronous: write `async with once.transaction(...)`.")

    def _asynchronous(self) -> AsyncDriver:
        if isinstance(self._driver, AsyncDriver):
            return self._driver
        raise UnsupportedConnection(
            "This connection is synchronous: write `with once.transaction(...)`, without async."
        )


def _cause(error: Exception) -> BaseException | None:
    """The driver's error behind an error of this package, or None."""
    return error.__cause__ if isinstance(error, OnceError) else error


def transaction(
    connection: Any,
    key: object = None,
    arguments: Any = None,
    *,
    scope: object = UNSAID,
    keep: Duration = KEEP,
    wait: Duration | None = None,
    codec: Codec = JSON,
    table: str = TABLE,
) -> Transaction:
    """Run a block once, in the open transaction of the caller's connection or session.

    `scope` separates the keys of tenants and is required; None is one scope for all. `arguments` are compared with
    those of the first call. `keep` is the retention of the receipt. `wait` limits the wait for another transaction with
    this key; by default the database's own limit applies. Without a key, the block uses the key and scope of the
    request that `once.Middleware` is handling.
    """
    joined = current_request() if key is None else None
    if joined is not None:
        who, print_ = joined.who, joined.fingerprint
    elif scope is UNSAID:
        raise InvalidKey("Pass scope=, the id of the tenant, or scope=None for one scope of all keys.")
    else:
        who, print_ = identity(scope, key), fingerprint(arguments)
    now_ms = time.time_ns() // 1_000_000
    wanted = OnceCall(who, print_, now_ms, milliseconds(keep), None if wait is None else seconds(wait))
    return Transaction(driver_of(connection), receipts_of(table), wanted, codec, joined)


def migrate(target: Any, *, table: str = TABLE) -> None:
    """Create the table of receipts.

    `target` is a SQLAlchemy engine, on which the change is committed, or a connection or session as for
    `once.transaction`, where it is part of the caller's transaction. With an asynchronous SQLAlchemy connection write
    `await connection.run_sync(once.migrate)`; with other asynchronous ones run the SQL of `once.ddl()`.
    """
    create_tables(target, lambda dialect: ddl(dialect, table))


def create_tables(target: Any, ddl_of: Callable[[str], str]) -> None:
    """Run the DDL for a dialect on an engine, a connection or a session, as `migrate` does."""
    if hasattr(target, "begin") and hasattr(target, "dispose"):  # an engine
        if not hasattr(target, "raw_connection") or hasattr(target, "sync_engine"):
            raise UnsupportedConnection("This engine is asynchronous: write `await connection.run_sync(once.migrate)`.")
        with target.begin() as connection:
            create_tables(connection, ddl_of)
        return
    driver = driver_of(target)
    if isinstance(driver, AsyncDriver):
        raise UnsupportedConnection("This connection is asynchronous: run the SQL of once.ddl() on it.")
    for sql in ddl_of(driver.dialect.value).split(";\n"):
        if sql:
            driver.perform(Statement(sql))
