"""The store protocol: locks, transactions, snapshots, and the guarantees of every store.

Each lane has one transaction at a time: `begin` takes the named locks, then reads the clock; `load` sees everything
committed before; `flush` writes sets of rows; `commit` returns only when they are on disk. A crash at any point leaves
all of a transaction or nothing of it. `read` gives the rows of one instant, without waiting for a writer.

There are three kinds of failure, because callers get different answers. `StoreError` is definite: nothing was stored.
`CommitUnknownError` is not: the commit may or may not have reached the disk, and only a new read can tell.
`StoreChangedError` is definite and final: nothing was stored, and this process can store nothing more.

A store may be shared by several nodes. Then locks and clock are those of the store, a commit is announced to the other
nodes by a notification without data, and one node at a time is the leader, which runs the chores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from semel.store.row_checksum import COLUMN
from semel.store.scopes import ScopedSnapshot
from semel.store.table import Above, Below, Key, Table
from semel.store.usage import StoreUsage

R = TypeVar("R", bound=tuple[Any, ...])
AnyTable = Table[Any]
Row = Any


class StoreError(Exception):
    """The store refused before the commit: nothing was stored."""


class TryAgainError(StoreError):
    """The store aborted this transaction (a deadlock, a lost connection); a retry may succeed now."""


class StoreAwayError(StoreError):
    """The store could not be reached within the time limit."""


class StoreUnfitError(StoreError):
    """The store takes no writes for now, for the reason in the message; reads and replays go on."""


class StoreHeldError(StoreError):
    """Other transactions held a lock of this transaction for longer than the time limit."""


class CommitUnknownError(Exception):
    """The commit failed: the flushed rows may or may not be on disk."""


class StoreBrokenError(CommitUnknownError):
    """The commit failed and the state of the store is unknown: the process must restart."""


class StoreChangedError(Exception):
    """Another program has changed the data, or has taken its place: nothing was stored, and the process must restart.

    It is no `StoreError`, because no caller may try again: what this process has in memory is not what is stored.
    """


class StoreBusyError(StoreError):
    """Another process is using this data."""


class StoreVersionError(StoreError):
    """The data was written by a version that this one cannot read."""


class StoreMovedError(StoreError):
    """The data was moved to another store: no server uses it here."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"The data of {place} was moved with `semel backup --move`: use the store that it was restored into. If it "
            "is to be used here again, run `semel epoch raise`."
        )


class Lock(NamedTuple):
    """A named lock; the locks of a write are known before its rows are loaded."""

    name: bytes
    shared: bool = False


class Range(NamedTuple):
    """The first rows of a table in the order of one of its indexes ("" is the key).

    `prefix` fixes the first columns; `start` (inclusive) and `stop` (exclusive) bound the columns after them.
    """

    table: AnyTable
    by: str
    prefix: Key
    limit: int
    start: Key = ()
    stop: Key = ()
    reverse: bool = False

    def holds(self, place: Key) -> bool:
        """Whether a position of the index is inside the range."""
        after = len(self.prefix)
        if place[:after] != self.prefix:
            return False
        if self.start and place[after : after + len(self.start)] < self.start:
            return False
        return not self.stop or place[after : after + len(self.stop)] < self.stop

    @property
    def part(self) -> Below | Above | None:
        """The condition of a partial index, if the bounds imply that all rows of the range are in it."""
        part = self.table.partial.get(self.by)
        if part is None:
            return None
        place, after = self.table.ordering(self.by).index(part.column), len(self.prefix)
        is_bounded = False
        if isinstance(part, Above):
            first = self.prefix[place:] or (self.start if place == after else ())
            is_bounded = bool(first) and first[0] > part.bound
        elif place < after:
            is_bounded = self.prefix[place] < part.bound
        elif place == after:
            is_bounded = len(self.stop) == 1 and self.stop[0] <= part.bound
        return part if is_bounded else None


class Touch(NamedTuple):
    """A soft change: the column becomes at least this value, if the row still exists.

    A key may be used again for a new object. Then `life_column` names the column that tells the objects apart, and the
    change applies only to the row whose `life_column` has the value `life`. If `beside_column` is given, that column is
    set to `beside` if and only if the first one rises.
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
        """Whether the change applies to this row."""
        return self.life_column is None or getattr(row, self.life_column) == self.life

    def raised(self, row: Row) -> Row:
        """The row after this change; the same row if the column is not below the value."""
        if not getattr(row, self.column) < self.value:
            return row
        values = list(row)  # in half the time of `_replace`
        values[self.table.position(self.column)] = self.value
        if self.beside_column is not None:
            values[self.table.position(self.beside_column)] = self.beside
        return row._make(values)


class NarrowRows(NamedTuple):
    """Rows that replace others, and differ from them in these columns at most; also by soft changes not stored yet."""

    columns: tuple[str, ...]
    rows: Sequence[Row]


class Changes(NamedTuple):
    """The writes of one transaction. An insert that finds an existing row is an error, not an update.

    In a generational table only the younger generation is checked for that: a contract loads a receipt before it writes
    one, and loading reads both generations.
    """

    inserts: Mapping[AnyTable, Sequence[Row]]
    updates: Mapping[AnyTable, Sequence[Row]]
    deletes: Mapping[AnyTable, Sequence[Key]]
    touches: Sequence[Touch] = ()
    steady: Mapping[AnyTable, Sequence[Row]] = MappingProxyType({})
    """Updates that change no indexed column, so that a store need not write its indexes."""
    topics: Sequence[bytes] = ()
    """The topics whose live readers on other nodes are woken after the commit."""
    narrow: Mapping[AnyTable, Sequence[NarrowRows]] = MappingProxyType({})
    """Updates of few columns of rows that this transaction has loaded, so that a store need not write the others."""
    is_copy: bool = False
    """Whether the rows are those of another store, with their checksums."""

    @property
    def is_empty(self) -> bool:
        """Whether no row is written; soft changes do not count."""
        return not (self.inserts or self.updates or self.steady or self.narrow or self.deletes)

    def summed(self) -> Changes:
        """The same changes with the checksums of the rows; those of a copy are kept, so that damage is still found."""
        if self.is_copy:
            return self
        narrow = {
            table: [NarrowRows((*columns, COLUMN), table.summed(rows)) for columns, rows in groups]
            if table.is_summed_late
            else groups
            for table, groups in self.narrow.items()
        }
        return Changes(
            {table: table.summed(rows) for table, rows in self.inserts.items()},
            {table: table.summed(rows) for table, rows in self.updates.items()},
            self.deletes,
            self.touches,
            {table: table.summed(rows) for table, rows in self.steady.items()},
            self.topics,
            narrow,
        )

    def replaced(self) -> Iterator[tuple[AnyTable, Sequence[Row]]]:
        """The rows that replace others, by table."""
        yield from self.updates.items()
        yield from self.steady.items()
        yield from ((table, some.rows) for table, groups in self.narrow.items() for some in groups)


class StoreInspection(NamedTuple):
    """The facts of a store, read without opening or changing it."""

    version: int
    """The version of the schema; 0 if the store has no schema yet."""
    occupied: str | None
    """A table that has rows; None if all are empty."""
    is_moved: bool = False
    """Whether the data was moved to another store."""


class LoadedRows(NamedTuple):
    """Rows by key (absent keys are left out), and one list for each range."""

    rows: Mapping[AnyTable, Mapping[Key, Row]]
    ranges: Sequence[Sequence[Row]]


class JoinedColumn(NamedTuple):
    """One column of the rows of a range, joined."""

    last: int
    """The last key column of the last row."""
    rows: int
    data: bytes


class Tx(Protocol):
    """One open transaction."""

    @property
    def now_ms(self) -> int:
        """The store's clock, read after the locks were taken."""

    def load(self, keys: Mapping[AnyTable, Iterable[Key]], ranges: Sequence[Range]) -> LoadedRows:
        """Rows by key as of the last commit and with the rows flushed here; ranges as of the last commit only."""

    def flush(self, changes: Changes) -> None:
        """Write sets of rows; other transactions see them after the commit, and the commit may still refuse them."""

    def rotate(self, table: AnyTable) -> None:
        """Drop the older generation of a generational table and begin a new one for the rows that are flushed next."""

    def commit(self) -> Collection[Touch]:
        """Commit; a durable transaction returns only when it is on disk.

        Returns the soft changes that were skipped because other transactions were writing their rows; the caller tries
        them again later.
        """

    def check(self) -> None:
        """End without a commit, before callers are answered from what was loaded; raises if that may be outdated, as on
        a server that was replaced without knowing it.
        """

    def rollback(self) -> None:
        """Undo everything; does nothing after a commit or a failure."""


class Snapshot(ScopedSnapshot, Protocol):
    """The rows of one instant."""

    @property
    def now_ms(self) -> int:
        """The store's clock when the snapshot was taken."""

    def get(self, table: Table[R], key: Key) -> R | None:
        """One row by its key."""

    def find(self, table: Table[R], keys: Sequence[Key]) -> Mapping[Key, R]:
        """Rows by key, all in one query; absent keys are left out."""

    def latest(self, table: Table[R], prefixes: Sequence[Key], below: Any) -> Mapping[Key, R]:
        """For each key prefix that lacks only the last column: the last row in which that column is below a limit.

        All in one query; prefixes without such a row are left out.
        """

    def earliest(self, table: Table[R], prefixes: Sequence[Key], least: Any) -> Mapping[Key, R]:
        """As `latest` in the other direction: the first row in which the last column is at least a limit."""

    def distinct(self, wanted: Range) -> Sequence[Any]:
        """The distinct values of the column after the prefix of a range, in order; `limit` counts values.

        Rows that share a value are not read one by one. `start` and `stop` bound that column alone; `reverse` is
        ignored.
        """

    def range(self, wanted: Range) -> Sequence[Row]:
        """The rows of a range."""

    def joined(self, wanted: Range, column: str, between: bytes) -> JoinedColumn | None:
        """One column of bytes of the rows of a range, joined in their order; None if the range has no row.

        The range is in the order of the key, its prefix is the key without the last column, and the last column is a
        signed number. No row object is made, so this is the way to read many small payloads.
        """

    def keys(self, wanted: Range) -> Sequence[Key]:
        """The keys of the rows of a range, without their payloads."""

    def keys_each(self, wanted: Sequence[Range]) -> Sequence[Sequence[Key]]:
        """As `keys` for several ranges, one list for each, in one round trip."""

    def page(self, table: Table[R], age: int, behind: Key | None, limit: int, most_bytes: int) -> Sequence[R]:
        """The next rows of one generation by key, as they are stored, with their checksums: for copies and checks.

        All other reads leave the checksums out: they are 0 there, and no rule depends on one.

        The rows of a log table may come in order of arrival instead; then `behind` is the key of an existing row.

        `age` 0 is the younger generation, and the only one of an ordinary table; 1 is the older generation, which may
        hold rows that the younger one has replaced. A page begins after a key, or with None at the first row. It ends
        after `limit` rows, or with the row that makes its size reach `most_bytes`.
        """

    def page_keys(self, table: AnyTable, age: int, behind: Key | None, limit: int) -> Sequence[Key]:
        """As `page`, but only the keys, and so without a limit on bytes."""

    def __enter__(self) -> Snapshot:
        """Take the snapshot."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the snapshot."""


Hear = Callable[[Sequence[bytes] | None], None]
"""Called with the topics of commits of other nodes; None if they are unknown, so that every reader must read. There are
none after a commit of another program: no reader waits for it, and rows in memory are not believed.
"""


class StoreHealth(NamedTuple):
    """What a store knows about its fitness for writes."""

    clock_ms: int | None = None
    """The clock of the database, in milliseconds since 1970; None if it is that of this machine."""
    unsafe: str = ""
    """Why commits would not reach the disk, so that the store takes none; empty if they would."""
    standby: str = ""
    """Why commits would wait for a standby that is not connected; empty if they would not."""
    stalled: str = ""
    """Why commits would wait for a standby that is connected; empty if they would not."""


def turn_lock(table: AnyTable) -> Lock:
    """The lock under which a generational table is rotated; a caller that rotates the table holds it."""
    return Lock(b"generation:" + table.name.encode())


class Store(Protocol):
    """A store of rows."""

    @property
    def lanes(self) -> int:
        """The number of transactions that may be open at once, each in its own thread."""

    @property
    def readers(self) -> int:
        """The number of snapshots that may be open at once, each in its own thread."""

    @property
    def is_away(self) -> bool:
        """Whether the store cannot be reached at the moment."""

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may use the store too."""

    def begin(self, locks: Sequence[Lock], *, durable: bool = True, wait: bool = True) -> Tx:
        """Begin a transaction that holds these locks, which are sorted by name.

        Without `durable` the commit does not wait for the disk: for soft changes, which a crash may lose. Without
        `wait`, for a batch on the event loop, a file that another process has locked fails the transaction at once,
        before its commit; else it is waited for.
        """

    def read(self) -> Snapshot:
        """A snapshot; use it in a `with` block and keep it short."""

    def follow(self, hear: Hear) -> None:
        """Report commits of others from now on; `hear` is called in a thread of the store, or in that of a write."""

    def leads(self) -> bool:
        """Whether this node is the leader and runs the chores; the first node that asks leads until it is gone."""

    def era(self) -> bytes:
        """Identifies the history of the rows: it changes after a failover or a restore; empty if every start is a new
        history.
        """

    def usage(self) -> StoreUsage:
        """What the store takes; called in a thread of its own. Raises `StoreError` if the store cannot be reached."""

    def tidy(self) -> None:
        """Housekeeping after a commit, in the writer's thread, for example a checkpoint."""

    def checkpoint_beside(self) -> Callable[[], None] | None:
        """The part of a checkpoint that another thread can make while writes go on; None if it is small."""

    def is_tidy_long(self) -> bool:
        """Whether the next `tidy` takes so long that it does not belong on an event loop."""

    def health(self) -> StoreHealth:
        """Its clock, disk and standbys; may wait for the database for as long as any query. Raises `StoreError`."""

    def close(self) -> None:
        """Release all resources; the data can be opened again at once."""


class PersistentStore(Store, Protocol):
    """A store whose rows outlive the process."""

    def mark_moved(self, is_moved: bool) -> None:
        """Store that the data was moved to another store, or take that mark away; durable when it returns.

        A marked store is not opened again, but by what may take the mark away. Where nodes share a store, no commit of
        any of them follows that of the mark.
        """
