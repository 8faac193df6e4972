"""Commands of jobs that are passed to the engine as plain writes."""

from __future__ import annotations

import asyncio

import pytest

from semel.engine.caller import WaitingCaller
from semel.engine.commit_placement import CommitThread
from semel.engine.engine import Engine
from semel.store.memory import MemoryStore
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.plain_calls import submit
from semel.surfaces.jobs.tables import JOB, TABLES
from tests.engine.toy import ToyWorld
from tests.jobs.rules.differential import Comparison


@pytest.mark.parametrize("on_loop", [CommitThread.NEVER, None])
def test_a_call_that_is_cancelled_before_its_batch_stores_nothing(on_loop: CommitThread | None) -> None:
    comparison = Comparison(1)
    first, second = (comparison.submission(principal, b"default") for principal in (b"ann", b"ben"))

    async def test() -> None:
        world = ToyWorld()
        store = MemoryStore(TABLES, world.wall_ms)
        engine = Engine(store, world, on_loop=on_loop)
        jobs = JobContract()
        call = asyncio.create_task(submit(engine, jobs, first, 0, 1, WaitingCaller()))
        asyncio.get_running_loop().call_soon(call.cancel)
        with pytest.raises(asyncio.CancelledError):
            await call
        await submit(engine, jobs, second, 0, 1, WaitingCaller())
        with store.read() as snapshot:
            stored = [job.principal for job in snapshot.page(JOB, 0, None, 10, 2**20)]
        assert stored == [b"ben"]
        await engine.stop()

    asyncio.run(test())
