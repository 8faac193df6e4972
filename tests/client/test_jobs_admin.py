"""Lists and the calls of administrators, from both clients."""

from __future__ import annotations

import pytest

from semel.client import ConflictError, JobListing, JobRequest, JobSummary, NotFoundError, Submitted
from semel.client.identity import JobKey
from semel.client.jobs.calls import AsyncJobs
from tests.client.jobs_room import OpenJobs
from tests.client.names import fresh
from tests.harness.server import RunningServer


async def failed(jobs: AsyncJobs, kind: str) -> str:
    """The id of a job that failed for good."""
    job_id = (await jobs.submit(kind)).job_id
    [lease] = (await jobs.claim("w", kinds=[kind])).leases
    await jobs.fail(lease, {"code": "c", "message": "m"}, retryable=False)
    return job_id


async def test_lists_are_paged_and_walked(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, queue = fresh("kind"), fresh("queue")
    async with open_jobs(server.url) as jobs:
        made = await jobs.submit_many(JobRequest(kind, {"n": n}, queue=queue) for n in range(7))
        ids = [one.job_id for one in made if isinstance(one, Submitted)][::-1]
        found, after = list[str](), None
        while True:
            page: JobListing[JobSummary] = await jobs.list(queue=queue, after=after, limit=3)
            found += [job.job_id for job in page.jobs]
            after = page.next_after
            if after is None:
                break
            assert len(page.jobs) == 3
        assert found == ids
        assert [job.job_id async for job in jobs.walk(kind=kind, state="queued")] == ids
        assert [job async for job in jobs.walk(kind=kind, state="failed")] == []
        await jobs.cancel(ids[0])
        assert await jobs.cancel_all(kind=kind) == 6
        assert {job.reason async for job in jobs.walk(queue=queue)} == {"cancelled"}
        assert await jobs.cancel_all(kind=kind) == 0


async def test_dead_letters_are_listed_and_run_again(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind = fresh("kind")
    async with open_jobs(server.url) as jobs:
        job_id = await failed(jobs, kind)
        [dead] = [one async for one in jobs.walk_dead() if one.kind == kind]
        assert (dead.job_id, dead.reason, dead.error) == (job_id, "permanent", {"code": "c", "message": "m"})
        assert (await jobs.dead(limit=1)).jobs[0].finished is not None
        again = await jobs.requeue(job_id)
        assert (again.state, again.revision, again.attempt) == ("queued", dead.revision + 1, 0)
        with pytest.raises(ConflictError):
            await jobs.requeue(job_id)
        with pytest.raises(NotFoundError):
            await jobs.requeue("job_" + "0" * 32)


async def test_a_released_key_is_new(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, key = fresh("kind"), fresh("key")
    async with open_jobs(server.url) as jobs:
        first = await jobs.submit(kind, key=key)
        assert (await jobs.resolve(JobKey(key))).facts["job_id"] == first.job_id
        with pytest.raises(ConflictError):
            await jobs.release_key(key)
        await jobs.release_key(key, force=True)
        with pytest.raises(NotFoundError):
            await jobs.release_key(key)
        assert not (await jobs.resolve(JobKey(key))).is_committed
        assert (await jobs.submit(kind, key=key)).job_id != first.job_id


async def test_queues_are_listed_limited_and_reset(server: RunningServer, open_jobs: OpenJobs) -> None:
    name = fresh("queue")
    async with open_jobs(server.url) as jobs:
        limited = await jobs.set_queue(name, max_inflight=2, default_timeout=1.0)
        assert limited in await jobs.queues()
        reset = await jobs.reset_queue(name)
        assert (reset.max_inflight, reset.default_timeout) == (0, 0.0)


async def test_schedules_are_set_listed_and_deleted(server: RunningServer, open_jobs: OpenJobs) -> None:
    name, kind = fresh("schedule"), fresh("kind")
    async with open_jobs(server.url) as jobs:
        made = await jobs.set_schedule(name, "0 3 * * *", kind, {"n": 1}, time_zone="Europe/Berlin", queue="q")
        assert (made.cron, made.time_zone, made.params, made.queue) == ("0 3 * * *", "Europe/Berlin", {"n": 1}, "q")
        assert (made.last_instant, made.next_instant is None) == (None, False)
        assert await jobs.schedule(name) == made
        assert made in await jobs.schedules()
        paused = await jobs.set_schedule(name, "@hourly", kind, catch_up="none", paused=True)
        assert (paused.paused, paused.catch_up, paused.params, paused.next_instant) == (True, "none", {}, None)
        await jobs.delete_schedule(name)
        for missing in (jobs.delete_schedule, jobs.schedule):
            with pytest.raises(NotFoundError):
                await missing(name)
