"""What every store promises of order: bytes as bytes, numbers as numbers, the same in both directions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from semel.store.protocol import AnyTable, Range, Row, Touch
from semel.store.table import Key
from tests.store.conformance import (
    LOCKS,
    PARCEL,
    THING,
    ParcelRow,
    Place,
    ThingRow,
    changes,
    everything,
    expected,
    scan,
    thing,
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


def test_bytes_are_ordered_as_bytes(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(text, rank=1, label=text)) for text in TEXTS])
    assert [row.shelf for row in everything(store, THING)] == sorted(TEXTS)
    assert [row.label for row in scan(store, Range(THING, "rank", (1,), 99))] == sorted(TEXTS)
    assert [row.shelf for row in scan(store, Range(THING, "", (), 3, start=(b"a",)))] == [b"a", b"a\x00", b"a\x00b"]
    below = scan(store, Range(THING, "", (), 99, stop=(b"a",), reverse=True))
    assert [row.shelf for row in below] == [b"\x00\xff", b"\x00\x00", b"\x00", b""]


def test_signed_numbers_are_ordered_as_numbers(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(number=number, weight=-1 - number)) for number in I64])
    write(store, [(PARCEL, ParcelRow(number, b"o", b"")) for number in I64])
    assert [row.number for row in everything(store, THING)] == list(I64)
    assert [row.number for row in everything(store, PARCEL)] == list(I64)
    assert [row.number for row in scan(store, Range(THING, "weight", (b"a",), 99))] == list(reversed(I64))
    assert [row.number for row in scan(store, Range(PARCEL, "owner", (b"o",), 99, start=(-1,)))] == [-1, 0, *I64[4:]]


def test_unsigned_numbers_are_ordered_as_numbers(place: Place) -> None:
    store = place.open()
    write(store, [(THING, thing(serial=number, rank=2**64 - 1 - number)) for number in U64])
    assert [row.serial for row in everything(store, THING)] == list(U64)
    assert [row.serial for row in scan(store, Range(THING, "rank", (), 99))] == list(reversed(U64))
    above = scan(store, Range(THING, "", (b"a", 1), 99, start=(2**63,)))
    assert [row.serial for row in above] == [2**63, 2**64 - 1]
    below = scan(store, Range(THING, "", (b"a", 1), 2, stop=(2**63,), reverse=True))
    assert [row.serial for row in below] == [2**63 - 1, 2**40]


def test_the_last_row_below_a_bound_is_found_for_many_beginnings_of_a_key_at_once(place: Place) -> None:
    store = place.open()
    shelves = range(300)
    write(store, [(THING, thing(number=number, serial=serial)) for number in shelves for serial in (0, 5, 2**63)])
    prefixes = [(b"a", number) for number in shelves]
    with store.read() as snapshot:
        for below, serial in ((1, 0), (5, 0), (6, 5), (2**63, 5), (2**64 - 1, 2**63)):
            found = snapshot.latest(THING, [*prefixes, (b"a", -1), (b"b", 1)], below)
            assert found == {(b"a", number): thing(number=number, serial=serial) for number in shelves}
        assert snapshot.latest(THING, prefixes, 0) == {}
        assert snapshot.latest(THING, [], 9) == {}


def test_the_first_row_from_a_bound_on_is_found_for_many_beginnings_of_a_key_at_once(place: Place) -> None:
    store = place.open()
    shelves = range(300)
    write(store, [(THING, thing(number=number, serial=serial)) for number in shelves for serial in (0, 5, 2**63)])
    prefixes = [(b"a", number) for number in shelves]
    with store.read() as snapshot:
        for least, serial in ((0, 0), (1, 5), (5, 5), (6, 2**63), (2**63, 2**63)):
            found = snapshot.earliest(THING, [*prefixes, (b"a", -1), (b"b", 1)], least)
            assert found == {(b"a", number): thing(number=number, serial=serial) for number in shelves}
        assert snapshot.earliest(THING, prefixes, 2**63 + 1) == {}
        assert snapshot.earliest(THING, [], 0) == {}


def test_the_values_behind_a_prefix_are_told_once_each(place: Place) -> None:
    """Of the key and of an index, from a value on, up to one, and as many as are asked for."""
    store = place.open()
    shelves = (-7, 0, 3, 9)
    write(store, [(THING, thing(number=number, serial=serial)) for number in shelves for serial in (2**63, 0, 5)])
    write(store, [(THING, thing(shelf=b"b", number=5, serial=1, rank=2**64 - 1))])
    wanted = Range(THING, "", (b"a",), 99)
    with store.read() as snapshot:
        assert snapshot.distinct(wanted) == list(shelves)
        assert snapshot.distinct(wanted._replace(limit=2)) == [-7, 0]
        assert snapshot.distinct(wanted._replace(start=(0,))) == [0, 3, 9]
        assert snapshot.distinct(wanted._replace(start=(1,), stop=(9,))) == [3]
        assert snapshot.distinct(wanted._replace(start=(10,))) == []
        assert snapshot.distinct(Range(THING, "", (), 99)) == [b"a", b"b"]
        assert snapshot.distinct(Range(THING, "", (b"a", 3), 99, stop=(2**63,))) == [0, 5]
        assert snapshot.distinct(Range(THING, "rank", (), 99)) == sorted({thing().rank, 2**64 - 1})


def test_equal_places_of_an_index_are_ordered_by_key(place: Place) -> None:
    store = place.open()
    numbers = (5, -1, 3, 2**40, 0)
    write(store, [(PARCEL, ParcelRow(number, b"o", b"")) for number in numbers])
    write(store, [(THING, thing(number=number, weight=1)) for number in numbers])
    for wanted in (Range(PARCEL, "owner", (b"o",), 9), Range(THING, "weight", (b"a", 1), 9)):
        assert [row.number for row in scan(store, wanted)] == sorted(numbers)
        assert [row.number for row in scan(store, wanted._replace(reverse=True))] == sorted(numbers, reverse=True)


SHELVES = st.sampled_from((b"", b"\x00", b"a", b"a\x00", b"a\xff", b"b", b"\xff"))
SIGNED = st.sampled_from((-(2**63), -2, -1, 0, 1, 2, 2**63 - 1))
UNSIGNED = st.sampled_from((0, 1, 2, 2**63 - 1, 2**63, 2**64 - 1))
COLUMNS = {"shelf": SHELVES, "number": SIGNED, "serial": UNSIGNED, "weight": SIGNED, "rank": UNSIGNED, "label": SHELVES}
THINGS = st.lists(st.builds(thing, **COLUMNS), max_size=25, unique_by=THING.key_of)


@st.composite
def thing_ranges(draw: st.DrawFn) -> Range:
    """Any range over things: every index, prefix, bounds of any depth, limit and direction."""
    by = draw(st.sampled_from(("", *THING.indexes)))
    order = THING.ordering(by)
    depth = draw(st.integers(0, len(order)))

    def bound() -> tuple[object, ...]:
        length = draw(st.integers(0, len(order) - depth))
        return tuple(draw(COLUMNS[name]) for name in order[depth : depth + length])

    prefix = tuple(draw(COLUMNS[name]) for name in order[:depth])
    limit = draw(st.sampled_from((0, 1, 2, 3, 100)))
    return Range(THING, by, prefix, limit, bound(), bound(), draw(st.booleans()))


def test_ranges_equal_a_plain_model(place: Place) -> None:
    store = place.open()

    @settings(max_examples=150, deadline=None)
    @given(rows=THINGS, wanted=st.lists(thing_ranges(), min_size=1, max_size=8))
    def check(rows: list[ThingRow], wanted: list[Range]) -> None:
        left = [(THING, THING.key_of(row)) for row in everything(store, THING)]
        write(store, deletes=left, durable=False)
        write(store, [(THING, row) for row in rows], durable=False)
        for one in wanted:
            assert scan(store, one) == expected(rows, one)

    check()


def test_changes_equal_a_plain_model(place: Place) -> None:
    store = place.open()
    step = st.tuples(st.sampled_from(("put", "delete", "touch", "give up")), st.builds(thing, **COLUMNS))
    narrow = st.lists(st.lists(step, min_size=1, max_size=6, unique_by=lambda pair: THING.key_of(pair[1])), max_size=6)

    @settings(max_examples=60, deadline=None)
    @given(batches=narrow, wanted=thing_ranges())
    def check(batches: list[list[tuple[str, ThingRow]]], wanted: Range) -> None:
        model: dict[Key, ThingRow] = {}
        write(store, deletes=[(THING, THING.key_of(row)) for row in everything(store, THING)], durable=False)
        for batch in batches:
            before = dict(model)
            tx = store.begin(LOCKS)
            puts: dict[bool, list[tuple[AnyTable, Row]]] = {True: [], False: []}
            deletes: list[tuple[AnyTable, Key]] = []
            touches: list[Touch] = []
            for what, row in batch:
                key = THING.key_of(row)
                if what == "put":
                    puts[key in model].append((THING, row))
                    model[key] = row
                elif what == "delete":
                    deletes.append((THING, key))
                    model.pop(key, None)
                elif what == "touch":
                    touches.append(Touch(THING, key, "weight", row.weight))
                    if key in model and model[key].weight < row.weight:
                        model[key] = model[key]._replace(weight=row.weight)
            tx.flush(changes(puts[False], puts[True], deletes, touches))
            if any(what == "give up" for what, _ in batch):
                tx.rollback()
                model = before
            else:
                tx.commit()
        assert scan(store, wanted) == expected(model.values(), wanted)
        assert everything(store, THING) == [model[key] for key in sorted(model)]

    check()


def test_a_column_is_joined_in_the_order_of_the_key(place: Place) -> None:
    store = place.open()
    rows = [ParcelRow(number, b"o", TEXTS[number % len(TEXTS)]) for number in range(-20, 20)]
    write(store, [(PARCEL, row) for row in reversed(rows)])
    for between in (b"", b",", b"\x00"):
        for wanted in (
            Range(PARCEL, "", (), 99),
            Range(PARCEL, "", (), 7),
            Range(PARCEL, "", (), 7, reverse=True),
            Range(PARCEL, "", (), 99, start=(-3,), stop=(11,)),
            Range(PARCEL, "", (), 1, start=(-20,), stop=(-19,)),
        ):
            found = expected(rows, wanted)
            with store.read() as snapshot:
                joined = snapshot.joined(wanted, "content", between)
            assert joined == (found[-1].number, len(found), between.join(row.content for row in found))
    with store.read() as snapshot:
        assert snapshot.joined(Range(PARCEL, "", (), 9, start=(20,)), "content", b",") is None
