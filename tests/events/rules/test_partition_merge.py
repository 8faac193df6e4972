"""A page over many partitions costs about what one over a single partition does, and has the same events as ever."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.store.memory import MemoryStore
from semel.store.protocol import Changes, Lock, Range, Store
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Key
from semel.surfaces.events.places import first_places, last_places
from semel.surfaces.events.reading import history
from semel.surfaces.events.tables import EVENT, EVENT_HEAD, EVENT_PLACE, EventHeadRow, EventPlaceRow, EventRow
from semel.surfaces.schema import MIGRATIONS, TABLES

NAMES = [f"p{number:02d}" for number in range(64)]
LIMIT = 500


class Lists:
    """A log in lists; counts the places that are read of it, and the trips."""

    def __init__(self, places: dict[str, list[int]]) -> None:
        self._places = {name.encode(): sorted(set(ids)) for name, ids in places.items()}
        self.read = 0
        self.trips = 0

    def keys_each(self, wanted: Sequence[Range]) -> list[list[Key]]:
        self.trips += 1
        found = [self._keys(one) for one in wanted]
        self.read += sum(map(len, found))
        return found

    def _keys(self, wanted: Range) -> list[Key]:
        (name,), (start,), (stop,) = wanted.prefix, wanted.start, wanted.stop
        ids = [one for one in self._places.get(name, ()) if start <= one < stop]
        return [(name, one) for one in (ids[::-1] if wanted.reverse else ids)[: wanted.limit]]


def naive(
    places: dict[str, list[int]], names: Sequence[str], since: int, to: int, limit: int, *, reverse: bool = False
) -> list[int]:
    """The merge as it is meant: everything, sorted."""
    found = {one for name in names for one in places.get(name, ()) if since < one <= to}
    return sorted(found, reverse=reverse)[:limit]


IDS = st.one_of(st.integers(1, 60), st.integers(1, 5_000), st.integers(1, 10**9))


@given(
    st.dictionaries(st.sampled_from(NAMES[:8]), st.lists(IDS, max_size=60)),
    st.sets(st.sampled_from(NAMES[:9]), min_size=1),
    st.integers(0, 6_000),
    st.integers(0, 10**9),
    st.integers(1, 40),
)
def test_c5_a_merge_gives_what_the_naive_merge_gives(
    places: dict[str, list[int]], names: set[str], since: int, to: int, limit: int
) -> None:
    if since >= to:
        return
    found = first_places(Lists(places), sorted(names), since, to, limit)  # type: ignore[arg-type]
    assert found == naive(places, sorted(names), since, to, limit)
    backwards = last_places(Lists(places), sorted(names), since, to, limit)  # type: ignore[arg-type]
    assert backwards == naive(places, sorted(names), since, to, limit, reverse=True)


# -- How much is read -------------------------------------------------------------------------------------------------

Owners = Callable[[random.Random, int], Iterator[int]]


def evenly(chance: random.Random, events: int) -> Iterator[int]:
    yield from (chance.randrange(64) for _ in range(events))


def unevenly(chance: random.Random, events: int) -> Iterator[int]:
    weights = [1 / (number + 1) ** 1.5 for number in range(64)]
    yield from chance.choices(range(64), weights, k=events)


def mostly_one(chance: random.Random, events: int) -> Iterator[int]:
    yield from (0 if chance.random() < 0.99 else chance.randrange(64) for _ in range(events))


def one_after_another(chance: random.Random, events: int) -> Iterator[int]:
    yield from (number * 64 // events for number in range(events))


def in_bursts(chance: random.Random, events: int) -> Iterator[int]:
    given = 0
    while given < events:
        owner, length = chance.randrange(64), chance.randrange(1, 300)
        yield from (owner for _ in range(length))
        given += length


@pytest.mark.parametrize("gap", [1, 5, 200], ids=["all of the log", "a fifth of it", "little of it"])
@pytest.mark.parametrize("owners", [evenly, unevenly, mostly_one, one_after_another, in_bursts])
def test_c5_a_page_over_64_partitions_reads_about_its_own_size(owners: Owners, gap: int) -> None:
    for seed in range(10):
        chance = random.Random(seed)
        places: dict[str, list[int]] = {name: [] for name in NAMES}
        last = 0
        for owner in owners(chance, 8_000):
            last += 1 if gap == 1 else chance.randrange(1, 2 * gap)
            places[NAMES[owner]].append(last)
        for since, reverse in product((0, last // 3, last - last // 20), (False, True)):
            log = Lists(places)
            merge = last_places if reverse else first_places
            found = merge(log, NAMES, since, last, LIMIT)  # type: ignore[arg-type]
            assert found == naive(places, NAMES, since, last, LIMIT, reverse=reverse)
            # A naive merge reads 64 pages; where partitions take turns in blocks, their shares are guessed worst.
            most = 2 * LIMIT if owners in (evenly, unevenly, mostly_one) else 5 * LIMIT // 2
            assert log.read <= most + len(NAMES), (seed, since, log.read)
            assert log.trips <= 10, (seed, since, log.trips)


class Counted(Reading):
    """A look that counts the places it is given."""

    places = 0

    def keys(self, wanted: Range) -> Sequence[Key]:
        found = super().keys(wanted)
        self.places += len(found) * (wanted.table is EVENT_PLACE)
        return found

    def keys_each(self, wanted: Sequence[Range]) -> Sequence[Sequence[Key]]:
        found = super().keys_each(wanted)
        self.places += sum(map(len, found))
        return found


def filled(store: Store, events: int) -> None:
    """A log whose events go to the 64 partitions in turn."""
    rows, places = list[Any](), list[Any]()
    for number, owner in zip(range(1, events + 1), count(), strict=False):
        name = NAMES[owner % 64]
        rows.append(EventRow(number, b"%d" % number, b"c", b"o", 1, b'["%s"]' % name.encode(), b'{"type":"t"}'))
        places.append(EventPlaceRow(name.encode(), number))
    head = EventHeadRow(b"", events, 1, 0)
    tx = store.begin([Lock(b"events")])
    tx.flush(Changes({EVENT: rows, EVENT_PLACE: places, EVENT_HEAD: [head]}, {}, {}))
    tx.commit()


@contextmanager
def looking(store: Store) -> Iterator[Counted]:
    with store.read() as snapshot:
        yield Counted(snapshot, SoftChanges(), Now(1, 1, 1, 1))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_c5_a_page_of_a_store_reads_no_more_places_over_64_partitions_than_over_one(tmp_path: Path, kind: str) -> None:
    store: Store = (
        MemoryStore(TABLES, lambda: 1) if kind == "memory" else SqliteFileStore(tmp_path, TABLES, MIGRATIONS, lambda: 1)
    )
    try:
        filled(store, 8_000)
        with looking(store) as reading:
            page = history(reading, NAMES, 100, None, LIMIT, 10**9)
            assert [row.committed_id for row in page.events] == [*range(101, 101 + LIMIT)]
            assert page.has_more
            assert reading.places <= 2 * LIMIT + len(NAMES), reading.places
        with looking(store) as reading:
            page = history(reading, NAMES[:1], 0, None, LIMIT, 10**9)
            assert (len(page.events), page.has_more) == (125, False)
            assert reading.places == 125
    finally:
        store.close()
