"""Many at once: whatever races, a key is one job, a lease has one holder, a job has one end, and no limit is passed.

Over PostgreSQL the callers sit on two nodes, so that the nodes race as well.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness.together import PATIENCE_SECONDS, at_once
from tests.jobs.wire import Answer, Jobs, Message, fresh, serving

THREADS = 64


def by_job(answers: list[Answer]) -> dict[str, list[Message]]:
    """The leases of several claims, by job."""
    found: dict[str, list[Message]] = {}
    for answer in answers:
        for job in answer["jobs"]:
            found.setdefault(job["job_id"], []).append(job)
    return found


def codes(answers: list[Answer]) -> Counter[tuple[int, object]]:
    """How often each answer came: its status, and its error or whether it was a repetition."""
    return Counter((answer.http, answer.get("error", answer.get("dedup"))) for answer in answers)


def claimed(jobs: Jobs, queue: str, **fields: Any) -> Message:
    """A job that somebody holds."""
    jobs.submit(queue=queue, **fields)
    return jobs.claim_one(queue)


# -- Submissions -------------------------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_64_threads_with_one_key_make_one_job(jobs: Jobs, queue: str) -> None:
    answers = at_once([partial(jobs.submit, key=queue, queue=queue, params={"n": 1})] * THREADS)
    assert codes(answers) == {(200, False): 1, (200, True): THREADS - 1}
    assert len({(answer["job_id"], answer["request_id"]) for answer in answers}) == 1
    assert {answer["status"] for answer in answers if answer["dedup"]} == {"in_progress"}
    assert [job["job_id"] for job in jobs.claim(queue, max=100)["jobs"]] == [answers[0]["job_id"]]


@pytest.mark.each_store
def test_64_keys_with_8_threads_each_make_64_jobs(jobs: Jobs, queue: str) -> None:
    asked = [f"{queue}-{number % 64}" for number in range(64 * 8)]
    random.Random(1).shuffle(asked)

    def submit(some: list[str]) -> list[tuple[str, Answer]]:
        return [(key, jobs.submit(key=key, queue=queue, params={"key": key})) for key in some]

    told: dict[str, list[Answer]] = {}
    for each in at_once([partial(submit, asked[place::THREADS]) for place in range(THREADS)]):
        for key, answer in each:
            told.setdefault(key, []).append(answer)
    for answers in told.values():
        assert codes(answers) == {(200, False): 1, (200, True): 7}
        assert len({answer["job_id"] for answer in answers}) == 1
    leased = jobs.claim(queue, max=100)["jobs"]
    assert {job["params"]["key"]: job["job_id"] for job in leased} == {
        key: each[0]["job_id"] for key, each in told.items()
    }
    assert len(leased) == 64


@pytest.mark.each_store
def test_two_payloads_race_for_one_key(jobs: Jobs, queue: str) -> None:
    calls = [partial(jobs.submit, key=queue, queue=queue, params={"n": n % 2}, expect=None) for n in range(32)]
    answers = at_once(calls)
    winner = next(place for place, answer in enumerate(answers) if answer.get("dedup") is False) % 2
    assert codes(answers[winner::2]) == {(200, False): 1, (200, True): 15}
    assert codes(answers[1 - winner :: 2]) == {(409, "IDEMPOTENCY_KEY_COLLISION"): 16}
    assert len(jobs.claim(queue, max=100)["jobs"]) == 1


@pytest.mark.each_store
def test_a_failed_job_is_revived_once(jobs: Jobs, queue: str) -> None:
    job = claimed(jobs, queue, key=queue)
    jobs.fail(job, retryable=False)
    answers = at_once([partial(jobs.submit, key=queue, queue=queue, on_failed="retry")] * 16)
    assert codes(answers) == {(200, True): 16}
    assert {(one["job_id"], one["status"], one["revision"]) for one in answers} == {(job["job_id"], "in_progress", 1)}
    assert [(one["epoch"], one["attempt"]) for one in jobs.claim(queue, max=100)["jobs"]] == [(2, 1)]


# -- Claims ------------------------------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_claims_race_for_few_jobs(jobs: Jobs, queue: str) -> None:
    wanted = {jobs.submit(queue=queue)["job_id"] for _ in range(10)}
    answers = at_once([partial(jobs.claim, queue, worker_id=f"w{n}", max=1 + n % 3) for n in range(32)])
    leases = by_job(answers)
    assert set(leases) == wanted
    assert [len(each) for each in leases.values()] == [1] * len(wanted)
    assert {(job["attempt"], job["epoch"]) for each in leases.values() for job in each} == {(1, 1)}
    assert len({job["lease_token"] for each in leases.values() for job in each}) == len(wanted)


@pytest.mark.each_store
def test_one_named_claim_sent_many_times_takes_its_jobs_once(jobs: Jobs, queue: str) -> None:
    for _ in range(10):
        jobs.submit(queue=queue)
    answers = at_once([partial(jobs.claim, queue, max=3, claim_id=queue)] * 16)
    told = {tuple(sorted((job["job_id"], job["lease_token"]) for job in answer["jobs"])) for answer in answers}
    assert len(told) == 1
    assert len(next(iter(told))) == 3
    assert len(jobs.claim(queue, max=100)["jobs"]) == 7


@pytest.mark.each_store
def test_waiting_claims_race_for_jobs_as_they_come(jobs: Jobs, queue: str) -> None:
    answers: list[Answer] = []
    deadline = time.monotonic() + PATIENCE_SECONDS

    def claim(worker: str) -> None:
        """Until all are taken: if the machine stands still, a wait may end before the jobs come."""
        while len(by_job(list(answers))) < 8 and time.monotonic() < deadline:
            answers.append(jobs.claim(queue, worker_id=worker, wait_ms=1_000))

    submits = [partial(jobs.batch, [{"kind": "echo", "queue": queue}] * 2) for _ in range(4)]
    calls: list[Callable[[], Any]] = [*(partial(claim, f"w{n}") for n in range(12)), *submits]
    at_once(calls)
    leases = by_job(answers)
    assert len(leases) == 8
    assert [len(each) for each in leases.values()] == [1] * 8


@pytest.mark.each_store
def test_a_queue_limit_is_never_passed(jobs: Jobs, queue: str) -> None:
    jobs.batch([{"kind": "echo", "queue": queue}] * 12)
    jobs.set_queue(queue, 3)
    claims = [partial(jobs.claim, queue, worker_id=f"w{n}", max=1 + n % 2) for n in range(24)]
    leases = by_job(at_once(claims))
    assert [len(each) for each in leases.values()] == [1] * 3
    [first] = leases.popitem()[1]
    jobs.complete(first)
    assert [len(each) for each in by_job(at_once(claims)).values()] == [1]
    jobs.set_queue(queue, 0)
    assert [len(each) for each in by_job(at_once(claims)).values()] == [1] * 8


# -- Reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_reports_race_for_one_outcome(jobs: Jobs, queue: str) -> None:
    job = claimed(jobs, queue)
    answers = at_once([partial(jobs.complete, job, {"n": n % 4}, expect=None) for n in range(32)])
    winner = next(place for place, answer in enumerate(answers) if answer.get("dedup") is False) % 4
    assert codes(answers[winner::4]) == {(200, False): 1, (200, True): 7}
    assert codes(answers) == {(200, False): 1, (200, True): 7, (409, "result_conflict"): 24}
    assert jobs.result(job["job_id"])["result"] == {"n": winner}


@pytest.mark.each_store
def test_one_token_ends_its_run_in_one_way(jobs: Jobs, queue: str) -> None:
    ends = {("completed", None): "complete", ("failed", "permanent"): "fail", ("scheduled", None): "defer"}
    for _ in range(4):
        job = claimed(jobs, queue)
        calls = [
            partial(jobs.complete, job, "done", expect=None),
            partial(jobs.fail, job, expect=None, retryable=False),
            partial(jobs.defer, job, 86_400_000, expect=None),
        ] * 4
        answers = at_once(calls)
        now = jobs.get(job["job_id"])
        end = ends[now["state"], now.get("reason")]
        for call, answer in zip(calls, answers, strict=True):
            assert (answer.http == 200) is (call.func.__name__ == end), (end, dict(answer))
            assert answer.http == 200 or answer["error"] in ("lease_lost", "result_conflict"), dict(answer)
        assert now["epoch"] == 1


@pytest.mark.each_store
def test_a_zombie_and_the_next_holder(jobs: Jobs, queue: str) -> None:
    jobs.submit(queue=queue)
    zombie = jobs.claim_one(queue, lease_sec=1)
    holder = jobs.claim_one(queue, worker_id="second")
    assert (holder["job_id"], holder["attempt"], holder["epoch"]) == (zombie["job_id"], 2, 2)
    late = [partial(jobs.complete, zombie, "late", expect=None)] * 6
    late += [partial(jobs.fail, zombie, expect=None), partial(jobs.heartbeat, zombie, expect=None)]
    good = partial(jobs.complete, holder, "good", expect=None)
    answers = at_once([*late, good])
    assert codes(answers[:-1]) == {(409, "lease_lost"): len(late)}
    assert codes(answers[-1:]) == {(200, False): 1}
    assert jobs.result(zombie["job_id"])["result"] == "good"
    assert jobs.complete(zombie, "late", expect=409)["status"] == "completed"


@pytest.mark.each_store
def test_completions_race_with_reapers(jobs: Jobs, queue: str) -> None:
    """Each lease is either completed by its holder or taken back, never both."""
    count, chance = 24, random.Random(queue)
    jobs.batch([{"kind": "echo", "queue": queue, "lease_sec": 1}] * count)
    leases = jobs.claim(queue, max=100)["jobs"]
    assert len(leases) == count

    def around_the_end(call: Callable[[], Answer], seconds: float) -> Answer:
        time.sleep(seconds)
        return call()

    calls = [partial(jobs.complete, lease, "zombie", expect=None) for lease in leases]
    calls += [partial(jobs.claim, queue, worker_id=f"w{n}", max=2) for n in range(24)]
    answers = at_once([partial(around_the_end, call, chance.uniform(0.9, 1.15)) for call in calls])
    again = {job["job_id"] for answer in answers[count:] for job in answer["jobs"]}
    for lease, answer in zip(leases, answers, strict=False):
        now = jobs.get(lease["job_id"])
        if answer.http == 200:
            assert (now["state"], now["epoch"]) == ("completed", 1), dict(now)
            assert lease["job_id"] not in again
        else:
            assert answer["error"] == "lease_lost"
            assert now["state"] in ("queued", "leased"), dict(now)


@pytest.mark.each_store
def test_a_step_that_many_store_is_stored_once(jobs: Jobs, queue: str) -> None:
    job = claimed(jobs, queue)
    answers = at_once([partial(jobs.step, job, "s", {"n": n}) for n in range(16)])
    assert Counter(answer["dedup"] for answer in answers) == {False: 1, True: 15}
    first = next(answer["result"] for answer in answers if not answer["dedup"])
    assert [answer["result"] for answer in answers] == [first] * 16


# -- Limits of the whole server ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow(store_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server with room for five waiting jobs and three leases."""
    data: Path = tmp_path_factory.mktemp("narrow") / "data"
    with serving(data, store=store_kind, JOBS_MAX_QUEUE_DEPTH=5, JOBS_MAX_INFLIGHT=3) as served:
        yield served


@pytest.mark.each_store
def test_no_limit_of_the_server_is_passed(narrow: Jobs) -> None:
    queue = fresh("queue")
    keys = [f"{queue}-{number}" for number in range(20)]
    answers = at_once([partial(narrow.submit, key=key, queue=queue, expect=None) for key in keys])
    assert codes(answers) == {(200, False): 5, (429, "backpressure"): 15}
    admitted = [key for key, answer in zip(keys, answers, strict=True) if answer.http == 200]
    refused = [key for key, answer in zip(keys, answers, strict=True) if answer.http == 429]

    # The retry of an admitted job is no new job, however full the queue is.
    retried = at_once([partial(narrow.submit, key=key, queue=queue, expect=None) for key in admitted * 4 + refused])
    assert codes(retried) == {(200, True): 20, (429, "backpressure"): 15}

    claims = [partial(narrow.claim, queue, worker_id=f"w{n}", max=2) for n in range(16)]
    told = at_once(claims)
    leases = by_job(told)
    assert [len(each) for each in leases.values()] == [1] * 3
    assert {answer["defer_ms"] for answer in told if not answer["jobs"]} == {500}

    # Three have left the queue: exactly three more fit.
    answers = at_once([partial(narrow.submit, key=key, queue=queue, expect=None) for key in refused])
    assert codes(answers) == {(200, False): 3, (429, "backpressure"): 12}
    at_once([partial(narrow.complete, each[0], "done") for each in leases.values()])
    done = 3
    while leased := [job for answer in at_once(claims) for job in answer["jobs"]]:
        assert len(leased) <= 3
        at_once([partial(narrow.complete, job, "done") for job in leased])
        done += len(leased)
    assert done == 8
    assert (narrow.metrics()["queue_depth"], narrow.metrics()["inflight"]) == (0, 0)
