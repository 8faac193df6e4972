"""The table of receipts, on PostgreSQL and SQLite, and every statement on it.

| column | holds |
|---|---|
| `scope`, `key` | the identity: a tenant and its key |
| `fingerprint` | SHA-256 of the arguments, 32 bytes |
| `state` | `running`, `done`, `no result` (done, but the result could not be stored), `failed` (an exception) |
| `result` | text of the codec, JSON by default; null if there is none |
| `owner` | the call that holds or held the key; in a transaction the request that it joined, or null |
| `lease_until` | the end of a running call's lease, 0 if the call gave it up; null in a transaction |
| `attempt`, `fence` | how many calls took the key over, and a number that each of them raises; null in a transaction |
| `created_at`, `expires_at` | when the call began, and when its receipt may be deleted: milliseconds since 1970 |
| `previous_at` | when the expired receipt of the same key was created; null for a new key |

A row that a transaction writes becomes visible when it commits, so other connections see it done or not at all.
Statements have `?` for each parameter; `rendered` converts them to a driver's style. On PostgreSQL the server's clock
is used, so a clock jump on one client does not expire receipts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

from semel.once.errors import InvalidKey, TableMismatch, TableMissing
from semel.once.identity import OnceIdentity

TABLE = "semel_once"
SWEEP_EVERY, SWEPT = 64, 256
"""One write in 64 deletes at most 256 expired receipts."""
PATIENCE_SECONDS = 10.0
"""How long a statement may wait for connections and locks, unless its caller says otherwise."""
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


class TableForm(NamedTuple):
    """A table that a database holds: how it is created, and which columns this version reads and writes."""

    name: str
    columns: frozenset[str]
    ddl: Callable[[str, str], str]
    advice: str
    """What creates it, for the error that it is missing."""

    @property
    def look(self) -> Statement:
        """Reads the names of the columns; no rows for a table that does not exist."""
        return Statement(
            "SELECT name FROM pragma_table_info(?)",
            (self.name,),
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped",
        )

    def check(self, rows: Iterable[Row]) -> None:
        """Refuse a table of an older or a newer form, by the rows of `look`."""
        found = {row[0] for row in rows}
        if not found:
            raise TableMissing(self.name, self.advice)
        if found != self.columns:
            raise TableMismatch(self.name, missing=self.columns - found, unknown=found - self.columns)


def create_table(form: TableForm, dialect: str, run: Callable[[Statement], Sequence[Row]]) -> None:
    """Create a table if it does not exist. Refuse one of another form, before a script adds indexes to it."""
    if found := run(form.look):
        form.check(found)
    for sql in form.ddl(dialect, form.name).split(";\n"):
        if sql:
            run(Statement(sql))


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
        f"  attempt {number},\n"
        f"  fence {number},\n"
        f"  created_at {number} NOT NULL,\n"
        f"  expires_at {number} NOT NULL,\n"
        f"  previous_at {number},\n"
        "  PRIMARY KEY (scope, key)\n"
        f"){tail};\n"
        f"CREATE INDEX IF NOT EXISTS {index}_expires ON {name} (expires_at);\n"
    )


COLUMNS = frozenset(re.findall(r"^  ([a-z_]+) ", ddl("sqlite"), re.MULTILINE))


def receipts_form(table: str) -> TableForm:
    """The form of a table of receipts."""
    return TableForm(checked(table), COLUMNS, ddl, "run `semel once init URL`, or add once.ddl() to your migrations")


"""The columns of this form of the table. One with others is refused, because it would be read wrongly."""

_CLOCK = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)"


def rendered(statement: Statement, marks: ParameterStyle, dialect: OnceDialect) -> Rendered:
    """A statement in the style of a driver."""
    sql, parameters, postgresql = statement
    if dialect is OnceDialect.SQLITE:
        values = tuple([sum(value) if type(value) is OnceInstant else value for value in parameters])
        # Statements are written in this style, and looking a text up costs as much as a third of a statement.
        return Rendered(sql if marks is ParameterStyle.QUESTION else _worded(sql, marks, (None,) * len(values)), values)
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


DURABLY = (
    "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    "WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
)
"""PostgreSQL, in a SELECT before a statement of this package's own: its commit waits for the disk, and for the standbys
that the server has, whatever was set for the database, the role or the session. A stronger setting stays."""
RECEIPT = "semel.receipt"
"""The setting of a PostgreSQL transaction that holds the receipt which a `take` has met."""


def keep_conflict(setting: str, columns: str) -> str:
    """PostgreSQL, in the WHERE of ON CONFLICT: put the row that the INSERT has met into a setting, and leave it."""
    return f" OR set_config('{setting}', CAST(json_build_array({columns}) AS text), true) IS NULL"


def conflict_of(setting: str) -> str:
    """PostgreSQL, in the FROM of the next statement: that row, as the JSON array `met`. It reads no table."""
    return f"(SELECT CAST(nullif(current_setting('{setting}', true), '') AS json) AS met) AS conflict"


class Receipts:
    """The statements on one table."""

    def __init__(self, table: str = TABLE) -> None:
        self.table = checked(table)
        self._take = (
            f"INSERT INTO {self.table} AS t (scope, key, fingerprint, state, owner, attempt, created_at, expires_at) "
            f"VALUES (?, ?, ?, '{RUNNING}', ?, NULL, ?, ?) ON CONFLICT (scope, key) DO UPDATE SET "
            "fingerprint = excluded.fingerprint, state = excluded.state, result = NULL, owner = excluded.owner, "
            "lease_until = NULL, created_at = excluded.created_at, expires_at = excluded.expires_at, "
            "previous_at = t.created_at WHERE t.expires_at <= ?{} RETURNING created_at, previous_at"
        )
        self._find = (
            f"SELECT fingerprint, state, result, created_at, owner FROM {self.table} WHERE scope = ? AND key = ?"
        )
        # A SELECT or an UPDATE of one key locks a whole page of the index against other keys at SERIALIZABLE, or the
        # whole of a small table. An INSERT finds its row without such a lock: it stores, and it hands over what it met.
        columns = "t.scope, t.key, encode(t.fingerprint, 'hex'), t.state, t.result, t.created_at, t.owner"
        self._take_postgresql = self._take.format(keep_conflict(RECEIPT, columns))
        self._take = self._take.format("")
        self._find_postgresql = (
            "SELECT decode(met->>2, 'hex'), met->>3, met->>4, CAST(met->>5 AS bigint), met->>6 "
            f"FROM {conflict_of(RECEIPT)} WHERE met->>0 = ? AND met->>1 = ?"
        )
        self._finish = f"UPDATE {self.table} SET state = '{DONE}', result = ? WHERE scope = ? AND key = ?"
        # Where a rollback inside the block has removed the row, this one has expired: the retry runs.
        self._finish_postgresql = (
            f"INSERT INTO {self.table} (result, scope, key, fingerprint, state, created_at, expires_at) "
            f"VALUES (?, ?, ?, '', '{DONE}', 0, 0) ON CONFLICT (scope, key) DO UPDATE SET "
            "state = excluded.state, result = excluded.result"
        )
        self._reopen = f"UPDATE {self.table} SET state = '{RUNNING}', result = NULL WHERE scope = ? AND key = ?"
        # As a subquery the clock of PostgreSQL is read once, so it bounds the index.
        expired = f"(SELECT scope, key FROM {self.table} WHERE expires_at <= (SELECT ?) ORDER BY expires_at LIMIT ?"
        self._expired = f"SELECT count(*) FROM {self.table} WHERE expires_at <= (SELECT ?)"
        self._sweep = f"DELETE FROM {self.table} WHERE (scope, key) IN {expired}) RETURNING key"
        # It waits for no other transaction. Above READ COMMITTED a concurrent delete is an error: it does nothing.
        self._sweep_postgresql = (
            f"DELETE FROM {self.table} WHERE current_setting('transaction_isolation') = 'read committed' "
            f"AND (scope, key) IN {expired} FOR UPDATE SKIP LOCKED) RETURNING key"
        )

    def take(
        self, who: OnceIdentity, fingerprint: bytes, now_ms: int, keep_ms: int, owner: str | None = None
    ) -> Statement:
        """Take the key, for the request that `owner` names. Returns one row if it was free or expired, else none.

        If an open transaction has taken the key, the database waits until it ends.
        """
        now = OnceInstant(now_ms)
        values = (*who, fingerprint, owner, now, OnceInstant(now_ms, keep_ms), now)
        return Statement(self._take, values, self._take_postgresql)

    def find(self, who: OnceIdentity) -> Statement:
        """The receipt of a key that the last `take` has not taken."""
        return Statement(self._find, tuple(who), self._find_postgresql)

    def look(self, who: OnceIdentity) -> Statement:
        """Read the receipt of a key, in a transaction of its own."""
        return Statement(self._find, tuple(who))

    def finish(self, who: OnceIdentity, result: str | None) -> Statement:
        """Store the result in the receipt of this transaction."""
        return Statement(self._finish, (result, *who), self._finish_postgresql)

    def reopen(self, who: OnceIdentity) -> Statement:
        """Take back what `finish` stored in another transaction."""
        return Statement(self._reopen, tuple(who))

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
