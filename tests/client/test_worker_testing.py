"""`worker.testing()`: job functions in this process, without a server, with the rules that it promises."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from semel.client import (
    AsyncJob,
    ConfigurationError,
    Defer,
    InvalidArgumentError,
    Job,
    JobFailedError,
    KeyCollisionError,
    NotFinishedError,
    NotFoundError,
    Permanent,
    RetryLater,
    Submitted,
    Worker,
)

NOWHERE = "http://127.0.0.1:1"


@dataclass
class Bill:
    order: str
    cents: int


def test_jobs_run_in_order_when_the_test_says_so() -> None:
    worker, ran = Worker(NOWHERE), list[str]()

    @worker.job
    def bill(order: str, cents: int = 5) -> Bill:
        ran.append(order)
        return Bill(order, cents)

    with worker.testing() as test:
        first = bill.submit("first")
        urgent = bill.with_options(priority="critical").submit("urgent")
        later = bill.with_options(delay=60).submit(order="later", cents=7)
        assert ran == []
        with pytest.raises(NotFinishedError, match=r"test\.run"):
            first.result()
        runs = test.run()
        assert [(one.params["order"], one.ended, one.attempt) for one in runs] == [
            ("urgent", "completed", 1),
            ("first", "completed", 1),
        ]
        assert (first.result(), urgent.result()) == (Bill("first", 5), Bill("urgent", 5))
        assert (later.info().state, first.info().state) == ("scheduled", "completed")
        assert test.run(now=59.9) == []
        [run] = test.run(now=60)
        assert (run.at, run.outcome is not None) == (60, True)
        assert later.result() == Bill("later", 7)
        with pytest.raises(InvalidArgumentError):
            bill.submit(7)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="go back"):
            test.run(now=1)
    assert ran == ["urgent", "first", "later"]


def test_retries_and_their_pauses_are_told() -> None:
    worker = Worker(NOWHERE)

    @worker.job(attempts=3)
    def usual() -> None:
        raise ValueError("no")

    @worker.job(attempts=4, backoff=[1, 10])
    def own(job: Job) -> int:
        if job.attempt == 2:
            raise RetryLater(100)
        if job.attempt < 4:
            raise ValueError("no")
        return job.attempt

    with worker.testing() as test:
        failing, working = usual.submit(), own.submit()
        runs = test.run_all()
        assert [(one.at, one.next_run) for one in runs if one.kind == "usual"] == [(0, 0.5), (0.5, 1.5), (1.5, None)]
        assert [(one.at, one.next_run) for one in runs if one.kind == "own"] == [
            (0, 1),
            (1, 101),
            (101, 111),
            (111, None),
        ]
        assert runs[0].error == {"code": "ValueError", "message": "no"}
        assert isinstance(runs[0].exception, ValueError)
        assert working.result() == 4
        assert failing.info().reason == "exhausted"
        with pytest.raises(JobFailedError):
            failing.result()


def test_endings_keys_steps_and_cancellations() -> None:
    worker, effects = Worker(NOWHERE), list[str]()

    @worker.job
    def work(job: Job, how: str) -> Any:
        def pay() -> int:
            effects.append(how)
            return len(effects)

        paid = job.once("pay", pay)
        if how == "permanent":
            raise Permanent("no", code="refused")
        if how == "defer" and test.now < 10:
            raise Defer(10)
        if how == "retry" and job.attempt == 1:
            raise RetryLater(5)
        return {"paid": paid, "attempt": job.attempt}

    with worker.testing() as test:
        keyed = work.with_options(key="k")
        retried, again = keyed.submit("retry"), keyed.submit("retry")
        assert (retried.replayed, again.replayed, retried.job_id == again.job_id) == (False, True, True)
        with pytest.raises(KeyCollisionError):
            keyed.submit("other")
        permanent, deferred, cancelled = work.submit("permanent"), work.submit("defer"), work.submit("never")
        assert cancelled.cancel().state == "failed"
        test.run_all()
        assert effects == ["retry", "permanent", "defer"]
        assert retried.result() == {"paid": 1, "attempt": 2}
        assert deferred.result() == {"paid": 3, "attempt": 1}
        assert (permanent.info().reason, cancelled.info().reason) == ("permanent", "cancelled")
        revived = work.with_options(key="p", on_failed="retry")
        failed = revived.submit("permanent")
        test.run()
        assert revived.submit("permanent").info().state == "queued"
        assert failed.info().revision == 1
        with pytest.raises(NotFoundError):
            work.handle("job_7").info()


def test_asynchronous_functions_and_middleware_run_with_and_without_a_loop() -> None:
    worker, seen = Worker(NOWHERE), list[str]()

    @worker.middleware
    async def outer(job: Any, call: Any) -> Any:
        seen.append("outer")
        return await call()

    @worker.middleware
    def inner(job: Job, call: Any) -> Any:
        seen.append("inner")
        return call()

    @worker.job
    async def on_loop(job: AsyncJob, n: int) -> int:
        await asyncio.sleep(0)
        return n + await job.once("one", lambda: 1)

    @worker.job
    def plain(n: int) -> int:
        return n

    with worker.testing() as test:
        first, second = on_loop.submit(1), plain.submit(2)
        assert len(test.run()) == 2
        assert (first.result(), second.result()) == (2, 2)
        assert seen == ["outer", "outer", "inner"]

    async def main() -> None:
        async with worker.testing() as test:
            first, second = await on_loop.submit_async(1), await plain.submit_async(2)
            with pytest.raises(ConfigurationError, match="run_async"):
                test.run()
            await test.run_async()
            assert (await first, await second) == (2, 2)

    asyncio.run(main())


def test_a_job_may_submit_more_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.client.worker.testing.MOST_RUNS", 50)
    worker = Worker(NOWHERE)

    @worker.job
    def count(n: int) -> int:
        if n:
            count.submit(n - 1)
        return n

    @worker.job
    def endless() -> None:
        endless.submit()

    with worker.testing() as test:
        count.submit(3)
        assert [one.params["n"] for one in test.run()] == [3, 2, 1, 0]
        endless.submit()
        with pytest.raises(ConfigurationError, match="50 runs"):
            test.run()


def test_what_is_stored_is_json_also_here() -> None:
    worker = Worker(NOWHERE)

    @worker.job
    def odd(job: Job) -> Any:
        return {1, 2}

    with worker.testing() as test:
        handle = odd.submit()
        test.run()
        assert set(handle.outcome().result) == {"no_result"}
        with pytest.raises(ConfigurationError, match="already"), worker.testing():
            pass
        answers = asyncio.run(test.jobs.submit_many([odd.request(), odd.with_options(key="k").request()]))
        assert all(isinstance(one, Submitted) for one in answers)


def test_a_job_of_a_kind_without_a_function_is_named() -> None:
    worker, other = Worker(NOWHERE), Worker(NOWHERE)

    @other.job
    def foreign() -> None: ...

    with worker.testing() as test:
        asyncio.run(test.jobs.submit_request(foreign.request()))
        with pytest.raises(ConfigurationError, match="no function for jobs of the kind foreign"):
            test.run()
