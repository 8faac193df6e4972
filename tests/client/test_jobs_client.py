"""The client against a real server: every call, its values and its errors."""

from __future__ import annotations

import asyncio
import traceback
from datetime import UTC, datetime, timedelta

import pytest

from semel.client import (
    AccessError,
    BusyError,
    InvalidRequestError,
    JobRequest,
    KeyCollisionError,
    Lease,
    LeaseLostError,
    NoAnswerError,
    NotFinishedError,
    NotFoundError,
    Patience,
    ProofRefusedError,
    QueueInfo,
    ResultConflictError,
    Submitted,
    TooLargeError,
)
from tests.client.jobs_room import OpenJobs
from tests.client.names import HMAC_KEY, TOKEN, fresh
from tests.harness.server import RunningServer, free_port

ONE_TRY = Patience(tries=1)


async def test_a_job_from_submission_to_result(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, key = fresh("kind"), fresh("key")
    params = {"text": "grüße", "number": 9_007_199_254_740_993, "half": 0.5, "list": [None, True]}
    async with open_jobs(server.url) as jobs:
        first = await jobs.submit(kind, params, key=key, priority="high", max_attempts=3, lease=60)
        again = await jobs.submit(kind, params, key=key)
        assert (first.dedup, first.status, first.state) == (False, "accepted", "queued")
        assert (again.dedup, again.status, again.job_id) == (True, "in_progress", first.job_id)
        assert first.created.tzinfo is UTC
        found = [await jobs.get(first.job_id), await jobs.lookup(key=key)]
        found.append(await jobs.lookup(request_id=first.request_id))
        assert {one.job_id for one in found} == {first.job_id}
        assert found[0].params == params
        assert (found[0].priority, found[0].max_attempts, found[0].has_ended) == (2, 3, False)
        with pytest.raises(NotFinishedError):
            await jobs.result(first.job_id)
        [lease] = (await jobs.claim("w", kinds=[kind], lease=30)).leases
        assert (lease.params, lease.attempt, lease.lease_ms) == (params, 1, 30_000)
        assert lease.token not in repr(lease)
        beat = await jobs.heartbeat(lease, progress={"done": 0.5})
        assert not beat.cancel_requested
        assert (await jobs.get(first.job_id)).progress == {"done": 0.5}
        done = await jobs.complete(lease, params)
        repeated = await jobs.complete(lease, params)
        assert [(one.status, one.dedup) for one in (done, repeated)] == [("completed", False), ("completed", True)]
        outcome = await jobs.result(first.job_id)
        assert (outcome.ok, outcome.result, outcome.error) == (True, params, None)
        ended = await jobs.submit(kind, params, key=key)
        assert (ended.status, ended.outcome, ended.expires is None) == ("completed", outcome, False)
        assert (await jobs.get(first.job_id)).outcome == outcome


async def test_a_run_that_fails_is_put_off_or_is_taken_away(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind = fresh("kind")
    async with open_jobs(server.url) as jobs:
        job_id = (await jobs.submit(kind, max_attempts=2)).job_id
        [lease] = (await jobs.claim("w", kinds=[kind], wait=20)).leases
        assert (await jobs.defer(lease, 0.0, reason="not yet")).next_run is not None
        [lease] = (await jobs.claim("w", kinds=[kind], wait=20)).leases
        assert lease.attempt == 1
        assert (await jobs.fail(lease, {"code": "a", "message": "b"}, retry_after=0.0)).next_run is not None
        with pytest.raises(LeaseLostError):
            await jobs.heartbeat(lease)
        [lease] = (await jobs.claim("w", kinds=[kind], wait=20)).leases
        failed = await jobs.fail(lease, {"code": "c", "message": "d", "details": {"n": 1}}, retryable=False)
        assert (failed.status, failed.next_run) == ("failed", None)
        with pytest.raises(ResultConflictError):
            await jobs.complete(lease, 1)
        outcome = await jobs.result(job_id)
        assert (outcome.ok, outcome.error) == (False, {"code": "c", "message": "d", "details": {"n": 1}})
        assert (await jobs.get(job_id)).reason == "permanent"


async def test_waiting_delays_and_cancelling(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind = fresh("kind")
    async with open_jobs(server.url) as jobs:
        later = await jobs.submit(kind, {"n": 1}, delay=3_600.0)
        at = await jobs.submit(kind, {"n": 2}, run_at=datetime.now(UTC) + timedelta(days=1), queue=kind)
        assert [later.state, at.state] == ["scheduled", "scheduled"]
        assert (await jobs.claim("w", kinds=[kind])).leases == ()
        assert (await jobs.cancel(later.job_id)).state == "failed"
        ended = asyncio.create_task(jobs.result(at.job_id, wait=20.0))
        waiting = asyncio.create_task(jobs.submit(kind, {"n": 3}, wait=20.0))
        [lease] = (await jobs.claim("w", kinds=[kind], wait=20.0)).leases
        await jobs.complete(lease)
        submitted = await waiting
        assert submitted.outcome is not None
        assert (submitted.status, submitted.outcome.result) == ("completed", None)
        await jobs.cancel(at.job_id, force=True)
        assert (await ended).ok is False
        assert (await jobs.get(at.job_id)).reason == "cancelled"


async def test_steps_keep_their_first_result(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind = fresh("kind")
    async with open_jobs(server.url) as jobs:
        await jobs.submit(kind)
        [lease] = (await jobs.claim("w", kinds=[kind])).leases
        assert not (await jobs.step(lease, "pay")).known
        first = await jobs.store_step(lease, "pay", None)
        second = await jobs.store_step(lease, "pay", {"other": 1})
        asked = await jobs.step(lease, "pay")
        assert [(one.known, one.result) for one in (first, second, asked)] == [(True, None)] * 3
        assert [first.dedup, second.dedup] == [False, True]
        await jobs.complete(lease)
        with pytest.raises(LeaseLostError):
            await jobs.store_step(lease, "more", 1)


async def test_many_are_judged_alone_and_answered_in_order(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, key = fresh("kind"), fresh("key")
    wanted = [JobRequest(kind, {"n": number}) for number in range(120)]
    wanted[5] = wanted[7] = JobRequest(kind, {"n": 5}, key=key)
    wanted[9] = JobRequest("not a kind")
    wanted[11] = JobRequest(kind, {"n": 6}, key=key)
    async with open_jobs(server.url) as jobs:
        answers = await jobs.submit_many(wanted)
        assert len(answers) == 120
        errors = {place: one for place, one in enumerate(answers) if not isinstance(one, Submitted)}
        assert {place: type(one) for place, one in errors.items()} == {
            9: InvalidRequestError,
            11: KeyCollisionError,
        }
        assert errors[11].key == key
        known = [one for one in answers if isinstance(one, Submitted)]
        assert len({one.job_id for one in known}) == 117
        assert [one.dedup for one in known].count(True) == 1
        claimed = await jobs.claim("w", most=100, kinds=[kind])
        assert len(claimed.leases) == 100


async def test_verdicts_are_raised_at_once(server: RunningServer, open_jobs: OpenJobs) -> None:
    kind, key = fresh("kind"), fresh("key")
    async with open_jobs(server.url) as jobs:
        with pytest.raises(InvalidRequestError) as invalid:
            await jobs.submit("not a kind", key=key)
        assert (invalid.value.field, invalid.value.key) == ("kind", key)
        await jobs.submit(kind, {"n": 1}, key=key)
        with pytest.raises(KeyCollisionError):
            await jobs.submit(kind, {"n": 2}, key=key)
        with pytest.raises(NotFoundError):
            await jobs.get("job_" + "0" * 32)
        with pytest.raises(NotFoundError):
            await jobs.get("../../metrics?x#y")
        [lease] = (await jobs.claim("w", kinds=[kind])).leases
        with pytest.raises(TooLargeError):
            await jobs.complete(lease, "x" * 1_100_000)
        await jobs.complete(lease, "smaller")
        with pytest.raises(ValueError, match="time zone"):
            await jobs.submit(kind, run_at=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused
        for value in ({1, 2}, float("nan"), "\ud800", (1,)):
            with pytest.raises((TypeError, ValueError)):
                await jobs.submit(kind, {"value": value})
        with pytest.raises(ValueError, match="not both"):
            await jobs.lookup()


async def test_d3_a_queue_limits_the_time_of_its_runs(server: RunningServer, open_jobs: OpenJobs) -> None:
    name = fresh("queue/with a slash")
    async with open_jobs(server.url) as jobs:
        assert await jobs.queue(name) == QueueInfo(name, 0, 0.0, 0, 0)
        limited = await jobs.set_queue(name, default_timeout=1.5)
        assert (limited.max_inflight, limited.default_timeout) == (0, 1.5)
        assert await jobs.set_queue(name, max_inflight=3) == QueueInfo(name, 3, 1.5, 0, 0)
        kind = fresh("kind")
        await jobs.submit(kind, queue=name)
        [lease] = (await jobs.claim("w", kinds=[kind])).leases
        assert lease.timeout_ms == 1_500
        assert await jobs.queue(name) == QueueInfo(name, 3, 1.5, 1, 0)
        assert (await jobs.set_queue(name, default_timeout=0)).default_timeout == 0
        with pytest.raises(ValueError, match="default_timeout"):
            await jobs.set_queue(name)


async def test_nobody_there_is_no_answer_and_nothing_is_unsettled(open_jobs: OpenJobs) -> None:
    key = fresh("key")
    patience = Patience(tries=2)
    async with open_jobs(f"http://127.0.0.1:{free_port()}", token=TOKEN, patience=patience) as jobs:
        with pytest.raises(NoAnswerError) as lost:
            await jobs.submit("k", key=key)
        assert (lost.value.key, lost.value.is_unsettled) == (key, False)
        assert TOKEN not in "".join(traceback.format_exception(lost.value))
        many = await jobs.submit_many([JobRequest("k", key=f"{key}-{n}") for n in range(150)])
        assert [getattr(one, "key", "") for one in many] == [f"{key}-{n}" for n in range(150)]
        assert all(isinstance(one, NoAnswerError) for one in many)


async def test_a_wrong_token_and_the_right_one(
    strict: RunningServer, monkeypatch: pytest.MonkeyPatch, open_jobs: OpenJobs
) -> None:
    async with open_jobs(strict.url, token="wrong") as jobs:
        with pytest.raises(AccessError) as refused:
            await jobs.get("job_" + "0" * 32)
        assert "wrong" not in str(refused.value).split()
    monkeypatch.setenv("SEMEL_URL", strict.url)
    monkeypatch.setenv("SEMEL_TOKEN", TOKEN)
    async with open_jobs() as jobs:
        with pytest.raises(NotFoundError):
            await jobs.get("job_" + "0" * 32)


async def test_a_full_queue_is_waited_for_and_then_told(strict: RunningServer, open_jobs: OpenJobs) -> None:
    """Both in one test, because they share the queue's two places."""
    kind = fresh("kind")
    async with (
        open_jobs(strict.url, token=TOKEN, result_hmac_key=HMAC_KEY) as jobs,
        open_jobs(strict.url, token=TOKEN, patience=ONE_TRY) as hasty,
    ):
        first, second = await jobs.submit(kind, {"n": 1}), await jobs.submit(kind, {"n": 2})
        with pytest.raises(BusyError) as busy:
            await hasty.submit(kind, {"n": 3})
        assert busy.value.retry_after > 0
        assert not busy.value.is_unsettled
        [one, other] = await hasty.submit_many([JobRequest(kind, {"n": 1}, key=first.key), JobRequest(kind)])
        assert (getattr(one, "dedup", None), type(other)) == (True, BusyError)
        waiting = asyncio.create_task(jobs.submit(kind, {"n": 3}))
        batch = asyncio.create_task(jobs.submit_many([JobRequest(kind, {"n": 4})]))
        await asyncio.sleep(0.1)
        leases = list[Lease]()
        while len(leases) < 4:
            leases += (await jobs.claim("w", kinds=[kind], wait=20)).leases
        [fourth] = await batch
        ids = {one.job_id for one in (first, second, await waiting, fourth) if isinstance(one, Submitted)}
        assert {lease.job_id for lease in leases} == ids
        for lease in leases:
            await jobs.complete(lease, lease.params["n"])
        assert (await jobs.result(first.job_id)).result == 1


async def test_results_are_signed_where_there_is_a_key(strict: RunningServer, open_jobs: OpenJobs) -> None:
    kind = fresh("kind")
    async with (
        open_jobs(strict.url, token=TOKEN) as unsigned,
        open_jobs(strict.url, token=TOKEN, result_hmac_key="another") as forged,
        open_jobs(strict.url, token=TOKEN, result_hmac_key=HMAC_KEY) as jobs,
    ):
        job = await jobs.submit(kind)
        [lease] = (await jobs.claim("w", kinds=[kind])).leases
        for other in (unsigned, forged):
            with pytest.raises(ProofRefusedError):
                await other.complete(lease, 1)
        await jobs.complete(lease, {"n": 1.0})
        assert (await jobs.result(job.job_id)).result == {"n": 1}
