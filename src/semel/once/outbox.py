"""`Outbox`: requests to other services that are stored first, then sent with one key until they are answered.

    box = Outbox("outbox.db")
    box.post("https://pay.example/charges", json={"amount": 5}, key="charge-7", order_by="customer-7")
    await box.flush(timeout=10)

A message is durable before `post` returns; with `using=session` it commits with the caller's own data. It is delivered
at least once, always with the same bytes and the same `Idempotency-Key`: a service that honours the key acts once.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from semel.once.clock import Clock
from semel.once.database import Database, wait_for
from semel.once.dispatcher import Dispatcher, DispatchOptions, Flushed, Transport
from semel.once.errors import InvalidKey
from semel.once.forks import PerProcess, take_part
from semel.once.identity import text_of_id
from semel.once.message_drafts import UNSAID, MessageDraft
from semel.once.message_table import TABLE, MessageStatements, status_of
from semel.once.messages import (
    LONGEST_WAIT_SECONDS,
    MAX_ATTEMPTS,
    Delivery,
    HeaderValue,
    MessageState,
    MessageStatus,
    OutboxMessage,
    RetryWaits,
)
from semel.once.outbox_store import (
    MAX_BODY,
    MAX_MESSAGES,
    MessageWriter,
    Posted,
    Room,
    TransactionOutbox,
    now_by,
    outbox_store,
    post_to,
    post_using,
    post_using_async,
)
from semel.once.table import PATIENCE_SECONDS
from semel.once.units import Duration, Size, lasting, milliseconds, seconds

if TYPE_CHECKING:
    import ssl

PAGE_MESSAGES = 500


class Outbox:
    """An outbox in a SQLite file, or in a table of the caller's PostgreSQL.

    `keep` is how long the key of a delivered message is remembered; `max_messages` limits undelivered messages, but not
    posts in the caller's transactions. `timeout` limits one whole attempt and must be shorter than `lease`, during
    which no other dispatcher sends the message. A message that surely never arrived is tried for `give_up_after`; one
    that may have arrived is repeated only while the receiver keeps its key: for `keys_kept`, less an hour. `secret`
    returns the value that an `EnvSecret` names. Clocks, ids and randomness are for tests.
    """

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        table: str = TABLE,
        keep: Duration = "7d",
        max_messages: int = MAX_MESSAGES,
        max_body: Size = MAX_BODY,
        concurrency: int = 8,
        connect_timeout: Duration = "10s",
        timeout: Duration = "30s",
        lease: Duration = "60s",
        max_attempts: int = MAX_ATTEMPTS,
        give_up_after: Duration = "3d",
        keys_kept: Duration = "24h",
        longest_wait: Duration = LONGEST_WAIT_SECONDS,
        longest_retry_after: Duration = "1h",
        secret: Callable[[str], str | None] = os.environ.get,
        tls: ssl.SSLContext | None = None,
        transport: Transport | None = None,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
        ids: Callable[[], str] = lambda: str(uuid.uuid4()),
        chance: random.Random | None = None,
    ) -> None:
        if seconds(lease) <= seconds(timeout) or min(concurrency, max_attempts, max_messages) < 1:
            raise InvalidKey(
                "lease must be longer than timeout, and concurrency, max_attempts and max_messages at least 1."
            )
        self.store: Database = outbox_store(place, table)
        self._statements = MessageStatements(table, self.store.dialect)
        self._room = PerProcess(lambda: Room(max_messages, self._open_messages, monotonic))
        self._lock = PerProcess(threading.Lock)
        self._dispatchers: set[Dispatcher] = set()
        take_part(self)
        self._now = now_by(clock, monotonic)
        self._writer = MessageWriter(self._statements, max_body, ids, self._now)
        self._route = DispatchOptions(
            store=self.store,
            statements=self._statements,
            transport=transport or _http_transport(seconds(connect_timeout), secret, clock, tls),
            now=self._now,
            ids=lambda: uuid.uuid4().hex,
            chance=chance or random.SystemRandom(),
            waits=RetryWaits(
                max_attempts,
                seconds(longest_wait),
                seconds(longest_retry_after),
                seconds(give_up_after),
                seconds(keys_kept),
            ),
            concurrency=concurrency,
            timeout_seconds=seconds(timeout),
            lease_ms=milliseconds(lease),
            keep_ms=lasting("keep", keep),
            room=self._room,
        )

    @classmethod
    def in_transaction(
        cls,
        connection: Any,
        *,
        table: str = TABLE,
        max_body: Size = MAX_BODY,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
        ids: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> TransactionOutbox:
        """An outbox that posts in the open transaction of a connection or session, and opens no store."""
        writer = MessageWriter(MessageStatements(table), max_body, ids, now_by(clock, monotonic))
        return TransactionOutbox(connection, writer)

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
        using: Any = None,
    ) -> Posted:
        """Store a request to send. It is on disk when this returns, or commits with the transaction of `using`.

        A second post with the same key, method, URL, content type and body is the same message; if one of them
        differs, it raises `KeyMismatch`. Messages with the same `order_by` are sent one at a time, in order.
        """
        draft = MessageDraft(url, key, method, json, data, headers, order_by)
        if using is not None:
            key, flow = self._writer.drafted(draft)
            return post_using(using, flow, key, self._statements.table)
        found = post_to(self.store, self._writer.drafted(draft, self._room())[1])
        self._wake()
        return found

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
        using: Any = None,
    ) -> Posted:
        """`post` for an asynchronous connection or session. Without one, a thread writes to the store."""
        draft = MessageDraft(url, key, method, json, data, headers, order_by)
        if using is not None:
            key, flow = self._writer.drafted(draft)
            return await post_using_async(using, flow, key, self._statements.table)
        _, flow = self._writer.drafted(draft, self._room())
        found = await wait_for(self.store.submit(lambda: post_to(self.store, flow)), PATIENCE_SECONDS)
        self._wake()
        return found

    async def flush(self, timeout: Duration = "10s") -> Flushed:  # noqa: ASYNC109 - attempts continue after it
        """Send until no message can be sent, or until the timeout. Attempts that are under way then continue.

        Messages that wait because the receiver was unreachable are tried at once.
        """
        dispatcher = self._dispatcher()
        try:
            return await asyncio.to_thread(dispatcher.deliver, seconds(timeout), until_empty=True)
        finally:
            dispatcher.stop()

    def flush_sync(self, timeout: Duration = "10s") -> Flushed:
        """`flush` in this thread."""
        return self._dispatcher().deliver(seconds(timeout), until_empty=True)

    def run(self) -> Flushed:
        """Send messages until `stop` is called from another thread."""
        dispatcher = self._dispatcher()
        try:
            return dispatcher.deliver(until_empty=False)
        finally:
            self._end(dispatcher)

    def stop(self) -> None:
        """End every `run` and `flush` of this outbox after the attempts that are under way."""
        for dispatcher in list(self._dispatchers):
            dispatcher.stop()

    def close(self) -> None:
        """Stop, wait for attempts that are under way, and close the store."""
        self.stop()
        for dispatcher in list(self._dispatchers):
            self._end(dispatcher)
        self.store.close()

    def state(self, key: object) -> MessageState | None:
        """The state of a message; None if there is none, it was dropped, or delivered longer than `keep` ago."""
        found = self.status(key)
        return None if found is None else found.state

    def status(self, key: object) -> MessageStatus | None:
        """The status of a message; None as for `state`."""
        rows = self.store.run(self._statements.show(text_of_id("key", key), self._now()))
        return status_of(rows[0]) if rows else None

    def messages(self, state: MessageState | str | None = None) -> Iterator[MessageStatus]:
        """All messages, or those in one state, in the order of `post`."""
        wanted = None if state is None else MessageState(state)
        after = 0
        while True:
            rows = self.store.run(self._statements.page(wanted, after, PAGE_MESSAGES, self._now()))
            for row in rows:
                found = status_of(row)
                if wanted is None or found.state is wanted:
                    yield found
            if len(rows) < PAGE_MESSAGES:
                return
            after = int(rows[-1][0])

    def retry(self, key: object) -> bool:
        """Make a message due now, also one that was set aside. Returns False if it is done, being sent or not there.

        Of an unknown message you say by this that it has not arrived, or that it may arrive twice.
        """
        is_found = bool(self.store.run(self._statements.retry(text_of_id("key", key), self._now())))
        self._wake()
        return is_found

    def drop(self, key: object) -> bool:
        """Delete an undelivered message. Returns False if it is done, being sent or not there."""
        room = self._room()
        counted = room.counted
        found = self.store.run(self._statements.drop(text_of_id("key", key), self._now()))
        for number, order_by in found:
            if order_by is not None:
                self.store.run(self._statements.release(order_by, number, self._now()))
            room.free(counted)
        self._wake()
        return bool(found)

    def _dispatcher(self) -> Dispatcher:
        dispatcher = Dispatcher(self._route)
        with self._lock():
            self._dispatchers = {one for one in self._dispatchers if not one.is_idle} | {dispatcher}
        return dispatcher

    def _end(self, dispatcher: Dispatcher) -> None:
        dispatcher.join()
        with self._lock():
            self._dispatchers.discard(dispatcher)

    def _open_messages(self, limit: int) -> int:
        return int(self.store.run(self._statements.count(limit))[0][0])

    def before_fork(self) -> None:
        """Begin no dispatcher."""
        self._lock().acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._lock().release()

    def after_fork_in_child(self) -> None:
        """Go on without the dispatchers of the parent, whose threads are not here."""
        self._dispatchers = set()

    def _wake(self) -> None:
        for dispatcher in list(self._dispatchers):
            dispatcher.wake()


def _http_transport(
    connect_seconds: float, secret: Callable[[str], str | None], clock: Clock, tls: ssl.SSLContext | None
) -> Transport:
    """Delivery over HTTP; `http.client` is imported with the first message."""

    def transport(message: OutboxMessage, deadline: float) -> Delivery:
        from semel.once.delivery import Sending, delivered  # noqa: PLC0415 - importing once must not load http.client

        return delivered(message, deadline, Sending(connect_seconds, secret, clock, tls))

    return transport
