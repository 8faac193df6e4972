"""What every store promises to a copy: all rows in pages, generation by generation, and a way to write them so."""

from __future__ import annotations

from itertools import product

import pytest

from semel.store.protocol import AnyTable, Row, Snapshot, StoreError
from semel.store.table import Key
from tests.store.conformance import (
    LOCKS,
    PARCEL,
    TABLES,
    THING,
    TICKET,
    TICKET_KEY,
    TICKET_ROW,
    ParcelRow,
    PersistentPlace,
    Place,
    TicketRow,
    changes,
    find,
    rotate,
    thing,
    transaction,
    write,
)

PLENTY = 2**40

THINGS = [
    thing(shelf, number, serial, note=None if number < 0 else b"\x00\xff", price=None if serial else -1)
    for shelf, number, serial in product(
        (b"", b"\x00", b"a", b"a\x00", b"\xff"), (-(2**63), -1, 0, 2**63 - 1), (0, 2**63 - 1, 2**63, 2**64 - 1)
    )
]


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


@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_pages_hold_every_row_once_and_by_key(place: Place, limit: int) -> None:
    store = place.open()
    write(store, [(THING, row) for row in reversed(THINGS)])
    with store.read() as snapshot:
        found = pages(snapshot, THING, 0, limit)
    assert [row for page in found for row in page] == sorted(THINGS, key=THING.key_of)
    assert all(len(page) == limit for page in found[:-1])


def test_an_empty_table_has_no_page(place: Place) -> None:
    with place.open().read() as snapshot:
        for table in TABLES:
            assert pages(snapshot, table, 0, 10) == []
            assert pages(snapshot, table, 1, 10) == []


def test_an_ordinary_table_has_no_older_generation(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing()), (PARCEL, ParcelRow(1, b"", b""))])
    with store.read() as snapshot:
        assert pages(snapshot, THING, 1, 10) == []
        assert pages(snapshot, PARCEL, 1, 10) == []


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


def test_a_page_has_the_rows_of_its_generation(place: Place) -> None:
    store = place.open()
    for turn in range(4):
        write(store, [(TICKET, TicketRow(b"t", 10 * turn + number, 0)) for number in range(3)])
        with store.read() as snapshot:
            younger, older = (
                [row.serial for page in pages(snapshot, TICKET, age, 2) for row in page] for age in (0, 1)
            )
        assert younger == [10 * turn + number for number in range(3)]
        assert older == ([10 * (turn - 1) + number for number in range(3)] if turn else [])
        rotate(store)


def test_a_row_that_was_replaced_is_in_the_younger_generation(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    write(store, updates=[(TICKET, TICKET_ROW._replace(used_at=2))])
    with store.read() as snapshot:
        assert pages(snapshot, TICKET, 0, 10) == [[TICKET_ROW._replace(used_at=2)]]


def test_pages_are_of_one_instant(place: Place) -> None:
    store = place.open()
    old, young = TicketRow(b"old", 1, 1), TicketRow(b"young", 1, 1)
    write(store, [(TICKET, old), (THING, thing(number=1)), (THING, thing(number=2))])
    rotate(store)
    write(store, [(TICKET, young)])
    with store.read() as snapshot:
        assert pages(snapshot, THING, 0, 1) == [[thing(number=1)], [thing(number=2)]]
        write(store, [(THING, thing(number=3))], deletes=[(THING, (b"a", 1, 1))])
        write(store, [(TICKET, TicketRow(b"new", 1, 1))], [(TICKET, old._replace(used_at=9))])
        assert pages(snapshot, THING, 0, 1) == [[thing(number=1)], [thing(number=2)]]
        assert pages(snapshot, TICKET, 0, 10) == [[young]]
        assert pages(snapshot, TICKET, 1, 10) == [[old]]
        rotate(store)
        assert pages(snapshot, TICKET, 0, 10) == [[young]]
        assert pages(snapshot, TICKET, 1, 10) == [[old]]


def test_a_key_that_no_column_holds_is_a_store_error(lasting: PersistentPlace) -> None:
    with lasting.open().read() as snapshot, pytest.raises(StoreError):
        snapshot.page(PARCEL, 0, (2**64,), 1, PLENTY)


# Writing generations


def test_what_is_flushed_after_a_rotation_is_younger(place: Place) -> None:
    store = place.open()
    for turn in range(4):
        older, younger = TicketRow(b"older", turn, 0), TicketRow(b"younger", turn, 0)
        with transaction(store) as tx:
            tx.rotate(TICKET)  # what the turn before left as younger goes
            tx.flush(changes([(TICKET, older)]))
            tx.rotate(TICKET)
            tx.flush(changes([(TICKET, younger)]))
        with store.read() as snapshot:
            assert pages(snapshot, TICKET, 0, 10) == [[younger]]
            assert pages(snapshot, TICKET, 1, 10) == [[older]]
        assert find(store, TICKET, TICKET.key_of(older)) == older
        rotate(store)
        assert find(store, TICKET, TICKET.key_of(older)) is None
        assert find(store, TICKET, TICKET.key_of(younger)) == younger


def test_one_key_may_stand_in_both_generations(lasting: PersistentPlace) -> None:
    store = lasting.open()
    newer = TICKET_ROW._replace(used_at=2)
    with transaction(store) as tx:
        tx.flush(changes([(TICKET, TICKET_ROW)]))
        tx.rotate(TICKET)
        tx.flush(changes([(TICKET, newer)]))
        assert tx.load({TICKET: [TICKET_KEY]}, []).rows[TICKET] == {TICKET_KEY: newer}
    store = lasting.reopen()
    assert find(store, TICKET, TICKET_KEY) == newer
    with store.read() as snapshot:
        assert pages(snapshot, TICKET, 0, 10) == [[newer]]
        assert pages(snapshot, TICKET, 1, 10) == [[TICKET_ROW]]


def test_a_rotation_between_two_flushes_that_is_rolled_back_changes_nothing(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    tx = store.begin(LOCKS)
    tx.flush(changes([(TICKET, TicketRow(b"never", 1, 1))]))
    tx.rotate(TICKET)
    tx.flush(changes([(TICKET, TicketRow(b"never", 2, 1))]))
    tx.rollback()
    with store.read() as snapshot:
        assert pages(snapshot, TICKET, 0, 10) == [[TICKET_ROW]]
        assert pages(snapshot, TICKET, 1, 10) == []
    other = TicketRow(b"other", 1, 1)
    write(store, [(TICKET, other)])
    with store.read() as snapshot:
        assert pages(snapshot, TICKET, 0, 10) == [[other, TICKET_ROW]]
