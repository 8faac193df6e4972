"""The table of receipts, on PostgreSQL and SQLite, and every statement on it.

| column | holds |
|---|---|
| `scope`, `key` | the identity: a tenant and its key |
| `fingerprint` | SHA-256 of the arguments, 32 bytes |
| `state` | `running`, `done`, `no result` (done, but the result could not be stored), `failed` (an exception) |
| `result` | text of the codec, JSON by default; null if there is none |
| `owner`, `lease_until` | the running call, and its lease's end in milliseconds since 1970; null in a transaction |
| `created_at`, `expires_at` | milliseconds since 1970 |
| `previous_at` | when the expired receipt of the same key was created; null for a new key |

A row that a transaction writes becomes visible when it commits, so other connections see it done or not at all.
Statements have `?` for each parameter; `rendered` converts them to a driver's style. On PostgreSQL the server's clock
is used, so a clock jump on one client does not expire receipts.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from semel.once.errors import InvalidKey
from semel.once.identity import OnceIdentity

TABLE = "semel_once"
SWEEP_EVERY, SWEPT = 64, 256
"""One write in 64 deletes at most 256 expired receipts."""
RUNNING, DONE, FAILED, NO_RESULT = "running", "done", "failed", "no result"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?")


class OnceDialect(Enum):
    """A kind of database."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


class ParameterStyle(Enum):
    """How a driver marks a parameter."""

    QUESTION = "?"
    PERCENT = "%s"
    DOLLAR = "$1"
    NAMED = ":p1"


class OnceInstant(NamedTuple):
    """A parameter: the current time plus some milliseconds."""

    now_ms: int
    """The time of this program, for databases without a server clock."""
    more_ms: int = 0


class Statement(NamedTuple):
    """SQL with its parameters."""

    sql: str
    parameters: tuple[Any, ...] = ()
    postgresql: str = ""
    """The SQL for PostgreSQL, if it differs."""


class Rendered(NamedTuple):
    """A statement in the style of a driver."""

    sql: str
    parameters: tuple[Any, ...]


Row = tuple[Any, ...]
"""A row of a result."""


def checked(table: str) -> str:
    """A valid table name. Raises `InvalidKey` for any other text."""
    if not _NAME.fullmatch(table):
        raise InvalidKey(
            f"{table!r} is not a valid table name: use letters, digits and underscores, and at most one dot."
        )
    return table


def ddl(dialect: str = "postgresql", table: str = TABLE) -> str:
    """SQL that creates the table, for your own migrations. It may be run again."""
    name, kind = checked(table), OnceDialect(dialect)
    binary, number = ("bytea", "bigint") if kind is OnceDialect.POSTGRESQL else ("blob", "integer")
    tail = "" if kind is OnceDialect.POSTGRESQL else " WITHOUT ROWID"
    index = name.replace(".", "_")
    return (
        f"CREATE TABLE IF NOT EXISTS {name} (\n"
        "  scope text NOT NULL,\n"
        "  key text NOT NULL,\n"
        f"  fingerprint {binary} NOT NULL,\n"
        "  state text NOT NULL,\n"
        "  result text,\n"
        "  owner text,\n"
        f"  lease_until {number},\n"
        f"  created_at {number} NOT NULL,\n"
        f"  expires_at {number} NOT NULL,\n"
        f"  previous_at {number},\n"
        "  PRIMARY KEY (scope, key)\n"
        f"){tail};\n"
        f"CREATE INDEX IF NOT EXISTS {index}_expires ON {name} (expires_at);\n"
    )


_CLOCK = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"


def rendered(statement: Statement, marks: ParameterStyle, dialect: OnceDialect) -> Rendered:
    """A statement in the style of a driver."""
    sql, parameters, postgresql = statement
    if dialect is OnceDialect.SQLITE:
        values = tuple([sum(value) if type(value) is OnceInstant else value for value in parameters])
        return Rendered(_worded(sql, marks, (None,) * len(values)), values)
    spans = tuple([value.more_ms if type(value) is OnceInstant else None for value in parameters])
    values = tuple([value for value in parameters if type(value) is not OnceInstant])
    return Rendered(_worded(postgresql or sql, marks, spans), values)


@lru_cache(maxsize=256)
def _worded(sql: str, marks: ParameterStyle, spans: tuple[int | None, ...]) -> str:
    """The SQL with the driver's marks. On PostgreSQL an instant is an expression of the server's clock."""
    parts = sql.split("?")
    text, number = [parts[0]], 0
    for span, part in zip(spans, parts[1:], strict=True):
        if span is None:
            number += 1
            text.append(marks.value.replace("1", str(number)))
        else:
            text.append(f"({_CLOCK} + {span})")
        text.append(part)
    return "".join(text)


class Receipts:
    """The statements on one table."""

    def __init__(self, table: str = TABLE) -> None:
        self.table = checked(table)
        self._take = (
            f"INSERT INTO {self.table} AS t (scope, key, fingerprint, state, created_at, expires_at) "
            f"VALUES (?, ?, ?, '{RUNNING}', ?, ?) ON CONFLICT (scope, key) DO UPDATE SET "
            "fingerprint = excluded.fingerprint, state = excluded.state, result = NULL, owner = NULL, "
            "lease_until = NULL, created_at = excluded.created_at, expires_at = excluded.expires_at, "
            "previous_at = t.created_at WHERE t.expires_at <= ? RETURNING created_at, previous_at"
        )
        self._find = (
            f"SELECT fingerprint, state, result, created_at, expires_at FROM {self.table} WHERE scope = ? AND key = ?"
        )
        self._finish = f"UPDATE {self.table} SET state = '{DONE}', result = ? WHERE scope = ? AND key = ?"
        expired = f"(SELECT scope, key FROM {self.table} WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
        self._expired = f"SELECT count(*) FROM {self.table} WHERE expires_at <= ?"
        self._sweep = f"DELETE FROM {self.table} WHERE (scope, key) IN {expired}) RETURNING key"
        # It waits for no other transaction. Above READ COMMITTED a concurrent delete is an error: it does nothing.
        self._sweep_postgresql = (
            f"DELETE FROM {self.table} WHERE current_setting('transaction_isolation') = 'read committed' "
            f"AND (scope, key) IN {expired} FOR UPDATE SKIP LOCKED) RETURNING key"
        )

    def take(self, who: OnceIdentity, fingerprint: bytes, now_ms: int, keep_ms: int) -> Statement:
        """Take the key. Returns one row if it was free or expired, else none.

        If an open transaction has taken the key, the database waits until it ends.
        """
        now = OnceInstant(now_ms)
        return Statement(self._take, (*who, fingerprint, now, OnceInstant(now_ms, keep_ms), now))

    def find(self, who: OnceIdentity) -> Statement:
        """Read the receipt of a key."""
        return Statement(self._find, tuple(who))

    def finish(self, who: OnceIdentity, result: str | None) -> Statement:
        """Store the result in the receipt of this transaction."""
        return Statement(self._finish, (result, *who))

    def expired(self, now_ms: int) -> Statement:
        """Count the expired receipts."""
        return Statement(self._expired, (OnceInstant(now_ms),))

    def sweep(self, now_ms: int, limit: int) -> Statement:
        """Delete at most `limit` expired receipts. Returns one row for each."""
        return Statement(self._sweep, (OnceInstant(now_ms), limit), self._sweep_postgresql)


@lru_cache(maxsize=64)
def receipts_of(table: str) -> Receipts:
    """The statements on a table, cached."""
    return Receipts(table)
