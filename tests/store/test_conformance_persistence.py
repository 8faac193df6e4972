"""What every store that persists promises: what was committed outlives the store, the process and the version."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from semel.store.migrations import AddColumn, CreateTable, MakeIndex, Migration, Step, pending, shapes
from semel.store.open import inspect_store
from semel.store.protocol import AnyTable, Range, Row, Store, StoreBusyError, StoreError, StoreVersionError
from semel.store.table import U64, Above, Below, ColumnKind, Table, TableColumn, TableLayout
from semel.surfaces import schema
from tests.store.committer import COUNTER, PAYLOAD_BYTES
from tests.store.conformance import (
    LOCKS,
    MIGRATIONS,
    PARCEL,
    TABLES,
    THING,
    TICKET,
    ParcelRow,
    PersistentPlace,
    ThingRow,
    TicketRow,
    changes,
    everything,
    find,
    rotate,
    scan,
    thing,
    transaction,
    write,
)

ROOT = Path(__file__).parent.parent.parent
TICKETS = tuple(TicketRow(b"t", number, number) for number in range(3))


# Reopening


def test_rows_survive_reopening(lasting: PersistentPlace) -> None:
    store = lasting.open()
    things = [thing(number=number, rank=2**64 - 1 - number, weight=-number) for number in range(5)]
    parcel = ParcelRow(-1, b"o", bytes(range(256)) * 100)
    write(store, [*((THING, row) for row in things), (PARCEL, parcel), (TICKET, TICKETS[0])])
    write(store, deletes=[(THING, THING.key_of(things[2]))])
    store = lasting.reopen()
    del things[2]
    assert everything(store, THING) == things
    assert scan(store, Range(THING, "rank", (), 9)) == things[::-1]
    assert everything(store, PARCEL) == [parcel]
    assert find(store, TICKET, TICKET.key_of(TICKETS[0])) == TICKETS[0]


def test_soft_commits_survive_an_orderly_close(lasting: PersistentPlace) -> None:
    write(lasting.open(), [(THING, thing())], durable=False)
    assert everything(lasting.reopen(), THING) == [thing()]


def test_an_open_transaction_does_not_survive(lasting: PersistentPlace) -> None:
    store = lasting.open()
    write(store, [(THING, thing(number=1))])
    tx = store.begin(LOCKS)
    tx.flush(changes([(THING, thing(number=2))], [(THING, thing(number=1, weight=9))]))
    assert everything(lasting.reopen(), THING) == [thing(number=1)]


def test_generations_survive_reopening(lasting: PersistentPlace) -> None:
    keys = [TICKET.key_of(ticket) for ticket in TICKETS]
    store = lasting.open()
    for before, ticket in enumerate(TICKETS):
        store = lasting.reopen()
        write(store, [(TICKET, ticket)])
        store = lasting.reopen()
        rotate(store)
        store = lasting.reopen()
        assert [find(store, TICKET, key) is not None for key in keys] == [number == before for number in range(3)]
    write(store, updates=[(TICKET, TICKETS[2]._replace(used_at=99))])
    store = lasting.reopen()
    assert find(store, TICKET, keys[2]) == TICKETS[2]._replace(used_at=99)
    rotate(store)
    assert find(lasting.reopen(), TICKET, keys[2]) == TICKETS[2]._replace(used_at=99)


def test_a_rotation_that_is_rolled_back_survives_nothing(lasting: PersistentPlace) -> None:
    store = lasting.open()
    write(store, [(TICKET, TICKETS[0])])
    rotate(store)
    write(store, [(TICKET, TICKETS[1])])
    tx = store.begin(LOCKS)
    tx.rotate(TICKET)
    tx.rollback()
    store = lasting.reopen()
    assert [find(store, TICKET, TICKET.key_of(ticket)) for ticket in TICKETS] == [*TICKETS[:2], None]


# A process that is killed


class Committer:
    """Another process that commits on the same place."""

    def __init__(self, place: PersistentPlace, first: str) -> None:
        command = [sys.executable, "-m", "tests.store.committer", place.url, first]
        # Without a buffer of ours: `communicate` reads past it, and lines that wait in it would be lost.
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0)
        self.said: list[str] = []

    def hear(self, count: int) -> None:
        """Wait until it has said that many lines."""
        assert self._process.stdout is not None
        while len(self.said) < count:
            line = self._process.stdout.readline()
            assert line, f"the process ended after {self.said[-3:]}"
            self.said.append(line.decode().strip())

    def kill(self) -> None:
        """End it without warning, and hear what it said until then."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        rest, _ = self._process.communicate(timeout=60)
        # A last line without its end was still written after the commit; a torn number is no report.
        self.said += rest.decode().split("\n")[:-1]


@contextmanager
def committer(place: PersistentPlace, first: str) -> Iterator[Committer]:
    child = Committer(place, first)
    try:
        yield child
    finally:
        child.kill()


def ask_another_process(place: PersistentPlace) -> str:
    """What another process says when it opens the place."""
    with committer(place, "open") as child:
        child.hear(1)
    return child.said[0]


def check_committed(store: Store, reported: int) -> int:
    """Everything that was reported is there and every transaction is whole; the number of the last one."""
    # A database may still be about to carry out what the dead have sent: whoever gets their lock comes after it.
    with transaction(store) as tx:
        tx.load({}, [])
    numbers = [row.number for row in everything(store, THING) if row.shelf == b"thing"]
    assert len(numbers) >= reported
    assert numbers == list(range(1, len(numbers) + 1))
    assert [row.number for row in everything(store, PARCEL)] == numbers
    assert all(len(row.content) == PAYLOAD_BYTES for row in everything(store, PARCEL))
    counter = find(store, THING, THING.key_of(COUNTER))
    assert (0 if counter is None else counter.weight) == len(numbers)
    return len(numbers)


def test_every_reported_commit_survives_a_kill(lasting: PersistentPlace) -> None:
    committed = 0
    for lines in (1, 40, 150):
        with committer(lasting, str(committed + 1)) as child:
            child.hear(lines)
        reported = int(child.said[-1])
        committed = check_committed(lasting.open(), reported)
        assert committed <= reported + 1
        lasting.close()


# One server at a time, where the data is one server's


def test_a_second_opening_is_refused(exclusive: PersistentPlace) -> None:
    store = exclusive.open()
    with pytest.raises(StoreBusyError) as refused:
        exclusive.open()
    assert str(exclusive.folder) in str(refused.value)
    write(store, [(THING, thing())])
    assert ask_another_process(exclusive) == "StoreBusyError"
    assert everything(store, THING) == [thing()]
    exclusive.close()
    assert ask_another_process(exclusive) == "opened"
    exclusive.open()


def test_another_process_keeps_this_one_out_until_it_is_killed(exclusive: PersistentPlace) -> None:
    with committer(exclusive, "1") as child:
        child.hear(1)
        with pytest.raises(StoreBusyError):
            exclusive.open()
    exclusive.open()


# Versions


class RicherThingRow(NamedTuple):
    """A thing two migrations later."""

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
    colour: bytes
    height: int
    width: U64
    maker: bytes | None
    stock: int | None


class RicherTicketRow(NamedTuple):
    """A ticket one migration later."""

    scope: bytes
    serial: U64
    used_at: int
    uses: int


class CrateRow(NamedTuple):
    """A table that came later."""

    number: int


RICHER_THING = Table("thing", RicherThingRow, key=3, indexes=THING.indexes)
RICHER_TICKET = Table("ticket", RicherTicketRow, key=2, generational=True)
CRATE = Table("crate", CrateRow, key=1)
RICHER_TABLES: tuple[AnyTable, ...] = (RICHER_THING, RICHER_TICKET, PARCEL, CRATE)
RICHER_MIGRATIONS = (
    *MIGRATIONS,
    Migration(
        2,
        "colours, sizes and uses",
        (
            AddColumn("thing", TableColumn("colour", ColumnKind.BYTES), b"\x00gr\xffn"),
            AddColumn("thing", TableColumn("height", ColumnKind.I64), -7),
            AddColumn("thing", TableColumn("width", ColumnKind.U64), 2**64 - 1),
            AddColumn("ticket", TableColumn("uses", ColumnKind.I64), 1),
        ),
    ),
    Migration(
        3,
        "makers and crates",
        (
            AddColumn("thing", TableColumn("maker", ColumnKind.BYTES, nullable=True), None),
            AddColumn("thing", TableColumn("stock", ColumnKind.I64, nullable=True), 12),
            CreateTable(CRATE.shape),
        ),
    ),
)


def enriched(row: ThingRow) -> RicherThingRow:
    return RicherThingRow(*row, b"\x00gr\xffn", -7, 2**64 - 1, None, 12)


def test_migrations_leave_the_declared_shapes() -> None:
    assert shapes(RICHER_MIGRATIONS) == {table.name: table.shape for table in RICHER_TABLES}


@pytest.mark.parametrize("stops", [(1, 3), (1, 2, 3), (3,), (1, 2, 2, 3, 3)], ids=str)
def test_older_data_is_carried_step_by_step(lasting: PersistentPlace, stops: tuple[int, ...]) -> None:
    old = [thing(number=number, note=b"old") for number in range(3)]
    store = lasting.open(TABLES, MIGRATIONS) if stops[0] == 1 else lasting.open((), ())
    if stops[0] == 1:
        write(store, [*((THING, row) for row in old), (TICKET, TICKETS[0])])
        rotate(store)
        write(store, [(TICKET, TICKETS[1])])
    for version in stops:
        store = lasting.reopen(RICHER_TABLES if version == 3 else (PARCEL,), RICHER_MIGRATIONS[:version])
    if stops[0] == 1:
        assert everything(store, RICHER_THING) == [enriched(row) for row in old]
        for ticket in TICKETS[:2]:
            assert find(store, RICHER_TICKET, ticket[:2]) == RicherTicketRow(*ticket, 1)
    new = enriched(thing(number=9))._replace(colour=b"red", width=0, maker=b"m", stock=None)
    write(store, [(RICHER_THING, new), (CRATE, CrateRow(5)), (RICHER_TICKET, RicherTicketRow(b"n", 1, 1, 4))])
    store = lasting.reopen(RICHER_TABLES, RICHER_MIGRATIONS)
    assert find(store, RICHER_THING, new[:3]) == new
    assert everything(store, CRATE) == [CrateRow(5)]
    assert find(store, RICHER_TICKET, (b"n", 1)) == RicherTicketRow(b"n", 1, 1, 4)


class ChestRow(NamedTuple):
    """Found by its state and place, later only while its state is below 2."""

    number: int
    state: int
    place: int


CHEST = Table("chest", ChestRow, key=1, indexes={"open": ("state", "place")})
LIGHT_CHEST = Table("chest", ChestRow, key=1, indexes=CHEST.indexes, partial={"open": Below("state", 2)})
CHEST_MIGRATIONS = (
    Migration(1, "chests", (CreateTable(CHEST.shape),)),
    Migration(2, "a lighter index", (MakeIndex("chest", ("number",), "open", ("state", "place"), Below("state", 2)),)),
)
CHEST_BOUNDS: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((), (), ()),
    ((), (), (2,)),
    ((), (1,), (2,)),
    ((), (), (3,)),
    ((), (), (1, 5)),
    ((1,), (), ()),
    ((1,), (3,), (9,)),
    ((2,), (), ()),
)
"""Ranges inside the part of the rows that the index has, beyond it, and over both: prefix, start and stop."""


def assert_ranges(store: Store, rows: Sequence[ChestRow]) -> None:
    """Every range has the rows that its bounds say, whatever the index has."""
    ordered = sorted(rows, key=lambda row: (row.state, row.place, row.number))
    for prefix, start, stop in CHEST_BOUNDS:
        for reverse in (False, True):
            wanted = Range(LIGHT_CHEST, "open", prefix, 99, start, stop, reverse)
            inside = [row for row in ordered if wanted.holds((row.state, row.place, row.number))]
            assert scan(store, wanted) == (inside[::-1] if reverse else inside)


def test_an_index_is_made_anew_over_some_of_the_rows(lasting: PersistentPlace) -> None:
    rows = [ChestRow(number, number % 4, number * 7 % 10) for number in range(20)]
    write(lasting.open((CHEST,), CHEST_MIGRATIONS[:1]), [(CHEST, row) for row in rows])
    store = lasting.reopen((LIGHT_CHEST,), CHEST_MIGRATIONS)
    assert shapes(CHEST_MIGRATIONS) == {"chest": LIGHT_CHEST.shape}
    assert_ranges(store, rows)
    moved = [row._replace(state=3 - row.state) for row in rows]  # into the index, and out of it
    write(store, updates=[(LIGHT_CHEST, row) for row in moved])
    assert_ranges(store, moved)
    write(store, deletes=[(LIGHT_CHEST, (row.number,)) for row in moved[::3]])
    assert_ranges(store, [row for row in moved if row not in moved[::3]])


class GuestRow(NamedTuple):
    """Found by the second in which it leaves, if it ever does."""

    number: int
    leaves: U64
    room: int


GUEST = Table("guest", GuestRow, key=1)
LEAVING = Table("guest", GuestRow, key=1, indexes={"exit": ("leaves", "room")}, partial={"exit": Above("leaves", 0)})
LEAVING_MIGRATIONS = (
    Migration(1, "guests", (CreateTable(GUEST.shape),)),
    Migration(
        2, "those that leave", (MakeIndex("guest", ("number",), "exit", ("leaves", "room"), Above("leaves", 0)),)
    ),
)
LEAVING_BOUNDS: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool], ...] = (
    ((), (1,), (), True),
    ((), (1,), (2**63 + 1,), True),
    ((), (5, 3), (9, 1), True),
    ((), (2**64 - 1,), (), True),
    ((7,), (), (), True),
    ((7,), (2,), (8,), True),
    ((), (), (), False),
    ((), (0,), (9,), False),
    ((), (), (9,), False),
    ((0,), (), (), False),
)
"""Prefix, start and stop of a range, and whether the bounds keep it inside the part of the rows that the index has."""


def test_an_index_over_the_rows_above_a_limit(lasting: PersistentPlace) -> None:
    ends = (0, 1, 5, 7, 9, 2**63, 2**64 - 1)
    rows = [GuestRow(number, ends[number % 7], number * 5 % 11) for number in range(40)]
    write(lasting.open((GUEST,), LEAVING_MIGRATIONS[:1]), [(GUEST, row) for row in rows])
    store = lasting.reopen((LEAVING,), LEAVING_MIGRATIONS)
    assert shapes(LEAVING_MIGRATIONS) == {"guest": LEAVING.shape}
    moved = [row._replace(leaves=ends[(row.number + 3) % 7]) for row in rows]  # into the index, and out of it
    for present in (rows, moved):
        write(store, updates=[(LEAVING, row) for row in present])
        ordered = sorted(present, key=lambda row: (row.leaves, row.room, row.number))
        for prefix, start, stop, is_inside in LEAVING_BOUNDS:
            for reverse in (False, True):
                wanted = Range(LEAVING, "exit", prefix, 99, start, stop, reverse)
                assert (wanted.part is not None) == is_inside
                found = [row for row in ordered if wanted.holds((row.leaves, row.room, row.number))]
                assert scan(store, wanted) == (found[::-1] if reverse else found)


def test_only_an_unsigned_column_can_be_above_a_limit() -> None:
    with pytest.raises(TypeError, match="unsigned"):
        Table("guest", GuestRow, key=1, indexes={"room": ("room",)}, partial={"room": Above("room", 0)})


def test_data_of_a_newer_version_is_refused_and_left_alone(lasting: PersistentPlace) -> None:
    write(lasting.open(RICHER_TABLES, RICHER_MIGRATIONS), [(CRATE, CrateRow(5))])
    lasting.close()
    for known in (1, 2):
        with pytest.raises(StoreVersionError) as refused:
            lasting.open(TABLES, RICHER_MIGRATIONS[:known])
        assert f"version {len(RICHER_MIGRATIONS)}" in str(refused.value)
    assert everything(lasting.open(RICHER_TABLES, RICHER_MIGRATIONS), CRATE) == [CrateRow(5)]


BROKEN_STEPS: dict[str, tuple[Step, ...]] = {
    "a table that is there already": (CreateTable(CRATE.shape), CreateTable(THING.shape)),
    "a column without a value for old rows": (AddColumn("thing", TableColumn("x", ColumnKind.I64), None),),
    "a column of no table": (CreateTable(CRATE.shape), AddColumn("nothing", TableColumn("x", ColumnKind.I64), 1)),
}


@pytest.mark.parametrize("steps", BROKEN_STEPS.values(), ids=BROKEN_STEPS)
def test_a_migration_that_fails_leaves_the_data_as_it_was(lasting: PersistentPlace, steps: tuple[Step, ...]) -> None:
    write(lasting.open(), [(THING, thing())])
    lasting.close()
    good = Migration(2, "good", (AddColumn("parcel", TableColumn("y", ColumnKind.I64), 1),))
    with suppress(Exception):
        lasting.open(TABLES, (*MIGRATIONS, good, Migration(3, "broken", steps)))
    assert everything(lasting.reopen(), THING) == [thing()]
    assert everything(lasting.reopen(RICHER_TABLES, RICHER_MIGRATIONS), RICHER_THING) == [enriched(thing())]


def test_a_migration_that_fails_is_a_store_error(lasting: PersistentPlace) -> None:
    broken = Migration(2, "broken", (CreateTable(THING.shape),))
    with pytest.raises(StoreError):
        lasting.open(TABLES, (*MIGRATIONS, broken))


def test_data_from_before_the_first_migration_is_refused_by_name_and_left_as_it_is(lasting: PersistentPlace) -> None:
    """It is not read as an empty store, whose sequences begin anew."""
    write(lasting.open(), [(THING, thing())])
    baseline = (MIGRATIONS[0]._replace(number=5),)
    for _ in range(2):
        with pytest.raises(StoreVersionError, match="has schema version 1, and this Semel supports versions from 5 on"):
            lasting.reopen(TABLES, baseline)
        lasting.close()
    assert inspect_store(lasting.url, TABLES).version == 1
    assert everything(lasting.reopen(), THING) == [thing()]


def test_migrations_are_numbered_without_a_hole() -> None:
    good = RICHER_MIGRATIONS
    assert pending(good, 0) == good
    assert pending(good, 2) == good[2:]
    assert pending(good, 3) == ()
    assert pending(good[1:], 0) == pending(good, 1)
    for bad in ((good[0], good[2]), (good[0], good[0]), (good[1], good[0])):
        with pytest.raises(ValueError, match="numbered"):
            pending(bad, 0)


# The schema of the server


def test_declared_tables_are_what_the_migrations_leave_behind() -> None:
    assert shapes(schema.MIGRATIONS) == {table.name: table.shape for table in schema.TABLES}
    assert pending(schema.MIGRATIONS, schema.MIGRATIONS[-1].number) == ()


def example(shape: TableLayout, number: int) -> list[int | bytes | None]:
    """The values of a row: odd ones leave out what may be left out."""
    return [
        None if column.nullable and number % 2 else bytes([number]) if column.kind is ColumnKind.BYTES else number
        for column in shape.columns
    ]


def test_every_declared_table_keeps_its_rows(lasting: PersistentPlace) -> None:
    store = lasting.open(schema.TABLES, schema.MIGRATIONS)
    rows: list[tuple[AnyTable, Row]] = [
        (table, table.row._make(example(table.shape, number))) for table in schema.TABLES for number in range(1, 5)
    ]
    write(store, rows)
    ranges = [Range(table, by, (), 9) for table in schema.TABLES for by in ("", *table.indexes) if table.has_order(by)]
    with transaction(store) as tx:
        loaded = tx.load({}, ranges)
    assert {len(found) for found in loaded.ranges} == {4}
    store = lasting.reopen(schema.TABLES, schema.MIGRATIONS)
    for table, row in rows:
        read = row if table.checksum_of is None else row._replace(checksum=0)  # no rule reads a checksum
        assert find(store, table, table.key_of(row)) == read
