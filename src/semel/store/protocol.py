"""The store protocol: locks, transactions, snapshots, and the guarantees of every store.

One transaction at a time a lane: `begin` takes the named locks, then reads the clock; `load` sees everything
committed before; `flush` writes whole sets of rows; `commit` returns only when they are on disk. A crash at any point
leaves either all of a transaction or nothing of it. `read` gives the rows of one instant, without waiting for a
writer.

Two failures differ, because callers get different answers. `StoreError` is definite: nothing was stored.
`CommitUnknownError` is not: the commit may or may not have reached the disk, and only a new read can tell.

A store may be shared by several nodes. Then locks and clock are the store's own, a commit is announced to the other
nodes as a hint that there is something to read, and one node at a time is the leader, which runs the chores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from semel.store.table import Below, Key, Table

R = TypeVar("R", bound=tuple[Any, ...])
AnyTable = Table[Any]
Row = Any


class StoreError(Exception):
    """The store refused before the commit: nothing was stored."""


class TryAgainError(StoreError):
    """The store aborted this transaction (a deadlock, a lost connection); a retry may succeed now."""


class StoreAwayError(StoreError):
    """The store could not be reached within the time limit."""


class StoreHeldError(StoreError):
    """Others held a lock of this transaction for longer than the time limit."""


class CommitUnknownError(Exception):
    """The commit failed: what was flushed may or may not be on disk."""


class StoreBrokenError(CommitUnknownError):
    """The commit failed and the store cannot be trusted any more: the process must restart."""


class StoreBusyError(StoreError):
    """Another process holds this data."""


class StoreVersionError(StoreError):
    """The data was written by a version that this one cannot read."""


class Lock(NamedTuple):
    """A named lock, known before anything is loaded."""

    name: bytes
    shared: bool = False


class Range(NamedTuple):
    """The first rows of a table by one of its indexes ("" is its key).

    `prefix` fixes the first columns; `start` (included) and `stop` (left out) bound the columns after it.
    """

    table: AnyTable
    by: str
    prefix: Key
    limit: int
    start: Key = ()
    stop: Key = ()
    reverse: bool = False

    def holds(self, place: Key) -> bool:
        """Whether a position of the index lies inside."""
        after = len(self.prefix)
        if place[:after] != self.prefix:
            return False
        if self.start and place[after : after + len(self.start)] < self.start:
            return False
        return not self.stop or place[after : after + len(self.stop)] < self.stop

    @property
    def part(self) -> Below | None:
        """The condition of a partial index, if the bounds imply that all rows of the range are in it."""
        below = self.table.partial.get(self.by)
        if below is None:
            return None
        place, after = self.table.ordering(self.by).index(below.column), len(self.prefix)
        if place < after:
            return below if self.prefix[place] < below.bound else None
        is_bounded = place == after and len(self.stop) == 1 and self.stop[0] <= below.bound
        return below if is_bounded else None


class Touch(NamedTuple):
    """A soft change: the column becomes at least this value, if the row still exists.

    A key may be used again for another thing; then `life_column` names the column that tells them apart, and the change
    counts only for the row that has this `life` in it. Another column may go along: it becomes `beside` where, and only
    where, the first one rises.
    """

    table: AnyTable
    key: Key
    column: str
    value: int
    life_column: str | None = None
    life: bytes | None = None
    beside_column: str | None = None
    beside: bytes | None = None

    def means(self, row: Row) -> bool:
        """Whether this is the row that was meant."""
        return self.life_column is None or getattr(row, self.life_column) == self.life

    def raised(self, row: Row) -> Row:
        """The row that was meant, after this change; itself where the column is not below the value."""
        if not getattr(row, self.column) < self.value:
            return row
        beside = {} if self.beside_column is None else {self.beside_column: self.beside}
        return row._replace(**{self.column: self.value}, **beside)


class Changes(NamedTuple):
    """What one transaction writes. An insert that meets a row is a fault, not an update.

    In a generational table only the younger generation is looked at for that: a contract loads a receipt before it
    writes one, and loading looks at both.
    """

    inserts: Mapping[AnyTable, Sequence[Row]]
    updates: Mapping[AnyTable, Sequence[Row]]
    deletes: Mapping[AnyTable, Sequence[Key]]
    touches: Sequence[Touch] = ()
    steady: Mapping[AnyTable, Sequence[Row]] = MappingProxyType({})
    """Updates that change no indexed column, so that a store need not touch its indexes."""
    topics: Sequence[bytes] = ()
    """Whose live readers on other nodes are to be woken, once this is on disk."""


class Glimpse(NamedTuple):
    """The facts of a store, read without opening or changing it."""

    version: int
    """The version of the schema; 0 when there is nothing yet."""
    occupied: str | None
    """A table with rows, if there is one."""


class Loaded(NamedTuple):
    """Rows by key (absent keys are left out), and one list for each range asked for."""

    rows: Mapping[AnyTable, Mapping[Key, Row]]
    ranges: Sequence[Sequence[Row]]


class Tx(Protocol):
    """One open transaction."""

    @property
    def now_ms(self) -> int:
        """The store's clock, read after the locks were taken."""

    def load(self, keys: Mapping[AnyTable, Iterable[Key]], ranges: Sequence[Range]) -> Loaded:
        """Rows by their keys as of the last commit, under what was flushed here; ranges as of the last commit."""

    def flush(self, changes: Changes) -> None:
        """Write whole sets of rows; not visible to others before the commit, which may be the one to refuse them."""

    def rotate(self, table: AnyTable) -> None:
        """Drop the older generation of a generational table and begin a new one, which takes what is flushed next."""

    def commit(self) -> Collection[Touch]:
        """Make it so; a durable transaction returns only when it is on disk.

        Gives back the soft changes that were left undone because others were writing their rows: for another time.
        """

    def rollback(self) -> None:
        """Leave no trace; harmless after a commit or a failure."""


class Snapshot(Protocol):
    """The rows of one instant."""

    @property
    def now_ms(self) -> int:
        """The store's clock when the snapshot was taken."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key."""

    def find(self, table: Table[R], keys: Sequence[Key]) -> Mapping[Key, R]:
        """Rows by their keys, all at once; absent keys are left out."""

    def latest(self, table: Table[R], prefixes: Sequence[Key], below: Any) -> Mapping[Key, R]:
        """For each beginning of a key that lacks only the last column: the last row in which that is below a bound.

        All at once; those that have none are left out.
        """

    def earliest(self, table: Table[R], prefixes: Sequence[Key], least: Any) -> Mapping[Key, R]:
        """The same the other way: the first row in which the last column is at least a bound."""

    def distinct(self, wanted: Range) -> Sequence[Any]:
        """The values of the column behind the prefix of a range, each once, in order; the limit counts values.

        Rows that share a value are not read one by one. `start` and `stop` bound that column alone, and a range that
        is reversed is not meant.
        """

    def range(self, wanted: Range) -> Sequence[Row]:
        """The rows of a range."""

    def keys(self, wanted: Range) -> Sequence[Key]:
        """The keys of the rows of a range, without their payloads."""

    def keys_each(self, wanted: Sequence[Range]) -> Sequence[Sequence[Key]]:
        """The same for several ranges, one list for each, in one trip to the store."""

    def page(self, table: Table[R], age: int, behind: Key | None, limit: int, most_bytes: int) -> Sequence[R]:
        """The next rows of one generation, as they are stored, by key: for copies.

        The younger generation has the age 0, and is all that an ordinary table has; the older one has the age 1. It
        may hold rows that the younger one has replaced. A page begins behind a key, or with None at the first row. It
        ends after `limit` rows, or sooner: with the row that makes its bytes reach `most_bytes`.
        """

    def page_keys(self, table: AnyTable, age: int, behind: Key | None, limit: int) -> Sequence[Key]:
        """The same without payloads: only keys, and so without a bound on bytes."""

    def __enter__(self) -> Snapshot:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""


Hear = Callable[[Sequence[bytes] | None], None]
"""Called with the topics of others' commits; None when they are unknown, so that every reader must read."""


def turn_lock(table: AnyTable) -> Lock:
    """The lock under which the generations of a table turn; a caller that rotates a table holds it."""
    return Lock(b"generation:" + table.name.encode())


class SoleNode:
    """Cluster methods of a store that only one process can open: there are no other nodes."""

    is_away = False
    is_shared = False

    def follow(self, hear: Hear) -> None:
        """Does nothing: no other process commits."""

    def leads(self) -> bool:
        """Always true: no other process could."""
        return True

    def era(self) -> bytes:
        """Every start is one."""
        return b""


class Store(Protocol):
    """A store of rows."""

    @property
    def lanes(self) -> int:
        """How many transactions may be open at once, each from a thread of its own."""

    @property
    def readers(self) -> int:
        """How many snapshots may be open at once, each in a thread of its own."""

    @property
    def is_away(self) -> bool:
        """Whether the store cannot be reached at the moment."""

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may use it too."""

    def begin(self, locks: Sequence[Lock], *, durable: bool = True) -> Tx:
        """Open a transaction holding these locks, which are sorted by name.

        Without `durable` the commit does not wait for the disk: for soft changes, which a crash may forget.
        """

    def read(self) -> Snapshot:
        """A snapshot; use it in a `with` block and keep it short."""

    def follow(self, hear: Hear) -> None:
        """From now on, report commits of other nodes; called from a thread of the store."""

    def leads(self) -> bool:
        """Whether this node leads and so runs the chores; the first node that asks leads, until it is gone."""

    def era(self) -> bytes:
        """Which history the rows are of: another one after a failover or a restore; empty when every start is one."""

    def tidy(self) -> None:
        """Housekeeping after a commit, on the thread that writes: a checkpoint, say."""

    def close(self) -> None:
        """Let go of everything; the data can be opened again at once."""
