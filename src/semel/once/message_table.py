"""The table of an outbox's messages, on PostgreSQL and SQLite, and every statement on it.

| column | holds |
|---|---|
| `number` | the order of the messages |
| `key`, `fingerprint` | the message's key, and SHA-256 of method, URL, content type and body |
| `method`, `url`, `headers`, `body` | the request; headers and body are emptied when it is done |
| `order_by` | messages with the same text are sent one after the other |
| `state` | `queued`, `behind` (an older message of its `order_by` is not done), `done`, `poison`, `unknown` |
| `owner`, `next_at`, `wait_ms` | who sends it; when it may be tried next, or the lease ends; how long that wait was |
| `attempts`, `refusals` | tries that were begun, and those of them that were refused |
| `begun_at` | when the attempt began whose result is not recorded; written with its lease, before anything is sent |
| `arrived_at` | when the first attempt began that may have taken effect |
| `status`, `error` | the last answer |
| `created_at`, `retried_at`, `done_at` | when it was posted, retried by an operator, done: milliseconds since 1970 |

No statement of a dispatcher visits the whole backlog: it takes messages from the front of an index by time, at most
so many. Of a message that is due behind another one of its order it takes note, as `behind`, and looks at it again when
the other one leaves the order. That is written together with its delivery. A crash of who drops a message comes between
the two, so a message behind is also looked at after a while, which doubles each time.

`next_at` counts only while it is at most `wait_ms` and a minute away, so a clock that begins anew or is set back makes
no message wait longer than that. On PostgreSQL all times are those of the server. In a file `next_at` is by the
monotonic clock, which all processes of a machine share: a system clock that jumps neither ends a lease nor extends one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple

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
from semel.once.table import OnceDialect, OnceInstant, Row, Statement, checked, conflict_of, keep_conflict

TABLE = "semel_outbox"
MESSAGE = "semel.message"
"""The setting of a PostgreSQL transaction that holds the message which an `add` has met."""
BEHIND = "behind"
NO_HEADERS = "'{}'"
ERROR_CHARACTERS = 300
LOOK_AHEAD = 32
"""How many more messages a lease looks at than it may take."""
PARKED = 500
"""How many messages at once are noted as `behind`."""
HURRIED = 200
"""How many waiting messages a flush looks at, when nothing is due, to try those at once that were not answered."""
COUNTED = 10_000
"""As far as messages are counted for the result of a flush."""
FIRST_BEHIND_MS, LONGEST_BEHIND_MS = 600_000, 3_600_000
PLAN = "".join(f"SET LOCAL enable_{way} = off; " for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort"))
"""Before a statement on PostgreSQL: it takes the first rows of an index. The planner knows the number of messages of a
state from the last ANALYZE, and without this it sorts a backlog that has come since then, at every look.

For the same reason a condition on `state` that is only looked at again has `|| ''`, and `number + 0` stands where the
primary key is not to be used.
"""
SLACK_MS = 60_000
"""How far the time of one dispatcher may lag behind that of another: it reads the clock, and may then wait for the
database before its statement runs."""


class OutboxTime(NamedTuple):
    """The time by the wall clock and by the monotonic clock, in milliseconds."""

    wall_ms: int
    monotonic_ms: int
    expiry_ms: int
    """The wall clock, without a jump that it has not kept for ten minutes."""


class Outlook(NamedTuple):
    """What comes next."""

    has_queued: bool
    """Whether there is a message that can be sent without an operator."""
    leased: int
    soonest_seconds: float
    """Seconds until the next attempt, or until a lease ends."""


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
        f"  begun_at {big},\n"
        f"  arrived_at {big},\n"
        "  status integer,\n"
        "  error text,\n"
        f"  created_at {big} NOT NULL,\n"
        f"  retried_at {big},\n"
        f"  done_at {big}\n"
        ");\n"
        f"CREATE INDEX IF NOT EXISTS {index}_due ON {name} (state, next_at, number) WHERE state <> 'done';\n"
        f"CREATE INDEX IF NOT EXISTS {index}_set ON {name} (state, (next_at - wait_ms)) WHERE state <> 'done';\n"
        f"CREATE INDEX IF NOT EXISTS {index}_leased ON {name} (number) WHERE owner IS NOT NULL;\n"
        f"CREATE INDEX IF NOT EXISTS {index}_order ON {name} (order_by, number) WHERE state <> 'done';\n"
        f"CREATE INDEX IF NOT EXISTS {index}_done ON {name} (done_at) WHERE state = 'done';\n"
    )


COLUMNS = frozenset(re.findall(r"^  ([a-z_]+) ", ddl("sqlite"), re.MULTILINE))
"""The columns of this form of the table."""


class MessageStatements:
    """The statements on one table. Each is its own transaction, unless it runs in the caller's."""

    def __init__(self, table: str = TABLE, dialect: OnceDialect = OnceDialect.SQLITE) -> None:
        name = self.table = checked(table)
        self._plan = PLAN if dialect is OnceDialect.POSTGRESQL else ""
        self._count = f"SELECT count(*) FROM (SELECT 1 FROM {name} WHERE state <> 'done' LIMIT ?) AS open"
        insert = (
            f"INSERT INTO {name} AS t (key, fingerprint, method, url, headers, body, order_by, created_at, next_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO"
        )
        self._add = f"{insert} NOTHING RETURNING number"
        # As `Receipts.take`: a SELECT of one key would lock other keys against their transactions at SERIALIZABLE.
        kept = keep_conflict(MESSAGE, "t.key, encode(t.fingerprint, 'hex')")
        self._add_within = f"{insert} UPDATE SET key = t.key WHERE false{kept} RETURNING number"
        self._fingerprint = f"SELECT fingerprint FROM {name} WHERE key = ?"
        self._fingerprint_within = f"SELECT decode(met->>1, 'hex') FROM {conflict_of(MESSAGE)} WHERE met->>0 = ?"
        self._build_dispatch(name, is_postgres=dialect is OnceDialect.POSTGRESQL)
        self._build_records(name)
        skip = " FOR UPDATE SKIP LOCKED" if dialect is OnceDialect.POSTGRESQL else ""
        self._sweep = (
            f"DELETE FROM {name} WHERE number IN (SELECT number FROM {name} "
            f"WHERE state = 'done' AND done_at <= (SELECT ?) ORDER BY done_at LIMIT ?{skip}) RETURNING number"
        )
        self._show = (
            "SELECT number, key, state, owner, method, url, order_by, attempts, status, error, "
            f"CASE WHEN next_at - wait_ms > ? + {SLACK_MS} THEN 0 ELSE next_at - ? END FROM {name} "
        )
        is_free = f"(owner IS NULL OR next_at <= ? OR next_at - wait_ms > ? + {SLACK_MS})"
        self._retry = (
            f"UPDATE {name} SET state = 'queued', refusals = 0, owner = NULL, next_at = ?, wait_ms = 0, "
            "retried_at = ?, begun_at = NULL, arrived_at = CASE WHEN state = 'unknown' THEN NULL "
            f"ELSE coalesce(arrived_at, begun_at) END WHERE key = ? AND state <> 'done' AND {is_free} RETURNING number"
        )
        self._drop = f"DELETE FROM {name} WHERE key = ? AND state <> 'done' AND {is_free} RETURNING number, order_by"

    def _build_dispatch(self, name: str, *, is_postgres: bool) -> None:
        """The statements that find what can be sent."""
        # The time is a subquery because PostgreSQL uses no index for a comparison with its running clock.
        is_past, is_reset = "{0}.next_at <= (SELECT ?)", f"{{0}}.next_at - {{0}}.wait_ms > (SELECT ?) + {SLACK_MS}"
        is_due = f"t.state || '' IN ('queued', '{BEHIND}') AND ({is_past.format('t')} OR {is_reset.format('t')})"
        window = " UNION ALL ".join(
            f"SELECT number FROM (SELECT w.number FROM {name} AS w WHERE w.state = '{state}' AND w.state <> 'done' "
            f"AND {condition.format('w')} ORDER BY {order} LIMIT ?) AS window_{number}"
            for number, (state, condition, order) in enumerate(
                (state, condition, order)
                for state in ("queued", BEHIND)
                for condition, order in ((is_past, "w.next_at, w.number"), (is_reset, "w.next_at - w.wait_ms"))
            )
        )
        first = (
            f"(SELECT f.number FROM {name} AS f WHERE f.order_by = t.order_by AND f.state <> 'done' "
            "ORDER BY f.order_by, f.number LIMIT 1)"
        )
        lock = " FOR UPDATE OF t SKIP LOCKED" if is_postgres else ""
        # PostgreSQL evaluates the outer condition again if another dispatcher leased the row first.
        self._lease = (
            f"UPDATE {name} AS t SET owner = ?, state = 'queued', attempts = t.attempts + 1, next_at = ?, wait_ms = ?, "
            "arrived_at = coalesce(t.arrived_at, t.begun_at), begun_at = ? WHERE t.number IN ("
            f"SELECT t.number FROM {name} AS t WHERE t.number IN ({window}) "
            f"AND coalesce({first}, t.number) = t.number ORDER BY t.next_at, t.number LIMIT ?{lock}) AND {is_due} "
            "RETURNING number, key, method, url, headers, body, fingerprint, order_by, attempts, refusals, error, "
            "? - coalesce(retried_at, created_at), ? - arrived_at"
        )
        # With a share lock on the older message: the next one is not noted as behind it while its end is recorded.
        shared = f"{lock} FOR SHARE OF o SKIP LOCKED" if is_postgres else ""
        wait = (
            f"(CASE WHEN t.state <> '{BEHIND}' THEN {FIRST_BEHIND_MS} WHEN t.wait_ms * 2 > {LONGEST_BEHIND_MS} "
            f"THEN {LONGEST_BEHIND_MS} ELSE t.wait_ms * 2 END)"
        )
        self._park = (
            f"UPDATE {name} AS t SET state = '{BEHIND}', next_at = ? + {wait}, wait_ms = {wait} WHERE t.number IN ("
            f"SELECT t.number FROM {name} AS t JOIN {name} AS o ON o.number = {first} WHERE t.number IN ({window}) "
            f"AND t.owner IS NULL AND o.number < t.number AND o.state || '' <> 'done'{shared}) AND {is_due} "
            "RETURNING number"
        )
        self._outlook = (
            f"SELECT (SELECT count(*) FROM {name} WHERE owner IS NOT NULL), "
            f"(SELECT w.next_at FROM {name} AS w WHERE w.state = 'queued' AND w.state <> 'done' "
            "ORDER BY w.next_at, w.number LIMIT 1) - ?, "
            f"(SELECT w.next_at - w.wait_ms FROM {name} AS w WHERE w.state = 'queued' AND w.state <> 'done' "
            "ORDER BY w.next_at - w.wait_ms DESC LIMIT 1) - ?"
        )
        self._left = (
            f"SELECT count(*) FROM (SELECT 1 FROM {name} WHERE state = 'queued' AND state <> 'done' LIMIT {COUNTED}) "
            "AS queued"
        )
        self._waiting = (
            f"SELECT number FROM (SELECT w.number, w.owner, w.status, w.next_at FROM {name} AS w "
            f"WHERE w.state = 'queued' AND w.state <> 'done' ORDER BY w.next_at - w.wait_ms LIMIT {HURRIED}) AS oldest "
            "WHERE owner IS NULL AND status IS NULL AND next_at > ?"
        )
        self._hurry = (
            f"UPDATE {name} SET next_at = ?, wait_ms = 0 WHERE number IN ({{}}) AND state || '' = 'queued' "
            "AND owner IS NULL RETURNING number"
        )

    def _build_records(self, name: str) -> None:
        """The statements that record what became of an attempt."""
        is_own = "t.number = ? AND t.owner = ?"
        self._note = (
            f"UPDATE {name} AS t SET owner = NULL, state = ?, attempts = ?, refusals = ?, status = CASE WHEN ? THEN ? "
            "ELSE t.status END, error = ?, arrived_at = CASE WHEN ? THEN coalesce(t.arrived_at, t.begun_at) "
            f"ELSE t.arrived_at END, begun_at = NULL, next_at = ?, wait_ms = ? WHERE {is_own} RETURNING true"
        )
        self._done = (
            f"UPDATE {name} AS t SET owner = NULL, begun_at = NULL, state = 'done', headers = {NO_HEADERS}, body = ?, "
            f"status = ?, error = NULL, done_at = ? WHERE {is_own} RETURNING true"
        )
        # The next one of the order has no owner. In one statement: a crash between two would leave it behind.
        own = "CASE WHEN t.owner IS NOT NULL THEN {} ELSE t.{} END"
        is_behind = f"t.owner IS NULL AND t.state = '{BEHIND}'"
        following = (
            f"t.number = (SELECT f.number FROM {name} AS f WHERE f.order_by = ? AND f.state <> 'done' "
            "AND f.number + 0 > ? ORDER BY f.order_by, f.number LIMIT 1)"
        )
        # On PostgreSQL the row is locked first: the next one is looked for when no other can be noted behind it.
        self._lock_own = f"SELECT 1 FROM {name} AS t WHERE {is_own} FOR UPDATE; "
        self._done_in_order = (
            f"UPDATE {name} AS t SET owner = NULL, begun_at = NULL, "
            f"state = CASE WHEN t.owner IS NOT NULL THEN 'done' WHEN {is_behind} THEN 'queued' ELSE t.state END, "
            f"headers = {own.format(NO_HEADERS, 'headers')}, body = {own.format('?', 'body')}, "
            f"status = {own.format('?', 'status')}, error = {own.format('NULL', 'error')}, "
            f"done_at = {own.format('?', 'done_at')}, next_at = CASE WHEN {is_behind} THEN ? ELSE t.next_at END, "
            f"wait_ms = CASE WHEN {is_behind} THEN 0 ELSE t.wait_ms END "
            f"WHERE ({is_own}) OR (t.owner IS NULL AND {following}) RETURNING state = 'done'"
        )
        self._release = (
            f"UPDATE {name} AS t SET state = 'queued', next_at = ?, wait_ms = 0 "
            f"WHERE t.state || '' = '{BEHIND}' AND {following} RETURNING number"
        )

    def _planned(self, sql: str, parameters: tuple[Any, ...]) -> Statement:
        """A statement of a dispatcher."""
        return Statement(self._plan + sql, parameters)

    def add(self, message: OutboxMessage, now: OutboxTime, *, is_within: bool) -> Statement:
        """Store a message, in the caller's transaction or in one of its own. Returns no row if the key is known."""
        headers = _headers_text(message)
        facts = (message.key, message.fingerprint, message.method, message.url, headers, message.body, message.order_by)
        values = (*facts, OnceInstant(now.wall_ms), OnceInstant(now.monotonic_ms))
        return Statement(self._add, values, self._add_within if is_within else "")

    def fingerprint(self, key: str, *, is_within: bool) -> Statement:
        """The fingerprint that is stored under a key; in the caller's transaction, behind an `add` of that key."""
        return Statement(self._fingerprint, (key,), self._fingerprint_within if is_within else "")

    def count(self, limit: int) -> Statement:
        """The number of messages that are not done, at most `limit`."""
        return Statement(self._count, (limit,))

    def lease(self, owner: str, lease_ms: int, limit: int, now: OutboxTime) -> Statement:
        """Lease messages that may be sent now, oldest first; of each `order_by` only the oldest that is not done.

        After a crash they stay leased, and any dispatcher leases them again when the lease has ended.
        """
        time, wall = OnceInstant(now.monotonic_ms), OnceInstant(now.wall_ms)
        facts = (owner, OnceInstant(now.monotonic_ms, lease_ms), lease_ms, wall)
        window = (time, limit + LOOK_AHEAD) * 4
        return self._planned(self._lease, (*facts, *window, limit, time, time, OnceInstant(now.expiry_ms), wall))

    def park(self, now: OutboxTime) -> Statement:
        """Note due messages as behind an older one of their order. Returns a row for each; none if none is left."""
        time = OnceInstant(now.monotonic_ms)
        return self._planned(self._park, (time, *((time, PARKED) * 4), time, time))

    def release(self, order_by: str, number: int, now: OutboxTime) -> Statement:
        """Look at the next message of an order, which a number has left."""
        return self._planned(self._release, (OnceInstant(now.monotonic_ms), order_by, number))

    def note(self, leased: LeasedMessage, fate: MessageFate, delivery: Delivery | None, now: OutboxTime) -> Statement:
        """Record the result of an attempt, or without a delivery that none is made.

        A row that is true says that this dispatcher still held the lease; the other one is the next of the order.
        """
        own = (leased.number, leased.owner)
        if fate.state is MessageState.DONE and delivery is not None:
            answer = (b"", delivery.status, OnceInstant(now.expiry_ms))
            if leased.message.order_by is None:
                return self._planned(self._done, (*answer, *own))
            order = (leased.message.order_by, leased.number)
            facts = (*answer, OnceInstant(now.monotonic_ms), *own, *order)
            if self._plan:
                return self._planned(self._lock_own + self._done_in_order, (*own, *facts))
            return self._planned(self._done_in_order, facts)
        wait_ms = round(fate.wait_seconds * 1_000)
        error = fate.reason if delivery is None else delivery.error
        result = (
            fate.state.value,
            leased.attempts if delivery is not None else leased.attempts - 1,
            fate.refusals,
            delivery is not None,
            None if delivery is None else delivery.status,
            None if error is None else error[:ERROR_CHARACTERS],
            fate.may_have_arrived,
            OnceInstant(now.monotonic_ms, wait_ms),
            wait_ms,
        )
        return self._planned(self._note, (*result, *own))

    def sweep(self, keep_ms: int, limit: int, now: OutboxTime) -> Statement:
        """Delete at most `limit` messages that were delivered longer than `keep_ms` ago."""
        return self._planned(self._sweep, (OnceInstant(now.expiry_ms, -keep_ms), limit))

    def outlook(self, now: OutboxTime) -> Statement:
        """When the next message is due, and how many are leased."""
        time = OnceInstant(now.monotonic_ms)
        return self._planned(self._outlook, (time, time))

    def left(self) -> Statement:
        """Count the messages that can still be sent, as far as `COUNTED`."""
        return self._planned(self._left, ())

    def show(self, key: str, now: OutboxTime) -> Statement:
        """Read one message."""
        time = OnceInstant(now.monotonic_ms)
        return Statement(f"{self._show}WHERE key = ?", (time, time, key))

    def page(self, state: MessageState | None, after: int, limit: int, now: OutboxTime) -> Statement:
        """Read one page of messages after a number, in order."""
        time = OnceInstant(now.monotonic_ms)
        values: tuple[str, ...] = () if state is None else (state.value,)
        if state in (MessageState.QUEUED, MessageState.SENT):
            values = (MessageState.QUEUED.value, BEHIND)
        where = f"state IN ({', '.join('?' * len(values))}) AND " if values else ""
        return Statement(
            f"{self._show}WHERE {where}number > ? ORDER BY number LIMIT ?", (time, time, *values, after, limit)
        )

    def waiting(self, now: OutboxTime) -> Statement:
        """The messages among the `HURRIED` that have waited longest which wait because no answer came."""
        return self._planned(self._waiting, (OnceInstant(now.monotonic_ms),))

    def hurry(self, numbers: Collection[int], now: OutboxTime) -> Statement:
        """Make messages due now, at most `HURRIED`."""
        marks = ", ".join("?" * len(numbers))
        return self._planned(self._hurry.format(marks), (OnceInstant(now.monotonic_ms), *numbers))

    def retry(self, key: str, now: OutboxTime) -> Statement:
        """Make a message due now, as if it were new. Returns one row unless it is done or being sent.

        An attempt that may have taken effect is forgotten only if the operator was told of it, by the state `unknown`.
        """
        time = OnceInstant(now.monotonic_ms)
        return Statement(self._retry, (time, OnceInstant(now.wall_ms), key, time, time))

    def drop(self, key: str, now: OutboxTime) -> Statement:
        """Delete a message. Returns its number and its order unless it is done or being sent."""
        time = OnceInstant(now.monotonic_ms)
        return Statement(self._drop, (key, time, time))


def leased_of(row: Row, owner: str, deadline: float) -> LeasedMessage:
    """The leased message of a row."""
    number, key, method, url, headers, body, print_, order_by, attempts, refusals, error, age_ms, arrived_ms = row
    message = OutboxMessage(key, method, url, _headers_of(headers), bytes(body), bytes(print_), order_by)
    arrived = None if arrived_ms is None else int(arrived_ms) / 1_000
    age = int(age_ms) / 1_000
    return LeasedMessage(int(number), owner, message, int(attempts), int(refusals), deadline, age, arrived, error)


def status_of(row: Row) -> MessageStatus:
    """The status of a message, from its row."""
    number, key, stored, owner, method, url, order_by, attempts, status, error, wait_ms = row
    wait = max(0.0, int(wait_ms) / 1_000) if stored == MessageState.QUEUED else 0.0
    state = MessageState.QUEUED if stored == BEHIND else MessageState(stored)
    if owner is not None and wait > 0:
        state = MessageState.SENT
    return MessageStatus(key, state, method, shown_url(url), order_by, int(attempts), status, error, wait, int(number))


def outlook_of(row: Row) -> Outlook:
    """The outlook of a row."""
    leased, soonest_ms, latest_ms = row
    # A wait that begins in the future was set before the clock began anew: it is over.
    is_reset = latest_ms is not None and int(latest_ms) > SLACK_MS
    soonest = 0.0 if is_reset else max(0.0, int(soonest_ms or 0) / 1_000)
    return Outlook(soonest_ms is not None, int(leased), soonest)


def _headers_text(message: OutboxMessage) -> str:
    """Headers as JSON. A secret is stored as the name of its environment variable."""
    return json.dumps(
        {name: list(value) if isinstance(value, EnvSecret) else value for name, value in message.headers.items()}
    )


def _headers_of(text: str) -> dict[str, HeaderValue]:
    found = json.loads(text)
    return {name: value if isinstance(value, str) else EnvSecret(*value) for name, value in found.items()}
