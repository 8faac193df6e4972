"""Stores a message: in the caller's own transaction, or in one of the outbox's own store. Nothing is sent here.

| rows of `add` | found under the key | decision |
|---|---|---|
| one | - | posted |
| none | the same fingerprint | posted before: the same message |
| none | another fingerprint | `KeyMismatch` |
| none, no room was left | none | `OutboxFull` |
| none | none | `RunAgain`: it was removed meanwhile |

In the caller's transaction the message commits with it, or is undone with it: a crash before the commit leaves none.
Nothing is counted there. A count reads the rows of other keys, which the database would hold against the transaction.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from semel.kernel.shown_url import shown_scheme
from semel.once.clock import Clock, OnceClock
from semel.once.database import Database
from semel.once.drivers.base import AsyncDriver, Driver, Witness, drive, drive_async, raise_meant, raised_for
from semel.once.errors import (
    InvalidKey,
    KeyMismatch,
    OutboxFull,
    RunAgain,
    TableMissing,
    UnsupportedConnection,
)
from semel.once.identity import OnceIdentity
from semel.once.message_drafts import UNSAID, MessageDraft, message_of
from semel.once.message_table import COLUMNS, MessageStatements, OutboxTime, ddl
from semel.once.messages import HeaderValue, OutboxMessage
from semel.once.rules import Flow, Operation, in_savepoint
from semel.once.stores import database_at, refuse_keywords
from semel.once.table import OnceDialect, Row, Statement, TableForm, checked
from semel.once.transaction import driver_of
from semel.once.units import Size, byte_count

ADVICE = "run `semel outbox init URL`, or add once.outbox_ddl() to your migrations"


class Posted(NamedTuple):
    """A message that is stored, or will be when the caller commits."""

    key: str
    fresh: bool
    """Whether this call stored it; False if it was posted before."""


class Room:
    """Holds `max_messages` in one process without a count for each post.

    A count allows as many posts as there was room for, and is repeated when they are used up or after `LOOK_SECONDS`,
    because other processes post too. A count visits the whole backlog, so one that has found no room is repeated after
    `FULL_LOOK_SECONDS`; what this process delivers or drops meanwhile makes room at once.
    """

    def __init__(self, max_messages: int, count: Callable[[int], int], monotonic: Clock) -> None:
        self.max_messages = max_messages
        self._count = count
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._left = 0
        self.counted = 0
        """How often it was counted."""
        self._look_at = self._full_until = monotonic()

    def take(self) -> bool:
        """Take room for one message. Returns False if there is none."""
        with self._lock:
            now = self._monotonic()
            if now >= self._look_at or (self._left <= 0 and now >= self._full_until):
                # Other processes may have posted more than there was room for.
                self._left = self.max_messages - self._count(2 * self.max_messages)
                self.counted += 1
                self._look_at = now + LOOK_SECONDS
                self._full_until = now if self._left > 0 else now + FULL_LOOK_SECONDS
            if self._left <= 0:
                return False
            self._left -= 1
            return True

    def give_back(self) -> None:
        """Give back the room of a message that was posted before."""
        with self._lock:
            self._left += 1

    def free(self, counted: int) -> None:
        """Give back the room of a message that left, unless a count since `counted` may have seen that it is gone."""
        with self._lock:
            self._left += counted == self.counted


def posted(
    statements: MessageStatements, message: OutboxMessage, now: OutboxTime, room: Room | None = None
) -> Flow[Posted]:
    """Store a message, or find that it was posted before. Without a room it is part of the caller's transaction."""
    has_room, is_within = room is None or room.take(), room is None
    if has_room:
        if (yield statements.add(message, now, is_within=is_within)):
            return Posted(message.key, fresh=True)
        if room is not None:
            room.give_back()
    found = yield statements.fingerprint(message.key, is_within=is_within)
    if found:
        if bytes(found[0][0]) != message.fingerprint:
            raise KeyMismatch(message.key)
        return Posted(message.key, fresh=False)
    if room is not None and not has_room:
        raise OutboxFull(room.max_messages)
    raise RunAgain(message.key)


def _is_fresh(found: Posted) -> bool:
    """Whether the savepoint has something to keep; a lock on a known message would stop its dispatcher till the end."""
    return found.fresh


def post_using(connection: Any, flow: Flow[Posted], key: str, table: str) -> Posted:
    """Store a message in the open transaction of the caller's connection or session."""
    driver = driver_of(connection)
    if isinstance(driver, AsyncDriver):
        raise UnsupportedConnection("This connection is asynchronous: write `await box.post_async(...)`.")
    try:
        return drive(driver, in_savepoint(flow, _is_fresh))
    except Exception as error:  # noqa: BLE001 - any driver's error
        raise_meant(error, _meant(error, key, table))


async def post_using_async(connection: Any, flow: Flow[Posted], key: str, table: str) -> Posted:
    """`post_using` for an asynchronous connection or session."""
    driver = driver_of(connection)
    if isinstance(driver, Driver):
        raise UnsupportedConnection("This connection is synchronous: write `box.post(...)`, without await.")
    try:
        return await drive_async(driver, in_savepoint(flow, _is_fresh))
    except Exception as error:  # noqa: BLE001 - any driver's error
        raise_meant(error, _meant(error, key, table))


def post_to(store: Database, flow: Flow[Posted]) -> Posted:
    """Store a message in the outbox's own store. It is on disk when this returns."""
    return drive(_StoreDriver(store), flow)


class _StoreDriver(Driver):
    """Runs each statement as its own transaction in a store."""

    def __init__(self, store: Database) -> None:
        self._store = store

    @property
    def dialect(self) -> OnceDialect:
        return self._store.dialect

    def is_open(self) -> bool:
        return False  # each statement is its own transaction

    def witness(self, table: str) -> Witness:
        raise NotImplementedError("an outbox has no blocks")

    def is_over(self) -> bool:
        return True  # each statement is its own transaction

    def perform(self, operation: Operation) -> Sequence[Row]:
        assert isinstance(operation, Statement), "a store has no savepoints"
        return self._store.run(operation)


def _meant(error: Exception, key: str, table: str) -> BaseException:
    found = raised_for(error, OnceIdentity("", key), table)
    return TableMissing(table, ADVICE) if isinstance(found, TableMissing) else found


def outbox_store(given: object, table: str) -> Database:
    """The database of an outbox: a file, created with access for its owner only, or a postgresql:// URL."""
    if not isinstance(given, str | os.PathLike):
        raise UnsupportedConnection(
            "Pass the path of a SQLite file or a postgresql:// URL; Outbox.in_transaction takes your connection or "
            f"session, and this is a {type(given).__module__}.{type(given).__qualname__}."
        )
    place = os.fspath(given)
    scheme, has_scheme, _ = place.partition("://")
    refuse_keywords(place)
    if has_scheme and scheme not in ("postgresql", "postgres"):
        raise InvalidKey(f"An outbox is a file path or a postgresql:// URL, not {shown_scheme(place)}://.")
    if not has_scheme and place != ":memory:" and not place.startswith("file:"):
        with suppress(OSError):  # SQLite raises the error for this path
            # Only a new file is opened here: closing it would drop the locks that SQLite holds for this process.
            os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return database_at(place, TableForm(checked(table), COLUMNS, ddl, ADVICE))


MAX_MESSAGES = 100_000
MAX_BODY: Size = "1MiB"
LOOK_SECONDS = 10.0
"""Time after which a process counts again, for what other processes have posted."""
FULL_LOOK_SECONDS = 1.0
"""Time after which a process counts a full outbox again, for what other processes have delivered."""


def now_by(clock: Clock, monotonic: Clock) -> Callable[[], OutboxTime]:
    """A function that reads the time by both clocks."""
    steady = OnceClock(clock, monotonic)
    return lambda: OutboxTime(int(clock() * 1_000), int(monotonic() * 1_000), steady.now_ms())


class MessageWriter:
    """Turns arguments of `post` into the flow that stores them. It sends nothing."""

    def __init__(
        self,
        statements: MessageStatements,
        max_body: Size,
        ids: Callable[[], str],
        now: Callable[[], OutboxTime],
    ) -> None:
        self.statements = statements
        self._max_body = byte_count(max_body)
        self._ids = ids
        self._now = now

    def drafted(self, draft: MessageDraft, room: Room | None = None) -> tuple[str, Flow[Posted]]:
        """The key of a message and the flow that stores it; without a room it runs in the caller's transaction."""
        draft = draft if draft.key is not UNSAID else draft._replace(key=self._ids())
        message = message_of(draft, self._max_body)
        return message.key, posted(self.statements, message, self._now(), room)


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
        key: object = UNSAID,
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
        key: object = UNSAID,
        order_by: object = None,
    ) -> Posted:
        """`post` for an asynchronous connection or session."""
        key, flow = self._writer.drafted(MessageDraft(url, key, method, json, data, headers, order_by))
        return await post_using_async(self._connection, flow, key, self._writer.statements.table)
