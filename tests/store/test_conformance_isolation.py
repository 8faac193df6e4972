"""What every store promises a reader: the rows of one instant, whatever is written meanwhile."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event

from semel.store.protocol import Range, Row, Snapshot, Store, Touch
from tests.store.conformance import (
    LOCKS,
    PARCEL,
    THING,
    TICKET,
    TICKET_KEY,
    TICKET_ROW,
    ParcelRow,
    Place,
    changes,
    everything,
    rotate,
    thing,
    transaction,
    write,
)

WANTED = (
    Range(THING, "", (), 100),
    Range(THING, "", (b"a",), 2, reverse=True),
    Range(THING, "weight", (b"a",), 100),
    Range(THING, "weight", (b"a",), 3, start=(1,), stop=(40,), reverse=True),
    Range(THING, "rank", (), 3),
    Range(PARCEL, "owner", (b"o",), 100),
    Range(PARCEL, "owner", (b"o",), 2, reverse=True),
)
KEYS = tuple((b"a", number, 1) for number in range(8))
Sight = tuple[list[Row | None], list[list[Row]], list[list[tuple[object, ...]]], Row | None]


def look(snapshot: Snapshot) -> Sight:
    """Everything that the isolation tests look at."""
    return (
        [snapshot.get(THING, key) for key in KEYS],
        [list(snapshot.range(wanted)) for wanted in WANTED],
        [list(snapshot.keys(wanted)) for wanted in WANTED],
        snapshot.get(TICKET, TICKET_KEY),
    )


def filled(place: Place) -> Store:
    store = place.open()
    things = [thing(number=number, weight=10 * number, rank=9 - number) for number in range(5)]
    parcels = [ParcelRow(number, b"o", bytes([number])) for number in range(5)]
    write(store, [*((THING, row) for row in things), *((PARCEL, row) for row in parcels), (TICKET, TICKET_ROW)])
    return store


# Commits that change every row that the isolation tests look at, in every way.
UPHEAVALS: tuple[Callable[[Store], None], ...] = (
    lambda store: write(store, [(THING, thing(number=5, weight=15)), (PARCEL, ParcelRow(9, b"o", b"new"))]),
    lambda store: write(store, updates=[(THING, thing(number=1, weight=-3, rank=2**64 - 1))]),
    lambda store: write(store, deletes=[(THING, KEYS[2]), (PARCEL, (0,))]),
    lambda store: write(store, touches=[Touch(THING, KEYS[3], "weight", 35)], durable=False),
    lambda store: write(store, [(THING, thing(number=2, weight=7))]),
    lambda store: write(store, updates=[(PARCEL, ParcelRow(1, b"other", b""))], deletes=[(THING, KEYS[5])]),
    lambda store: write(store, updates=[(TICKET, TICKET_ROW._replace(used_at=5))]),
    rotate,
    lambda store: write(store, updates=[(TICKET, TICKET_ROW._replace(used_at=6))]),
    rotate,
    rotate,
    lambda store: write(store, deletes=[(THING, key) for key in KEYS]),
)


def test_a_snapshot_keeps_its_rows_while_writes_commit(place: Place) -> None:
    store = filled(place)
    with store.read() as early:
        seen = look(early)
        for commit in UPHEAVALS:
            commit(store)
            assert look(early) == seen
    with store.read() as late:
        assert look(late) != seen


def test_snapshots_of_several_instants_stand_side_by_side(place: Place) -> None:
    store = filled(place)
    opened: list[tuple[Snapshot, Sight]] = []
    with ExitStack() as held:
        for commit in UPHEAVALS:
            snapshot = held.enter_context(store.read())
            opened.append((snapshot, look(snapshot)))
            commit(store)
            for earlier, seen in opened:
                assert look(earlier) == seen
            if len(opened) == 3:
                opened.clear()
                held.close()


def test_a_snapshot_that_was_not_used_yet_has_its_instant_too(place: Place) -> None:
    store = filled(place)
    with store.read() as used:
        seen = look(used)
    with store.read() as unused:
        for commit in UPHEAVALS:
            commit(store)
        assert look(unused) == seen


def test_a_new_snapshot_sees_each_commit(place: Place) -> None:
    store = filled(place)
    rows = everything(store, THING)
    for number in range(10, 15):
        write(store, [(THING, thing(number=number))])
        rows.append(thing(number=number))
        assert everything(store, THING) == rows


def test_uncommitted_writes_are_invisible(place: Place) -> None:
    store = filled(place)
    with store.read() as snapshot:
        before = look(snapshot)
    tx = store.begin(LOCKS)
    tx.flush(
        changes(
            [(THING, thing(number=6))],
            [(THING, thing(number=0, weight=99)), (TICKET, TICKET_ROW._replace(used_at=9))],
            [(THING, KEYS[1])],
            [Touch(THING, KEYS[4], "weight", 999)],
        )
    )
    tx.rotate(TICKET)
    with store.read() as snapshot:
        assert look(snapshot) == before
        tx.commit()
        assert look(snapshot) == before
    with store.read() as snapshot:
        assert look(snapshot) != before


def test_several_ranges_and_keys_are_loaded_at_once(place: Place) -> None:
    store = filled(place)
    with transaction(store) as tx:
        loaded = tx.load({THING: KEYS, TICKET: [TICKET_KEY]}, WANTED)
    with store.read() as snapshot:
        rows, ranges, _, ticket = look(snapshot)
    assert [loaded.rows[THING].get(key) for key in KEYS] == rows
    assert [list(found) for found in loaded.ranges] == ranges
    assert loaded.rows[TICKET] == {TICKET_KEY: ticket}


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
