"""The rows of a backup are restored exactly, or not at all."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest

from semel.store import backup
from semel.store.backup import TargetNotEmptyError, count_rows, restore_backup, write_backup
from semel.store.backup_file import BackupHeader, BackupReader
from semel.store.protocol import AnyTable, Changes, Lock, Row, Snapshot, Store, StoreError, Tx
from semel.store.table import ColumnKind, TablePart, bytes_of, parts_of
from semel.surfaces import schema
from tests.store.conformance import (
    PARCEL,
    TABLES,
    THING,
    TICKET,
    Pair,
    ParcelRow,
    TicketRow,
    find,
    rotate,
    thing,
    write,
)

PAGE_ROWS = 20
PAGE_BYTES = 30_000
HEADER = BackupHeader("1.2.3", 1, 1_000_000, "sqlite")

Contents = dict[str, list[Row]]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few rows are many pages."""
    monkeypatch.setattr(backup, "PAGE_ROWS", PAGE_ROWS)
    monkeypatch.setattr(backup, "PAGE_BYTES", PAGE_BYTES)
    monkeypatch.setattr(backup, "KEY_ROWS", PAGE_ROWS)


def ignore(_: int) -> None:
    pass


def copy(source: Store, target: Store, tables: Sequence[AnyTable], tell: Callable[[int], None]) -> None:
    """A backup of one store, restored into another."""
    file = io.BytesIO()
    with source.read() as snapshot:
        write_backup(snapshot, tables, HEADER, file, ignore)
    file.seek(0)
    restore_backup(BackupReader(file, tables), target, tables, tell, (), lambda _: None)


def counted(store: Store, tables: Sequence[AnyTable]) -> dict[str, int]:
    """The number of rows of each part."""
    with store.read() as snapshot:
        return {part.name: rows for part, rows in count_rows(snapshot, tables).items()}


def contents(store: Store, tables: Sequence[AnyTable] = TABLES) -> Contents:
    """All rows by part, in the order in which the store gives them."""
    with store.read() as snapshot:
        return {part.name: all_rows(snapshot, part) for part in parts_of(tables)}


def all_rows(snapshot: Snapshot, part: TablePart) -> list[Row]:
    return list(snapshot.page(part.table, part.age, None, 1_000_000, 2**40))


def fill(store: Store) -> None:
    """Rows of every kind, at the bounds of their columns, in both generations, more than a page of some."""
    extremes = [
        thing(shelf, number, serial, weight=-number // 2, rank=serial, note=note, price=price, label=b"\x00\xff")
        for shelf in (b"", b"\x00", b"\xff\x00")
        for number in (-(2**63), 0, 2**63 - 1)
        for serial in (0, 2**64 - 1)
        for note, price in ((None, None), (b"", -1))
        if (note is None) == (serial == 0)
    ]
    many = [thing(b"many", number, 2**63 + number) for number in range(2 * PAGE_ROWS + 1)]
    parcels = [ParcelRow(number, b"owner", bytes([number]) * (PAGE_BYTES // 3)) for number in range(8)]
    write(store, [(TICKET, TicketRow(b"older", 2**64 - 1 - number, -number)) for number in range(PAGE_ROWS + 1)])
    rotate(store)
    write(store, [(TICKET, TicketRow(b"younger", number, number)) for number in range(PAGE_ROWS)])
    write(store, updates=[(TICKET, TicketRow(b"older", 2**64 - 1, 99))])  # now this key stands in both generations
    write(store, [(THING, row) for row in (*extremes, *many)])
    write(store, [(PARCEL, row) for row in parcels])


def test_generations_go_on_as_they_would_have(pair: Pair) -> None:
    source, target = pair.source.open(), pair.target.open()
    fill(source)
    copy(source, target, TABLES, ignore)
    older, younger, both = (b"older", 2**64 - 2), (b"younger", 5), (b"older", 2**64 - 1)
    assert find(target, TICKET, older) == TicketRow(*older, -1)
    rotate(target)
    assert find(target, TICKET, older) is None
    assert find(target, TICKET, younger) == TicketRow(*younger, 5)
    assert find(target, TICKET, both) == TicketRow(*both, 99)
    rotate(target)
    assert find(target, TICKET, younger) is None


def example(table: AnyTable, number: int) -> Row:
    """A row: odd ones leave out what may be left out."""
    return table.row._make(
        None if column.nullable and number % 2 else bytes([number]) if column.kind is ColumnKind.BYTES else number
        for column in table.columns
    )


def test_every_declared_table_is_copied(pair: Pair) -> None:
    source = pair.source.open(schema.TABLES, schema.MIGRATIONS)
    target = pair.target.open(schema.TABLES, schema.MIGRATIONS)
    write(source, [(table, example(table, number)) for table in schema.TABLES for number in range(1, 5)])
    copy(source, target, schema.TABLES, ignore)
    assert contents(target, schema.TABLES) == contents(source, schema.TABLES)
    assert sum(counted(target, schema.TABLES).values()) == 4 * len(schema.TABLES)


@pytest.mark.usefixtures("small_pages")
def test_rows_are_counted(pair: Pair) -> None:
    store = pair.source.open()
    fill(store)
    assert counted(store, TABLES) == {name: len(rows) for name, rows in contents(store).items()}


# What is refused


@pytest.mark.parametrize(
    ("table", "row"), [(THING, thing()), (TICKET, TicketRow(b"t", 1, 1)), (PARCEL, ParcelRow(1, b"", b""))], ids=str
)
def test_a_target_with_rows_is_refused_and_left_alone(pair: Pair, table: AnyTable, row: Row) -> None:
    source, target = pair.source.open(), pair.target.open()
    fill(source)
    write(target, [(table, row)])
    before = contents(target)
    with pytest.raises(TargetNotEmptyError, match=f"rows in {table.name}: use a new"):
        copy(source, target, TABLES, ignore)
    assert contents(target) == before


def test_a_target_with_rows_in_the_older_generation_is_refused(pair: Pair) -> None:
    source, target = pair.source.open(), pair.target.open()
    write(target, [(TICKET, TicketRow(b"t", 1, 1))])
    rotate(target)
    with pytest.raises(TargetNotEmptyError, match="rows in ticket"):
        copy(source, target, TABLES, ignore)


def test_a_target_whose_rows_have_all_gone_is_empty(pair: Pair) -> None:
    source, target = pair.source.open(), pair.target.open()
    fill(source)
    write(target, [(TICKET, TicketRow(b"old", 1, 1)), (THING, thing())])
    write(target, deletes=[(THING, THING.key_of(thing()))])
    rotate(target)
    rotate(target)
    copy(source, target, TABLES, ignore)
    assert contents(target) == contents(source)


# What a crash leaves


class Watched:
    """A store whose transactions call somebody before each flush and before the commit."""

    def __init__(
        self, store: Store, before_flush: Callable[[Changes], None], before_commit: Callable[[], None]
    ) -> None:
        self._store = store
        self._before_flush = before_flush
        self._before_commit = before_commit

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def begin(self, locks: Sequence[Lock], *, durable: bool = True, wait: bool = True) -> Tx:
        tx = self._store.begin(locks, durable=durable)
        return WatchedTx(tx, self._before_flush, self._before_commit)  # type: ignore[return-value]


class WatchedTx:
    def __init__(self, tx: Tx, before_flush: Callable[[Changes], None], before_commit: Callable[[], None]) -> None:
        self._tx = tx
        self._before_flush = before_flush
        self._before_commit = before_commit

    def __getattr__(self, name: str) -> object:
        return getattr(self._tx, name)

    def flush(self, changed: Changes) -> None:
        self._before_flush(changed)
        self._tx.flush(changed)

    def commit(self) -> object:
        self._before_commit()
        return self._tx.commit()


def watched(
    store: Store,
    before_flush: Callable[[Changes], None] = lambda _: None,
    before_commit: Callable[[], None] = lambda: None,
) -> Store:
    return Watched(store, before_flush, before_commit)  # type: ignore[return-value]


@pytest.mark.parametrize("error", [StoreError("the disk is full"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("at", [0, 6, 9], ids=["at the first page", "behind a rotation", "at the last page"])
@pytest.mark.usefixtures("small_pages")
def test_a_copy_that_fails_leaves_the_target_empty(pair: Pair, at: int, error: BaseException) -> None:
    source, target = pair.source.open(), pair.target.open()
    fill(source)
    flushes: list[Changes] = []

    def fail_later(changed: Changes) -> None:
        flushes.append(changed)
        if len(flushes) > at:
            raise error

    with pytest.raises(type(error)):
        copy(source, watched(target, fail_later), TABLES, ignore)
    assert len(flushes) == at + 1
    assert not any(contents(target).values())
    assert not any(contents(pair.target.reopen()).values())


def test_a_copy_that_is_not_committed_leaves_the_target_empty_and_can_be_made_again(pair: Pair) -> None:
    source, target = pair.source.open(), pair.target.open()
    fill(source)

    def fail() -> None:
        raise StoreError("the disk is full")

    with pytest.raises(StoreError):
        copy(source, watched(target, before_commit=fail), TABLES, ignore)
    assert not any(contents(target).values())
    copy(source, target, TABLES, ignore)
    assert contents(target) == contents(source)


def test_rows_of_any_size_pass_in_small_pages(pair: Pair) -> None:
    source, target = pair.source.open(), pair.target.open()
    largest = backup.PAGE_BYTES // 3
    write(source, [(PARCEL, ParcelRow(number, b"", bytes(largest))) for number in range(20)])
    sizes: list[int] = []
    copy(source, watched(target, lambda some: sizes.append(sum(map(bytes_of, some.inserts[PARCEL])))), TABLES, ignore)
    assert sum(sizes) == 20 * largest
    assert max(sizes) < backup.PAGE_BYTES + largest
