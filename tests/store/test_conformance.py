"""What every store promises of a transaction: all of it or nothing, and every value as it was."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event, Thread

import pytest

from semel.store.protocol import AnyTable, NarrowRows, Range, Row, StoreError, Touch
from semel.store.table import Key
from tests.store.conformance import (
    LOCKS,
    PARCEL,
    THING,
    TICKET,
    TICKET_KEY,
    TICKET_ROW,
    ParcelRow,
    Place,
    ThingRow,
    TicketRow,
    changes,
    everything,
    find,
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


def test_many_rows_are_found_at_once_and_absent_ones_left_out(place: Place) -> None:
    store = place.open()
    parcels = [ParcelRow(number, b"o", b"content %d" % number) for number in range(300)]
    write(store, [*((PARCEL, parcel) for parcel in parcels), (TICKET, TICKET_ROW)])
    with store.read() as snapshot:
        found = snapshot.find(PARCEL, [(number,) for number in range(-5, 305)])
        assert found == {(parcel.number,): parcel for parcel in parcels}
        assert snapshot.find(TICKET, [TICKET_KEY, (b"other", 1)]) == {TICKET_KEY: TICKET_ROW}
        assert snapshot.find(PARCEL, []) == {}


def test_a_commit_keeps_every_row(place: Place) -> None:
    store = place.open()
    parcel = ParcelRow(1, b"o", b"content")
    write(store, [(THING, thing()), (TICKET, TICKET_ROW), (PARCEL, parcel)])
    assert find(store, THING, (b"a", 1, 1)) == thing()
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW
    assert find(store, PARCEL, (1,)) == parcel
    assert type(find(store, THING, (b"a", 1, 1))) is ThingRow


@pytest.mark.parametrize("number", I64)
@pytest.mark.parametrize("serial", U64)
def test_numbers_survive(place: Place, number: int, serial: int) -> None:
    store = place.open()
    row = thing(b"a", number, serial, weight=number, rank=serial, used_at=serial, price=number)
    write(store, [(THING, row)])
    assert find(store, THING, (b"a", number, serial)) == row


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


def test_absent_keys_are_left_out_of_what_is_loaded(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing())])
    with transaction(store) as tx:
        loaded = tx.load({THING: [(b"a", 1, 1), (b"a", 1, 2)], TICKET: [TICKET_KEY], PARCEL: []}, [])
    assert loaded.rows == {THING: {(b"a", 1, 1): thing()}, TICKET: {}, PARCEL: {}}
    assert find(store, THING, (b"a", 1, 2)) is None


def test_a_steady_update_changes_a_row_and_leaves_it_in_its_places(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=number, weight=number)) for number in range(3)])
    write(store, [(TICKET, TICKET_ROW)])
    changed = thing(number=1, weight=1, note=b"n", used_at=2**64 - 1)
    with transaction(store) as tx:
        tx.flush(changes(steady=[(THING, changed), (TICKET, TICKET_ROW._replace(used_at=44))]))
    assert [row.number for row in everything(store, THING)] == [0, 1, 2]
    assert find(store, THING, THING.key_of(changed)) == changed
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW._replace(used_at=44)


def test_a_narrow_update_changes_the_named_columns_and_moves_the_row(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=number, weight=number)) for number in range(5)])
    changed = [thing(number=number, weight=50 - number, note=b"n", rank=number // 3) for number in range(1, 4)]
    narrow = {THING: [NarrowRows(("weight", "note"), changed[:2]), NarrowRows(("weight", "note", "rank"), changed[2:])]}
    with transaction(store) as tx:
        tx.flush(changes()._replace(narrow=narrow))
        assert tx.load({THING: [THING.key_of(changed[0])]}, []).rows[THING] == {THING.key_of(changed[0]): changed[0]}
    assert [row.number for row in scan(store, Range(THING, "weight", (b"a",), 9))] == [0, 4, 3, 2, 1]
    assert find(store, THING, THING.key_of(changed[2])) == changed[2]


def test_updates_and_deletes_move_rows_in_every_index(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=number, weight=number, rank=number)) for number in range(5)])
    write(store, updates=[(THING, thing(number=1, weight=50, rank=0))], deletes=[(THING, (b"a", 3, 1))])
    assert [row.number for row in scan(store, Range(THING, "weight", (b"a",), 9))] == [0, 2, 4, 1]
    assert [row.number for row in scan(store, Range(THING, "rank", (), 9))] == [0, 1, 2, 4]
    assert [row.number for row in everything(store, THING)] == [0, 1, 2, 4]


def test_deleting_a_row_that_is_not_there_is_harmless(place: Place) -> None:
    store = place.open()
    gone: list[tuple[AnyTable, Key]] = [(THING, (b"a", 9, 9)), (TICKET, TICKET_KEY), (PARCEL, (9,))]
    write(store, [(THING, thing())], deletes=gone)
    assert everything(store, THING) == [thing()]


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


def test_a_rollback_leaves_nothing(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=1)), (THING, thing(number=2)), (TICKET, TICKET_ROW)])
    before = everything(store, THING)
    tx = store.begin(LOCKS)
    tx.flush(
        changes(
            [(THING, thing(number=3)), (PARCEL, ParcelRow(1, b"", b""))],
            [(THING, thing(number=1, weight=9)), (TICKET, TICKET_ROW._replace(used_at=9))],
            [(THING, (b"a", 2, 1))],
            [Touch(THING, (b"a", 1, 1), "seen_at", 9)],
        )
    )
    tx.rollback()
    assert everything(store, THING) == before
    assert find(store, PARCEL, (1,)) is None
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW


def test_a_rollback_is_harmless_after_the_end(place: Place) -> None:
    store = place.open()
    tx = store.begin(LOCKS)
    tx.flush(changes([(THING, thing())]))
    tx.commit()
    tx.rollback()
    tx.rollback()
    assert everything(store, THING) == [thing()]
    write(store, [(THING, thing(number=2))])


def test_a_transaction_may_be_empty(place: Place) -> None:
    store = place.open()
    write(store)
    write(store, durable=False)
    with transaction(store):
        pass
    assert everything(store, THING) == []


@pytest.mark.parametrize("table", [THING, TICKET, PARCEL], ids=lambda table: table.name)
def test_an_insert_that_meets_a_row_is_an_error(place: Place, table: AnyTable) -> None:
    store = place.open()
    row: Row = {THING: thing(), TICKET: TICKET_ROW, PARCEL: ParcelRow(1, b"", b"first")}[table]
    write(store, [(table, row)])
    tx = store.begin(LOCKS)
    with pytest.raises(StoreError):  # noqa: PT012 - a store may say so at once or at the latest now
        tx.flush(changes([(THING, thing(number=8)), (table, row), (THING, thing(number=9))]))
        tx.commit()
    tx.rollback()
    assert find(store, table, table.key_of(row)) == row
    assert find(store, THING, (b"a", 8, 1)) is None
    write(store, [(THING, thing(number=8))])
    assert find(store, THING, (b"a", 8, 1)) is not None


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
