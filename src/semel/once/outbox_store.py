"""Stores a message: in the caller's own transaction, or in one of the outbox's own store. Nothing is sent here.

| rows of `add` | found under the key | decision |
|---|---|---|
| one | - | posted |
| none | the same fingerprint | posted before: the same message |
| none | another fingerprint | `KeyMismatch` |
| none | none | `OutboxFull`, or `RunAgain` if it was removed meanwhile |

In the caller's transaction the message commits with it, or is undone with it: a crash before the commit leaves none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
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
from semel.once.identity import OnceIdentity
from semel.once.message_drafts import UNSAID, MessageDraft, message_of
from semel.once.message_table import MessageStatements, OutboxTime, ddl
from semel.once.messages import HeaderValue, OutboxMessage
from semel.once.rules import Flow, Operation, in_savepoint
from semel.once.stores import Clock, OncePostgresStore, OnceSqliteStore, TableStore
from semel.once.table import OnceDialect, Row, Statement
from semel.once.transaction import driver_of
from semel.once.units import Size, byte_count

ADVICE = "run `semel outbox init URL`, or add once.outbox_ddl() to your migrations"


class Posted(NamedTuple):
    """A message that is stored, or will be when the caller commits."""

    key: str
    fresh: bool
    """Whether this call stored it; False if it was posted before."""


def posted(statements: MessageStatements, message: OutboxMessage, now: OutboxTime, max_messages: int) -> Flow[Posted]:
    """Store a message, or find that it was posted before."""
    if (yield statements.add(message, now, max_messages)):
        return Posted(message.key, fresh=True)
    found = yield statements.fingerprint(message.key)
    if found:
        if bytes(found[0][0]) != message.fingerprint:
            raise KeyMismatch(message.key)
        return Posted(message.key, fresh=False)
    if int((yield statements.count())[0][0]) >= max_messages:
        raise OutboxFull(max_messages)
    raise RunAgain(message.key)


def post_using(connection: Any, flow: Flow[Posted], key: str, table: str) -> Posted:
    """Store a message in the open transaction of the caller's connection or session."""
    driver = driver_of(connection)
    if isinstance(driver, AsyncDriver):
        raise UnsupportedConnection("This connection is asynchronous: write `await box.post_async(...)`.")
    try:
        return drive(driver, in_savepoint(flow))
    except Exception as error:  # noqa: BLE001 - any driver's error
        raise _meant(error, key, table) from _cause(error)


async def post_using_async(connection: Any, flow: Flow[Posted], key: str, table: str) -> Posted:
    """`post_using` for an asynchronous connection or session."""
    driver = driver_of(connection)
    if isinstance(driver, Driver):
        raise UnsupportedConnection("This connection is synchronous: write `box.post(...)`, without await.")
    try:
        return await drive_async(driver, in_savepoint(flow))
    except Exception as error:  # noqa: BLE001 - any driver's error
        raise _meant(error, key, table) from _cause(error)


def post_to(store: TableStore, flow: Flow[Posted]) -> Posted:
    """Store a message in the outbox's own store. It is on disk when this returns."""
    return drive(_StoreDriver(store), flow)


class _StoreDriver(Driver):
    """Runs each statement as its own transaction in a store."""

    def __init__(self, store: TableStore) -> None:
        self._store = store

    @property
    def dialect(self) -> OnceDialect:
        return self._store.dialect

    def perform(self, operation: Operation) -> Sequence[Row]:
        assert isinstance(operation, Statement), "a store has no savepoints"
        return self._store.run(operation)


def _meant(error: Exception, key: str, table: str) -> BaseException:
    found = raised_for(error, OnceIdentity("", key), table)
    return TableMissing(table, ADVICE) if isinstance(found, TableMissing) else found


def _cause(error: Exception) -> BaseException | None:
    return error.__cause__ if isinstance(error, OnceError) else error


class OutboxTable(OncePostgresStore):
    """The table of an outbox in a PostgreSQL database, created by `semel outbox init URL`."""

    def run(self, statement: Statement) -> Sequence[Row]:
        """Run one statement."""
        try:
            return super().run(statement)
        except TableMissing as error:
            raise TableMissing(error.table, ADVICE) from error.__cause__


def outbox_store(place: str, table: str, clock: Clock) -> TableStore:
    """The store of an outbox: a file, created with access for its owner only, or a postgresql:// URL."""
    if "://" in place:
        if place.partition("://")[0] in ("postgresql", "postgres"):
            return OutboxTable(place, table, clock, schema=ddl)
        scheme = place.partition("://")[0]
        raise InvalidKey(f"An outbox is a file path or a postgresql:// URL, not {scheme}://.")
    if place != ":memory:" and not place.startswith("file:"):
        with suppress(OSError):  # SQLite raises the error for this path
            os.close(os.open(place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return OnceSqliteStore(place, table, clock, schema=ddl)


MAX_MESSAGES = 100_000
MAX_BODY: Size = "1MiB"


def now_by(clock: Clock, monotonic: Clock) -> Callable[[], OutboxTime]:
    """A function that reads the time by both clocks."""
    return lambda: OutboxTime(int(clock() * 1_000), int(monotonic() * 1_000))


class MessageWriter:
    """Turns arguments of `post` into the flow that stores them. It sends nothing."""

    def __init__(
        self,
        statements: MessageStatements,
        max_messages: int,
        max_body: Size,
        ids: Callable[[], str],
        now: Callable[[], OutboxTime],
    ) -> None:
        if max_messages < 1:
            raise InvalidKey("max_messages must be at least 1.")
        self.statements = statements
        self._max_messages = max_messages
        self._max_body = byte_count(max_body)
        self._ids = ids
        self._now = now

    def drafted(self, draft: MessageDraft) -> tuple[str, Flow[Posted]]:
        """The key of a message and the flow that stores it."""
        draft = draft if draft.key is not None else draft._replace(key=self._ids())
        message = message_of(draft, self._max_body)
        return message.key, posted(self.statements, message, self._now(), self._max_messages)


class TransactionOutbox:
    """Posts messages in the open transaction of one connection; another process delivers them."""

    def __init__(self, connection: Any, writer: MessageWriter) -> None:
        self._connection = connection
        self._writer = writer

    def post(
        self,
        url: str,
        *,
        json: Any = UNSAID,
        data: bytes | str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        method: str = "POST",
        key: object = None,
        order_by: object = None,
    ) -> Posted:
        """As `Outbox.post`: the message commits with the transaction."""
        key, flow = self._writer.drafted(MessageDraft(url, key, method, json, data, headers, order_by))
        return post_using(self._connection, flow, key, self._writer.statements.table)

    async def post_async(
        self,
        url: str,
        *,
        json: Any = UNSAID,
        data: bytes | str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        method: str = "POST",
        key: object = None,
        order_by: object = None,
    ) -> Posted:
        """`post` for an asynchronous connection or session."""
        key, flow = self._writer.drafted(MessageDraft(url, key, method, json, data, headers, order_by))
        return await post_using_async(self._connection, flow, key, self._writer.statements.table)
