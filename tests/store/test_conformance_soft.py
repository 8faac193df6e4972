"""What every store promises of soft changes, which only raise, and of generations, which are dropped whole."""

from __future__ import annotations

import pytest

from semel.store.protocol import Range, StoreError, Touch
from tests.store.conformance import (
    LOCKS,
    PARCEL,
    THING,
    TICKET,
    TICKET_KEY,
    TICKET_ROW,
    ParcelRow,
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

# Soft changes


@pytest.mark.parametrize("durable", [True, False])
def test_a_touch_only_raises(place: Place, durable: bool) -> None:
    store = place.open()
    write(store, [(THING, thing(seen_at=-5, used_at=2**63))])
    for column, value, after in (
        ("seen_at", -6, -5),
        ("seen_at", 10, 10),
        ("seen_at", 9, 10),
        ("used_at", 5, 2**63),
        ("used_at", 2**63 + 1, 2**63 + 1),
        ("used_at", 2**64 - 1, 2**64 - 1),
        ("used_at", 0, 2**64 - 1),
    ):
        write(store, touches=[Touch(THING, (b"a", 1, 1), column, value)], durable=durable)
        assert getattr(find(store, THING, (b"a", 1, 1)), column) == after


@pytest.mark.parametrize("durable", [True, False])
def test_d5_a_column_beside_is_set_where_the_touched_one_rises(place: Place, durable: bool) -> None:
    store = place.open()
    write(store, [(THING, thing(number=number, seen_at=5, label=b"old")) for number in (1, 2)])
    touches = [
        Touch(THING, (b"a", number, 1), "seen_at", value, beside_column="label", beside=b"new %d" % number)
        for number, value in ((1, 6), (2, 5), (3, 9))
    ]
    write(store, touches=touches, durable=durable)
    first, second = everything(store, THING)
    assert first == thing(number=1, seen_at=6, label=b"new 1")
    assert second == thing(number=2, seen_at=5, label=b"old")


def test_a_touch_moves_the_row_in_its_index(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=number, weight=number)) for number in range(3)])
    write(store, touches=[Touch(THING, (b"a", 0, 1), "weight", 9)], durable=False)
    assert [row.number for row in scan(store, Range(THING, "weight", (b"a",), 9))] == [1, 2, 0]


def test_a_touch_of_a_missing_row_is_ignored(place: Place) -> None:
    store = place.open()
    missing = [Touch(THING, (b"a", 1, 1), "seen_at", 5), Touch(TICKET, TICKET_KEY, "used_at", 5)]
    write(store, touches=missing, durable=False)
    write(store, [(PARCEL, ParcelRow(1, b"", b""))], touches=missing)
    assert everything(store, THING) == []
    assert find(store, TICKET, TICKET_KEY) is None


def test_two_touches_of_one_row_are_both_kept(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing())])
    write(store, touches=[Touch(THING, (b"a", 1, 1), "seen_at", 5), Touch(THING, (b"a", 1, 1), "used_at", 6)])
    assert find(store, THING, (b"a", 1, 1)) == thing(seen_at=5, used_at=6)


def test_a_touch_comes_after_the_other_changes_of_its_row(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=number)) for number in (1, 2)])
    write(
        store,
        [(THING, thing(number=3, label=b"new"))],
        [(THING, thing(number=1, label=b"changed"))],
        [(THING, (b"a", 2, 1))],
        [Touch(THING, (b"a", number, 1), "seen_at", 5) for number in (1, 2, 3)],
    )
    changed, new = everything(store, THING)
    assert changed == thing(number=1, label=b"changed", seen_at=5)
    assert new == thing(number=3, label=b"new", seen_at=5)


def test_a_touch_reaches_a_row_of_the_older_generation(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    write(store, touches=[Touch(TICKET, TICKET_KEY, "used_at", 99)])
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW._replace(used_at=99)


def test_a_touch_of_an_empty_column_is_no_fault(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(price=None))])
    write(store, touches=[Touch(THING, (b"a", 1, 1), "price", 5)])
    assert find(store, THING, (b"a", 1, 1)) in (thing(price=None), thing(price=5))


def test_a_soft_commit_is_seen_at_once_and_atomic(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=1))], durable=False)
    assert everything(store, THING) == [thing(number=1)]
    tx = store.begin((), durable=False)
    tx.flush(changes([(THING, thing(number=2))]))
    tx.rollback()
    assert everything(store, THING) == [thing(number=1)]
    write(store, [(THING, thing(number=3))])
    assert [row.number for row in everything(store, THING)] == [1, 3]


# Generations


def test_a_row_is_read_until_the_second_rotation(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW
    rotate(store)
    assert find(store, TICKET, TICKET_KEY) is None
    write(store, [(TICKET, TICKET_ROW)])
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW


def test_generations_of_many_rounds(place: Place) -> None:
    store = place.open()
    for turn in range(6):
        write(store, [(TICKET, TicketRow(b"t", turn, 0))])
        rotate(store)
        kept = [number for number in range(6) if find(store, TICKET, (b"t", number)) is not None]
        assert kept == [turn]
        write(store, [(TICKET, TicketRow(b"u", turn, 0))])
        assert find(store, TICKET, (b"t", turn)) is not None


def test_an_update_moves_a_row_to_the_younger_generation(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    for used_at in range(2, 6):
        rotate(store)
        assert find(store, TICKET, TICKET_KEY) == TICKET_ROW._replace(used_at=used_at - 1)
        write(store, updates=[(TICKET, TICKET_ROW._replace(used_at=used_at))])
        assert find(store, TICKET, TICKET_KEY) == TICKET_ROW._replace(used_at=used_at)
    rotate(store)
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW._replace(used_at=5)
    rotate(store)
    assert find(store, TICKET, TICKET_KEY) is None


def test_a_delete_reaches_both_generations(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    write(store, updates=[(TICKET, TICKET_ROW._replace(used_at=2))])
    write(store, deletes=[(TICKET, TICKET_KEY)])
    assert find(store, TICKET, TICKET_KEY) is None
    rotate(store)
    assert find(store, TICKET, TICKET_KEY) is None


def test_a_row_written_with_a_rotation_outlives_it(place: Place) -> None:
    store = place.open()
    other = TicketRow(b"other", 1, 1)
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    with transaction(store) as tx:
        tx.flush(changes([(TICKET, other)], [(TICKET, TICKET_ROW._replace(used_at=2))]))
        tx.rotate(TICKET)
    assert find(store, TICKET, TICKET_KEY) == TICKET_ROW._replace(used_at=2)
    assert find(store, TICKET, TICKET.key_of(other)) == other


def test_a_rotation_drops_what_a_touch_of_the_same_transaction_meant(place: Place) -> None:
    store = place.open()
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    with transaction(store) as tx:
        tx.flush(changes(touches=[Touch(TICKET, TICKET_KEY, "used_at", 9)]))
        tx.rotate(TICKET)
    assert find(store, TICKET, TICKET_KEY) is None


def test_a_rotation_that_is_rolled_back_changes_nothing(place: Place) -> None:
    store = place.open()
    younger = TicketRow(b"younger", 1, 1)
    write(store, [(TICKET, TICKET_ROW)])
    rotate(store)
    write(store, [(TICKET, younger)])
    for _ in range(3):
        tx = store.begin(LOCKS)
        tx.flush(changes([(TICKET, TicketRow(b"never", 1, 1))]))
        tx.rotate(TICKET)
        tx.rollback()
        assert find(store, TICKET, TICKET_KEY) == TICKET_ROW
        assert find(store, TICKET, TICKET.key_of(younger)) == younger
        assert find(store, TICKET, (b"never", 1)) is None
    rotate(store)
    assert find(store, TICKET, TICKET_KEY) is None
    assert find(store, TICKET, TICKET.key_of(younger)) == younger


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


def test_a_touch_counts_only_for_the_life_it_was_made_for(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(label=b"second life"))])
    write(store, touches=[Touch(THING, (b"a", 1, 1), "seen_at", 5, "label", b"first life")])
    assert find(store, THING, (b"a", 1, 1)) == thing(label=b"second life")
    write(store, touches=[Touch(THING, (b"a", 1, 1), "seen_at", 6, "label", b"second life")])
    assert find(store, THING, (b"a", 1, 1)) == thing(label=b"second life", seen_at=6)
