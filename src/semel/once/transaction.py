"""`once.transaction`: a receipt in the caller's own transaction; `once.migrate`: creates its table.

Effect and receipt commit together, with the caller's commit. A crash before it leaves neither, and the retry runs; a
crash after it leaves both, and the retry gets the result. There is no lease, and so no unknown outcome.

Run `once.migrate` where the application creates its tables, put `once.ddl()` into an Alembic or Django migration, or
run `semel once init URL`. All may be run again: an existing table is not changed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, overload

from semel.kernel.verdict import Verdict
from semel.once.clock import OnceClock
from semel.once.codec import JSON, Codec, text_of
from semel.once.drivers.base import (
    AsyncDriver,
    AsyncWitness,
    Driver,
    Witness,
    drive,
    drive_async,
    family,
    raise_meant,
    raised_for,
)
from semel.once.errors import InvalidKey, OnceError, ResultError, StoreBusy, UnsupportedConnection
from semel.once.identity import fingerprint, identity
from semel.once.request import JoinedBlock, KeyedRequest, current_request
from semel.once.rules import Decision, Flow, OnceCall, finished, opened, undone
from semel.once.table import (
    SWEEP_EVERY,
    TABLE,
    Receipts,
    TableForm,
    create_table,
    receipts_form,
    receipts_of,
)
from semel.once.units import Duration, lasting, seconds

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from semel.once.stores import ReceiptStore

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")


class Attempt(Generic[R]):
    """The value of the `with` statement.

    If `fresh`, the block does its work and sets `result`; else `result` is that of the first call.
    """

    __slots__ = ("_created_ms", "_previous_ms", "fresh", "key", "result", "scope")

    def __init__(
        self,
        key: str,
        scope: str,
        fresh: bool = False,
        result: R | None = None,
        created_ms: int = 0,
        previous_ms: int | None = None,
    ) -> None:
        self.key = key
        self.scope = scope
        self.fresh = fresh
        """Whether this is the first call with the key, which must do the work."""
        self.result: R = result  # type: ignore[assignment] # it is set by the block
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


KEEP_MS = lasting("keep", "7d")
UNSAID: Any = object()
"""Default of a required argument."""

_writes = itertools.count(1)
_clock = OnceClock(lambda: time.time_ns() / 1_000_000_000)
_DRIVERS = {
    "psycopg": "psycopg",
    "asyncpg": "asyncpg",
    "sqlalchemy": "sqlalchemy",
    "sqlite3": "sqlite",
    "apsw": "sqlite",
    "django": "django",
}


def driver_of(connection: Any, bind: Any = None) -> Driver | AsyncDriver:
    """The driver for the caller's connection or session; `bind` names one of the databases of a session."""
    kind: type = type(connection)
    maker = _driver_maker(kind)
    found = None if maker is None else maker(connection) if bind is None else maker(connection, bind)
    if found is None:
        raise UnsupportedConnection(
            "Pass a connection or a session of psycopg 3, asyncpg, SQLAlchemy 2, sqlite3, apsw or Django, not a "
            f"{kind.__module__}.{kind.__qualname__}."
        )
    return found


@lru_cache(maxsize=64)
def _driver_maker(kind: type) -> Callable[..., Driver | AsyncDriver | None] | None:
    """The factory of drivers for a class; it returns None for what is no connection, as a cursor."""
    for package in family(kind) & _DRIVERS.keys():
        maker: Callable[..., Driver | AsyncDriver | None]
        maker = import_module(f"semel.once.drivers.{_DRIVERS[package]}").driver_of
        return maker
    return None


class TransactionBlock(Generic[R]):
    """A block in the caller's transaction: what both kinds of connection have in common."""

    def __init__(
        self,
        driver: Driver | AsyncDriver,
        receipts: Receipts,
        wanted: OnceCall,
        codec: Codec,
        joined: KeyedRequest | None = None,
    ) -> None:
        self._driver = driver
        self._receipts = receipts
        self._wanted = wanted
        self._codec = codec
        self._joined = joined
        self._block: JoinedBlock | None = None
        self._attempt: Attempt[R] | None = None

    def _join(self, request: KeyedRequest, driver: Driver | AsyncDriver, witness: Witness | AsyncWitness) -> None:
        block = JoinedBlock(self._wanted.who, self._receipts.table, driver, witness)
        request.join(block, driver)
        self._block = block

    def _leave(self, error: BaseException | None) -> None:
        """Tell the request that its block is over, or what the database refused."""
        block, request = self._block, self._joined
        if block is None or request is None:
            return
        block.is_inside = False
        block.is_undone = error is not None and not block.is_replay
        if isinstance(error, OnceError):
            request.fault = error

    def _begun(self, decision: Decision) -> Attempt[R]:
        is_fresh = decision.verdict is Verdict.FRESH
        if self._joined is not None and self._block is not None:
            self._joined.decide(self._block, is_replay=not is_fresh, owner=decision.owner)
        result: Any = None if is_fresh or decision.result is None else self._codec.loads(decision.result)
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
            text = text_of(self._codec, attempt.result)
        except ResultError as unfit:
            return undone(unfit)
        is_sweeping = next(_writes) % SWEEP_EVERY == 0
        return finished(self._receipts, self._wanted, text, is_sweeping=is_sweeping)

    def _meant(self, error: Exception) -> BaseException:
        return raised_for(error, self._wanted.who, self._receipts.table)


class Transaction(TransactionBlock[R]):
    """A block for a synchronous connection: `with once.transaction(...)`."""

    _driver: Driver

    def __enter__(self) -> Attempt[R]:
        driver = self._driver
        try:
            if self._joined is not None:
                self._join(self._joined, driver, driver.witness(self._receipts.table))
                self._mark(self._joined, driver)
            return self._begun(drive(driver, opened(self._receipts, self._wanted)))
        except BaseException as error:
            self._leave(error)
            if not isinstance(error, Exception):
                raise
            raise_meant(error, self._meant(error))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flow = self._ending(error)
        try:
            if flow is not None:
                drive(self._driver, flow)
        except BaseException as fault:
            self._leave(fault)
            if not isinstance(fault, Exception):
                raise
            if error is None:  # else the caller gets the error that its block raised
                raise_meant(fault, self._meant(fault))
        self._leave(error)

    def _mark(self, request: KeyedRequest, driver: Driver) -> None:
        """Mark the request. Its store is locked for ever if this very transaction holds the lock."""
        if not _is_one_file(driver.file, request.store):
            request.mark()
            return
        if driver.has_own_sqlite:
            raise UnsupportedConnection(_TWO_COPIES)
        try:
            request.mark(OWN_LOCK_SECONDS)
        except StoreBusy:
            if driver.has_write_lock(self._receipts.table):
                raise UnsupportedConnection(_WRITTEN) from None
            request.mark()

    if not TYPE_CHECKING:  # checkers refuse `async with` before it runs

        async def __aenter__(self) -> NoReturn:
            raise UnsupportedConnection(
                "This connection is synchronous: write `with once.transaction(...)`, without async."
            )

        async def __aexit__(self, *_: object) -> None: ...


class AsyncTransaction(TransactionBlock[R]):
    """A block for an asynchronous connection: `async with once.transaction(...)`."""

    _driver: AsyncDriver

    async def __aenter__(self) -> Attempt[R]:
        driver = self._driver
        try:
            if self._joined is not None:
                self._join(self._joined, driver, await driver.witness(self._receipts.table))
                await self._mark_async(self._joined, driver)
            return self._begun(await drive_async(driver, opened(self._receipts, self._wanted)))
        except BaseException as error:
            self._leave(error)
            if not isinstance(error, Exception):
                raise
            raise_meant(error, self._meant(error))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flow = self._ending(error)
        try:
            if flow is not None:
                await drive_async(self._driver, flow)
        except BaseException as fault:
            self._leave(fault)
            if not isinstance(fault, Exception):
                raise
            if error is None:
                raise_meant(fault, self._meant(fault))
        self._leave(error)

    async def _mark_async(self, request: KeyedRequest, driver: AsyncDriver) -> None:
        if not _is_one_file(driver.file, request.store):
            await request.mark_async()
            return
        try:
            await request.mark_async(OWN_LOCK_SECONDS)
        except StoreBusy:
            if await driver.has_write_lock(self._receipts.table):
                raise UnsupportedConnection(_WRITTEN) from None
            await request.mark_async()

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise UnsupportedConnection("This connection is asynchronous: write `async with once.transaction(...)`.")

        def __exit__(self, *_: object) -> None: ...


OWN_LOCK_SECONDS = 1.0
"""After which a locked file of receipts is suspected to be locked by the very transaction that wants to write there."""
_WRITTEN = (
    "This transaction has locked the file that holds the receipts of requests, so its request cannot be marked: begin "
    "once.transaction before the first write and without BEGIN IMMEDIATE, or keep those receipts in another file."
)
_TWO_COPIES = (
    "apsw and the store of receipts are two copies of SQLite, which do not see each other's locks: keep the receipts "
    "of requests in a file of their own."
)


def _is_one_file(path: str | None, store: ReceiptStore) -> bool:
    """Whether a connection and a store of receipts use one file of SQLite."""
    other = getattr(store.database, "path", None)
    try:
        return bool(path) and bool(other) and Path(str(path)).samefile(str(other))
    except OSError:
        return False


class ClosesLater(Protocol):
    """An asynchronous connection or session, to a checker of types: what ends it is awaited."""

    def close(self) -> Awaitable[object]: ...


class ClosesAtOnce(Protocol):
    """A synchronous connection or session, to a checker of types."""

    def close(self) -> None: ...


@overload
def transaction(
    connection: ClosesLater,
    key: object = None,
    arguments: Any = UNSAID,
    *,
    scope: object = UNSAID,
    step: str | None = None,
    keep: Duration = UNSAID,
    wait: Duration | None = None,
    codec: Codec = JSON,
    table: str = TABLE,
    bind: Any = None,
) -> AsyncTransaction[Any]: ...


@overload
def transaction(
    connection: ClosesAtOnce,
    key: object = None,
    arguments: Any = UNSAID,
    *,
    scope: object = UNSAID,
    step: str | None = None,
    keep: Duration = UNSAID,
    wait: Duration | None = None,
    codec: Codec = JSON,
    table: str = TABLE,
    bind: Any = None,
) -> Transaction[Any]: ...


def transaction(
    connection: Any,
    key: object = None,
    arguments: Any = UNSAID,
    *,
    scope: object = UNSAID,
    step: str | None = None,
    keep: Duration = UNSAID,
    wait: Duration | None = None,
    codec: Codec = JSON,
    table: str = TABLE,
    bind: Any = None,
) -> Transaction[Any] | AsyncTransaction[Any]:
    """Run a block once, in the open transaction of the caller's connection or session.

    `scope` separates the keys of tenants and is required; None is one scope for all. `arguments` are compared with
    those of the first call. `keep` is the retention of the receipt, 7 days by default. `wait` limits the wait for
    another transaction with this key; by default the database's own limit applies. `bind` is a mapped class, for a
    session of several databases.

    Without a key, the block has the key, scope, body and retention of the request that `once.Middleware` is handling. A
    second such block of one request needs a name: `step="shipment"`.
    """
    joined = current_request() if key is None else None
    if joined is not None:
        if arguments is not UNSAID or scope is not UNSAID or keep is not UNSAID:
            raise InvalidKey(
                "A block without a key has the scope, the body and the retention of its request: pass key= too, or "
                "leave arguments, scope= and keep= out."
            )
        who, print_, keep_ms = joined.step_identity(step), joined.claim.fingerprint, joined.claim.keep_ms
    elif step is not None:
        raise InvalidKey("step= names a block of a request, whose key it shares: a block with a key= needs none.")
    elif scope is UNSAID:
        raise InvalidKey("Pass scope=, the id of the tenant, or scope=None for one scope of all keys.")
    else:
        who, print_ = identity(scope, key), fingerprint(None if arguments is UNSAID else arguments)
        keep_ms = KEEP_MS if keep is UNSAID else lasting("keep", keep)
    owner = None if joined is None else joined.claim.owner
    wanted = OnceCall(who, print_, _clock.now_ms(), keep_ms, owner, None if wait is None else seconds(wait))
    driver = driver_of(connection, bind)
    kind = AsyncTransaction if driver.is_async else Transaction
    return kind(driver, receipts_of(table), wanted, codec, joined)


def migrate(target: Any, *, table: str = TABLE) -> None:
    """Create the table of receipts.

    `target` is a SQLAlchemy engine, on which the change is committed, or a connection or session as for
    `once.transaction`, where it is part of the caller's transaction. With an asynchronous SQLAlchemy connection write
    `await connection.run_sync(once.migrate)`; with other asynchronous ones run the SQL of `once.ddl()`.
    """
    create_tables(target, receipts_form(table))


def create_tables(target: Any, form: TableForm) -> None:
    """Create a table on an engine, a connection or a session, as `migrate` does."""
    if hasattr(target, "begin") and hasattr(target, "dispose"):  # an engine
        if not hasattr(target, "raw_connection") or hasattr(target, "sync_engine"):
            raise UnsupportedConnection("This engine is asynchronous: write `await connection.run_sync(once.migrate)`.")
        with target.begin() as connection:
            create_tables(connection, form)
        return
    driver = driver_of(target)
    if isinstance(driver, AsyncDriver):
        raise UnsupportedConnection("This connection is asynchronous: run the SQL of once.ddl() on it.")
    create_table(form, driver.dialect.value, driver.perform)
