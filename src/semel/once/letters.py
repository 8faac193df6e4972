"""What an outbox holds, as values: letters, their table, and when each may be sent.

| state | means |
|---|---|
| queued | to be sent at `next_at`, unless an older letter of the same `order_by` is not done |
| done | answered with 2xx |
| poison | refused for good, or tried too often: set aside; it holds the letters behind it until `retry` or `drop` |

A letter is stored before `post` returns, and removed by `drop`, or by its age once it is done. A crash between the
delivery and its note sends the letter again, with the same key: the other side tells the two apart.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from semel.once.table import Dialect, Instant, Row, Statement, checked

TABLE = "semel_outbox"
MAX_BODY_BYTES = 16 * 1_048_576
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 300.0
RETRIED = frozenset({408, 409, 423, 425, 429})
"""Refusals that may be otherwise a moment later; so is every 5xx."""


class LetterState(Enum):
    """Where a letter stands."""

    QUEUED = "queued"
    DONE = "done"
    POISON = "poison"


class Letter(NamedTuple):
    """One request that is to be delivered."""

    number: int
    key: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes
    order_by: str | None = None
    attempts: int = 0


class LetterStatus(NamedTuple):
    """What is known of a letter."""

    key: str
    state: LetterState
    attempts: int
    status: int | None
    """The last answer, if there was one."""
    error: str | None
    """Why the last try failed."""


class Delivery(NamedTuple):
    """What came of a delivery."""

    status: int | None = None
    retry_after: float | None = None
    error: str | None = None


class Fate(NamedTuple):
    """What becomes of a letter."""

    state: LetterState
    wait_seconds: float = 0.0


def judged(delivery: Delivery, attempts: int, max_attempts: int, chance: random.Random) -> Fate:
    """What becomes of a letter after a delivery; `attempts` counts this one."""
    status = delivery.status
    if status is not None and 200 <= status < 300:
        return Fate(LetterState.DONE)
    is_final = status is not None and 300 <= status < 500 and status not in RETRIED
    if is_final or attempts >= max_attempts:
        return Fate(LetterState.POISON)
    return Fate(LetterState.QUEUED, wait_of(attempts, delivery.retry_after, chance))


def wait_of(attempts: int, retry_after: float | None, chance: random.Random) -> float:
    """Exponential backoff with full jitter; never sooner than the other side has asked."""
    most = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(attempts, 20))
    return max(chance.uniform(most / 2, most), retry_after or 0.0)


def ddl(dialect: str = "postgresql", table: str = TABLE) -> str:
    """The statements that make the table of an outbox in your own database."""
    name, is_postgres = checked(table), Dialect(dialect) is Dialect.POSTGRESQL
    number = "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY" if is_postgres else "integer PRIMARY KEY"
    binary, big = ("bytea", "bigint") if is_postgres else ("blob", "integer")
    index = name.replace(".", "_")
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (\n"
        f"  number {number},\n"
        "  key text NOT NULL UNIQUE,\n"
        "  method text NOT NULL,\n"
        "  url text NOT NULL,\n"
        "  headers text NOT NULL,\n"
        f"  body {binary} NOT NULL,\n"
        "  order_by text,\n"
        "  state text NOT NULL,\n"
        "  attempts integer NOT NULL DEFAULT 0,\n"
        "  status integer,\n"
        "  error text,\n"
        f"  created_at {big} NOT NULL,\n"
        f"  next_at {big} NOT NULL\n"
        ");\n"
        f"CREATE INDEX IF NOT EXISTS {index}_next ON {name} (state, next_at);\n"
        f"CREATE INDEX IF NOT EXISTS {index}_order ON {name} (order_by, number);\n"
    )


class LetterStatements:
    """The statements on one table."""

    def __init__(self, table: str = TABLE) -> None:
        name = self.table = checked(table)
        columns = "number, key, method, url, headers, body, order_by, attempts"
        self._add = (
            f"INSERT INTO {name} (key, method, url, headers, body, order_by, state, created_at, next_at) "
            "VALUES (?, ?, ?, ?, ?, ?, 'queued', ?, ?) ON CONFLICT (key) DO NOTHING RETURNING number"
        )
        self._find = f"SELECT method, url, headers, body, order_by FROM {name} WHERE key = ?"
        self._due = (
            f"SELECT {columns} FROM {name} AS t WHERE state = 'queued' AND next_at <= ? AND NOT EXISTS ("
            f"SELECT 1 FROM {name} AS o WHERE o.order_by = t.order_by AND o.number < t.number AND o.state <> 'done') "
            "ORDER BY number LIMIT ?"
        )
        self._note = (
            f"UPDATE {name} SET state = ?, attempts = ?, status = ?, error = ?, next_at = ? "
            "WHERE number = ? AND state = 'queued'"
        )
        self._status = f"SELECT key, state, attempts, status, error FROM {name} WHERE key = ?"
        self._list = (
            f"SELECT key, state, attempts, status, error FROM {name} "
            "WHERE state = ? AND number > ? ORDER BY number LIMIT ?"
        )
        self._retry = (
            f"UPDATE {name} SET state = 'queued', attempts = 0, next_at = ? WHERE key = ? AND state = 'poison'"
        )
        self._drop = f"DELETE FROM {name} WHERE key = ? AND state <> 'done'"
        self._next = f"SELECT min(next_at) - ? FROM {name} WHERE state = 'queued'"

    def add(self, letter: Letter, now_ms: int) -> Statement:
        """Store a letter; no row back for a key that is known."""
        now, headers = Instant(now_ms), json.dumps(dict(letter.headers))
        facts = (letter.key, letter.method, letter.url, headers, letter.body, letter.order_by, now, now)
        return Statement(self._add, facts)

    def find(self, key: str) -> Statement:
        """What is stored under a key."""
        return Statement(self._find, (key,))

    def due(self, now_ms: int, limit: int) -> Statement:
        """The letters that may be sent now, oldest first; of each `order_by` the oldest one that is not done."""
        return Statement(self._due, (Instant(now_ms), limit))

    def note(self, letter: Letter, fate: Fate, delivery: Delivery, now_ms: int) -> Statement:
        """Write down what came of a delivery."""
        next_at = Instant(now_ms, round(fate.wait_seconds * 1_000))
        facts = (fate.state.value, letter.attempts + 1, delivery.status, delivery.error, next_at, letter.number)
        return Statement(self._note, facts)


def letter_of(row: Row) -> Letter:
    """A letter from its row."""
    number, key, method, url, headers, body, order_by, attempts = row
    return Letter(int(number), key, method, url, json.loads(headers), bytes(body), order_by, int(attempts))
