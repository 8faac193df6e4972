"""Storing a letter: in the caller's own transaction, or in a transaction of the outbox's own store.

| rows of `add` | found under the key | decision |
|---|---|---|
| one | - | posted |
| none | the same fingerprint | posted before: the same letter |
| none | another fingerprint | `KeyMismatch` |
| none | none | `OutboxFull`, or `RunAgain` if it was removed meanwhile |

In the caller's transaction the letter commits with it, or is undone with it: a crash before the commit leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from semel.once.drivers.base import AsyncDriver, Driver, drive, drive_async, raised_for
from semel.once.errors import (
    InvalidKey,
    KeyMismatch,
    OnceError,
    OutboxFull,
    RunAgain,
    TableMissing,
    UnsupportedConnection,
)
from semel.once.identity import Identity
from semel.once.letter_table import LetterStatements, Now, ddl
from semel.once.letters import Letter
from semel.once.rules import Flow, Operation, Step
from semel.once.stores import Clock, PostgresStore, SqliteStore, TableStore
from semel.once.table import Dialect, Row, Statement
from semel.once.transaction import driver_of

ADVICE = "run `semel outbox init URL`, or add once.outbox_ddl() to your migrations"


class Posted(NamedTuple):
    """A letter that is stored, or will be with the caller's commit."""

    key: str
    fresh: bool
    """Whether this call stored it; not so for a letter that was posted before."""


def posted(statements: LetterStatements, letter: Letter, now: Now, max_letters: int) -> Flow[Posted]:
    """Store a letter, or find that it is known."""
    if (yield statements.add(letter, now, max_letters)):
        return Posted(letter.key, fresh=True)
    found = yield statements.fingerprint(letter.key)
    if found:
        if bytes(found[0][0]) != letter.fingerprint:
            raise KeyMismatch(letter.key)
        return Posted(letter.key, fresh=False)
    if int((yield statements.count())[0][0]) >= max_letters:
        raise OutboxFull(max_letters)
    raise RunAgain(letter.key)


def in_savepoint(flow: Flow[Posted]) -> Flow[Posted]:
    """The same in the caller's transaction: an error leaves the rest of it as it was."""
    yield Step.OPEN
    try:
        found = yield from flow
    except BaseException:
        yield Step.UNDO
        raise
    yield Step.RELEASE
    return found


def post_using(connection: Any, flow: Flow[Posted], key: str, table: str) -> Posted:
    """Store a letter in the transaction that is open on the caller's connection or session."""
    driver = driver_of(connection)
    if isinstance(driver, AsyncDriver):
        raise UnsupportedConnection("This connection is asynchronous: write `await box.post_async(...)`.")
    try:
        return drive(driver, in_savepoint(flow))
    except Exception as error:  # noqa: BLE001 - any driver's error
        raise _meant(error, key, table) from _cause(error)


async def post_using_async(connection: Any, flow: Flow[Posted], key: str, table: str) -> Posted:
    """The same for an asynchronous connection or session."""
    driver = driver_of(connection)
    if isinstance(driver, Driver):
        raise UnsupportedConnection("This connection blocks: write `box.post(...)`, without await.")
    try:
        return await drive_async(driver, in_savepoint(flow))
    except Exception as error:  # noqa: BLE001 - any driver's error
        raise _meant(error, key, table) from _cause(error)


def post_to(store: TableStore, flow: Flow[Posted]) -> Posted:
    """Store a letter in the outbox's own store: it is on disk when this returns."""
    return drive(_StoreDriver(store), flow)


class _StoreDriver(Driver):
    """A store, where each statement is one transaction."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    @property
    def dialect(self) -> Dialect:
        return self._store.dialect

    def perform(self, operation: Operation) -> Sequence[Row]:
        assert isinstance(operation, Statement), "a store has no savepoints"
        return self._store.run(operation)


def _meant(error: Exception, key: str, table: str) -> BaseException:
    found = raised_for(error, Identity("", key), table)
    return TableMissing(table, ADVICE) if isinstance(found, TableMissing) else found


def _cause(error: Exception) -> BaseException | None:
    return error.__cause__ if isinstance(error, OnceError) else error


class OutboxTable(PostgresStore):
    """The table of an outbox in a database of PostgreSQL, which `semel outbox init URL` has made."""

    def run(self, statement: Statement) -> Sequence[Row]:
        """Carry out one statement."""
        try:
            return super().run(statement)
        except TableMissing as error:
            raise TableMissing(error.table, ADVICE) from error.__cause__


def outbox_store(place: str, table: str, clock: Clock) -> TableStore:
    """The store of an outbox: a file, which is made for its owner alone, or a URL that begins with postgresql://."""
    if "://" in place:
        if place.partition("://")[0] in ("postgresql", "postgres"):
            return OutboxTable(place, table, clock, schema=ddl)
        scheme = place.partition("://")[0]
        raise InvalidKey(f"An outbox is a path or a URL that begins with postgresql://, and not {scheme}://.")
    if place != ":memory:" and not place.startswith("file:"):
        with suppress(OSError):  # SQLite says what is wrong with the path
            os.close(os.open(place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return SqliteStore(place, table, clock, schema=ddl)
