"""The receipts of functions and requests in a database: each change is one transaction, on disk when it returns.

Every change may be repeated: a claim names its owner, so a call whose answer was lost finds its own claim. If a store
does not answer, `StoreUnavailable` is raised.

A function on SQLite may hold the write lock of the file in which its own receipt is, so that its lease ends although it
runs. A take-over therefore looks twice, with a pause in which the lease can be renewed, and starts again whenever it
meets a lock. A lease that its holder gave up needs no second look.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from semel.kernel.shown_url import is_keywords, shown_scheme
from semel.once.claims import Act, ClaimStatements, OnceClaim, ReceiptChange
from semel.once.clock import Clock, OnceClock
from semel.once.database import (
    Database,
    EngineDatabase,
    PoolDatabase,
    PostgresDatabase,
    SqliteFile,
    TimeLimit,
    wait_for,
)
from semel.once.drivers.base import family
from semel.once.errors import InvalidKey, OnceError, StoreBusy, TableMissing, UnsupportedConnection
from semel.once.forks import PerProcess
from semel.once.keeper import HeldLease, Keeper
from semel.once.table import SWEEP_EVERY, SWEPT, OnceDialect, Receipts, Row, Statement, TableForm, receipts_form

SECOND_LOOK_SECONDS = 1.0
"""Longest pause between two looks of a take-over on SQLite; a renewal that waits for the lock is tried often in it."""
RENEWED_AT_ONCE = 100
"""Leases in one statement."""


class ReceiptStore:
    """Receipts in one table of a database."""

    def __init__(self, database: Database, clock: Clock = time.time) -> None:
        self.database = database
        self._clock = OnceClock(clock)
        table = database.form.name
        self._statements = ClaimStatements(table)
        self._receipts = Receipts(table)
        self._writes = itertools.count(1)
        self._twin = PerProcess(database.twin)
        self._proving = PerProcess(threading.Lock)
        self._is_proven = database.is_twin_alike
        self.keeper: Keeper[OnceClaim] = Keeper(self._renew)
        _known.add(self)

    def change(self, change: ReceiptChange) -> Sequence[Row]:
        """Apply one change and return its rows. It is on disk when this returns."""
        if change.act is Act.CLAIM and not self._is_proven:
            self._prove_twin(TimeLimit(change.patience))
        if change.act is Act.TAKE_OVER and self.database.dialect is OnceDialect.SQLITE:
            return self._take_over(change)
        rows = self.database.run(self._statements.statement(change, self.now_ms()), change.patience)
        if change.act is Act.GIVE_BACK and not rows and change.claim is not None:
            return self.change(change.claim.to(Act.ABANDON))
        if change.act is Act.FINISH and next(self._writes) % SWEEP_EVERY == 0:
            with suppress(OnceError):  # the change is stored; the next sweep deletes what this one did not
                self.sweep()
        return rows

    async def change_async(self, change: ReceiptChange) -> Sequence[Row]:
        """`change` in a thread of the database. If its caller is cancelled, a claim is undone, a result stored."""
        future = self.database.submit(lambda: self.change(change))
        try:
            return await wait_for(future, change.patience)
        except BaseException as error:
            is_stopped = not isinstance(error, Exception)
            if is_stopped and change.is_due_without_caller and (future.cancel() or future.done()):
                self.change_later(change)
            undone = change.undone()
            if undone is not None and not isinstance(error, StoreBusy) and not future.cancel():
                # Its thread may still be about to commit it.
                future.add_done_callback(lambda _: self.change_later(undone))
            raise

    def change_later(self, change: ReceiptChange) -> None:
        """Apply a change in a thread of the database; nothing waits for it, and an error is ignored."""

        def apply() -> None:
            with suppress(OnceError):
                self.change(change)

        with suppress(RuntimeError):  # the interpreter ends, and so does the lease
            self.database.submit(apply)

    def _take_over(self, change: ReceiptChange) -> Sequence[Row]:
        """Take over if the lease has ended at two looks, between which nothing held the file's write lock for long."""
        assert change.claim is not None, "a take-over belongs to a call"
        pause = min(SECOND_LOOK_SECONDS, change.claim.lease_ms / 1_000)
        deadline = time.monotonic() + max(change.patience, 3 * pause)
        while True:
            try:
                found = self.database.run_unlocked(self._statements.look(change, self.now_ms()))
                if not found:
                    return ()
                if found[0][0]:  # else the lease was given up
                    time.sleep(pause)
                return self.database.run_unlocked(self._statements.statement(change, self.now_ms()))
            except StoreBusy:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(pause)

    def _prove_twin(self, limit: TimeLimit) -> None:
        """Look whether the connection for renewals sees the table: a lease that cannot be renewed guards nothing."""
        with limit.hold(self._proving()):
            if self._is_proven:
                return
            twin = self.database.twin()
            try:
                twin.check_form(limit)
            except TableMissing:
                self.database.check_form(limit)
                raise UnsupportedConnection(
                    f"The second connection, which renews leases, does not see the table {self.database.form.name}: "
                    "set the application's connections up in the URL, in a listener of the engine or in configure= of "
                    "the pool."
                ) from None
            finally:
                if twin is not self.database:
                    twin.close()  # most calls end before their first renewal, which makes another one
            self._is_proven = True

    def _renew(self, leases: Sequence[HeldLease[OnceClaim]]) -> None:
        """Renew leases over a connection that no call uses."""
        twin = self._twin()
        for first in range(0, len(leases), RENEWED_AT_ONCE):
            some = leases[first : first + RENEWED_AT_ONCE]
            now = time.monotonic()
            statement = self._statements.renew([lease.item for lease in some], self.now_ms())
            held = {row[0] for row in twin.run(statement, min(lease.seconds for lease in some))}
            for lease in some:
                if lease.item.owner in held:
                    lease.extend(now)
                else:
                    lease.lose()

    def end_leases(self) -> None:
        """End all leases now, as if their time had passed: for tests of crashes, which need not wait then."""
        self.database.run(Statement(f"UPDATE {self.database.form.name} SET lease_until = 0 WHERE state = 'running'"))

    def expired(self) -> int:
        """The number of expired receipts that are still stored."""
        return int(self.database.run(self._receipts.expired(self.now_ms()))[0][0])

    def sweep(self, limit: int = SWEPT) -> int:
        """Delete at most `limit` expired receipts. Returns how many."""
        return len(self.database.run(self._receipts.sweep(self.now_ms(), limit)))

    def now_ms(self) -> int:
        """The time of this program, in milliseconds since 1970."""
        return self._clock.now_ms()

    def create(self) -> None:
        """Create the table if it does not exist; a file has it since it was opened."""
        self.database.create()

    def close(self) -> None:
        """Close the connections and end the threads."""
        _known.discard(self)
        self.keeper.close()
        twin = self._twin.made
        if twin is not None and twin is not self.database:
            twin.close()
        self.database.close()


_known: weakref.WeakSet[ReceiptStore] = weakref.WeakSet()


def known_stores() -> list[ReceiptStore]:
    """The stores of this process."""
    return list(_known)


def store_at(place: Any, table: str, clock: Clock = time.time) -> ReceiptStore:
    """The store in a SQLite file, at a postgresql:// URL, or over an engine or a pool of the application."""
    return ReceiptStore(database_at(place, receipts_form(table)), clock)


def database_at(place: Any, form: TableForm) -> Database:
    """The database of a path, a URL, a SQLAlchemy engine or a `psycopg_pool.ConnectionPool`."""
    if isinstance(place, str | os.PathLike):
        path = os.fspath(place)
        scheme, has_scheme, _ = path.partition("://")
        refuse_keywords(path)
        if not path:
            raise InvalidKey("The path of the store is empty: pass the path of a SQLite file, or a postgresql:// URL.")
        if not has_scheme:
            return SqliteFile(path, form)
        if scheme in ("postgresql", "postgres"):
            return PostgresDatabase(path, form)
        raise InvalidKey(f"{shown_scheme(path)}:// is not a supported store: pass a file path or a postgresql:// URL.")
    packages = family(type(place))
    if "psycopg_pool" in packages and hasattr(place, "getconn") and not _is_async(place.getconn):
        return PoolDatabase(place, form)
    if "sqlalchemy" in packages and hasattr(place, "raw_connection") and not hasattr(place, "sync_engine"):
        return EngineDatabase(place, form)
    raise UnsupportedConnection(
        "Pass the path of a SQLite file, a postgresql:// URL, a synchronous SQLAlchemy engine or a "
        f"psycopg_pool.ConnectionPool, not a {type(place).__module__}.{type(place).__qualname__}."
    )


def refuse_keywords(place: str) -> None:
    """Raise `InvalidKey` for a connection string of libpq: taken for a path, it would name a file by its password."""
    if is_keywords(place):
        raise InvalidKey("A connection string is no store: write it as postgresql://USER@HOST:PORT/DATABASE.")


def _is_async(function: Any) -> bool:
    import inspect  # noqa: PLC0415 - only a pool needs it

    return inspect.iscoroutinefunction(function)
