"""The table of an outbox's messages, on PostgreSQL and SQLite, and every statement on it.

| column | holds |
|---|---|
| `number` | the order of the messages |
| `key`, `fingerprint` | the message's key, and SHA-256 of method, URL, content type and body |
| `method`, `url`, `headers`, `body` | the request; headers and body are emptied when it is done |
| `order_by` | messages with the same text are sent one after the other |
| `state` | `queued`, `done`, `poison` |
| `owner`, `next_at`, `wait_ms` | who sends it; when it may be tried next, or the lease ends; how long that wait was |
| `attempts`, `refusals` | tries that were begun, and those of them that the receiver has seen |
| `status`, `error` | the last answer |
| `created_at`, `done_at` | milliseconds since 1970 |

`next_at` counts only while it is at most `wait_ms` and a minute away, so a clock that begins anew or is set back makes
no message wait longer than that. On PostgreSQL all times are those of the server. In a file `next_at` is by the
monotonic clock, which all processes of a machine share: a system clock that jumps neither ends a lease nor extends one.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from semel.once.messages import (
    Delivery,
    EnvSecret,
    HeaderValue,
    LeasedMessage,
    MessageFate,
    MessageState,
    MessageStatus,
    OutboxMessage,
    shown_url,
)
from semel.once.table import OnceDialect, OnceInstant, Row, Statement, checked

TABLE = "semel_outbox"
ERROR_CHARACTERS = 300
SLACK_MS = 60_000
"""How far the time of one dispatcher may lag behind that of another: it reads the clock, and may then wait for the
database before its statement runs."""


class OutboxTime(NamedTuple):
    """The time by the wall clock and by the monotonic clock, in milliseconds."""

    wall_ms: int
    monotonic_ms: int


class Outlook(NamedTuple):
    """The messages that can be sent without an operator."""

    left: int
    """Queued messages that no older message of the same `order_by` blocks."""
    leased: int
    soonest_seconds: float


def ddl(dialect: str = "postgresql", table: str = TABLE) -> str:
    """SQL that creates the table of an outbox, for your own migrations. It may be run again."""
    name, is_postgres = checked(table), OnceDialect(dialect) is OnceDialect.POSTGRESQL
    number = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY" if is_postgres else "integer PRIMARY KEY"
    binary, big = ("bytea", "bigint") if is_postgres else ("blob", "integer")
    index = name.replace(".", "_")
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (\n"
        f"  number {number},\n"
        "  key text NOT NULL UNIQUE,\n"
        f"  fingerprint {binary} NOT NULL,\n"
        "  method text NOT NULL,\n"
        "  url text NOT NULL,\n"
        "  headers text NOT NULL,\n"
        f"  body {binary} NOT NULL,\n"
        "  order_by text,\n"
        "  state text NOT NULL DEFAULT 'queued',\n"
        "  owner text,\n"
        f"  next_at {big} NOT NULL,\n"
        f"  wait_ms {big} NOT NULL DEFAULT 0,\n"
        "  attempts integer NOT NULL DEFAULT 0,\n"
        "  refusals integer NOT NULL DEFAULT 0,\n"
        "  status integer,\n"
        "  error text,\n"
        f"  created_at {big} NOT NULL,\n"
        f"  done_at {big}\n"
        ");\n"
        f"CREATE INDEX IF NOT EXISTS {index}_open ON {name} (number) WHERE state <> 'done';\n"
        f"CREATE INDEX IF NOT EXISTS {index}_order ON {name} (order_by, number) WHERE state <> 'done';\n"
        f"CREATE INDEX IF NOT EXISTS {index}_done ON {name} (done_at) WHERE state = 'done';\n"
    )


class MessageStatements:
    """The statements on one table. Each is its own transaction, unless it runs in the caller's."""

    def __init__(self, table: str = TABLE, dialect: OnceDialect = OnceDialect.SQLITE) -> None:
        name = self.table = checked(table)
        self._count = f"SELECT count(*) FROM {name} WHERE state <> 'done'"
        self._add = (
            f"INSERT INTO {name} (key, fingerprint, method, url, headers, body, order_by, created_at, next_at) "
            f"SELECT ?, ?, ?, ?, ?, ?, ?, ?, ? WHERE ({self._count}) < ? ON CONFLICT (key) DO NOTHING RETURNING number"
        )
        self._fingerprint = f"SELECT fingerprint FROM {name} WHERE key = ?"
        is_due = f"t.state = 'queued' AND (t.next_at <= ? OR t.next_at > ? + t.wait_ms + {SLACK_MS})"
        is_first = (
            f"NOT EXISTS (SELECT 1 FROM {name} AS o WHERE o.order_by = t.order_by AND o.number < t.number "
            "AND o.state <> 'done')"
        )
        lock = " FOR UPDATE OF t SKIP LOCKED" if dialect is OnceDialect.POSTGRESQL else ""
        # PostgreSQL evaluates the outer condition again if another dispatcher leased the row first.
        self._lease = (
            f"UPDATE {name} AS t SET owner = ?, attempts = t.attempts + 1, next_at = ?, wait_ms = ? WHERE t.number IN ("
            f"SELECT t.number FROM {name} AS t WHERE {is_due} AND {is_first} ORDER BY t.number LIMIT ?{lock}) "
            f"AND {is_due} RETURNING number, key, method, url, headers, body, fingerprint, order_by, attempts, refusals"
        )
        is_own = "WHERE number = ? AND owner = ? AND state = 'queued' RETURNING number"
        self._note = (
            f"UPDATE {name} SET owner = NULL, state = ?, refusals = ?, status = ?, error = ?, next_at = ?, wait_ms = ? "
            f"{is_own}"
        )
        self._done = (
            f"UPDATE {name} SET owner = NULL, state = 'done', headers = '{{}}', body = ?, status = ?, error = NULL, "
            f"done_at = ? {is_own}"
        )
        self._sweep = (
            f"DELETE FROM {name} WHERE number IN (SELECT number FROM {name} WHERE state = 'done' AND done_at <= ? "
            f"ORDER BY done_at LIMIT ?{lock.replace(' OF t', '')}) RETURNING number"
        )
        self._outlook = (
            "SELECT count(*), count(t.owner), "
            f"min(CASE WHEN t.next_at > ? + t.wait_ms + {SLACK_MS} THEN 0 ELSE t.next_at - ? END) "
            f"FROM {name} AS t WHERE t.state = 'queued' AND {is_first}"
        )
        self._show = (
            "SELECT number, key, state, owner, method, url, order_by, attempts, status, error, "
            f"CASE WHEN next_at > ? + wait_ms + {SLACK_MS} THEN 0 ELSE next_at - ? END FROM {name} "
        )
        is_free = f"(owner IS NULL OR next_at <= ? OR next_at > ? + wait_ms + {SLACK_MS})"
        self._hurry = (
            f"UPDATE {name} SET next_at = ?, wait_ms = 0 WHERE state = 'queued' AND owner IS NULL AND status IS NULL "
            "AND next_at > ? RETURNING number"
        )
        self._retry = (
            f"UPDATE {name} SET state = 'queued', refusals = 0, owner = NULL, next_at = ?, wait_ms = 0 "
            f"WHERE key = ? AND state <> 'done' AND {is_free} RETURNING number"
        )
        self._drop = f"DELETE FROM {name} WHERE key = ? AND state <> 'done' AND {is_free} RETURNING number"

    def add(self, message: OutboxMessage, now: OutboxTime, max_messages: int) -> Statement:
        """Store a message. Returns no row if the key is known or the outbox is full."""
        headers = _headers_text(message)
        facts = (message.key, message.fingerprint, message.method, message.url, headers, message.body, message.order_by)
        times = (OnceInstant(now.wall_ms), OnceInstant(now.monotonic_ms))
        return Statement(self._add, (*facts, *times, max_messages))

    def fingerprint(self, key: str) -> Statement:
        """The fingerprint that is stored under a key."""
        return Statement(self._fingerprint, (key,))

    def count(self) -> Statement:
        """The number of messages that are not done."""
        return Statement(self._count)

    def lease(self, owner: str, lease_ms: int, limit: int, now: OutboxTime) -> Statement:
        """Lease messages that may be sent now, oldest first; of each `order_by` only the oldest that is not done.

        After a crash they stay leased, and any dispatcher leases them again when the lease has ended.
        """
        time = OnceInstant(now.monotonic_ms)
        ends = OnceInstant(now.monotonic_ms, lease_ms)
        return Statement(self._lease, (owner, ends, lease_ms, time, time, limit, time, time))

    def note(self, leased: LeasedMessage, fate: MessageFate, delivery: Delivery, now: OutboxTime) -> Statement:
        """Record the result of an attempt. Returns one row if this dispatcher still holds the lease."""
        if fate.state is MessageState.DONE:
            return Statement(self._done, (b"", delivery.status, OnceInstant(now.wall_ms), leased.number, leased.owner))
        wait_ms = round(fate.wait_seconds * 1_000)
        error = None if delivery.error is None else delivery.error[:ERROR_CHARACTERS]
        facts = (
            fate.state.value,
            fate.refusals,
            delivery.status,
            error,
            OnceInstant(now.monotonic_ms, wait_ms),
            wait_ms,
        )
        return Statement(self._note, (*facts, leased.number, leased.owner))

    def sweep(self, keep_ms: int, limit: int, now: OutboxTime) -> Statement:
        """Delete at most `limit` messages that were delivered longer than `keep_ms` ago."""
        return Statement(self._sweep, (OnceInstant(now.wall_ms, -keep_ms), limit))

    def outlook(self, now: OutboxTime) -> Statement:
        """Count the messages that can still be sent."""
        time = OnceInstant(now.monotonic_ms)
        return Statement(self._outlook, (time, time))

    def show(self, key: str, now: OutboxTime) -> Statement:
        """Read one message."""
        time = OnceInstant(now.monotonic_ms)
        return Statement(f"{self._show}WHERE key = ?", (time, time, key))

    def page(self, state: MessageState | None, after: int, limit: int, now: OutboxTime) -> Statement:
        """Read one page of messages after a number, in order."""
        time = OnceInstant(now.monotonic_ms)
        stored = MessageState.QUEUED if state is MessageState.SENT else state
        where, values = ("", ()) if stored is None else ("state = ? AND ", (stored.value,))
        return Statement(
            f"{self._show}WHERE {where}number > ? ORDER BY number LIMIT ?", (time, time, *values, after, limit)
        )

    def hurry(self, now: OutboxTime) -> Statement:
        """Make messages due now that wait because the receiver was unreachable."""
        time = OnceInstant(now.monotonic_ms)
        return Statement(self._hurry, (time, time))

    def retry(self, key: str, now: OutboxTime) -> Statement:
        """Make a message due now and reset its refusals. Returns one row unless it is done or being sent."""
        time = OnceInstant(now.monotonic_ms)
        return Statement(self._retry, (time, key, time, time))

    def drop(self, key: str, now: OutboxTime) -> Statement:
        """Delete a message. Returns one row unless it is done or being sent."""
        time = OnceInstant(now.monotonic_ms)
        return Statement(self._drop, (key, time, time))


def leased_of(row: Row, owner: str, deadline: float) -> LeasedMessage:
    """The leased message of a row."""
    number, key, method, url, headers, body, print_, order_by, attempts, refusals = row
    message = OutboxMessage(key, method, url, _headers_of(headers), bytes(body), bytes(print_), order_by)
    return LeasedMessage(int(number), owner, message, int(attempts), int(refusals), deadline)


def status_of(row: Row) -> MessageStatus:
    """The status of a message, from its row."""
    number, key, stored, owner, method, url, order_by, attempts, status, error, wait_ms = row
    wait = max(0.0, int(wait_ms) / 1_000) if stored == MessageState.QUEUED else 0.0
    state = MessageState.SENT if owner is not None and wait > 0 else MessageState(stored)
    return MessageStatus(key, state, method, shown_url(url), order_by, int(attempts), status, error, wait, int(number))


def outlook_of(row: Row) -> Outlook:
    """The counts of a row."""
    left, leased, soonest_ms = row
    return Outlook(int(left), int(leased), max(0.0, int(soonest_ms or 0) / 1_000))


def _headers_text(message: OutboxMessage) -> str:
    """Headers as JSON. A secret is stored as the name of its environment variable."""
    return json.dumps(
        {name: list(value) if isinstance(value, EnvSecret) else value for name, value in message.headers.items()}
    )


def _headers_of(text: str) -> dict[str, HeaderValue]:
    found = json.loads(text)
    return {name: value if isinstance(value, str) else EnvSecret(*value) for name, value in found.items()}
