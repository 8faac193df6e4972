"""Soft changes: only upwards, merged, carried along, and never the cause of a sync."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from semel.engine import soft_changes
from semel.engine.batch import store_soft
from semel.engine.group_commit import Commit
from semel.engine.soft_changes import SoftChanges
from semel.engine.view import BatchView
from semel.store.open import open_store
from semel.store.protocol import Touch
from tests.engine.rig import Desk, on_loop, running
from tests.engine.toy import (
    COUNTER,
    JOB,
    MIGRATIONS,
    TABLES,
    Add,
    AddAndLook,
    CounterRow,
    JobRow,
    Look,
    Rewrite,
    ToyWorld,
)
from tests.harness.faulty_vfs import FaultyVfs
from tests.harness.together import eventually

ROW = CounterRow(b"a", 5, 10)


def touch(value: int, name: bytes = b"a", column: str = "seen_at") -> Touch:
    return Touch(COUNTER, (name,), column, value)


# By themselves


def test_touches_of_one_place_are_merged_upwards() -> None:
    changes = SoftChanges()
    changes.touch([touch(20), touch(15), touch(30, b"b"), touch(7, column="value")])
    changes.touch([touch(18)])
    assert len(changes) == 3
    assert list(changes.waiting(10)) == [touch(20), touch(30, b"b"), touch(7, column="value")]
    assert list(changes.waiting(1)) == [touch(20)]


def test_a_row_is_seen_under_its_touches() -> None:
    changes = SoftChanges()
    assert changes.over(COUNTER, ROW) is ROW
    changes.touch([touch(20), touch(4, column="value"), touch(99, b"b")])
    assert changes.over(COUNTER, ROW) == ROW._replace(seen_at=20)
    assert changes.over(COUNTER, ROW._replace(seen_at=21)) == ROW._replace(seen_at=21)
    assert changes.over(JOB, JobRow(b"a", 1, 0, b"")) == JobRow(b"a", 1, 0, b"")


def test_what_is_stored_is_forgotten_unless_it_has_grown() -> None:
    changes = SoftChanges()
    changes.touch([touch(20), touch(20, b"b"), touch(20, b"c")])
    stored = changes.waiting(2)
    changes.touch([touch(25, b"b")])
    changes.stored(stored)
    assert sorted(changes.waiting(9), key=lambda one: one.key) == [touch(25, b"b"), touch(20, b"c")]
    changes.stored([touch(99, b"never touched")])
    assert len(changes) == 2


def test_beyond_the_limit_new_places_are_dropped_and_known_ones_still_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_changes, "MAX_WAITING", 2)
    changes = SoftChanges()
    changes.touch([touch(1), touch(1, b"b"), touch(1, b"c"), touch(2)])
    assert list(changes.waiting(9)) == [touch(2), touch(1, b"b")]


# In a batch


def desk_with_counter() -> Desk:
    desk = Desk()
    desk.run(Add(b"a", b"k", 5))
    desk.world.pass_ms(1_000)
    return desk


def test_a_hit_leaves_a_touch_and_commits_nothing() -> None:
    desk = desk_with_counter()
    result = desk.run(Look(b"a"), Look(b"a"))
    assert result.commit is Commit.NOTHING
    assert len(desk.soft) == 1
    assert desk.find(COUNTER, (b"a",)) == CounterRow(b"a", 5, 0)


def test_the_next_durable_commit_carries_what_waits() -> None:
    desk = desk_with_counter()
    desk.run(Look(b"a"))
    assert desk.run(Add(b"b", b"k", 1)).commit is Commit.DURABLE
    assert desk.find(COUNTER, (b"a",)) == CounterRow(b"a", 5, desk.world.wall)
    assert len(desk.soft) == 0


def test_a_write_of_the_same_row_carries_its_touch_and_loses_nothing() -> None:
    desk = desk_with_counter()
    desk.run(Look(b"a"))
    desk.run(Add(b"a", b"l", 1))
    assert desk.find(COUNTER, (b"a",)) == CounterRow(b"a", 6, desk.world.wall)


@pytest.mark.parametrize(
    "commands",
    [(AddAndLook(b"a"),), (Add(b"a", b"l"), Look(b"a")), (Look(b"a"), Add(b"a", b"l"))],
    ids=["one write", "a write, then a hit", "a hit, then a write"],
)
def test_a_touch_of_a_row_that_its_own_batch_writes_is_kept(commands: tuple[object, ...]) -> None:
    desk = desk_with_counter()
    desk.run(*commands)
    assert desk.find(COUNTER, (b"a",)) == CounterRow(b"a", 6, desk.world.wall)
    assert len(desk.soft) == 0


def test_a_touch_of_a_row_that_is_written_as_it_is_survives() -> None:
    desk = desk_with_counter()
    desk.run(Look(b"a"))
    desk.run(Rewrite(b"a"))
    row = desk.find(COUNTER, (b"a",))
    assert row is not None
    assert desk.soft.over(COUNTER, row) == CounterRow(b"a", 5, desk.world.wall)


def test_touches_are_kept_when_their_commit_does_not_happen() -> None:
    desk = desk_with_counter()
    desk.run(Look(b"a"))
    desk.store.faults = {"flush": 1}
    with pytest.raises(Exception, match="flush failed"):
        desk.run(Add(b"b", b"k"))
    assert list(desk.soft.waiting(9)) == [touch(desk.world.wall)]


def test_a_commit_of_their_own() -> None:
    desk = desk_with_counter()
    assert store_soft(desk.around) is Commit.NOTHING
    desk.run(Look(b"a"))
    assert store_soft(desk.around) is Commit.SOFT
    assert desk.store.soft_commits == 1
    assert desk.find(COUNTER, (b"a",)) == CounterRow(b"a", 5, desk.world.wall)
    assert len(desk.soft) == 0


# In the engine


@on_loop
async def test_touches_are_stored_soon_and_seen_at_once() -> None:
    async with running() as bench:
        await bench.submit(Add(b"a", b"k", 5))
        bench.world.pass_ms(1_000)
        await bench.submit(Look(b"a"))
        bench.engine.touch([touch(bench.world.wall + 1)])
        seen = await bench.engine.read(lambda reading: reading.get(COUNTER, (b"a",)))
        assert seen == CounterRow(b"a", 5, bench.world.wall + 1)
        # The two touches are stored together, unless so much time has passed between them.
        stored = partial(eventually, lambda: bench.find(COUNTER, (b"a",)) == seen, "the touches are stored")
        await asyncio.to_thread(stored)
        assert bench.store.soft_stored.is_set()


@on_loop
async def test_a_graceful_stop_stores_every_touch() -> None:
    world = ToyWorld()
    async with running(world=world) as bench:
        names = [str(number).encode() for number in range(1_500)]
        await asyncio.gather(*(bench.submit(Add(name, b"k")) for name in names))
        bench.engine.touch([touch(77, name) for name in names])
        await bench.engine.stop()
        assert {getattr(bench.find(COUNTER, (name,)), "seen_at", None) for name in names} == {77}


@on_loop
async def test_a_store_that_refuses_soft_changes_once_does_not_end_the_engine() -> None:
    async with running() as bench:
        await bench.submit(Add(b"a", b"k"))
        bench.store.faults = {"begin softly": 1}
        bench.engine.touch([touch(99)])
        await asyncio.to_thread(bench.store.soft_stored.wait, 3)
        assert bench.engine.failure is None
        assert await bench.outcome(Add(b"a", b"l")) == 2


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    with FaultyVfs("soft") as made:
        yield made


def test_soft_changes_are_never_the_cause_of_a_sync(tmp_path: Path, vfs: FaultyVfs) -> None:
    world = ToyWorld()
    store = open_store(f"sqlite:{tmp_path}?vfs={vfs.name}", TABLES, MIGRATIONS, world.wall_ms)
    desk = Desk(store, world)
    desk.run(Add(b"a", b"k", 5), Add(b"b", b"k", 5))
    before = vfs.count_syncs
    world.pass_ms(1_000)
    desk.run(Look(b"a"))
    store_soft(desk.around)
    assert desk.find(COUNTER, (b"a",)) == CounterRow(b"a", 5, world.wall)
    world.pass_ms(1_000)
    desk.run(Look(b"a"))
    desk.run(Rewrite(b"b"))
    assert vfs.count_syncs == before
    store.close()


def test_a_touch_of_an_earlier_life_is_not_seen_and_not_merged() -> None:
    soft = SoftChanges()
    row = CounterRow(b"a", 5, 0)
    soft.touch([Touch(COUNTER, (b"a",), "seen_at", 9, "name", b"earlier")])
    assert soft.over(COUNTER, row) == row
    view = BatchView(lambda order: False, soft.over)
    view.add_row(COUNTER, (b"a",), row)
    view.put(COUNTER, row._replace(value=6))
    assert view.changes(soft.waiting(9)).steady == {COUNTER: [CounterRow(b"a", 6, 0)]}
    soft.touch([Touch(COUNTER, (b"a",), "seen_at", 7, "name", b"a")])
    assert soft.over(COUNTER, row).seen_at == 7
