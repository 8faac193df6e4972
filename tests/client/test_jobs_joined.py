"""One job for several submissions, and rate limits of queues, from both clients and from job functions."""

from __future__ import annotations

import pytest

from semel.client import (
    Client,
    Debounce,
    InvalidArgumentError,
    InvalidRequestError,
    JobRequest,
    QueueRate,
    Unique,
    Worker,
)
from tests.client.jobs_room import OpenJobs
from tests.client.names import fresh
from tests.harness.server import RunningServer


async def test_a_unique_job_stands_for_later_submissions(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, name = fresh("kind"), fresh("unique")
    async with open_jobs(server.url) as jobs:
        first = await jobs.submit(kind, {"n": 1}, unique=Unique(name, window=3_600))
        second = await jobs.submit(kind, {"n": 2}, unique=Unique(name, window=3_600))
        assert (first.is_joined, second.is_joined, second.dedup) == (False, True, True)
        assert first.job_id == second.job_id
        same = await jobs.submit(kind, {"n": 3}, unique=Unique())
        assert (await jobs.submit(kind, {"n": 3}, unique=Unique())).job_id == same.job_id
        other = await jobs.submit(kind, {"n": 3}, unique=Unique(states=("failed",)))
        assert not other.is_joined


async def test_a_burst_is_debounced_to_one_job_with_the_last_params(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, name = fresh("kind"), fresh("burst")
    async with open_jobs(server.url) as jobs:
        ids = set[str]()
        for number in range(3):
            wait = Debounce(name, 3_600, longest=7_200)
            [made] = await jobs.submit_many([JobRequest(kind, {"n": number}, debounce=wait)])
            ids.add(getattr(made, "job_id", ""))
        [job_id] = ids
        job = await jobs.get(job_id)
        assert (job.params, job.state) == ({"n": 2}, "scheduled")
        with pytest.raises(InvalidRequestError):
            await jobs.submit(kind, unique=Unique(), debounce=Debounce(name, 1))


async def test_a_queue_starts_no_more_jobs_than_its_rate_allows(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, queue = fresh("kind"), fresh("queue")
    async with open_jobs(server.url) as jobs:
        limited = await jobs.set_queue(queue, rate_limit=QueueRate(2, per=3_600))
        assert (limited.rate, limited.rate_left) == (QueueRate(2, 3_600), 2)
        await jobs.submit_many([JobRequest(kind, {"n": n}, queue=queue) for n in range(3)])
        assert len((await jobs.claim("w", most=5, kinds=[kind])).leases) == 2
        assert (await jobs.queue(queue)).rate_left == 0
        assert (await jobs.claim("w", most=5, kinds=[kind])).leases == ()
        assert (await jobs.set_queue(queue, rate_limit=0)).rate is None
        assert len((await jobs.claim("w", most=5, kinds=[kind])).leases) == 1
        with pytest.raises(InvalidArgumentError):
            await jobs.set_queue(queue)


def test_functions_are_unique_and_debounced_with_and_without_a_server(server: RunningServer) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind, unique=Unique(window=60))
    def report(region: str) -> str:
        return region

    @worker.job(f"{kind}-index")
    def index(version: int) -> int:
        return version

    slow = index.with_options(debounce=Debounce(kind, 30, longest=50))
    first, second, other = report.submit("eu"), report.submit("eu"), report.submit("us")
    assert (first.job_id == second.job_id, second.replayed, other.replayed) == (True, True, False)
    assert slow.submit(1).job_id == slow.submit(2).job_id
    with worker.testing() as test:
        first, second = report.submit("eu"), report.submit("eu")
        assert first.job_id == second.job_id
        handle = slow.submit(1)
        assert [one.params for one in test.run(now=29)] == [{"region": "eu"}]
        assert report.submit("eu").replayed
        assert slow.submit(2).job_id == handle.job_id
        assert test.run(now=49) == []
        [run] = test.run(now=50)
        assert (run.params, handle.result()) == ({"version": 2}, 2)
        assert slow.submit(3).job_id != handle.job_id
        test.run(now=60)
        assert not report.submit("eu").replayed
    worker.close()
    with Client(server.url) as client:
        client.jobs.cancel_all(kind=kind)
