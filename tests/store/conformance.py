"""What every store is put through: the tables of the suite, and one small adapter for each kind of store.

An adapter knows the URL of one fresh place for data. A kind that persists can also be reopened there, from this process
or from another one. A new kind of store is one more class here and one more name in KINDS.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from semel.store.migrations import CreateTable, Migration
from semel.store.open import open_store
from semel.store.protocol import AnyTable, Changes, Lock, Range, Row, Store, Touch, Tx
from semel.store.table import U64, Key, Table
from tests.harness.postgres.shared import fresh_url

V = TypeVar("V")


class ThingRow(NamedTuple):
    """Every kind of column, in the key and beside it."""

    shelf: bytes
    number: int
    serial: U64
    weight: int
    rank: U64
    label: bytes
    note: bytes | None
    seen_at: int
    used_at: U64
    price: int | None


class TicketRow(NamedTuple):
    """A row that is forgotten with its generation."""

    scope: bytes
    serial: U64
    used_at: int


class ParcelRow(NamedTuple):
    """A row with a payload."""

    number: int
    owner: bytes
    content: bytes


THING = Table("thing", ThingRow, key=3, indexes={"weight": ("shelf", "weight"), "rank": ("rank", "label")})
TICKET = Table("ticket", TicketRow, key=2, generational=True)
PARCEL = Table("parcel", ParcelRow, key=1, indexes={"owner": ("owner",)}, bulky=True)

TABLES: tuple[AnyTable, ...] = (THING, TICKET, PARCEL)
MIGRATIONS = (Migration(1, "the suite's tables", tuple(CreateTable(table.shape) for table in TABLES)),)
LOCKS = (Lock(b"everything"),)

TICKET_ROW = TicketRow(b"scope", 7, 1)
TICKET_KEY = TICKET.key_of(TICKET_ROW)


def thing(shelf: bytes = b"a", number: int = 1, serial: int = 1, **columns: object) -> ThingRow:
    """A thing with ordinary values where none are given."""
    return ThingRow(shelf, number, serial, 0, 0, b"", None, 0, 0, None)._replace(**columns)  # type: ignore[arg-type]


class Clock:
    """The wall clock that stores of the suite read."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class Place(ABC):
    """One fresh place for data, and the stores opened on it."""

    has_own_clock = False
    """Whether the store keeps time by itself, so that a test cannot set it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self._opened: list[Store] = []

    @property
    @abstractmethod
    def url(self) -> str:
        """What `open_store` is given."""

    def open(self, tables: Sequence[AnyTable] = TABLES, migrations: Sequence[Migration] = MIGRATIONS) -> Store:
        """A store on this place."""
        store = open_store(self.url, tables, migrations, self.clock)
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close what is open."""
        while self._opened:
            self._opened.pop().close()


class MemoryPlace(Place):
    """Nothing survives."""

    url = "memory:"


class PersistentPlace(Place):
    """The data outlives the store and the process."""

    def reopen(self, tables: Sequence[AnyTable] = TABLES, migrations: Sequence[Migration] = MIGRATIONS) -> Store:
        """Close what is open and open the data again."""
        self.close()
        return self.open(tables, migrations)


class SqlitePlace(PersistentPlace):
    """One folder."""

    vfs: str | None = None

    @property
    def url(self) -> str:
        return f"sqlite:{self.folder}" + (f"?vfs={self.vfs}" if self.vfs else "")


class PostgresPlace(PersistentPlace):
    """One schema of the session's database."""

    has_own_clock = True

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._url = fresh_url()

    @property
    def url(self) -> str:
        return self._url


KINDS: Mapping[str, Callable[[Path], Place]] = {
    "memory": MemoryPlace,
    "sqlite": SqlitePlace,
    "postgres": PostgresPlace,
}
PERSISTENT_KINDS: Mapping[str, Callable[[Path], PersistentPlace]] = {"sqlite": SqlitePlace, "postgres": PostgresPlace}


class Pair(NamedTuple):
    """Where rows come from and where they go."""

    source: PersistentPlace
    target: PersistentPlace


def made_pair(folder: Path, kinds: str) -> Pair:
    """Two kinds, as in "sqlite to postgres"."""
    source, target = kinds.split(" to ")
    return Pair(PERSISTENT_KINDS[source](folder / "source"), PERSISTENT_KINDS[target](folder / "target"))


@contextlib.contextmanager
def transaction(store: Store, *, durable: bool = True) -> Iterator[Tx]:
    """Commits at the end of the block, and leaves nothing when it raises."""
    tx = store.begin(LOCKS, durable=durable)
    try:
        yield tx
        tx.commit()
    finally:
        tx.rollback()


def changes(
    inserts: Iterable[tuple[AnyTable, Row]] = (),
    updates: Iterable[tuple[AnyTable, Row]] = (),
    deletes: Iterable[tuple[AnyTable, Key]] = (),
    touches: Sequence[Touch] = (),
    steady: Iterable[tuple[AnyTable, Row]] = (),
) -> Changes:
    """A transaction's changes from pairs of table and row (or key)."""
    return Changes(_by_table(inserts), _by_table(updates), _by_table(deletes), touches, _by_table(steady))


def write(
    store: Store,
    inserts: Iterable[tuple[AnyTable, Row]] = (),
    updates: Iterable[tuple[AnyTable, Row]] = (),
    deletes: Iterable[tuple[AnyTable, Key]] = (),
    touches: Sequence[Touch] = (),
    *,
    durable: bool = True,
) -> None:
    """One transaction with these changes."""
    with transaction(store, durable=durable) as tx:
        tx.flush(changes(inserts, updates, deletes, touches))


def rotate(store: Store, table: AnyTable = TICKET) -> None:
    """One transaction that does nothing but turn a table's generations."""
    with transaction(store) as tx:
        tx.rotate(table)


def find(store: Store, table: AnyTable, key: Key) -> Row | None:
    """One row, by both ways of reading, which must agree."""
    with store.read() as snapshot:
        seen: Row | None = snapshot.get(table, key)
        assert snapshot.find(table, [key]) == ({} if seen is None else {key: seen})
    tx = store.begin(LOCKS)
    try:
        assert tx.load({table: [key]}, []).rows[table].get(key) == seen
    finally:
        tx.rollback()
    return seen


def scan(store: Store, wanted: Range) -> list[Row]:
    """The rows of a range, by all ways of reading, which must agree."""
    with store.read() as snapshot:
        rows = list(snapshot.range(wanted))
        keys = [wanted.table.key_of(row) for row in rows]
        assert list(snapshot.keys(wanted)) == keys
        first = wanted._replace(limit=min(1, wanted.limit))
        assert [list(found) for found in snapshot.keys_each([wanted, first, wanted])] == [keys, keys[:1], keys]
        assert list(snapshot.keys_each([])) == []
    tx = store.begin(LOCKS)
    try:
        assert list(tx.load({}, [wanted]).ranges[0]) == rows
    finally:
        tx.rollback()
    return rows


def everything(store: Store, table: AnyTable) -> list[Row]:
    """All rows of a table, by key."""
    return scan(store, Range(table, "", (), 1_000_000))


def expected(rows: Iterable[Row], wanted: Range) -> list[Row]:
    """What a range must give, said in the plainest way."""
    names = wanted.table.ordering(wanted.by)
    depth = len(wanted.prefix)

    def place(row: Row) -> Key:
        return tuple(getattr(row, name) for name in names)

    def is_inside(row: Row) -> bool:
        fixed, rest = place(row)[:depth], place(row)[depth:]
        return (
            fixed == wanted.prefix
            and (not wanted.start or rest[: len(wanted.start)] >= wanted.start)
            and (not wanted.stop or rest[: len(wanted.stop)] < wanted.stop)
        )

    return sorted(filter(is_inside, rows), key=place, reverse=wanted.reverse)[: wanted.limit]


def _by_table(pairs: Iterable[tuple[AnyTable, V]]) -> dict[AnyTable, list[V]]:
    grouped: dict[AnyTable, list[V]] = {}
    for table, value in pairs:
        grouped.setdefault(table, []).append(value)
    return grouped
