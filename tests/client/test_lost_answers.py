"""Lines that are cut at the worst moment: whatever was asked happens once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from semel.client import AsyncJob, Job, JobRequest, OutcomeUnknown, Patience, Submitted, Worker
from semel.client.jobs.texts import JobText
from semel.client.worker import loop as worker_loop
from tests.client.cutter import Cutter
from tests.client.jobs_room import OpenJobs
from tests.client.names import PATIENCE_SECONDS, fresh, until
from tests.harness.server import RunningServer


async def test_an_unknown_submission_tells_until_when_a_key_that_nobody_gave_protects_a_retry(
    server: RunningServer, open_jobs: OpenJobs
) -> None:
    kind = fresh("kind")
    async with Cutter(server.port) as cutter, open_jobs(cutter.url, patience=Patience(tries=1)) as jobs:
        cutter.cut_answer("/v1/jobs")
        with pytest.raises(OutcomeUnknown) as lost:
            await jobs.submit(kind)
        cutter.cut_answer("/batch")
        [listed] = await jobs.submit_many([JobRequest(kind)])
        for unknown in (lost.value, listed):
            assert isinstance(unknown, OutcomeUnknown)
            assert unknown.protected_until is not None
            assert 590 < (unknown.protected_until - datetime.now(UTC)).total_seconds() <= 600
            assert f"protects a retry until {unknown.protected_until:%Y-%m-%dT%H:%M:%S}Z" in str(unknown)
            assert (await jobs.submit(kind, key=unknown.key)).dedup
        cutter.cut_answer("/v1/jobs")
        with pytest.raises(OutcomeUnknown) as named:
            await jobs.submit(kind, key=fresh("key"))
        assert named.value.protected_until is None
        assert "protects" not in str(named.value)


@pytest.mark.parametrize(
    ("patience", "one", "many"),
    [
        (Patience(), True, True),
        (Patience(seconds=300), True, False),
        (Patience(seconds=301), False, False),
        (Patience(tries=1, seconds=None), False, False),
        (Patience(None, None), False, False),
    ],
)
async def test_only_a_key_that_no_attempt_can_outlive_is_sent_as_generated(
    patience: Patience, one: bool, many: bool, server: RunningServer, open_jobs: OpenJobs
) -> None:
    """What the first submission was is told by a second one under its key that says the opposite."""
    kind = fresh("kind")
    async with open_jobs(server.url, patience=patience) as jobs:

        async def is_generated(key: str) -> bool:
            asked = b'{"kind":"%s","params":{},"idempotency_key":"%s","generated_key":false}'
            told = await jobs.submit_text(JobText(key, asked % (kind.encode(), key.encode())))
            return "generated_key" in told.facts.get("ignored_fields", ())

        assert await is_generated((await jobs.submit(kind)).key) is one
        [listed] = await jobs.submit_many([JobRequest(kind)])
        assert isinstance(listed, Submitted)
        assert await is_generated(listed.key) is many
        joined = await jobs.submit_group(JobRequest(kind), [JobRequest(kind)])
        assert await is_generated(f"{joined.key}/0") is many
        joined = await jobs.submit_group(JobRequest(kind, key=fresh("key")), [JobRequest(kind)])
        assert not await is_generated(f"{joined.key}/0")
        named = await jobs.submit(kind, key=fresh("key"))
        assert not await is_generated(named.key)


async def test_a_worker_on_a_bad_line_runs_each_job_once(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, runs, effects = fresh("kind"), list[str](), list[str]()
    async with Cutter(server.port) as cutter, open_jobs(server.url) as jobs:
        worker = Worker(cutter.url, concurrency=3, poll=5.0)

        @worker.job(kind)
        async def handle(job: AsyncJob) -> None:
            runs.append(job.id)
            await job.once("effect", effects.append, job.id)

        for end in ("/claim", "/steps", "/complete"):
            cutter.cut_answer(end, times=2)
            cutter.cut_request(end)
        ids = [(await jobs.submit(kind, {"n": number})).job_id for number in range(6)]
        tally = await worker.serve(until_idle=True)
        assert (tally["completed"], tally["dropped"]) == (6, 0)
        assert sorted(runs) == sorted(effects) == sorted(ids)
        assert len(cutter.cuts) == 9
        assert {(await jobs.get(one)).attempt for one in ids} == {1}


async def test_a_claim_under_way_when_the_worker_stops_is_handed_back(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, open_jobs: OpenJobs
) -> None:
    monkeypatch.setattr(worker_loop, "HANDBACK_SECONDS", PATIENCE_SECONDS)
    kind = fresh("kind")
    async with Cutter(server.port) as cutter, open_jobs(server.url) as jobs:
        worker = Worker(cutter.url, poll=20.0)

        @worker.job(kind)
        def handle(job: Job) -> None:
            raise AssertionError("it never gets here")

        job_id = (await jobs.submit(kind)).job_id
        cutter.cut_answer("/claim", times=1_000)
        serving = asyncio.create_task(worker.serve())

        async def is_claimed() -> bool:
            return (await jobs.get(job_id)).state == "leased"

        await until(is_claimed)
        cutter.forget()
        worker.stop()
        assert (await serving)["deferred"] == 1
        job = await jobs.get(job_id)
        assert (job.state, job.attempt) == ("queued", 0)
