"""Job functions against a real server: submitted by their own signature, run with their options, awaited as futures."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from semel.client import (
    AsyncJob,
    Client,
    ConfigurationError,
    InvalidArgumentError,
    Job,
    JobFailedError,
    JobFunction,
    KeyCollisionError,
    NotFinishedError,
    Permanent,
    UnexpectedResultError,
    Worker,
)
from semel.client.worker import attempt
from tests.client.names import PATIENCE_SECONDS, TOKEN, fresh
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_loop")


@dataclass
class Line:
    name: str
    price: Decimal


@dataclass
class Receipt:
    lines: list[Line]
    on: date


def run_idle(worker: Worker) -> dict[str, int]:
    """Run what is ready; the counts that are not 0."""
    return {name: count for name, count in worker.run(until_idle=True).items() if count}


def test_a_function_is_submitted_by_its_signature_and_its_result_is_rebuilt(server: RunningServer) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind, queue="q", attempts=3, priority="high", lease=60, timeout=30)
    def bill(lines: list[Line], on: date = date(2026, 1, 1)) -> Receipt:
        assert all(isinstance(one.price, Decimal) for one in lines)
        return Receipt(lines, on)

    handle = bill.submit([Line("tea", Decimal("1.10"))], on=date(2026, 2, 3))
    info = handle.info()
    assert info.params == {"lines": [{"name": "tea", "price": "1.10"}], "on": "2026-02-03"}
    assert (info.kind, info.queue, info.max_attempts, info.priority) == (kind, "q", 3, 2)
    assert (info.facts["lease_sec"], info.facts["timeout_ms"]) == (60, 30_000)
    assert not handle.is_done()
    with pytest.raises(NotFinishedError):
        handle.result(timeout=0)
    assert run_idle(worker) == {"completed": 1}
    assert handle.result(timeout=20) == Receipt([Line("tea", Decimal("1.10"))], date(2026, 2, 3))
    assert bill.handle(handle.job_id).result() == handle.result()
    assert bill([], date(2026, 1, 1)) == Receipt([], date(2026, 1, 1))
    with pytest.raises(InvalidArgumentError, match="lines"):
        bill.submit("tea")  # type: ignore[arg-type]
    worker.close()


def test_a_key_makes_one_job_and_another_payload_is_refused(server: RunningServer) -> None:
    worker, kind, key = Worker(server.url), fresh("kind"), fresh("key")

    @worker.job(kind)
    def add(a: int, b: int = 1) -> int:
        return a + b

    first = add.with_options(key=key).submit(1)
    again = add.with_options(key=key, priority="low").submit(a=1)
    assert (first.replayed, again.replayed, first.job_id == again.job_id) == (False, True, True)
    with pytest.raises(KeyCollisionError):
        add.with_options(key=key).submit(2)
    with Client(server.url) as client:
        many = client.jobs.submit_many([add.request(2, 3), add.with_options(delay=3_600).request(4)])
        assert [getattr(one, "state", None) for one in many] == ["queued", "scheduled"]
    assert run_idle(worker) == {"completed": 2}
    assert first.result() == 2
    assert (add(5), repr(add), add.__name__) == (6, f"<JobFunction {kind}>", "add")
    worker.close()


def test_the_kind_of_a_function_is_its_name(server: RunningServer) -> None:
    worker = Worker(server.url)

    @worker.job
    def tick_of_a_test() -> str:
        return "tock"

    @worker.job()
    async def async_tick_of_a_test() -> str:
        return "tock"

    assert worker.kinds == ("tick_of_a_test", "async_tick_of_a_test")
    handle = tick_of_a_test.submit()
    assert run_idle(worker) == {"completed": 1}
    assert handle.result() == "tock"
    with pytest.raises(ConfigurationError, match="Two functions"):
        worker.job(tick_of_a_test.handler.function)
    with pytest.raises(ConfigurationError, match="1 to 128 characters"):
        worker.job(lambda: None)
    worker.close()


def test_a_future_of_a_failed_job_raises_its_error(server: RunningServer) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind, attempts=1)
    def fail(how: str) -> int:
        if how == "permanent":
            raise Permanent("no", code="refused")
        return how  # type: ignore[return-value]

    permanent, wrong, cancelled = fail.submit("permanent"), fail.submit("not a number"), fail.submit("never")
    assert cancelled.cancel().state == "failed"
    run_idle(worker)
    with pytest.raises(JobFailedError, match=r"no \[refused\]") as failed:
        permanent.result()
    assert (failed.value.code, failed.value.job_id) == ("refused", permanent.job_id)
    with pytest.raises(JobFailedError):
        cancelled.result()
    assert not permanent.outcome().ok
    with pytest.raises(UnexpectedResultError) as unexpected:
        wrong.result()
    assert unexpected.value.value == "not a number"
    worker.close()


async def test_submissions_and_results_are_awaited_in_asyncio_code(server: RunningServer) -> None:
    worker, kind = Worker(server.url, poll=5.0), fresh("kind")

    @worker.job(kind)
    async def double(job: AsyncJob, n: int) -> int:
        return 2 * n + await job.once("zero", lambda: 0)

    serving = asyncio.create_task(worker.serve())
    handle = await double.submit_async(21)
    assert await handle == 42
    assert await double.handle_async(handle.job_id).result(timeout=20) == 42
    assert (await handle.info()).state == "completed"
    assert await handle.is_done()
    later = await double.with_options(delay=3_600).submit_async(n=1)
    assert (await later.cancel()).state == "failed"
    worker.stop()
    await serving
    await worker.aclose()


@pytest.mark.parametrize(
    ("backoff", "pauses"),
    [(0.0, [0.0, 0.0]), ([0.0, 3_600.0], [0.0, 3_600.0]), (lambda attempt: 600.0 * attempt, [600.0])],
)
def test_backoff_is_a_number_a_list_or_a_function_of_the_attempt(
    server: RunningServer, backoff: Any, pauses: list[float]
) -> None:
    worker, kind, runs = Worker(server.url, concurrency=1), fresh("kind"), list[int]()

    @worker.job(kind, attempts=3, backoff=backoff)
    def fail(job: Job) -> None:
        runs.append(job.attempt)
        raise ValueError("no")

    handle = fail.submit()
    deadline = time.monotonic() + PATIENCE_SECONDS
    wanted = next((place for place, pause in enumerate(pauses, start=1) if pause), 3)
    while len(runs) < wanted and time.monotonic() < deadline:
        run_idle(worker)
    assert runs == list(range(1, wanted + 1))
    info = handle.info()
    assert info.state == ("scheduled" if wanted < 3 else "failed")
    if wanted < 3:  # the pauses of the server itself are shorter by far
        left = datetime.fromisoformat(info.facts["run_at_utc"]) - datetime.now(UTC)
        assert 0.5 * pauses[-1] < left.total_seconds() <= pauses[-1]
    worker.close()


def test_a_fault_in_a_backoff_leaves_the_pause_to_the_server(server: RunningServer) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind, attempts=2, backoff=lambda attempt: 1 / 0)
    def fail() -> None:
        raise ValueError("no")

    handle = fail.submit()
    while not handle.is_done():
        run_idle(worker)
    assert handle.info().attempt == 2
    worker.close()


def test_the_time_limit_of_a_function_holds_for_jobs_without_one(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "CANCEL_SECONDS", 0.2)
    worker, kind, over = Worker(server.url, concurrency=1), fresh("kind"), threading.Event()

    @worker.job(kind, timeout=0.3)
    def block() -> None:
        over.wait(PATIENCE_SECONDS)

    try:
        with Client(server.url) as client:
            job = client.jobs.submit(kind, max_attempts=1)
            assert run_idle(worker) == {"failed": 1}
            outcome = client.jobs.result(job.job_id)
        assert outcome.error is not None
        assert outcome.error["code"] == "timeout"
    finally:
        over.set()


CURRENT: ContextVar[str] = ContextVar("CURRENT", default="")


def test_middleware_is_around_every_run_and_sees_its_end(server: RunningServer) -> None:
    worker, kind, seen = Worker(server.url, concurrency=1), fresh("kind"), list[str]()

    @worker.middleware
    def session(job: Job, call: Any) -> Any:
        seen.append(f"session {job.kind == kind}")
        try:
            return call()
        finally:
            seen.append("closed")

    @worker.middleware
    def doubled(job: Job, call: Any) -> Any:
        return 2 * call()

    @worker.middleware
    async def trace(job: Any, call: Any) -> Any:
        CURRENT.set(job.id)
        seen.append("trace")
        return await call()

    @worker.job(kind)
    def plain(n: int) -> int:
        seen.append(f"plain {bool(CURRENT.get())}")
        if n < 0:
            raise Permanent("negative")
        return n

    @worker.job(kind + "-async")
    async def on_loop(n: int) -> int:
        seen.append(f"loop {bool(CURRENT.get())}")
        return n

    good, bad, other = plain.submit(21), plain.submit(-1), on_loop.submit(7)
    assert run_idle(worker) == {"completed": 2, "failed": 1}
    assert (good.result(), other.result()) == (42, 7)
    assert seen == [
        *("trace", "session True", "plain True", "closed"),
        *("trace", "session True", "plain True", "closed"),
        *("trace", "loop True"),
    ]
    assert bad.info().reason == "permanent"
    worker.close()


def test_params_of_another_version_of_the_function_fail_the_job_for_good(server: RunningServer) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind)
    def bill(order: str) -> None: ...

    with Client(server.url) as client:
        job = client.jobs.submit(kind, {"order": 7})
        run_idle(worker)
        outcome = client.jobs.result(job.job_id)
        assert outcome.error == {
            "code": "invalid_params",
            "message": "The param order does not fit: it is not a string.",
        }
        assert client.jobs.get(job.job_id).reason == "permanent"


def cron_worker(
    url: str, kind: str, cron: str = "*/5 * * * *", **options: Any
) -> tuple[Worker, JobFunction[..., ..., Any, Any]]:
    worker = Worker(url, **options)

    @worker.cron(cron, params={"region": "eu"}, time_zone="Europe/Berlin")
    @worker.cron("@daily", name=f"{kind}-daily", params={"region": "us"}, paused=True)
    @worker.job(kind, queue="reports", attempts=2)
    def report(region: str) -> str:
        return region

    return worker, report


def test_schedules_beside_the_code_are_stored_when_the_worker_starts(server: RunningServer) -> None:
    kind = fresh("kind")
    worker, _ = cron_worker(server.url, kind)
    assert [(one.name, one.cron) for one in worker.schedules] == [(f"{kind}-daily", "@daily"), (kind, "*/5 * * * *")]
    with Client(server.url) as client:
        run_idle(worker)
        stored = client.jobs.schedule(kind)
        assert (stored.kind, stored.cron, stored.params) == (kind, "*/5 * * * *", {"region": "eu"})
        assert (stored.queue, stored.max_attempts, stored.time_zone) == ("reports", 2, "Europe/Berlin")
        assert client.jobs.schedule(f"{kind}-daily").paused
        run_idle(worker)
        assert client.jobs.schedule(kind) == stored
        changed, _ = cron_worker(server.url, kind, "*/10 * * * *")
        asyncio.run(changed.store_schedules())
        assert client.jobs.schedule(kind).cron == "*/10 * * * *"


def test_a_schedule_that_does_not_fit_is_refused_when_it_is_written() -> None:
    worker = Worker("http://127.0.0.1:1")

    @worker.job
    def report(region: str) -> None: ...

    with pytest.raises(ConfigurationError, match="missing a required argument: 'region'"):
        worker.cron("@daily")(report)
    worker.cron("@daily", params={"region": "eu"})(report)
    with pytest.raises(ConfigurationError, match="Two schedules"):
        worker.cron("@daily", params={"region": "us"})(report)
    with pytest.raises(ConfigurationError, match=r"under @worker\.cron"):
        worker.cron("@daily")(lambda: None)  # type: ignore[type-var]


def test_options_that_no_run_could_use_are_refused() -> None:
    worker = Worker("http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="at least one pause"):
        worker.job("a", backoff=[])(lambda: None)
    with pytest.raises(ConfigurationError, match="timeout must not be negative"):
        worker.job("b", timeout=-1)(lambda: None)
    with pytest.raises(ConfigurationError, match="top of its module"):
        worker.job("c", process=True)(lambda: None)
    with pytest.raises(ConfigurationError, match="processes must be"):
        Worker(processes=0)
    assert worker.kinds == ()


def test_a_worker_that_may_not_store_schedules_says_what_to_do(strict: RunningServer) -> None:
    kind = fresh("kind")
    worker, _ = cron_worker(strict.url, kind, token="wrong")
    with pytest.raises(ConfigurationError, match="store_schedules=False"):
        worker.run(until_idle=True)
    allowed, _ = cron_worker(strict.url, kind, token=TOKEN, store_schedules=False)
    assert run_idle(allowed) == {}
    with Client(strict.url, token=TOKEN) as client:
        assert kind not in [one.name for one in client.jobs.schedules()]


def test_functions_submit_from_several_threads_and_loops(server: RunningServer) -> None:
    worker, kind = Worker(server.url), fresh("kind")

    @worker.job(kind)
    def add(n: int) -> int:
        return n

    async def one(n: int) -> str:
        handle = await add.submit_async(n)
        await worker.aclose()
        return handle.job_id

    ids = list[str]()
    threads = [threading.Thread(target=lambda n=n: ids.append(add.submit(n).job_id)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids += [asyncio.run(one(n)) for n in range(5, 7)]
    assert len(set(ids)) == 7
    assert run_idle(worker) == {"completed": 7}
    worker.close()
