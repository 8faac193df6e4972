"""Calls that keep their order although some are read in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from semel.server.grpc.flow_control import CallOrder
from semel.server.thread_pool import APART_BYTES

PATIENCE_SECONDS = 60.0
LARGE = APART_BYTES + 1


def nothing() -> None:
    """Work that is no work."""


async def play(turns: CallOrder, order: list[int], number: int, size: int, work: Callable[[], None]) -> None:
    """What a call does: it reads, and goes on in the same step."""
    await turns.read(size, work)
    order.append(number)
    await asyncio.sleep(0)


def test_small_ones_wait_for_a_large_one_before_them() -> None:
    async def scenario() -> list[int]:
        turns, order = CallOrder(asyncio.get_running_loop()), list[int]()
        may_end = threading.Event()

        def wait() -> None:
            assert may_end.wait(PATIENCE_SECONDS)

        tasks = [asyncio.create_task(play(turns, order, 0, LARGE, wait))]
        tasks += [asyncio.create_task(play(turns, order, number, 10, nothing)) for number in (1, 2)]
        tasks.append(asyncio.create_task(play(turns, order, 3, LARGE, nothing)))
        tasks.append(asyncio.create_task(play(turns, order, 4, 10, nothing)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert order == []
        may_end.set()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS)
        await play(turns, order, 5, 10, nothing)
        return order

    assert asyncio.run(scenario()) == [0, 1, 2, 3, 4, 5]


def test_one_that_is_taken_back_lets_nobody_past_those_before_it() -> None:
    async def scenario() -> list[int]:
        turns, order = CallOrder(asyncio.get_running_loop()), list[int]()
        may_end = threading.Event()

        def wait() -> None:
            assert may_end.wait(PATIENCE_SECONDS)

        first = asyncio.create_task(play(turns, order, 0, LARGE, wait))
        second = asyncio.create_task(play(turns, order, 1, 10, nothing))
        third = asyncio.create_task(play(turns, order, 2, 10, nothing))
        for _ in range(10):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert order == []
        may_end.set()
        await asyncio.wait_for(asyncio.gather(first, third), PATIENCE_SECONDS)
        return order

    assert asyncio.run(scenario()) == [0, 2]


def test_one_that_cannot_be_read_holds_nobody_up() -> None:
    async def scenario() -> list[int]:
        turns, order = CallOrder(asyncio.get_running_loop()), list[int]()

        def fail() -> None:
            raise ValueError

        first = asyncio.create_task(play(turns, order, 0, LARGE, fail))
        second = asyncio.create_task(play(turns, order, 1, 10, nothing))
        ends = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), PATIENCE_SECONDS)
        assert isinstance(ends[0], ValueError)
        return order

    assert asyncio.run(scenario()) == [1]
