"""The worker against a real server: functions of both kinds, endings of every kind, signs, steps and stopping."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from semel.client import (
    AccessError,
    AsyncJob,
    ConfigurationError,
    Defer,
    Job,
    Permanent,
    ProofRefusedError,
    RetryLater,
    StepError,
    Worker,
)
from tests.client.jobs_room import open_jobs
from tests.client.names import HMAC_KEY, PATIENCE_SECONDS, TOKEN, fresh, until
from tests.harness.server import RunningServer
from tests.harness.together import in_time, unless_held_up

pytestmark = pytest.mark.usefixtures("each_loop")


async def test_functions_of_both_kinds(server: RunningServer) -> None:
    sync_kind, async_kind, called_kind = fresh("kind"), fresh("kind"), fresh("kind")
    worker = Worker(server.url)

    @worker.job(sync_kind)
    def in_a_thread(job: Job) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        return {"doubled": job.params["n"] * 2, "attempt": job.attempt, "kind": job.kind}

    @worker.job(async_kind)
    async def on_the_loop(job: AsyncJob) -> Any:
        await asyncio.sleep(0)
        return [job.params, job.queue, job.max_attempts, job.created.year > 2000, repr(job)]

    class Called:
        async def __call__(self, job: AsyncJob) -> str:
            return job.step_key("s")

    worker.job(called_kind)(Called())
    assert worker.kinds == (sync_kind, async_kind, called_kind)
    async with open_jobs(server.url) as jobs:
        first = await jobs.submit(sync_kind, {"n": 21})
        second = await jobs.submit(async_kind, {"n": 1}, queue="q")
        third = await jobs.submit(called_kind)
        tally = await worker.serve(until_idle=True)
        assert tally == {"completed": 3, "failed": 0, "deferred": 0, "dropped": 0}
        assert (await jobs.result(first.job_id)).result == {"doubled": 42, "attempt": 1, "kind": sync_kind}
        shown = f"<AsyncJob {second.job_id} {async_kind} attempt=1>"
        assert (await jobs.result(second.job_id)).result == [{"n": 1}, "q", 5, True, shown]
        assert (await jobs.result(third.job_id)).result == f"{third.job_id}/s"


class NoFundsError(Exception):
    pass


ENDINGS: dict[str, Any] = {
    "permanent": Permanent("no such card", code="card", details={"n": 1}),
    "exception": NoFundsError("x" * 5_000),
    "exit": SystemExit(3),
    "set": {1, 2},
    "large": "x" * 1_100_000,
}


async def test_endings_by_exception(server: RunningServer) -> None:
    kind, deferred = fresh("kind"), list[int]()
    worker = Worker(server.url, poll=5.0)

    @worker.job(kind)
    def handle(job: Job) -> Any:
        ending = ENDINGS[job.params["ending"]]
        if isinstance(ending, BaseException):
            raise ending
        return ending

    @worker.job(kind + ".later")
    async def later(job: AsyncJob) -> Any:
        if len(deferred) < 2:
            deferred.append(job.attempt)
            raise Defer(0.0, "not yet")
        if job.attempt < 3:
            raise RetryLater(0.0, "again")
        return job.attempt

    async with open_jobs(server.url) as jobs:
        ids = {name: (await jobs.submit(kind, {"ending": name}, max_attempts=1)).job_id for name in ENDINGS}
        late = await jobs.submit(kind + ".later")
        serving = asyncio.create_task(worker.serve())
        errors = {name: (await jobs.result(one, wait=20)).error or {} for name, one in ids.items()}
        assert (await jobs.result(late.job_id, wait=20)).result == 3
        worker.stop()
        assert await serving == {"completed": 3, "failed": 5, "deferred": 2, "dropped": 0}
        assert deferred == [1, 1]
        assert errors["permanent"] == {"code": "card", "message": "no such card", "details": {"n": 1}}
        assert errors["exception"] == {"code": "NoFundsError", "message": "x" * 1_024}
        assert errors["exit"]["code"] == "SystemExit"
        assert (await jobs.get(ids["exception"])).reason == "exhausted"
        assert (await jobs.get(ids["permanent"])).reason == "permanent"


@pytest.mark.parametrize("is_async", [False, True])
async def test_no_more_at_once_than_asked_for(server: RunningServer, is_async: bool) -> None:
    kind, together = fresh("kind"), threading.Barrier(3)
    meeting = asyncio.Barrier(3)
    running, most = set[str](), list[int]()
    worker = Worker(server.url, concurrency=3)

    if is_async:

        @worker.job(kind)
        async def meet(job: AsyncJob) -> None:
            running.add(job.id)
            await asyncio.wait_for(meeting.wait(), PATIENCE_SECONDS)
            most.append(len(running))
            running.discard(job.id)

    else:

        @worker.job(kind)
        def wait(job: Job) -> None:
            running.add(job.id)
            together.wait(PATIENCE_SECONDS)
            most.append(len(running))
            running.discard(job.id)

    async with open_jobs(server.url) as jobs:
        for number in range(9):
            await jobs.submit(kind, {"n": number})
        assert (await worker.serve(until_idle=True))["completed"] == 9
    assert max(most) == 3


@pytest.mark.parametrize("is_async", [False, True])
async def test_steps_happen_once_over_two_runs(server: RunningServer, is_async: bool) -> None:
    kind, done = fresh("kind"), list[str]()
    worker = Worker(server.url, poll=5.0)

    def act(name: str, *, value: Any = None) -> Any:
        done.append(name)
        return {"name": name, "value": value}

    async def act_async(name: str) -> Any:
        return act(name)

    def fails() -> None:
        done.append("fails")
        raise NoFundsError("first time" if len(done) < 4 else "second time")

    if is_async:

        @worker.job(kind)
        async def handle(job: AsyncJob) -> Any:
            first = await job.once("first", act, "first", value=1)
            second = await job.once("second", act_async, "second")
            if job.attempt == 1:
                await job.once("third", fails)
            return [first, second]

    else:

        @worker.job(kind)
        def handle_sync(job: Job) -> Any:
            first = job.once("first", act, "first", value=1)
            second = job.once("second", act, "second")
            if job.attempt == 1:
                job.once("third", fails)
            return [first, second]

    async with open_jobs(server.url) as jobs:
        job = await jobs.submit(kind)
        serving = asyncio.create_task(worker.serve())
        result = (await jobs.result(job.job_id, wait=20)).result
        worker.stop()
        assert (await serving)["failed"] == 1
        assert result == [{"name": "first", "value": 1}, {"name": "second", "value": None}]
        assert done == ["first", "second", "fails"]
        assert (await jobs.get(job.job_id)).attempt == 2


async def test_a_step_is_not_begun_twice_and_stores_only_json(server: RunningServer) -> None:
    kind, faults = fresh("kind"), list[BaseException]()
    worker = Worker(server.url)

    @worker.job(kind)
    async def handle(job: AsyncJob) -> int:
        both = await asyncio.gather(
            job.once("twice", asyncio.sleep, 0.05, 1), job.once("twice", lambda: 2), return_exceptions=True
        )
        faults.extend(one for one in both if isinstance(one, BaseException))
        try:
            await job.once("set", lambda: {1, 2})
        except TypeError as error:
            faults.append(error)
        return await job.once("set", lambda: 7)

    async with open_jobs(server.url) as jobs:
        job = await jobs.submit(kind)
        await worker.serve(until_idle=True)
        assert (await jobs.result(job.job_id)).result == 7
        assert [type(one) for one in faults] == [StepError, TypeError]


def test_signs_and_heartbeats_reach_the_function(server: RunningServer) -> None:
    """Leases of two seconds, so heartbeats come soon; all jobs run side by side."""

    def check(lease_seconds: float) -> None:
        with unless_held_up(lease_seconds / 2):
            asyncio.run(signs_and_heartbeats(server, lease_seconds))

    in_time(check, 2)


async def signs_and_heartbeats(server: RunningServer, lease_seconds: float) -> None:
    kind, ends, long_enough = fresh("kind"), dict[str, str](), threading.Event()
    worker = Worker(server.url, poll=5.0, lease=round(lease_seconds))

    @worker.job(kind + ".long")
    def outlive_the_lease(job: Job) -> int:
        job.progress = {"half": True}
        long_enough.wait(PATIENCE_SECONDS)
        return job.attempt

    @worker.job(kind + ".asked")
    def stop_when_asked(job: Job) -> str:
        while not job.is_cancelled:
            time.sleep(0.02)
        return "lost" if job.is_lost else "asked"

    @worker.job(kind + ".taken")
    async def taken_away(job: AsyncJob) -> None:
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        except asyncio.CancelledError:
            ends[job.id] = "cancelled"
            raise

    @worker.job(kind + ".thread")
    def taken_from_a_thread(job: Job) -> str:
        while not job.is_lost:
            time.sleep(0.02)
        ends[job.id] = "lost"
        return "nobody sees this"

    async with open_jobs(server.url) as jobs:
        names = (".long", ".asked", ".taken", ".thread")
        ids = [(await jobs.submit(kind + name)).job_id for name in names]
        long, asked, taken, thread = ids
        serving = asyncio.create_task(worker.serve())

        async def all_run() -> bool:
            return all([(await jobs.get(one)).state == "leased" for one in ids])

        try:
            await until(all_run)
            await jobs.cancel(asked)
            await jobs.cancel(taken, force=True)
            await jobs.cancel(thread, force=True)
            assert (await jobs.result(asked, wait=20)).result == "asked"
            await asyncio.sleep(1.3 * lease_seconds)
            long_enough.set()
            assert (await jobs.result(long, wait=20)).result == 1
            assert (await jobs.get(long)).progress == {"half": True}
            await until(lambda: len(ends) == 2)
            worker.stop()
            assert await serving == {"completed": 2, "failed": 0, "deferred": 0, "dropped": 2}
            assert (await jobs.get(thread)).reason == "cancelled"
        finally:
            # Whatever happened, nothing goes on in a thread.
            long_enough.set()
            for one in ids:
                await jobs.cancel(one, force=True)
            worker.stop()
            await serving


async def test_stopping_lets_jobs_end_and_gives_the_rest_back(server: RunningServer) -> None:
    kind, began, tidied = fresh("kind"), list[str](), list[str]()
    gate = threading.Event()
    worker = Worker(server.url, poll=20.0, grace=3_600.0)

    @worker.job(kind + ".short")
    def short(job: Job) -> bool:
        began.append(job.id)
        while not job.is_stopping:
            time.sleep(0.02)
        return job.is_cancelled

    @worker.job(kind + ".long")
    async def long(job: AsyncJob) -> None:
        began.append(job.id)
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        finally:
            tidied.append(job.id)

    @worker.job(kind + ".deaf")
    def deaf(job: Job) -> None:
        began.append(job.id)
        gate.wait(PATIENCE_SECONDS)

    async with open_jobs(server.url) as jobs:
        ids = [(await jobs.submit(kind + name, max_attempts=1)).job_id for name in (".short", ".long", ".deaf")]
        serving = asyncio.create_task(worker.serve())
        await until(lambda: len(began) == 3)
        worker.stop()
        assert (await jobs.result(ids[0], wait=20)).result is False
        assert not serving.done()
        worker.stop()
        assert await serving == {"completed": 1, "failed": 0, "deferred": 2, "dropped": 0}
        gate.set()
        assert tidied == [ids[1]]
        back = [await jobs.get(one) for one in ids[1:]]
        assert [(one.state, one.attempt) for one in back] == [("queued", 0), ("queued", 0)]


async def test_the_end_of_the_grace_time_and_being_cancelled_give_back_at_once(server: RunningServer) -> None:
    kind, began = fresh("kind"), list[str]()
    worker = Worker(server.url, grace=0.2)

    @worker.job(kind)
    async def long(job: AsyncJob) -> None:
        began.append(job.id)
        await asyncio.sleep(3_600.0)

    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind)).job_id
        serving = asyncio.create_task(worker.serve())
        await until(lambda: len(began) == 1)
        with pytest.raises(ConfigurationError):
            await worker.serve()
        worker.stop()
        assert (await serving)["deferred"] == 1
        serving = asyncio.create_task(worker.serve())
        await until(lambda: len(began) == 2)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert (await jobs.get(job_id)).state == "queued"


async def test_a_report_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as own:
        kind, began, gate = fresh("kind"), list[str](), asyncio.Event()
        worker = Worker(own.url, lease=60)

        @worker.job(kind)
        async def handle(job: AsyncJob) -> str:
            began.append(job.id)
            await gate.wait()
            return "kept"

        async with open_jobs(own.url) as jobs:
            job_id = (await jobs.submit(kind)).job_id
            serving = asyncio.create_task(worker.serve())
            await until(lambda: len(began) == 1)
            own.kill()
            gate.set()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(own.start)
            outcome = await jobs.result(job_id, wait=20)
            worker.stop()
            assert (await serving)["completed"] == 1
            assert (outcome.result, began) == ("kept", [job_id])


async def test_a_worker_that_the_server_does_not_believe_ends(strict: RunningServer) -> None:
    kind = fresh("kind")
    unknown = Worker(strict.url, token="wrong")
    unknown.job(kind)(lambda job: None)
    with pytest.raises(AccessError):
        await unknown.serve()
    unsigned = Worker(strict.url, token=TOKEN)
    unsigned.job(kind)(lambda job: None)
    signing = Worker(strict.url, token=TOKEN, result_hmac_key=HMAC_KEY)
    signing.job(kind)(lambda job: "signed")
    async with open_jobs(strict.url, token=TOKEN) as jobs:
        job_id = (await jobs.submit(kind, max_attempts=1)).job_id
        with pytest.raises(ProofRefusedError):
            await unsigned.serve()
        job = await jobs.get(job_id)
        assert (job.state, job.attempt) == ("scheduled", 0)
        other = (await jobs.submit(kind, {"n": 2})).job_id
        assert (await signing.serve(until_idle=True))["completed"] == 1
        assert (await jobs.get(other)).status == "completed"
        await jobs.cancel(job_id)


def test_a_worker_that_makes_no_sense_is_refused() -> None:
    worker = Worker()
    with pytest.raises(ConfigurationError, match="no functions"):
        worker.run()
    worker.job("k")(lambda job: None)
    with pytest.raises(ConfigurationError, match="Two functions"):
        worker.job("k")(lambda job: None)
    for number in range(99):
        worker.job(f"k{number}")(lambda job: None)
    with pytest.raises(ConfigurationError, match="at most 100 kinds"):
        worker.job("one-more")(lambda job: None)
    wrong: list[dict[str, Any]] = [{"concurrency": 0}, {"concurrency": 10**6}, {"poll": 0.0}, {"poll": 31.0}]
    for arguments in [*wrong, {"grace": -1.0}]:
        with pytest.raises(ConfigurationError):
            Worker(**arguments)
