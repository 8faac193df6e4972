"""Workers that wait, on the real engine in this process: nobody is forgotten, whatever others or clocks do.

`test_leases` and `test_races` see them from outside, over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from semel.engine.caller import WaitingCaller
from semel.engine.contract import DecisionResult, View, Write
from semel.engine.engine import Engine
from semel.engine.generations import GENERATION
from semel.kernel.clock import Now
from semel.server.ops.audit_log import FILE_NAME, AuditLog
from semel.server.ops.meter import Meter
from semel.store.memory import MemoryStore
from semel.surfaces.jobs.audit_trail import JobAuditTrail
from semel.surfaces.jobs.commands import ClaimJobs, JobCommand, JobDraft, JobsClaimed, SubmitJobs
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.long_poll import LongPolls
from semel.surfaces.jobs.tables import TABLES
from tests.engine.rig import on_loop
from tests.engine.toy import ToyWorld
from tests.jobs.rig import FOR_EVER, HOUR_MS, OPEN, START, claim, draft

LONG_MS = 60_000
"""Longer than a test may take: one who waits so long and is answered was not answered because its time was up."""
BUSY = 4


class Running(ToyWorld):
    """The wall clock goes, and can be set; the other one is the machine's."""

    def __init__(self) -> None:
        super().__init__(START)
        self._since = self.monotonic_ms()

    def wall_ms(self) -> int:
        return self.wall + self.monotonic_ms() - self._since

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class Watched(JobContract):
    """Keeps the names of the workers whose claims were decided."""

    def __init__(self) -> None:
        super().__init__(OPEN)
        self.tried: set[bytes] = set()

    def decide(self, view: View, command: JobCommand, now: Now) -> DecisionResult:
        if isinstance(command, ClaimJobs):
            self.tried.add(command.worker)
        return super().decide(view, command, now)


class Site:
    """One node: those who wait, and what they wait for."""

    def __init__(self, folder: Path, world: ToyWorld, store: MemoryStore) -> None:
        self.jobs = Watched()
        self.meter = Meter(world.monotonic_ms)
        self.log = folder / FILE_NAME
        self.audit = AuditLog(folder, world)
        self.engine = Engine(store, world)
        self.waiters = LongPolls(self.engine, self.jobs, world, JobAuditTrail(self.audit, self.meter))
        self.waiters.reap_until = FOR_EVER

    async def do(self, command: JobCommand) -> Any:
        """Have one command decided."""
        return await self.engine.submit(Write(self.jobs, command))

    async def submit(self, *drafts: JobDraft) -> None:
        await self.do(SubmitJobs(drafts))

    async def claim(self, asked: ClaimJobs, wait_ms: int = 0) -> JobsClaimed:
        """A claim through the waiters."""
        return (await self.waiters.claim(asked, WaitingCaller(), wait_ms))[0]

    def wait(self, asked: ClaimJobs, wait_ms: int = LONG_MS) -> asyncio.Task[JobsClaimed]:
        """Begin to wait."""
        return asyncio.create_task(self.claim(asked, wait_ms))


@asynccontextmanager
async def site(folder: Path, world: ToyWorld | None = None, store: MemoryStore | None = None) -> AsyncIterator[Site]:
    """A node that is stopped at the end, whatever happened."""
    world = world or Running()
    node = Site(folder, world, store or MemoryStore((GENERATION, *TABLES), world.wall_ms))
    try:
        yield node
    finally:
        node.waiters.stop()
        await node.engine.stop()
        node.audit.close()


async def until(check: Callable[[], bool]) -> None:
    """Let the others go on until it holds."""
    while True:
        if check():
            return
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("comes", [True, False], ids=["a job comes", "none comes"])
@on_loop
async def test_a_waiter_is_answered_while_others_keep_another_queue_busy(tmp_path: Path, comes: bool) -> None:
    async with site(tmp_path) as node:
        made: list[asyncio.Future[Any]] = []

        async def work(name: str) -> None:
            """Come back at once, and leave a job for every one that was taken."""
            while True:
                await node.claim(claim("a", worker=name), LONG_MS)
                made.append(node.engine.admit(Write(node.jobs, SubmitJobs((draft("a"),)))))

        await node.submit(*[draft("a") for _ in range(100)])
        busy = [asyncio.create_task(work(f"busy-{number}")) for number in range(BUSY)]
        await until(lambda: len(made) > 10 * BUSY)
        waiting = node.wait(claim("b"), LONG_MS if comes else 100)
        before = len(made)
        await until(lambda: len(made) > before + 10 * BUSY)
        if comes:
            await node.submit(draft("b"))
        claimed = await waiting
        assert [lease.job.queue for lease in claimed.leases] == [b"b"] * comes
        before = len(made)
        await until(lambda: len(made) > before)
        for one in busy:
            one.cancel()
        await asyncio.gather(*busy, *made, return_exceptions=True)


@on_loop
async def test_a_repeated_claim_gets_its_lease_although_somebody_like_it_waits(tmp_path: Path) -> None:
    async with site(tmp_path) as node:
        await node.submit(draft("a", lease_ms=HOUR_MS))
        first = await node.claim(claim(worker="me", name="c1"), LONG_MS)
        other = node.wait(claim(worker="other"))
        await until(lambda: len(node.waiters) == 1)
        again = await node.claim(claim(worker="me", name="c1"), LONG_MS)
        assert [lease.token for lease in again.leases] == [lease.token for lease in first.leases]
        assert len(again.leases) == 1
        assert not other.done()
        await node.submit(draft("a"))
        assert [lease.job.worker for lease in (await other).leases] == [b"other"]


@on_loop
async def test_what_a_waiter_reaps_is_written_and_counted_though_it_gets_nothing(tmp_path: Path) -> None:
    world = ToyWorld(START)
    async with site(tmp_path, world) as node:
        await node.submit(draft("a", max_attempts=1))
        [lease] = (await node.claim(claim("a"))).leases
        world.pass_ms(2_000)
        assert (await node.claim(claim("b", name="c1"), 50)).leases == ()
        await node.audit.written()
        while node.audit.is_broken:  # it waits for a second at most, and this process may have stood still
            await node.audit.written()
        lines = [json.loads(line) for line in node.log.read_text().splitlines()]
        assert [line["event"] for line in lines] == ["LEASE_REAP", "RETRY_EXHAUSTED", "DLQ_ENQUEUE"]
        assert {line["details"]["job_id"] for line in lines} == {f"job_{lease.job.id.hex()}"}
        assert node.meter.totals == {"reaped_leases": 1, "failed": 1}


@pytest.mark.parametrize("is_new_life", [False, True], ids=["same life", "next life"])
@on_loop
async def test_a_clock_that_was_set_back_by_an_hour_keeps_no_job_from_who_waits(
    tmp_path: Path, is_new_life: bool
) -> None:
    world = Running()
    store = MemoryStore((GENERATION, *TABLES), world.wall_ms)
    async with site(tmp_path / "first", world, store) as node:
        await node.submit(draft("first"))
        world.wall -= HOUR_MS
        if not is_new_life:
            await wait_for_a_job(node)
    if is_new_life:
        async with site(tmp_path / "second", world, store) as node:
            await wait_for_a_job(node)


async def wait_for_a_job(node: Site) -> None:
    waiting = node.wait(claim("q"))
    await until(lambda: len(node.waiters) == 1)
    await asyncio.sleep(0.02)
    await node.submit(draft("q"))
    assert len((await waiting).leases) == 1


@on_loop
async def test_a_handler_that_is_cancelled_leaves_nobody_behind(tmp_path: Path) -> None:
    async with site(tmp_path) as node:
        waiting = node.wait(claim("a", worker="gone"))
        await until(lambda: len(node.waiters) == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(node.waiters) == 0
        await node.submit(draft("a"))
        [lease] = (await node.claim(claim("a", worker="here"), LONG_MS)).leases
        assert (lease.job.worker, lease.job.attempt) == (b"here", 1)


@on_loop
async def test_those_who_wait_for_kinds_that_are_not_there_cost_nothing_and_end_in_time(tmp_path: Path) -> None:
    async with site(tmp_path) as node:
        for start in range(0, 300, 100):
            await node.submit(*[draft(f"q{number}", kind="other") for number in range(start, start + 100)])
        absent = [node.wait(claim(kinds=[f"absent-{number}"], worker="idle"), 100) for number in range(200)]
        present = node.wait(claim(kinds=["other"], worker="busy"))
        assert len((await present).leases) == 1
        assert [claimed.leases for claimed in await asyncio.gather(*absent)] == [()] * 200
        assert node.jobs.tried == {b"busy"}
