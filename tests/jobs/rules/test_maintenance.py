"""The upkeep on the real engine, with clocks that are moved by hand: what nobody could hold on to is not taken.

`test_outages` and `test_restarts` see it from outside, with processes and databases that stand still or die.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from semel.engine.caller import WaitingCaller
from semel.engine.contract import EngineError, NotStoredError, UnavailableError, Write
from semel.engine.engine import Engine
from semel.engine.generations import GENERATION
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.meter import Meter
from semel.store.memory import MemoryStore
from semel.surfaces.jobs.audit_trail import JobAuditTrail
from semel.surfaces.jobs.commands import (
    JobCommand,
    JobHeartbeat,
    JobLease,
    JobRefused,
    JobsClaimed,
    JobStep,
    SubmitJobs,
)
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.long_poll import LongPolls
from semel.surfaces.jobs.maintenance import JobMaintenance
from semel.surfaces.jobs.tables import JOB, TABLES
from tests.engine.rig import FaultyStore, Gate, on_loop
from tests.engine.toy import ToyWorld
from tests.jobs.rig import OPEN, START, claim, draft

LEASE_MS = 2_000
TURN_MS = 250
AWAY_MS = 5 * LEASE_MS
ALWAYS = 1_000_000


class Node:
    """One server's jobs, without the server."""

    def __init__(self, folder: Path) -> None:
        self.world = ToyWorld(START)
        self.store = FaultyStore(MemoryStore((GENERATION, *TABLES), self.world.wall_ms))
        self.gate = Gate()
        self.engine = Engine(self.store, self.world, reach=self.gate)
        self.audit = AuditLog(folder, self.world)
        self._jobs = JobContract(OPEN)
        journal = JobAuditTrail(self.audit, Meter(self.world.monotonic_ms))
        self._waiters = LongPolls(self.engine, self._jobs, self.world, journal)
        self._upkeep = JobMaintenance(self.engine, self._jobs, self.world, journal, self._waiters)

    async def do(self, command: JobCommand, caller: WaitingCaller | None = None) -> Any:
        return await self.engine.submit(Write(self._jobs, command), caller)

    async def take(self) -> JobLease:
        """A job that is held by a worker from now on."""
        await self._upkeep.turn()
        await self.do(SubmitJobs((draft(lease_ms=LEASE_MS),)))
        [lease] = (await self.claim()).leases
        return lease

    async def claim(self) -> JobsClaimed:
        """Somebody looks for work, and reaps before that."""
        return (await self._waiters.claim(claim(asked_at=self.world.wall), WaitingCaller(), 0))[0]

    async def holds(self, lease: JobLease) -> bool:
        """Whether its worker is still believed."""
        answer = await self.do(JobHeartbeat(lease.job.id, lease.token, None))
        return not isinstance(answer, JobRefused) or answer.refusal.code != "jobs:lease_lost"

    async def spend(self, ms: int, error: type[EngineError] | None = None) -> None:
        """Time passes, and the upkeep has its turns; all of them fail like this."""
        for _ in range(ms // TURN_MS):
            self.world.pass_ms(TURN_MS)
            if error is None:
                await self._upkeep.turn()
            else:
                with pytest.raises(error):
                    await self._upkeep.turn()

    async def begin_turn(self) -> asyncio.Task[None]:
        """A turn that is held where it has the locks for its first write."""
        self.gate.close("locked")
        turn = asyncio.create_task(self._upkeep.turn())
        await self.gate.reached()
        return turn

    async def due_at(self, lease: JobLease) -> int:
        row = await self.engine.read(lambda reading: reading.get(JOB, (lease.job.id,)))
        assert row is not None
        return row.due_at


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Node]:
    """A node that is stopped at the end, whatever happened."""
    node = Node(folder)
    try:
        yield node
    finally:
        node.gate.open()
        node.store.faults.clear()
        await node.engine.stop()
        node.audit.close()


async def check_that_it_lives(node: Node, lease: JobLease) -> None:
    """Nobody takes it, before the next turn or after it; a worker that then could hold on and did not has lost it."""
    assert (await node.claim()).leases == ()
    await node.spend(TURN_MS)
    assert (await node.claim()).leases == ()
    assert await node.holds(lease)
    await node.spend(LEASE_MS - TURN_MS)
    assert (await node.claim()).leases == ()
    await node.spend(2 * TURN_MS)
    [other] = (await node.claim()).leases
    assert (other.job.id, other.job.attempt) == (lease.job.id, 2)
    assert not await node.holds(lease)


@on_loop
async def test_a_store_that_is_away(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        lease = await node.take()
        node.store.faults |= {"begin away": ALWAYS, "read": ALWAYS}
        await node.spend(AWAY_MS, UnavailableError)
        node.store.faults.clear()
        await check_that_it_lives(node, lease)


@on_loop
async def test_a_store_that_is_read_and_takes_no_writes(tmp_path: Path) -> None:
    """The first write that is refused tells that there is an outage, and the first one that is not, its end."""
    async with running(tmp_path) as node:
        lease = await node.take()
        await node.spend(LEASE_MS // 2)
        node.store.faults["flush"] = ALWAYS
        with pytest.raises(NotStoredError):
            await node.do(JobStep(lease.job.id, lease.token, b"step", b"1"))
        left_ms = await node.due_at(lease) - node.world.wall
        await node.spend(AWAY_MS, NotStoredError)
        node.store.faults.clear()
        assert (await node.claim()).leases == ()
        await node.spend(TURN_MS)
        assert await node.due_at(lease) - node.world.wall == left_ms
        await check_that_it_lives(node, lease)


@on_loop
async def test_a_store_that_is_read_while_a_write_hangs(tmp_path: Path) -> None:
    """Whoever claims meanwhile, or right afterwards, reaps nothing."""
    async with running(tmp_path) as node:
        lease = await node.take()
        node.gate.close("locked")
        gone = WaitingCaller()
        waits = asyncio.create_task(node.do(JobHeartbeat(lease.job.id, lease.token, None), gone))
        await node.gate.reached()
        gone.leave()
        claims = []
        for _ in range(AWAY_MS // LEASE_MS):
            await node.spend(LEASE_MS)
            claims.append(asyncio.create_task(node.claim()))
        node.gate.open()
        claims.append(asyncio.create_task(node.claim()))
        assert [claimed.leases for claimed in await asyncio.gather(*claims)] == [()] * len(claims)
        await waits
        await check_that_it_lives(node, lease)


@on_loop
async def test_a_store_that_goes_away_again_while_leases_are_renewed(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        lease = await node.take()
        node.world.pass_ms(AWAY_MS)
        turn = await node.begin_turn()
        node.world.pass_ms(AWAY_MS)
        node.gate.open()
        with pytest.raises(UnavailableError):
            await turn
        await check_that_it_lives(node, lease)


@on_loop
async def test_writes_that_the_store_refuses_for_what_is_in_them_prolong_nothing(tmp_path: Path) -> None:
    """Else somebody who sends such writes all the time would keep the jobs of dead workers from everybody."""
    async with running(tmp_path) as node:
        lease = await node.take()
        for _ in range(LEASE_MS // TURN_MS + 1):
            node.store.faults["flush"] = 2  # a batch, and what is tried of it one by one
            with pytest.raises(NotStoredError):
                await node.do(SubmitJobs((draft(),)))
            await node.spend(TURN_MS)
        [other] = (await node.claim()).leases
        assert (other.job.id, other.job.attempt) == (lease.job.id, 2)


@on_loop
async def test_callers_that_leave_prolong_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        lease = await node.take()
        before = await node.due_at(lease)
        gone = WaitingCaller()
        gone.leave()
        with pytest.raises(NotStoredError):
            await node.do(JobHeartbeat(lease.job.id, lease.token, None), gone)
        await node.spend(2 * TURN_MS)
        assert await node.due_at(lease) == before
