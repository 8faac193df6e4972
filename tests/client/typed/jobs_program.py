"""A program of a user: every type in it is asserted."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, assert_type

from semel.client import (
    AsyncClient,
    AsyncJob,
    AsyncJobHandle,
    Client,
    Job,
    JobHandle,
    JobInfo,
    JobListing,
    JobRequest,
    JobRun,
    JobSummary,
    Outcome,
    Patience,
    QueueInfo,
    Submitted,
    Worker,
)
from semel.once import Posted

worker = Worker(concurrency=4, processes=2)


@dataclass
class Receipt:
    number: int


@worker.job
def bill(order: str, cents: int = 5) -> Receipt:
    return Receipt(cents)


@worker.job("order.mail", queue="mail", attempts=3, priority="high", lease=60, timeout=5, backoff=[1, 2.5])
async def mail(to: str) -> bool:
    return bool(to)


@worker.cron("*/5 * * * *", params={"region": "eu"}, catch_up="last")
@worker.job(process=True)
def report(job: Job, region: str) -> list[str]:
    paid = job.once("pay", len, region)
    assert_type(job.submit_child("a", bill.request("7")), Submitted)
    assert_type(job.wait_children(), dict[str, Outcome])
    assert_type(paid, int)
    return [region]


@worker.job()
async def remind(job: AsyncJob, *, days: float) -> None:
    assert_type(await job.once("n", len, "x"), int)


@worker.job("old")
def old(job: Job) -> dict[str, str]:
    return dict(job.params)


@worker.middleware
def session(job: Job, call: Any) -> Any:
    return call()


def use(client: Client, connection: object) -> None:
    handle = bill.submit(order="7", cents=5)
    assert_type(handle, JobHandle[Receipt])
    assert_type(handle.result(timeout=5), Receipt)
    assert_type(handle.info(), JobInfo)
    assert_type(handle.outcome(), Outcome)
    assert_type(mail.submit("me").result(), bool)
    assert_type(report.submit(region="eu").result(), list[str])
    assert_type(report.with_options(key="k", delay=5).submit("eu").result(), list[str])
    assert_type(bill("7"), Receipt)
    waiting: Coroutine[Any, Any, bool] = mail("me")
    waiting.close()
    assert_type(bill.request("7"), JobRequest)
    assert_type(bill.submit_in(connection, "7"), Posted)
    assert_type(report.submit_join([bill.request("7")], region="eu"), JobHandle[list[str]])
    assert_type(bill.handle("job_7").result(), Receipt)
    assert_type(old.submit().result(), dict[str, str])
    assert_type(client.jobs.submit("k", {"a": 1}), Submitted)
    assert_type(client.with_options(patience=Patience(tries=1)), Client)
    assert_type(client.jobs.get("job_7"), JobInfo)
    assert_type(client.jobs.list(state="queued"), JobListing[JobSummary])
    assert_type(client.jobs.set_queue("q", max_inflight=5), QueueInfo)
    for job in client.jobs.walk(kind="k"):
        assert_type(job, JobSummary)
    with worker.testing() as test:
        assert_type(test.run(now=5), list[JobRun])


async def use_async(client: AsyncClient) -> None:
    handle = await bill.submit_async(order="7")
    assert_type(handle, AsyncJobHandle[Receipt])
    assert_type(await handle, Receipt)
    assert_type(await handle.result(timeout=5), Receipt)
    assert_type(await (await remind.submit_async(days=0.5)), None)
    assert_type(await mail("me"), bool)
    assert_type(await client.jobs.submit("k"), Submitted)
    assert_type(client.with_options(patience=Patience(tries=1)), AsyncClient)
    async for job in client.jobs.walk():
        assert_type(job, JobSummary)
