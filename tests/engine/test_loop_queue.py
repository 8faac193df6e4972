"""When a batch of the loop's lane waits for further writes, and when it does not; how much one batch may cost."""

from __future__ import annotations

import asyncio

import pytest

from semel.engine.batch_runner import BatchLimits
from semel.engine.group_commit import QueuedWrite
from semel.engine.loop_queue import MAX_WAITS, PLAIN_COST, PLAIN_WRITES, LoopQueue
from tests.engine.rig import on_loop
from tests.engine.test_loop_lane import LoopBench, PlainAdd, on_the_loop
from tests.engine.toy import Add, Toy


async def waits(queue: LoopQueue, writes: int) -> int:
    """The passes that a batch of this number of writes waits; the queue is empty then."""
    toy = Toy()
    for number in range(writes):
        queue.put_plain(PlainAdd(toy, Add(b"a", b"k%d" % number)))
    passes = 0
    while queue.waits_for_more():
        passes += 1
        assert passes <= MAX_WAITS
    queue.take_all()
    return passes


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((1, 1, 1), (0, 0, 0)),  # a client alone never waits
        ((4, 3), (0, MAX_WAITS)),
        ((4, 4, 5), (0, 0, 0)),
        ((4, 0, 3), (0, 0, MAX_WAITS)),  # nothing waits for nothing
        ((3, 1, 1, 1), (0, MAX_WAITS, MAX_WAITS, 0)),  # the usual size falls by one with each smaller batch
        ((PLAIN_WRITES + 50, PLAIN_WRITES), (0, 0)),  # no batch is larger
    ],
)
@on_loop
async def test_a_batch_waits_if_it_is_smaller_than_the_last_ones(
    sizes: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    queue = LoopQueue(BatchLimits())
    assert tuple([await waits(queue, size) for size in sizes]) == expected


async def client(bench: LoopBench, name: bytes, passes: int, writes: int) -> None:
    """Write again, some passes of the loop after each answer."""
    for number in range(writes):
        await bench.admit_plain(Add(b"a", b"%b-%d" % (name, number)))
        for _ in range(passes):
            await asyncio.sleep(0)


@on_loop
async def test_clients_that_write_again_a_little_later_stay_in_one_batch() -> None:
    async with on_the_loop() as bench:
        await bench.admit(Add(b"a", b"first"))
        before = len(bench.commits)
        await asyncio.gather(*(client(bench, b"%d" % number, number % MAX_WAITS, 10) for number in range(6)))
        assert bench.commits[before:] == [6] * 10
        assert bench.value(b"a") == 61


@on_loop
async def test_a_batch_runs_without_the_clients_that_stay_away() -> None:
    async with on_the_loop() as bench:
        await bench.admit(Add(b"a", b"first"))
        before = len(bench.commits)
        await asyncio.gather(*(client(bench, b"%d" % number, 0, 1 + 4 * (number == 0)) for number in range(3)))
        assert bench.commits[before:] == [3, 1, 1, 1, 1]


class ManyAdds(PlainAdd):
    """A plain write that adds many things."""

    cost = 100


@pytest.mark.parametrize("is_plain", [True, False])
@on_loop
async def test_the_cost_of_writes_that_have_waited_is_limited_too(is_plain: bool) -> None:
    async with on_the_loop() as bench:
        queue, runner = LoopQueue(BatchLimits()), bench.engine._lanes[0].runner
        waiting = [ManyAdds(bench.toy, Add(b"a", b"k%d" % number)) for number in range(20)]
        for one in waiting:
            if is_plain:
                queue._waiting.append(one)  # behind a write for the full rules, which has run
            else:
                queue.put(QueuedWrite(bench.toy.write(one.command, 0, ManyAdds.cost), one))
        costs = []
        while len(queue):
            batch, plain, _ = queue.gather(runner)
            costs.append(sum(one.write.cost for one in batch) + sum(one.cost for one in plain))
        assert max(costs) <= PLAIN_COST
        assert sum(costs) == 20 * ManyAdds.cost
