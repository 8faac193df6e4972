"""Signals: a reader that listens before it looks misses nothing, and leaves nothing behind."""

from __future__ import annotations

import asyncio

from semel.engine.notification import WOKEN_AT_ONCE, CommitNotifier
from tests.engine.rig import on_loop, running
from tests.engine.toy import COUNTER, Add, Broken, CounterRow, Look


@on_loop
async def test_a_signal_wakes_those_who_listen_to_its_topic() -> None:
    signals = CommitNotifier()
    one, other, elsewhere = signals.watch(b"a"), signals.watch(b"a"), signals.watch(b"b")
    assert len(signals) == 3
    signals.send([b"a", b"nobody"])
    assert await one.wait(10)
    assert await other.wait(10)
    assert not await elsewhere.wait(0)
    assert len(signals) == 1


@on_loop
async def test_a_signal_before_the_wait_is_not_missed() -> None:
    signals = CommitNotifier()
    watch = signals.watch(b"a")
    signals.send([b"a"])
    assert await watch.wait(0)
    watch.arm()
    assert not await watch.wait(0)
    signals.send([b"a"])
    assert await watch.wait(10)


@on_loop
async def test_one_reader_can_be_woken_alone() -> None:
    signals = CommitNotifier()
    one, other = signals.watch(b"a"), signals.watch(b"a")
    one.wake()
    assert await one.wait(10)
    assert not await other.wait(0)
    one.wake()


# Through the engine


@on_loop
async def test_a_woken_reader_finds_what_it_was_woken_for() -> None:
    async with running() as bench:
        watch = bench.engine.signals.watch(b"a")
        sent = asyncio.create_task(bench.submit(Add(b"a", b"k", 5)))
        assert await watch.wait(10)
        assert bench.find(COUNTER, (b"a",)) == CounterRow(b"a", 5, 0)
        await sent


@on_loop
async def test_nobody_is_woken_by_a_hit_or_a_fault() -> None:
    async with running() as bench:
        await bench.submit(Add(b"a", b"k", 5))
        watch = bench.engine.signals.watch(b"a")
        await bench.together(Add(b"a", b"k", 5), Look(b"a"), Broken(b"a"))
        assert not await watch.wait(0)


@on_loop
async def test_nobody_is_woken_when_the_commit_fails() -> None:
    async with running() as bench:
        watch = bench.engine.signals.watch(b"a")
        bench.store.faults = {"commit": 1}
        await bench.outcome(Add(b"a", b"k", 5))
        assert not await watch.wait(0)


@on_loop
async def test_a_reader_that_takes_a_commit_waits_on_and_is_woken_by_the_one_it_cannot_take() -> None:
    signals = CommitNotifier()
    watch = signals.watch(b"a")
    taken: list[int] = []

    def take() -> bool:
        taken.append(signals.turn)
        return len(taken) < 3

    watch.take = take
    waiting = asyncio.create_task(watch.wait(10))
    await asyncio.sleep(0)
    for turn in (1, 2):
        signals.send([b"a"])
        await asyncio.sleep(0)
        assert (len(taken), waiting.done(), len(signals)) == (turn, False, 1)
    signals.send([b"a"])
    assert await waiting
    assert taken == [1, 2, 3]


@on_loop
async def test_a_reader_whose_take_fails_is_woken_and_so_are_the_others() -> None:
    signals = CommitNotifier()
    watches = [signals.watch(b"a") for _ in range(3)]
    for watch in watches:
        watch.take = lambda: bool(1 // 0)
    signals.send([b"a"])
    assert [await watch.wait(10) for watch in watches] == [True] * 3


@on_loop
async def test_a_reader_that_closed_takes_nothing() -> None:
    signals = CommitNotifier()
    watches = [signals.watch(b"a") for _ in range(2 * WOKEN_AT_ONCE)]
    taken: list[int] = []

    def take() -> bool:
        taken.append(1)
        return True

    for watch in watches:
        watch.take = take
    signals.send([b"a"])
    assert len(taken) == WOKEN_AT_ONCE  # the others follow in the next pass of the loop
    for watch in watches:
        watch.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(taken) == WOKEN_AT_ONCE


@on_loop
async def test_many_readers_are_woken_in_slices_and_none_is_left_out() -> None:
    signals = CommitNotifier()
    count = 3 * WOKEN_AT_ONCE + 7
    watches = [signals.watch(b"a") for _ in range(count)]
    signals.send([b"a"])
    assert sum(watch.has_fired for watch in watches) == WOKEN_AT_ONCE
    signals.send([b"a"])  # a further signal while they are being woken
    assert all(await asyncio.gather(*(watch.wait(10) for watch in watches)))


@on_loop
async def test_a_task_of_the_server_is_woken_and_is_no_live_reader() -> None:
    signals = CommitNotifier()
    own, reader = signals.watch(b"own", is_own=True), signals.watch(b"topic")
    assert len(signals) == 1
    signals.send([b"own", b"topic"])
    assert own.has_fired
    assert reader.has_fired
