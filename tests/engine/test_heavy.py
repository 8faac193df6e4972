"""A batch whose writes need too much together goes in halves, and nobody notices but the memory."""

from __future__ import annotations

import pytest

from semel.engine.batch_runner import BatchLimits
from semel.engine.contract import NotStoredError
from semel.engine.engine import EngineLimits
from semel.engine.view import LOADED_AT_ONCE
from semel.store.open import open_store
from tests.engine.rig import Bench, Desk, on_loop, running
from tests.engine.toy import MIGRATIONS, STEP, TABLES, Step, StepRow, ToyWorld
from tests.harness.postgres.shared import fresh_url

NAME_BYTES = 100
"""What a loaded row of these tests weighs."""


def client(number: int) -> bytes:
    return b"%0*d" % (NAME_BYTES, number)


def limits(rows: int) -> EngineLimits:
    """A batch may load so many rows."""
    return EngineLimits(batch=BatchLimits(loaded=rows * NAME_BYTES))


def last_step(bench: Bench, number: int) -> int:
    row = bench.find(STEP, (client(number),))
    assert isinstance(row, StepRow)
    return row.last


async def begin(bench: Bench, clients: int) -> None:
    """Rows to be loaded: one step of each client. None of them is there yet, so this batch is light."""
    assert await bench.together(*(Step(client(number), 1) for number in range(clients))) == ["stored"] * clients
    assert [report.writes for report in await bench.reports()][-1] == clients


@pytest.mark.parametrize(("rows", "batches"), [(8, [8]), (7, [4, 4]), (3, [2, 2, 2, 2]), (1, [1] * 8), (0, [1] * 8)])
@on_loop
async def test_it_is_halved_until_it_fits_or_is_a_single_write(rows: int, batches: list[int]) -> None:
    async with running(limits=limits(rows)) as bench:
        await begin(bench, 8)
        before = len(await bench.reports())
        assert await bench.together(*(Step(client(number), 2) for number in range(8))) == ["stored"] * 8
        assert [report.writes for report in await bench.reports()][before + 2 :] == batches


@on_loop
async def test_a_sequence_that_is_torn_apart_keeps_its_order() -> None:
    async with running(limits=limits(1)) as bench:
        await begin(bench, 2)
        told = await bench.together(*(Step(client(number), step) for step in (4, 3, 2) for number in (0, 1)))
        assert told == ["stored"] * 6


@pytest.mark.parametrize("fault", ["flush", "begin away", "commit unknown"])
@on_loop
async def test_what_befalls_one_half_is_told_to_that_half_alone(fault: str) -> None:
    """The halves before it are stored and told so; each caller hears one thing."""
    async with running(limits=limits(2)) as bench:
        await begin(bench, 4)

        def fail_later(point: str) -> None:
            """Once, after the first half."""
            if point == "answered" and fault not in bench.store.faults and last_step(bench, 0) == 2:
                bench.store.faults[fault] = 1

        bench.gate.also = fail_later
        told = await bench.together(*(Step(client(number), 2) for number in range(4)))
        assert [last_step(bench, number) for number in range(2)] == [2, 2]
        assert told[:2] == ["stored"] * 2
        if fault == "flush":
            assert told[2:] == ["stored"] * 2  # tried again, one by one
        else:
            assert all(isinstance(one, Exception) for one in told[2:]), told
        if fault == "begin away":
            assert all(isinstance(one, NotStoredError) for one in told[2:])


def test_rows_of_a_heavy_table_are_asked_for_in_slices() -> None:
    desk = Desk()
    many = [Step(client(number), 1) for number in range(2 * LOADED_AT_ONCE + 1)]
    desk.run(*many)
    desk.store.loads.clear()
    assert desk.answers(*many) == ["again"] * len(many)
    slices = [len(keys[STEP]) for keys, _ in desk.store.loads if STEP in keys]
    assert slices == [LOADED_AT_ONCE, LOADED_AT_ONCE, 1]


@on_loop
async def test_so_it_is_on_postgresql() -> None:
    async with running(open_store(fresh_url(), TABLES, MIGRATIONS, ToyWorld().wall_ms), limits(3)) as bench:
        await begin(bench, 8)
        before = len(await bench.reports())
        assert await bench.together(*(Step(client(number), 2) for number in range(8))) == ["stored"] * 8
        assert [report.writes for report in await bench.reports()][before + 2 :] == [2, 2, 2, 2]
