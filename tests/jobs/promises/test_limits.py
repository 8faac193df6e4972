"""Limits that are near: queue depth, jobs in flight, records, and the life of a key."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.harness.together import TRIES, at_once, eventually, in_time, unless_late
from tests.jobs.wire import ACTIVE, Jobs, Message, fresh, ms_of, serving

DEPTH, INFLIGHT, RECORDS = 5, 2, 3
KEY_SECONDS = 1


@pytest.fixture(scope="module")
def tight_server(tmp_path_factory: pytest.TempPathFactory, store_kind: str) -> Iterator[Jobs]:
    data = tmp_path_factory.mktemp("tight") / "data"
    with serving(data, store=store_kind, nodes=1, JOBS_MAX_QUEUE_DEPTH=DEPTH, JOBS_MAX_INFLIGHT=INFLIGHT) as served:
        yield served


@pytest.fixture
def tight(tight_server: Jobs) -> Iterator[Jobs]:
    """A server for five waiting and two running jobs; what a test leaves is taken away after it."""
    yield tight_server
    sweep_out(tight_server)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """A server that honours a key for a second, and three of them."""
    caps = {"SEMEL_JOBS_IDEMPOTENCY_TTL_SEC": str(KEY_SECONDS), "SEMEL_JOBS_IDEMPOTENCY_STORE_MAX_ITEMS": str(RECORDS)}
    with serving(tmp_path_factory.mktemp("short") / "data", env=caps, JOBS_MAX_QUEUE_DEPTH=4) as served:
        yield served


def sweep_out(jobs: Jobs) -> None:
    for state in ACTIVE:
        for job in jobs.listed(limit=100, state=state):
            jobs.cancel(job["job_id"], force=True)


# -- the depth of the queue -------------------------------------------------------------------------------------------


@pytest.mark.each_store
def test_14_of_twenty_that_race_exactly_five_get_in(tight: Jobs) -> None:
    keys = [fresh("key") for _ in range(20)]
    before = tight.metrics()
    answers = at_once([partial(tight.submit, "k", {}, key=key, expect=None) for key in keys])
    assert Counter(answer.http for answer in answers) == {200: DEPTH, 429: 20 - DEPTH}
    assert {(one["status"], one["dedup"]) for one in answers if one.http == 200} == {("accepted", False)}
    for refused in (one for one in answers if one.http == 429):
        facts = (refused["error"], refused["queue_depth"], refused["max"])
        assert facts == ("backpressure", DEPTH, DEPTH)
        assert refused["retry_after_ms"] > 0
        assert 1 <= refused.retry_after <= 60
    metrics = tight.metrics()
    assert metrics["queue_depth"] == DEPTH
    assert metrics["queue_drop_1m"] - before["queue_drop_1m"] == 20 - DEPTH
    assert metrics["backpressure_active"] == 1
    assert metrics["idempotency_store_size"] - before["idempotency_store_size"] == DEPTH
    eventually(lambda: bool(tight.audit("BACKPRESSURE_DROP")), "an audit line")
    for line in tight.audit("BACKPRESSURE_DROP"):
        assert {"queue_depth": DEPTH, "max": DEPTH, "path": "/v1/jobs"}.items() <= line.items()
        assert "remote_addr" in line
    assert len(tight.audit("BACKPRESSURE_DROP")) <= len(tight.nodes) * 2

    admitted = [key for key, one in zip(keys, answers, strict=True) if one.http == 200]
    turned_away = [key for key, one in zip(keys, answers, strict=True) if one.http == 429]
    for key, first in zip(keys, answers, strict=True):
        if key in admitted:
            hit = tight.submit("k", {}, key=key)
            assert (hit["status"], hit["job_id"]) == ("in_progress", first["job_id"])
            assert tight.submit("other", {}, key=key, expect=409)["error"] == "IDEMPOTENCY_KEY_COLLISION"
    tight.complete(tight.claim_one(), 1)
    assert tight.submit("other", {}, key=turned_away[0])["status"] == "accepted"
    assert tight.submit("k", {}, key=turned_away[1], expect=429)["error"] == "backpressure"


def test_14_queued_jobs_count_and_neither_scheduled_nor_running_ones_do(tight: Jobs) -> None:
    for delay_ms in (0, 0, 3_600_000, 3_600_000, 0, 0, 0):
        tight.submit(delay_ms=delay_ms)
    tight.submit(expect=429)
    held = [tight.claim_one(), tight.claim_one()]
    tight.submit()
    tight.submit()
    tight.submit(expect=429)
    # What was admitted before passes the gate, so the queue may be fuller than full.
    tight.fail(held[0], retry_after_ms=0)
    tight.defer(held[1], 0)
    refused = tight.submit(expect=429)
    assert (refused["queue_depth"], refused["max"], refused["bound"]) == (DEPTH + 2, DEPTH, "queued")
    seen = tight.metrics()
    assert (seen["queue_depth"], seen["scheduled_jobs"]) == (DEPTH + 2, 2)


def test_14_a_batch_is_taken_as_far_as_it_fits(tight: Jobs) -> None:
    answers = tight.batch([{"kind": "k", "idempotency_key": fresh("key")} for _ in range(8)])
    assert [one["http"] for one in answers] == [200] * DEPTH + [429] * 3
    assert {one["error"] for one in answers[DEPTH:]} == {"backpressure"}


def test_a_second_life_needs_a_slot_too(tight: Jobs) -> None:
    key = fresh("key")
    job_id = tight.submit("k", {}, key=key)["job_id"]
    tight.fail(tight.claim_one(), retryable=False)
    for _ in range(DEPTH):
        tight.submit()
    assert tight.submit("k", {}, key=key, on_failed="retry", expect=429)["error"] == "backpressure"
    assert tight.requeue(job_id, expect=429)["error"] == "backpressure"
    job = tight.get(job_id)
    assert (job["state"], job["revision"]) == ("failed", 0)
    assert tight.submit("k", {}, key=key)["status"] == "failed"
    tight.complete(tight.claim_one(), 1)
    assert tight.submit("k", {}, key=key, on_failed="retry")["revision"] == 1


# -- jobs in flight ---------------------------------------------------------------------------------------------------


def test_15_no_more_jobs_run_than_allowed(tight: Jobs) -> None:
    for _ in range(4):
        tight.submit()
    before = tight.metrics()["inflight_saturated_1m"]
    first, second = tight.claim_one(), tight.claim_one()
    third = tight.claim()
    assert (third.http, third["jobs"], third["defer_ms"]) == (200, [], 500)
    metrics = tight.metrics()
    assert metrics["inflight_saturated_1m"] - before == 1
    assert metrics["inflight"] == metrics["inflight_jobs"] == INFLIGHT
    eventually(lambda: bool(tight.audit("INFLIGHT_SATURATED", inflight=INFLIGHT, max=INFLIGHT)), "an audit line")
    tight.complete(first, 1)
    assert len(tight.claim(max=10)["jobs"]) == 1
    tight.complete(second, 1)


# -- records ----------------------------------------------------------------------------------------------------------


def test_13_a_full_store_refuses_new_keys_and_nothing_else(short: Jobs) -> None:
    keys = [fresh("key") for _ in range(RECORDS)]
    first = [short.submit("k", {}, key=key) for key in keys]
    fourth = fresh("key")
    refused = short.submit("k", {}, key=fourth, expect=429)
    assert refused["error"] == "idempotency_store_full"
    assert 1 <= refused.retry_after <= 60
    eventually(lambda: bool(short.audit("IDEMPOTENCY_STORE_FULL", size=RECORDS, max=RECORDS)), "an audit line")
    assert short.submit("k", {}, key=keys[0])["job_id"] == first[0]["job_id"]
    assert short.submit("k", {"n": 1}, key=keys[1], expect=409)["job_id"] == first[1]["job_id"]
    unkeyed = short.submit("k", {})
    assert unkeyed["status"] == "accepted"
    assert short.metrics()["idempotency_store_size"] == RECORDS
    # Both gates are shut now, and the queue's comes first.
    assert short.submit("k", {}, key=fourth, expect=429)["error"] == "backpressure"
    short.cancel(unkeyed["job_id"])
    assert short.submit("k", {}, key=fourth, expect=429)["error"] == "idempotency_store_full"
    short.report(first[0]["job_id"], result=1)
    eventually(lambda: short.submit("k", {}, key=fourth, expect=None).http == 200, "the fourth key is taken")
    assert short.submit("k", {}, key=fourth)["dedup"] is True
    assert [short.submit("k", {}, key=key)["dedup"] for key in keys[1:]] == [True, True]
    # By force, while their jobs pin them: a second after their ends they would be gone by themselves.
    for key in (*keys[1:], fourth):
        short.release(key, force=True)
    assert short.metrics()["idempotency_store_size"] == 0
    sweep_out(short)


def test_generated_keys_need_no_place_of_named_ones_and_live_a_time_of_their_own(short: Jobs) -> None:
    keys = [fresh("made-up") for _ in range(2 * RECORDS)]
    first: list[str] = []
    for key in keys:
        first.append(short.submit("k", {}, key=key, generated_key=True)["job_id"])
        told = short.submit("k", {}, key=key, generated_key=True)
        assert (told["dedup"], told["status"], told["job_id"]) == (True, "in_progress", first[-1])
        ended = short.report(first[-1], result=1)
        assert ended["status"] == "completed"
    assert short.metrics()["idempotency_store_size"] == 0
    named = short.submit("k", {}, key=fresh("key"))
    short.report(named["job_id"], result=1)
    time.sleep(1.2 * KEY_SECONDS)  # a named key would have expired
    for key, job_id in zip(keys, first, strict=True):
        told = short.submit("k", {}, key=key, generated_key=True)
        assert (told["dedup"], told["status"], told["job_id"]) == (True, "completed", job_id)
        assert 590_000 < ms_of(told["expires_utc"]) - ms_of(short.get(job_id)["finished_utc"]) <= 600_000
        assert short.submit("k", {"n": 1}, key=key, expect=409)["job_id"] == job_id
        assert short.submit("k", {}, key=key, generated_key=False)["ignored_fields"] == ["generated_key"]
    sweep_out(short)


def test_11_a_key_is_pinned_by_its_job_and_lives_a_second_after_its_end(short: Jobs) -> None:
    # The server's second does not grow with the test's: whoever was late tries again.
    in_time(lambda _: outlive_a_key(short), KEY_SECONDS)


def outlive_a_key(short: Jobs) -> None:
    key, other = fresh("key"), fresh("key")
    first = [short.submit("k", {}, key=one) for one in (key, other)]
    time.sleep(1.2 * KEY_SECONDS)
    assert [short.submit("k", {}, key=one)["status"] for one in (key, other)] == ["in_progress"] * 2
    reported = time.monotonic()
    for one in reversed(first):
        short.report(one["job_id"], result="done")
    answers: list[Message] = []

    def is_new() -> bool:
        time.sleep(KEY_SECONDS / 10)
        answers.append(short.submit("k", {}, key=key))
        return bool(answers[-1]["status"] == "accepted")

    try:
        with unless_late(lambda: reported, KEY_SECONDS):
            hit = short.submit("k", {}, key=key)
            assert (hit["status"], hit["job_id"]) == ("completed", first[0]["job_id"])
        expires = ms_of(hit["expires_utc"])
        assert expires == ms_of(short.get(first[0]["job_id"])["finished_utc"]) + 1_000 * KEY_SECONDS
        eventually(is_new, "the key has expired")
        *hits, new = answers
        assert {(hit["status"], hit["job_id"]) for hit in hits} <= {("completed", first[0]["job_id"])}
        assert new["job_id"] != first[0]["job_id"]
        assert ms_of(new["created_utc"]) >= expires
        replaced = short.submit("another", {"n": 2}, key=other)
        assert (replaced["status"], replaced["dedup"]) == ("accepted", False)
        assert short.get(first[1]["job_id"])["state"] == "completed"
    finally:
        for left in (key, other):
            short.release(left, force=True, expect=None)
        sweep_out(short)


# -- the engine's own limit -------------------------------------------------------------------------------------------


def test_a_full_engine_refuses_for_now_and_stores_nothing(tmp_path: Path) -> None:
    """Commits take a while here and two writes may wait: of many at once most are told to come back, and may.

    If they came so slowly, one after the other, that there was room for each, they come again.
    """
    with serving(tmp_path / "data", store="memory", QUEUE_WRITES=2, BATCH_WRITES=1, COMMIT_DELAY_MS=100) as slow:
        stored, refused = 0, list[str]()
        for _ in range(TRIES):
            keys = [fresh("key") for _ in range(12)]
            answers = at_once([partial(slow.submit, "k", {}, key=key, expect=None) for key in keys])
            refused = [key for key, answer in zip(keys, answers, strict=True) if answer.http == 503]
            assert {answer["error"] for answer in answers if answer.http == 503} <= {"overloaded"}
            assert {answer["status"] for answer in answers if answer.http == 200} == {"accepted"}
            stored += len(keys) - len(refused)
            assert len(slow.page()["jobs"]) == stored
            if refused:
                break
        assert slow.submit("k", {}, key=refused[0])["status"] == "accepted"


# -- other settings ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Settings that nobody would have all at once; one store will do for them."""
    settings = {
        "JOBS_IDEMPOTENCY_FULL_POLICY": "evict_terminal",
        "JOBS_IDEMPOTENCY_STORE_MAX_ITEMS": "3",
        "JOBS_IDEMPOTENCY_MAX_CACHED_BYTES": "0",
        "JOBS_MAX_QUEUE_DEPTH": "6",
        "JOBS_BACKPRESSURE_MODE": "503",
        "JOBS_DLQ_MAX_ITEMS": "2",
        "JOBS_RETRY_MAX_ATTEMPTS": "3",
        "JOBS_RETRY_BACKOFF_BASE_MS": "200",
        "JOBS_RETRY_BACKOFF_CAP_MS": "300",
        "JOBS_RETRY_JITTER": "0.5",
        "JOBS_LEASE_TIMEOUT_SEC": "20",
        "JOBS_MAX_RESULT_BYTES": "1000",
    }
    env = {f"SEMEL_{name}": value for name, value in settings.items()}
    with serving(tmp_path_factory.mktemp("odd") / "data", store="sqlite", env=env) as served:
        yield served


def test_records_of_ended_jobs_may_make_room_and_no_others(odd: Jobs) -> None:
    keys = [fresh("evicted") for _ in range(5)]
    ended = [odd.submit("k", {}, key=key)["job_id"] for key in keys[:2]]
    odd.report(ended[1], result=1)
    time.sleep(0.01)
    odd.report(ended[0], result=1)
    active = odd.submit("k", {}, key=keys[2])["job_id"]
    assert odd.submit("k", {}, key=keys[3])["status"] == "accepted"  # in the place of keys[1], which ended first
    jobs_line = odd.audited("IDEMPOTENCY_EVICT", job_id=ended[1])
    assert keys[1] not in str(jobs_line)
    assert odd.submit("k", {}, key=keys[0])["status"] == "completed"
    assert odd.submit("k", {}, key=keys[4])["status"] == "accepted"  # in the place of keys[0]
    refused = odd.submit("k", {}, key=fresh("key"), expect=503)
    assert refused["error"] == "idempotency_store_full"
    assert odd.submit("k", {}, key=keys[2])["job_id"] == active
    assert odd.metrics()["idempotency_evicted_1m"] == 2
    assert odd.metrics()["idempotency_store_size"] == 3
    assert odd.get(ended[0])["state"] == "completed"
    sweep_out(odd)


def test_the_mode_503_refuses_with_503(odd: Jobs) -> None:
    for _ in range(6):
        odd.submit()
    refused = odd.submit(expect=503)
    assert (refused["error"], refused["queue_depth"], refused["max"]) == ("backpressure", 6, 6)
    sweep_out(odd)


def test_results_are_not_cached_when_nothing_may_be(odd: Jobs, queue: str) -> None:
    key = fresh("key")
    odd.submit("k", {}, key=key, queue=queue)
    job = odd.claim_one(queue)
    assert job["lease_ms"] == 20_000
    assert odd.complete(job, "x" * 1_000, expect=413)["error"] == "too_large"
    odd.complete(job, "small")
    hit = odd.submit("k", {}, key=key)
    assert hit["status"] == "completed"
    assert hit["cached_result_omitted"] in ("disabled", "too_large")
    assert odd.result(job["job_id"])["result"] == "small"


def test_retries_follow_the_settings(odd: Jobs, queue: str) -> None:
    """Base 200, cap 300, half of it by chance: 100 to 300, then 150 to 300, and three runs in all."""
    first = odd.submit("k", {}, queue=queue)
    for attempt, least in ((1, 100), (2, 150)):
        job = odd.claim_one(queue)
        assert (job["attempt"], job["max_attempts"]) == (attempt, 3)
        told = odd.fail(job)
        delay = ms_of(told["next_run_utc"]) - ms_of(odd.get(job["job_id"])["errors"][-1]["at_utc"])
        assert least <= delay <= 300
    odd.fail(odd.claim_one(queue))
    assert odd.get(first["job_id"])["reason"] == "exhausted"


def test_dead_letters_have_a_cap_and_the_jobs_stay(odd: Jobs, queue: str) -> None:
    made: list[str] = []
    for _ in range(4):
        made.append(odd.submit("k", {}, queue=queue)["job_id"])
        odd.fail(odd.claim_one(queue), retryable=False)
    assert set(odd.dead_ids()) == set(made[2:])
    assert odd.metrics()["dlq_size"] == 2
    for job_id in made[:2]:
        odd.audited("DLQ_EVICT", job_id=job_id)
        assert odd.get(job_id)["state"] == "failed"
    odd.requeue(made[0])
    assert odd.claim_one(queue)["job_id"] == made[0]
