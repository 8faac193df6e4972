"""The stored retries of writes: how often a retry was answered from its receipt, and the last of them.

They are facts for people, and no promise depends on one. They are stored by soft writes of their own contract, which
wait for no disk: a crash loses about the last second. A row is merged by adding, so that several nodes count together.
A row is kept for seven days after its last retry, and there is a limit on rows: beyond it, retries of further writes
are not stored until old rows were freed. The table is not generational, because each generational table costs every
transaction of PostgreSQL one more lock.

Look-ups: a write by surface and key (RETRY), rows by expiry (index `until`), their number (RETRY_TOTAL).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import orjson

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.kernel.clock import Now
from semel.server.writes.find_wire import SeenRetries, SeenRetry
from semel.store.protocol import Lock, Range
from semel.store.table import Key, Table

if TYPE_CHECKING:
    from semel.engine.reading import Reading

KEPT_RETRIES = 16
"""The retries of one write whose time, principal and address are kept."""
RETAINED_MS = 7 * 86_400_000
MAX_ROWS = 500_000
FREED_AT_ONCE = 500
CLOCK_SKEW_MS = 1_000
MAX_TEXT = 256
"""Characters of a principal or an address that are kept."""


class RetryRow(NamedTuple):
    """The retries of one write."""

    surface: bytes
    key: bytes
    total: int
    since: int
    """The time of the first of them."""
    expires_at: int
    last: bytes
    """The last of them, oldest first, as JSON: time, principal and address."""
    checksum: int = 0


class RetryTotalRow(NamedTuple):
    """The number of rows of RETRY."""

    name: bytes
    rows: int
    checksum: int = 0


RETRY = Table("retry", RetryRow, key=2, indexes={"until": ("expires_at",)})
RETRY_TOTAL = Table("retry_total", RetryTotalRow, key=1)
TABLES = (RETRY, RETRY_TOTAL)
_LOCK = Lock(b"retries")
_ALONE = (b"",)


class CountedRetries(NamedTuple):
    """Retries of one write, to be added."""

    surface: str
    key: bytes
    total: int
    since: int
    last: Sequence[SeenRetry]


class AddRetries(NamedTuple):
    """Command: add these retries to those that are stored."""

    retries: tuple[CountedRetries, ...]


class FreeRetries(NamedTuple):
    """Command: free these rows, if they have expired; a chore."""

    keys: tuple[Key, ...]


class RetryContract:
    """The contract of stored retries."""

    name = "retries"

    def locks(self, command: AddRetries | FreeRetries) -> Sequence[Lock]:
        """One lock for all rows."""
        return (_LOCK,)

    def needs(self, command: AddRetries | FreeRetries) -> Generator[Stage, View, None]:
        """The rows of the writes, and their number."""
        keys = [_key(one) for one in command.retries] if isinstance(command, AddRetries) else command.keys
        yield Stage(keys=[(RETRY_TOTAL, _ALONE), *((RETRY, key) for key in keys)])

    def order(self, command: AddRetries | FreeRetries) -> Order | None:
        """None: the command belongs to no sequence."""
        return None

    def decide(self, view: View, command: AddRetries | FreeRetries, now: Now) -> DecisionResult:
        """Add retries, or free expired rows."""
        known = view.get(RETRY_TOTAL, _ALONE)
        before = rows = 0 if known is None else known.rows
        if isinstance(command, AddRetries):
            for one in command.retries:
                rows += _add(view, one, now, has_room=rows < MAX_ROWS)
        else:
            rows -= sum(_free(view, key, now) for key in command.keys)
        if rows != before:
            view.put(RETRY_TOTAL, RetryTotalRow(b"", rows))
        return DecisionResult(None)

    def chores(self, reading: Reading) -> Sequence[FreeRetries]:
        """A command that frees expired rows."""
        wanted = Range(RETRY, "until", (), FREED_AT_ONCE, stop=(reading.now.expiry_ms,))
        keys = reading.keys(wanted)
        return [FreeRetries(tuple(keys))] if keys else []


def _key(one: CountedRetries) -> Key:
    return one.surface.encode(), one.key


def _add(view: View, one: CountedRetries, now: Now, *, has_room: bool) -> int:
    """Add retries to a row; returns the number of new rows."""
    known = view.get(RETRY, _key(one))
    if known is None and not has_room:
        return 0
    last = one.last if known is None else joined(stored_retries(known), one).last
    total, since = (0, one.since) if known is None else (known.total, min(known.since, one.since))
    surface, until = one.surface.encode(), now.ms + RETAINED_MS
    view.put(RETRY, RetryRow(surface, one.key, total + one.total, since, until, _dumped(last)))
    return int(known is None)


def _free(view: View, key: Key, now: Now) -> int:
    known = view.get(RETRY, key)
    if known is None or known.expires_at > now.expiry_ms:
        return 0
    view.forget(RETRY, key)
    return 1


def stored_retries(row: RetryRow) -> CountedRetries:
    """The retries of a row."""
    last = [SeenRetry(at, principal, address) for at, principal, address in orjson.loads(row.last)]
    return CountedRetries(row.surface.decode(), row.key, row.total, row.since, last)


def joined(one: CountedRetries, other: CountedRetries) -> CountedRetries:
    """Both together."""
    last = sorted([*one.last, *other.last], key=lambda retry: retry.at)[-KEPT_RETRIES:]
    return CountedRetries(one.surface, one.key, one.total + other.total, min(one.since, other.since), last)


def retries_since(counted: CountedRetries, at: int | None) -> SeenRetries:
    """The retries of a write that took effect at this time. Its key may have been used for an earlier write, which is
    forgotten: then only the last retries are known to be of this one. The clock of a database may be ahead of ours.
    """
    first = 0 if at is None else at - CLOCK_SKEW_MS
    if counted.since >= first:
        return SeenRetries(counted.total, counted.last)
    last = [retry for retry in counted.last if retry.at >= first]
    return SeenRetries(len(last), last)


def _dumped(last: Sequence[SeenRetry]) -> bytes:
    return orjson.dumps([(one.at, one.principal[:MAX_TEXT], one.address[:MAX_TEXT]) for one in last])
