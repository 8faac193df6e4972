"""Jobs that wait for others: joins of groups and children, from both clients, from functions and in tests."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel.client import (
    AsyncJob,
    Client,
    InvalidArgumentError,
    Job,
    JobFailedError,
    JobRequest,
    Join,
    Permanent,
    RefusedError,
    Worker,
)
from tests.client.cutter import Cutter
from tests.client.jobs_room import OpenJobs
from tests.client.names import PATIENCE_SECONDS, fresh
from tests.client.test_job_functions import run_idle
from tests.harness.server import RunningServer


def test_a_join_runs_when_all_members_have_ended(server: RunningServer, open_jobs: OpenJobs) -> None:
    async def main() -> None:
        kind = fresh("kind")
        async with Cutter(server.port) as cutter, open_jobs(cutter.url) as jobs:
            cutter.cut_answer("/batch")
            cutter.cut_answer("/v1/jobs")
            members = [JobRequest(kind, {"n": n}) for n in range(3)]
            join = await jobs.submit_group(JobRequest(kind + "-join", key=fresh("key")), members)
            assert len(cutter.cuts) == 2
            assert (await jobs.get(join.job_id)).facts["join"]["members"] == 3
            leases = (await jobs.claim("w", most=5, kinds=[kind, kind + "-join"])).leases
            assert [lease.kind for lease in leases] == [kind] * 3
            for lease in leases[:2]:
                await jobs.complete(lease, lease.params["n"])
            await jobs.fail(leases[2], {"code": "c", "message": "m"}, retryable=False)
            [last] = (await jobs.claim("w", kinds=[kind + "-join"])).leases
            assert last.job_id == join.job_id
            listed = [one async for one in jobs.walk_members(join.job_id)]
            assert [(one.job_id, one.state) for one in listed] == [
                (lease.job_id, state) for lease, state in zip(leases, ("completed", "completed", "failed"), strict=True)
            ]
            assert (await jobs.members(join.job_id, limit=2)).next_after is not None
            await jobs.complete(last)

    asyncio.run(main())


def test_an_open_group_is_closed_and_cancelled_as_a_whole(server: RunningServer, open_jobs: OpenJobs) -> None:
    async def main() -> None:
        kind = fresh("kind")
        async with open_jobs(server.url) as jobs:
            join = await jobs.submit(kind, join=Join())
            member = await jobs.submit(kind, {"n": 1}, group=join.job_id)
            assert (await jobs.close_group(join.job_id)).state == "scheduled"
            with pytest.raises(RefusedError, match="group_closed"):
                await jobs.submit(kind, {"n": 2}, group=join.job_id)
            await jobs.cancel(join.job_id, members=True)
            assert (await jobs.result(member.job_id, wait=PATIENCE_SECONDS)).ok is False
            empty = await jobs.submit_group(JobRequest(kind + "-empty"), [])
            assert (await jobs.get(empty.job_id)).state == "queued"
            await jobs.cancel(empty.job_id)

    asyncio.run(main())


def test_the_same_group_again_is_completed_and_not_doubled(server: RunningServer, open_jobs: OpenJobs) -> None:
    async def main() -> None:
        kind, key = fresh("kind"), fresh("key")
        async with open_jobs(server.url) as jobs:
            first = await jobs.submit(kind, key=key, join=Join(2))
            await jobs.submit(kind, {"n": 0}, key=f"{key}/0", group=first.job_id)
            members = [JobRequest(kind, {"n": n}) for n in range(2)]
            for _ in range(2):
                again = await jobs.submit_group(JobRequest(kind, key=key), members)
                assert (again.dedup, again.job_id) == (True, first.job_id)
            assert len([one async for one in jobs.walk(kind=kind)]) == 3
            await jobs.cancel(first.job_id, members=True)

    asyncio.run(main())


def order_worker(url: str, kind: str, ran: list[str]) -> tuple[Worker, Any, Any, Any]:
    """A worker whose orders have children, and a report that joins a group."""
    worker = Worker(url, concurrency=1)

    @worker.job(f"{kind}.bill", attempts=1)
    def bill(order: str) -> str:
        ran.append(f"bill {order}")
        if order == "bad":
            raise Permanent("no")
        return f"billed {order}"

    @worker.job(f"{kind}.order")
    def whole(job: Job, lines: list[str]) -> dict[str, Any]:
        ran.append("order")
        for line in lines:
            job.submit_child(line, bill.request(line))
        ended = job.wait_children()
        return {name: one.result if one.ok else None for name, one in ended.items()}

    @worker.job(f"{kind}.report")
    async def report(job: AsyncJob, region: str) -> list[Any]:
        return [region, *(one.result for one in await job.members())]

    return worker, bill, whole, report


def test_a_parent_gives_itself_back_until_its_children_have_ended(server: RunningServer) -> None:
    kind, ran = fresh("kind"), list[str]()
    worker, _, whole, _ = order_worker(server.url, kind, ran)
    starts = list[Any]()

    @worker.middleware
    def look(job: Job, call: Any) -> Any:
        if job.kind == f"{kind}.bill":
            starts.append(handle.info().facts["run_at_utc"])
        return call()

    handle = whole.submit(["1", "2", "bad"])
    assert run_idle(worker) == {"completed": 3, "failed": 1, "deferred": 1}
    assert handle.result() == {"1": "billed 1", "2": "billed 2", "bad": None}
    assert sorted(ran) == ["bill 1", "bill 2", "bill bad", "order", "order"]
    assert handle.info().attempt == 1
    assert starts == [None] * 3  # it waits for them, and for no time
    with Client(server.url) as client:
        assert [one.name for one in client.jobs.walk_members(handle.job_id)] == ["1", "2", "bad"]
    worker.close()


def test_a_function_joins_a_group_of_others(server: RunningServer) -> None:
    kind, ran = fresh("kind"), list[str]()
    worker, bill, _, report = order_worker(server.url, kind, ran)
    handle = report.submit_join([bill.request("1"), bill.request("2")], region="eu")
    again = report.with_options(key=handle.submitted.key).submit_join([bill.request("1"), bill.request("2")], "eu")
    assert (again.replayed, again.job_id) == (True, handle.job_id)
    assert run_idle(worker) == {"completed": 3}
    assert handle.result() == ["eu", "billed 1", "billed 2"]
    worker.close()

    async def main() -> None:
        kind = fresh("kind")
        worker, bill, _, report = order_worker(server.url, kind, ran)
        cancelling = report.with_options(on_member_failure="cancel")
        requests = [bill.with_options(priority="high").request("bad"), bill.with_options(delay=3_600).request("late")]
        handle = await cancelling.submit_join_async(requests, "us")
        serving = asyncio.create_task(worker.serve())
        assert await handle.result(PATIENCE_SECONDS) == ["us", None, None]
        worker.stop()
        await serving
        await worker.aclose()

    asyncio.run(main())


def test_children_and_groups_in_a_test_without_a_server() -> None:
    ran = list[str]()
    worker, bill, whole, report = order_worker("http://127.0.0.1:1", "k", ran)
    with worker.testing() as test:
        handle = whole.submit(["1", "bad"])
        runs = test.run()
        assert [(one.kind, one.ended) for one in runs] == [
            ("k.order", "deferred"),
            ("k.bill", "completed"),
            ("k.bill", "failed"),
            ("k.order", "completed"),
        ]
        assert (handle.result(), handle.info().attempt) == ({"1": "billed 1", "bad": None}, 1)
        joined = report.submit_join([bill.request("1"), bill.request("2")], region="eu")
        assert joined.info().state == "scheduled"
        test.run()
        assert joined.result() == ["eu", "billed 1", "billed 2"]
        cancelling = report.with_options(on_member_failure="cancel")
        cancelled = cancelling.submit_join([bill.request("bad"), bill.with_options(delay=60).request("late")], "us")
        test.run()
        assert cancelled.result() == ["us", None, None]


def test_a_child_has_a_name_instead_of_a_key(server: RunningServer) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind, attempts=1)
    def parent(job: Job) -> None:
        job.submit_child("a", parent.with_options(key="k").request())

    handle = parent.submit()
    run_idle(worker)
    with pytest.raises(JobFailedError, match=InvalidArgumentError.__name__):
        handle.result()
    worker.close()
