"""Heartbeats are soft: no sync of their own, and yet no lease is lost because its extension is not on disk."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from semel.engine.contract import Write
from semel.engine.engine import Engine
from semel.engine.generations import GENERATION
from semel.engine.group_commit import Commit
from semel.store.open import open_store
from semel.surfaces.jobs.commands import JobHeartbeat, JobLease, JobsAffected, LeaseExtended, SubmitJobs
from semel.surfaces.jobs.contract import JobContract as Contract
from semel.surfaces.jobs.maintenance_commands import ReapLeases, RenewLeases
from semel.surfaces.jobs.tables import JOB, LEASED, TABLES, WAITING
from semel.surfaces.schema import MIGRATIONS
from tests.engine.rig import on_loop
from tests.engine.toy import ToyWorld
from tests.harness.faulty_vfs import FaultyVfs
from tests.harness.together import eventually
from tests.jobs.rig import FOR_EVER, OPEN, START, Rig, claim, draft
from tests.jobs.wire import Jobs

LEASE_MS = 1_000


def _leased(rig: Rig, **fields: object) -> JobLease:
    rig.submit([draft(lease_ms=LEASE_MS, **fields)])  # type: ignore[arg-type]
    [lease] = rig.claim("q")
    return lease


def _beat(lease: JobLease, progress: bytes | None = None) -> JobHeartbeat:
    return JobHeartbeat(lease.job.id, lease.token, progress)


@on_loop
async def test_d5_fifty_heartbeats_with_progress_cost_no_sync(tmp_path: Path) -> None:
    with FaultyVfs("heartbeats") as vfs:
        world = ToyWorld(START)
        url = f"sqlite:{tmp_path}?vfs=heartbeats"
        store = open_store(url, (GENERATION, *TABLES), MIGRATIONS, world.wall_ms)
        engine, jobs = Engine(store, world), Contract(OPEN)

        async def do(command: object) -> object:
            return await engine.submit(Write(jobs, command))

        try:
            await do(SubmitJobs((draft(lease_ms=LEASE_MS),)))
            claimed = await do(claim("q"))
            [lease] = claimed.leases  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            before = vfs.count_syncs
            for number in range(50):
                world.pass_ms(300)
                assert isinstance(await do(_beat(lease, b"%d" % number)), LeaseExtended)
            await asyncio.sleep(1.2)  # they are stored meanwhile
            assert vfs.count_syncs == before
            assert await do(ReapLeases(10, FOR_EVER)) == JobsAffected(0)
            with store.read() as snapshot:
                row = snapshot.get(JOB, (lease.job.id,))
                assert row is not None
                assert (row.phase, row.progress) == (LEASED, b"49")
        finally:
            await engine.stop()


def test_d5_the_heartbeat_that_confirms_an_offer_is_on_disk_and_later_ones_are_soft() -> None:
    rig = Rig()
    rig.submit([draft(lease_ms=LEASE_MS)])
    [lease] = rig.claim("q", waits=True)
    commits = []
    for _ in range(3):
        rig.world.pass_ms(100)
        rig.do(_beat(lease))
        commits.append(rig.commit)
    assert commits == [Commit.DURABLE, Commit.NOTHING, Commit.NOTHING]


@pytest.mark.parametrize("number", [1, 5, 40])
def test_d5_a_reap_and_a_claim_see_extensions_that_are_not_stored(number: int) -> None:
    rig = Rig()
    rig.submit([draft(lease_ms=LEASE_MS) for _ in range(number)])
    leases = rig.claim("q", most=number)
    rig.world.pass_ms(LEASE_MS - 1)
    for lease in leases:
        rig.do(_beat(lease))
    rig.world.pass_ms(LEASE_MS - 1)
    assert rig.claim("q", worker="another") == ()
    assert rig.do(ReapLeases(10, FOR_EVER)) == JobsAffected(0)
    assert {row.phase for row in rig.rows(JOB)} == {LEASED}
    rig.world.pass_ms(1)
    assert len(rig.claim("q", most=number, worker="another")) == min(number, 32)


def test_d5_a_crash_that_forgets_heartbeats_ends_no_lease() -> None:
    rig = Rig()
    lease = _leased(rig, max_attempts=1)
    for _ in range(10):
        rig.world.pass_ms(LEASE_MS - 1)
        rig.do(_beat(lease))
    next_life = Rig(world=rig.world, store=rig.stored)
    next_life.do(RenewLeases((lease.job.id,), None))
    next_life.world.pass_ms(LEASE_MS - 1)
    assert next_life.do(ReapLeases(10, FOR_EVER)) == JobsAffected(0)
    assert isinstance(next_life.do(_beat(lease)), LeaseExtended)


def test_d5_an_extension_of_an_earlier_lease_says_nothing_of_the_next_one() -> None:
    rig = Rig()
    lease = _leased(rig)
    rig.world.pass_ms(10)
    rig.do(JobHeartbeat(lease.job.id, lease.token, b"1"))
    rig.world.pass_ms(LEASE_MS)
    rig.do(ReapLeases(10, FOR_EVER))
    [second] = rig.claim("q", worker="another")
    assert (second.job.due_at - second.job.claimed_at, second.job.progress) == (LEASE_MS, b"")
    rig.world.pass_ms(LEASE_MS)
    assert rig.do(ReapLeases(10, FOR_EVER)).number == 1
    assert rig.rows(JOB)[0].phase == WAITING


def test_d5_over_several_nodes_a_lease_is_taken_back_later_than_an_extension_may_be_seen() -> None:
    policy = OPEN._replace(reap_grace_ms=2_000)
    rig = Rig(policy)
    lease = _leased(rig)
    rig.world.pass_ms(LEASE_MS - 1)
    rig.do(_beat(lease))
    other_node = Rig(policy, world=rig.world, store=rig.stored)  # it does not know of the heartbeat yet
    rig.world.pass_ms(2_000)
    assert other_node.do(ReapLeases(10, FOR_EVER)) == JobsAffected(0)
    rig.world.pass_ms(1)
    assert other_node.do(ReapLeases(10, FOR_EVER)).number == 1


@pytest.mark.each_store
def test_d5_progress_is_seen_on_every_node_within_a_while(jobs: Jobs, queue: str) -> None:
    jobs.submit(queue=queue, lease_sec=60)
    job = jobs.claim_one(queue)
    for percent in range(5):
        jobs.heartbeat(job, progress={"percent": percent})
    for _ in range(2 * len(jobs.nodes)):
        eventually(lambda: jobs.get(job["job_id"])["progress"] == {"percent": 4}, "the progress")


@pytest.mark.each_store
def test_d5_heartbeats_over_any_node_hold_a_lease_of_a_second(jobs: Jobs, queue: str) -> None:
    jobs.submit(queue=queue, lease_sec=1, max_attempts=1)
    job = jobs.claim_one(queue)
    for _ in range(12):
        time.sleep(0.33)
        jobs.claim(queue)  # which takes back what has run out
        assert jobs.heartbeat(job)["cancel_requested"] is False
    assert jobs.complete(job)["status"] == "completed"
