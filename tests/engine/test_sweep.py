"""The sweeper does what is left to do, and goes on after whatever fails."""

from __future__ import annotations

import asyncio
from typing import Any

from semel.engine.caller import WaitingCaller
from semel.engine.contract import Write
from semel.engine.loop_queue import LIGHT_COST
from semel.engine.sweep import MAX_ROUNDS, Sweeper
from semel.store.protocol import StoreError
from tests.engine.rig import PATIENCE_SECONDS, Bench, on_loop, running
from tests.engine.toy import COUNTER, Add, Broken, CounterRow


async def swept(bench: Bench) -> None:
    """Run the sweeper until its chores are done; they send the signal "a"."""
    watch = bench.engine.signals.watch(b"a")
    sweeping = asyncio.create_task(Sweeper(bench.engine, [bench.toy], 0.01).run())
    done = asyncio.create_task(watch.wait(PATIENCE_SECONDS))
    await asyncio.wait([sweeping, done], return_when=asyncio.FIRST_COMPLETED)
    assert not sweeping.done(), sweeping.exception()
    assert done.result()
    sweeping.cancel()


@on_loop
async def test_chores_are_writes() -> None:
    async with running() as bench:
        bench.toy.chores_left = [Add(b"a", b"k"), Add(b"a", b"l")]
        assert await Sweeper(bench.engine, [bench.toy], 1).sweep(bench.toy) == 2
        assert bench.find(COUNTER, (b"a",)) == CounterRow(b"a", 2, 0)
        assert await Sweeper(bench.engine, [bench.toy], 1).sweep(bench.toy) == 0


@on_loop
async def test_no_chore_is_decided_on_the_event_loop() -> None:
    """One may change hundreds of rows, which would hold up every connection."""
    async with running() as bench:
        bench.toy.chores_left = [Add(b"a", b"k"), Add(b"a", b"l")]
        costs: list[int] = []
        submit = bench.engine.submit

        async def note(write: Write, caller: WaitingCaller | None = None) -> Any:
            costs.append(write.cost)
            return await submit(write, caller)

        bench.engine.submit = note  # type: ignore[method-assign]
        assert await Sweeper(bench.engine, [bench.toy], 1).sweep(bench.toy) == 2
        assert len(costs) == 2
        assert min(costs) > LIGHT_COST


@on_loop
async def test_a_contract_that_always_finds_more_does_not_hold_the_others_up() -> None:
    async with running() as bench:
        chores = [Add(b"a", b"k")]
        bench.toy.chores = lambda reading: chores  # type: ignore[method-assign]
        assert await Sweeper(bench.engine, [bench.toy], 1).sweep(bench.toy) == MAX_ROUNDS


@on_loop
async def test_a_sweep_that_cannot_be_stored_is_tried_again() -> None:
    async with running() as bench:
        bench.store.faults = {"flush": 2}
        bench.toy.chores_left = [Add(b"a", b"k")]
        sweeper = Sweeper(bench.engine, [bench.toy], 1)
        assert await sweeper.sweep(bench.toy) == 0
        bench.toy.chores_left = [Add(b"a", b"k")]
        assert await sweeper.sweep(bench.toy) == 1


@on_loop
async def test_a_look_that_fails_does_not_end_the_sweeper() -> None:
    async with running() as bench:
        bench.toy.chores_left = [StoreError("the disk cannot be read"), Add(b"a", b"k")]
        await swept(bench)


@on_loop
async def test_a_chore_that_always_fails_does_not_keep_the_others_from_being_done() -> None:
    async with running() as bench:
        bench.toy.chores_left = [Broken(b"b"), Add(b"a", b"k")]
        await swept(bench)


@on_loop
async def test_the_lag_grows_while_there_is_more_to_free_and_ends_when_all_is_freed() -> None:
    async with running() as bench:
        sweeper = Sweeper(bench.engine, [bench.toy], 0.01)
        assert sweeper.lag_seconds is None  # it has not begun
        endless = [Add(b"a", b"k")]
        bench.toy.chores = lambda reading: endless  # type: ignore[method-assign]
        sweeping = asyncio.create_task(sweeper.run())

        def lag() -> float:
            assert sweeper.lag_seconds is not None
            return sweeper.lag_seconds

        async def lag_after(rounds: int) -> float:
            until = len(bench.observer.batches) + rounds
            while len(bench.observer.batches) < until:  # noqa: ASYNC110 - batches come from a thread
                await asyncio.sleep(0.01)
            return lag()

        first = await lag_after(2)
        second = await lag_after(MAX_ROUNDS)
        assert second > first
        endless.clear()
        while lag() >= second:  # noqa: ASYNC110 - until the next round of the sweeper
            await asyncio.sleep(0.01)
        sweeping.cancel()
