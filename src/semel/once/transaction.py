"""`once.transaction`: the receipt of a call in the caller's own transaction; and `once.migrate`, which makes its table.

Effect and receipt are one commit, the caller's. A crash before it leaves neither, and the retry runs; a crash after it
leaves both, and the retry gets the result. There is no lease, and so no unknown outcome.

Run `once.migrate` where an application makes its own tables; `once.ddl()` is the same as text, for a migration of
Alembic or Django, and `semel once init URL` the same as a command. It may be run again: an existing table stays as it
is.
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
    """What a block is handed.

    In a fresh attempt the block does its work and sets `result`; in one that is replayed `result` is that of the first.
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
        """Whether this is the first call with the key: do the work."""
        self.result = result
        """Set it in a fresh attempt; in a replayed one it is what the first call set."""
        self._created_ms = created_ms
        self._previous_ms = previous_ms

    @property
    def replayed(self) -> bool:
        """Whether the work was done by an earlier call: do nothing."""
        return not self.fresh

    @property
    def created_at(self) -> datetime:
        """When the receipt was made."""
        return datetime.fromtimestamp(self._created_ms / 1_000, UTC)

    @property
    def expired_before(self) -> datetime | None:
        """When an earlier call with this key was made whose receipt has expired; None for a key that is new."""
        return None if self._previous_ms is None else datetime.fromtimestamp(self._previous_ms / 1_000, UTC)

    def __repr__(self) -> str:
        return f"Attempt(key={self.key!r}, scope={self.scope!r}, fresh={self.fresh}, result={self.result!r})"


KEEP = "7d"
UNSAID: Any = object()
"""The default of what must be said."""

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
    """What makes the driver for connections of a class."""
    for package in family(kind) & _DRIVERS.keys():
        maker: Callable[[Any], Driver | AsyncDriver]
        maker = import_module(f"semel.once.drivers.{_DRIVERS[package]}").driver_of
        return maker
    raise UnsupportedConnection(
        "Give a connection or a session of psycopg 3, asyncpg, SQLAlchemy 2, sqlite3, apsw or Django, and not a "
        f"{kind.__qualname__}."
    )


class Transaction:
    """A block in the caller's transaction, for `with` and for `async with`, by the connection it was made with."""

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
            if error is None:  # else the caller gets the error of its block, whatever else is wrong
                raise self._meant(fault) from _cause(fault)

    async def __aenter__(self) -> Attempt:
        if self._joined is not None:
            from asyncio import to_thread  # noqa: PLC0415 - a program that blocks needs no asyncio

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
        """The flow that ends the block; None when it had nothing to do."""
        attempt = self._attempt
        if attempt is None or not attempt.fresh:
            return None
        if error is not None:
            return undone()
        try:
            text = None if attempt.result is None else self._codec.dumps(attempt.result)
        except Exception as unfit:  # noqa: BLE001 - a codec of the caller's own may raise anything
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
        raise UnsupportedConnection("This connection blocks: write `with once.transaction(...)`, without async.")


def _cause(error: Exception) -> BaseException | None:
    """What an error of this package was made of; those that came from it have no other."""
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
    """Run a block once, in the transaction that is open on the caller's connection or session.

    `scope` keeps the keys of tenants apart, and must be said; None is one scope for all. `arguments` are compared with
    those of the first call. `keep` is how long the receipt counts. `wait` bounds how long to wait for another
    transaction with this key; without it the database's own bound holds. Without a key, the block takes the key of the
    request that `once.Middleware` is handling, with its scope.
    """
    joined = current_request() if key is None else None
    if joined is not None:
        who, print_ = joined.who, joined.fingerprint
    elif scope is UNSAID:
        raise InvalidKey("Say whose key it is: scope=the tenant's id, or scope=None for one scope of all keys.")
    else:
        who, print_ = identity(scope, key), fingerprint(arguments)
    now_ms = time.time_ns() // 1_000_000
    wanted = OnceCall(who, print_, now_ms, milliseconds(keep), None if wait is None else seconds(wait))
    return Transaction(driver_of(connection), receipts_of(table), wanted, codec, joined)


def migrate(target: Any, *, table: str = TABLE) -> None:
    """Make the table of receipts.

    `target` is an engine of SQLAlchemy, where it is committed, or a connection or session that `once.transaction`
    takes, where it is part of the caller's transaction. With an asynchronous connection of SQLAlchemy write
    `await connection.run_sync(once.migrate)`; with others run the text of `once.ddl()`.
    """
    if hasattr(target, "begin") and hasattr(target, "dispose"):  # an engine
        if not hasattr(target, "raw_connection") or hasattr(target, "sync_engine"):
            raise UnsupportedConnection("This engine is asynchronous: `await connection.run_sync(once.migrate)`.")
        with target.begin() as connection:
            migrate(connection, table=table)
        return
    driver = driver_of(target)
    if isinstance(driver, AsyncDriver):
        raise UnsupportedConnection("This connection is asynchronous: run the text of once.ddl() with it.")
    for sql in ddl(driver.dialect.value, table).split(";\n"):
        if sql:
            driver.perform(Statement(sql))
