"""What every store promises at its edges: every value, sets of any size, errors, clocks, and readers in other threads.

What transactions, snapshots and ranges come to is tried by random walks: `test_conformance_model.py`.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Event, Thread

import pytest

from semel.store.protocol import AnyTable, Range, Row, Snapshot, StoreError, Touch
from semel.store.table import Key
from tests.store.conformance import (
    LOCKS,
    PARCEL,
    THING,
    TICKET,
    TICKET_KEY,
    TICKET_ROW,
    ParcelRow,
    PersistentPlace,
    Place,
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

I64 = (-(2**63), -(2**40), -1, 0, 1, 2**40, 2**63 - 1)


U64 = (0, 1, 255, 256, 2**40, 2**63 - 1, 2**63, 2**64 - 1)


TEXTS = (
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x00\xff",
    b"a",
    b"a\x00",
    b"a\x00b",
    b"a\x01",
    b"aa",
    b"b",
    b"\x7f",
    b"\x80",
    b"\xff",
)


def test_numbers_survive(place: Place) -> None:
    store = place.open()
    rows = [
        thing(b"a", number, serial, weight=number, rank=serial, used_at=serial, price=number)
        for number, serial in itertools.product(I64, U64)
    ]
    write(store, [(THING, row) for row in rows])
    assert [find(store, THING, THING.key_of(row)) for row in rows] == rows


def test_bytes_survive(place: Place) -> None:
    store = place.open()
    rows = [thing(text, 1, 1, label=text, note=text) for text in (*TEXTS, bytes(range(256)), b"x" * 100_000)]
    parcel = ParcelRow(1, b"", bytes(range(256)) * 10_000)
    write(store, [*((THING, row) for row in rows), (PARCEL, parcel)])
    for row in rows:
        assert find(store, THING, THING.key_of(row)) == row
    assert find(store, PARCEL, (1,)) == parcel


def test_nothing_and_empty_are_two_values(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=1, note=None, price=None)), (THING, thing(number=2, note=b"", price=0))])
    assert [(row.note, row.price) for row in everything(store, THING)] == [(None, None), (b"", 0)]
    write(store, updates=[(THING, thing(number=1, note=b"", price=0)), (THING, thing(number=2))])
    assert [(row.note, row.price) for row in everything(store, THING)] == [(b"", 0), (None, None)]


@pytest.mark.parametrize("count", [1, 2, 3, 127, 128, 129, 300])
def test_sets_of_any_size(place: Place, count: int) -> None:
    store = place.open()
    numbers = range(count)
    things = [thing(number=number, rank=number) for number in numbers]
    tickets = [TicketRow(b"s", number, 0) for number in numbers]
    parcels = [ParcelRow(number, b"o", bytes([number % 256])) for number in numbers]
    tables: list[tuple[AnyTable, list[Row], str]] = [
        (THING, things, "rank"),
        (TICKET, tickets, "used_at"),
        (PARCEL, parcels, "owner"),
    ]
    write(store, [(table, row) for table, rows, _ in tables for row in rows])
    assert everything(store, THING) == things
    changed = {"rank": 2**64 - 1, "used_at": 1, "owner": b"p"}
    write(
        store, updates=[(table, row._replace(**{name: changed[name]})) for table, rows, name in tables for row in rows]
    )
    for table, rows, name in tables:
        with transaction(store) as tx:
            keys = [table.key_of(row) for row in rows]
            found = tx.load({table: [*keys, (*keys[0][:-1], 999_999)]}, []).rows[table]
        assert found == {table.key_of(row): row._replace(**{name: changed[name]}) for row in rows}
    write(store, deletes=[(table, table.key_of(row)) for table, rows, _ in tables for row in rows[1:]])
    for table, rows, _ in tables:
        assert [find(store, table, table.key_of(row)) is not None for row in rows] == [True] + [False] * (count - 1)


def test_two_inserts_of_one_key_are_an_error(place: Place) -> None:
    store = place.open()
    with pytest.raises(StoreError):
        write(store, [(THING, thing(weight=1)), (THING, thing(weight=2))])
    assert everything(store, THING) == []


BAD_ROWS = {
    "text among bytes": (THING, thing(label="text")),
    "nothing in a column that must have something": (THING, thing(weight=None)),
    "a number above i64": (THING, thing(weight=2**63)),
    "a number below i64": (THING, thing(number=-(2**63) - 1)),
    "a number above u64": (THING, thing(rank=2**64)),
    "a number below u64": (THING, thing(rank=-1)),
    "a number among bytes": (PARCEL, ParcelRow(5, b"", 5)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_value_that_does_not_fit_its_column_is_an_error(place: Place, bad: tuple[AnyTable, Row]) -> None:
    store = place.open()
    with pytest.raises(StoreError):
        write(store, [(THING, thing(number=8)), bad])
    assert everything(store, THING) == everything(store, PARCEL) == []
    write(store, [(THING, thing(number=8))])
    assert everything(store, THING) == [thing(number=8)]


def test_the_clock_is_read_when_a_transaction_begins(place: Place) -> None:
    store = place.open()
    if place.has_own_clock:
        before = time.time_ns() // 1_000_000
        tx = store.begin(LOCKS)
        began = tx.now_ms
        with store.read() as snapshot:
            read = snapshot.now_ms
            time.sleep(0.005)
            assert snapshot.now_ms == read
        assert before <= began <= read <= time.time_ns() // 1_000_000
        assert tx.now_ms == began
        tx.rollback()
        return
    place.clock.ms = 123
    tx = store.begin(LOCKS)
    place.clock.ms = 456
    assert tx.now_ms == 123
    tx.rollback()
    with store.read() as snapshot:
        place.clock.ms = 789
        assert snapshot.now_ms == 456


def test_reading_a_closed_store_does_not_wait_for_ever(place: Place) -> None:
    store = place.open()
    place.close()
    ended = Event()

    def read() -> None:
        try:
            find(store, THING, (b"a", 1, 1))
        except StoreError:
            pass
        finally:
            ended.set()

    Thread(target=read, daemon=True).start()
    assert ended.wait(60)


def test_looking_for_a_number_that_no_column_can_hold_is_no_crash(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing())])
    wanted = Range(THING, "", (b"a",), 9, start=(2**63,))
    with suppress(StoreError):
        assert find(store, THING, (b"a", 2**63, 1)) is None
    with suppress(StoreError), transaction(store) as tx:
        assert tx.load({THING: [(b"a", 2**63, 1)]}, []).rows[THING] == {}
    with suppress(StoreError):
        assert scan(store, wanted) == []
    with suppress(StoreError), transaction(store) as tx:
        assert tx.load({}, [wanted]).ranges == [[]]
    assert everything(store, THING) == [thing()]


# Soft changes and generations


def test_a_touch_of_an_empty_column_is_no_fault(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(price=None))])
    write(store, touches=[Touch(THING, (b"a", 1, 1), "price", 5)])
    assert find(store, THING, (b"a", 1, 1)) in (thing(price=None), thing(price=5))


def test_a_rotation_drops_what_a_touch_of_the_same_transaction_meant(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    with transaction(store) as tx:
        tx.flush(changes(touches=[Touch(TICKET, TICKET_KEY, "used_at", 9)]))
        tx.rotate(TICKET)
    assert find(store, TICKET, TICKET_KEY) is None


def test_a_generational_table_has_no_ranges(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    with store.read() as snapshot:
        with pytest.raises(StoreError):
            snapshot.range(Range(TICKET, "", (), 9))
        with pytest.raises(StoreError):
            snapshot.keys(Range(TICKET, "", (), 9))
        with pytest.raises(StoreError):
            snapshot.latest(TICKET, [(b"scope",)], 9)
        with pytest.raises(StoreError):
            snapshot.earliest(TICKET, [(b"scope",)], 9)
        with pytest.raises(StoreError):
            snapshot.distinct(Range(TICKET, "", (), 9))
    with pytest.raises(StoreError), transaction(store) as tx:
        tx.load({}, [Range(TICKET, "", (), 9)])


# Pages

PLENTY = 2**40


def pages(snapshot: Snapshot, table: AnyTable, age: int, limit: int, most_bytes: int = PLENTY) -> list[list[Row]]:
    """All pages of a generation, each begun behind the one before; the keys alone must tell the same."""
    found: list[list[Row]] = []
    behind: Key | None = None
    while page := list(snapshot.page(table, age, behind, limit, most_bytes)):
        keys = [table.key_of(row) for row in page]
        assert list(snapshot.page_keys(table, age, behind, limit))[: len(page)] == keys
        found.append(page)
        behind = keys[-1]
    assert list(snapshot.page_keys(table, age, behind, limit)) == []
    return found


@pytest.mark.parametrize(("most_bytes", "sizes"), [(1, [1, 1, 1, 1, 1]), (2_500, [3, 2]), (3_000, [3, 2])])
def test_a_page_ends_when_its_bytes_are_full(place: Place, most_bytes: int, sizes: list[int]) -> None:
    store = place.open()
    write(store, [(PARCEL, ParcelRow(number, b"", bytes(1_000))) for number in range(5)])
    with store.read() as snapshot:
        assert [len(page) for page in pages(snapshot, PARCEL, 0, 100, most_bytes)] == sizes


def test_a_large_row_ends_its_page(place: Place) -> None:
    store = place.open()
    rows = [ParcelRow(number, b"owner", bytes(number % 2 * 10_000_000)) for number in range(4)]
    write(store, [(PARCEL, row) for row in rows])
    with store.read() as snapshot:
        assert pages(snapshot, PARCEL, 0, 100, 1_000) == [rows[:2], rows[2:]]


def test_a_key_that_no_column_holds_is_a_store_error(lasting: PersistentPlace) -> None:
    with lasting.open().read() as snapshot, pytest.raises(StoreError):
        snapshot.page(PARCEL, 0, (2**64,), 1, PLENTY)


# Readers in other threads


@contextmanager
def hurried_threads() -> Iterator[None]:
    """Threads change places often, so that races show themselves."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_readers_in_other_threads_never_see_half_a_commit(place: Place) -> None:
    store, count, done = place.open(), 400, Event()
    write(store, [(THING, thing(number=number)) for number in range(count)])

    looks = [0] * 3

    def read(number: int) -> None:
        while not done.is_set():
            with store.read() as snapshot:
                first = list(snapshot.range(Range(THING, "", (), 1_000)))
                assert (len(first), sum(row.weight for row in first)) == (count, 0)
                for reverse in (False, True, False, True):
                    again = snapshot.range(Range(THING, "weight", (b"a",), 1_000, reverse=reverse))
                    assert sorted(again) == first
            looks[number] += 1

    def move_weight(turn: int) -> None:
        keys = [(b"a", number % count, 1) for number in (turn, turn * 7 + 1)]
        with transaction(store, durable=False) as tx:
            lighter, heavier = (tx.load({THING: [key]}, []).rows[THING][key] for key in keys)
            moved = [lighter._replace(weight=lighter.weight - 1), heavier._replace(weight=heavier.weight + 1)]
            tx.flush(changes(updates=[(THING, row) for row in moved]))

    with ThreadPoolExecutor(3) as readers, hurried_threads():
        looking = [readers.submit(read, number) for number in range(len(looks))]
        try:
            for turn in itertools.count():
                # Until everybody has looked, however late it was begun; one that has failed looks no more.
                if turn >= 2_000 and (all(looks) or any(look.done() for look in looking)):
                    break
                if turn % count != (turn * 7 + 1) % count:
                    move_weight(turn)
        finally:
            done.set()
        for look in looking:
            look.result()
        assert all(looks)


def test_a_row_is_deleted_and_made_anew_in_one_transaction(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(weight=1))])
    with transaction(store) as tx:
        tx.flush(changes(deletes=[(THING, THING.key_of(thing()))]))
        tx.flush(changes([(THING, thing(weight=2))]))
    assert everything(store, THING) == [thing(weight=2)]


def test_a_row_that_was_rotated_away_is_made_anew_in_one_transaction(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store, TICKET)
    with transaction(store) as tx:
        tx.rotate(TICKET)
        tx.flush(changes([(TICKET, TICKET_ROW)]))
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW
