"""Submitting: keys, their absence, equal payloads, batches, waiting answers and cached results."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection

import pytest

from tests.harness.server import HOST
from tests.harness.together import eventually
from tests.jobs.wire import PATH, PATIENCE_SECONDS, SUBMIT, Jobs, Message, Together, fresh, ms_of

ENVELOPE_BYTES = len('{"ok":true,"result":""}')
CAP_BYTES = 16_384
NAMES = '{"kind":"k","params":{"\U0001f600":1,"\ufb33":2}}'

VECTORS = [
    ('{"kind":"echo_test","params":{"msg":"hello","n":1}}', "fbfb837f"),
    ('{"kind":"echo_test","params":{"msg":"hello","n":2}}', "0415c080"),
    ('{"kind":"ping","params":{}}', "2c2c2e9d"),
    ('{"kind":"ping"}', "2c2c2e9d"),
    ('{"kind":"k","params":{"z":"\u00fc","a":1.0,"\u20ac":[true,null]}}', "dea34c4d"),
    (NAMES, "c9b7f162"),
    ('{"kind":"k","params":{"id":9007199254740993}}', "b1299594"),
]


def keyed(text: str, key: str) -> str:
    """The text of a submission, with a key put in and nothing else changed."""
    return f'{{"idempotency_key":{json.dumps(key)},{text[1:]}'


# -- with a key, without one ------------------------------------------------------------------------------------------


def test_4_without_a_key_every_submission_is_a_job(jobs: Jobs, queue: str) -> None:
    records = jobs.metrics()["idempotency_store_size"]
    answers = [jobs.submit(queue=queue), jobs.submit(queue=queue), jobs.submit(key=None, queue=queue)]
    assert {(one["status"], one["dedup"], one["expires_utc"]) for one in answers} == {("accepted", False, None)}
    assert len({one["job_id"] for one in answers}) == len({one["request_id"] for one in answers}) == 3
    claimed = jobs.claim(queue, max=10)["jobs"]
    assert [job["job_id"] for job in claimed] == [one["job_id"] for one in answers]
    jobs.complete(claimed[0], "done")
    assert jobs.get(claimed[0]["job_id"])["state"] == "completed"
    assert jobs.metrics()["idempotency_store_size"] == records


def test_keys_are_case_sensitive_and_never_trimmed(jobs: Jobs, queue: str) -> None:
    key = fresh("Key")
    variants = [key, key.lower(), f" {key}", f"{key} ", f'"{key}"', f"{key}\u00e9", f"{key}e\u0301"]
    assert len({jobs.submit(key=one, queue=queue)["job_id"] for one in variants}) == len(variants)
    assert [jobs.submit(key=one, queue=queue)["dedup"] for one in variants] == [True] * len(variants)


@pytest.mark.parametrize("length", [1, 256])
def test_keys_of_every_length_are_kept_apart(jobs: Jobs, queue: str, length: int) -> None:
    number = fresh("")
    keys = [(number + "k" * length)[-length:], "\U0001f600" * length] if length > 1 else ["\u00df"]
    first = [jobs.submit(key=key, queue=queue) for key in keys]
    again = [jobs.submit(key=key, queue=queue) for key in keys]
    assert [one["job_id"] for one in again] == [one["job_id"] for one in first]
    assert [one["dedup"] for one in again] == [True] * len(keys)


def test_the_header_means_the_same_as_the_field(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    first = jobs.submit(queue=queue, headers={"Idempotency-Key": key})
    for answer in (
        jobs.submit(queue=queue, key=key),
        jobs.submit(queue=queue, headers={"Idempotency-Key": f'"{key}"'}),
        jobs.submit(queue=queue, key=key, headers={"Idempotency-Key": f'"{key}"'}),
        jobs.submit(queue=queue, key=key, headers={"Idempotency-Key": key}, path=SUBMIT),
    ):
        assert (answer["dedup"], answer["job_id"]) == (True, first["job_id"])


def test_7_header_and_field_that_differ_are_refused(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    refused = jobs.submit(queue=queue, key=key, headers={"Idempotency-Key": key + "x"}, expect=400)
    assert refused["error"] == "idempotency_key_mismatch"
    assert jobs.submit(queue=queue, key=key)["status"] == "accepted"
    assert jobs.submit(queue=queue, key=key + "x")["status"] == "accepted"


def test_both_paths_are_one_surface(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    first, again = jobs.submit(key=key, queue=queue, path=SUBMIT), jobs.submit(key=key, queue=queue, path=PATH)
    assert again["job_id"] == first["job_id"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert first.headers["X-Request-Id"] != again.headers["X-Request-Id"]


def test_what_is_not_hashed_changes_nothing_and_is_named(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    client = {"node_id": "one"}
    first = jobs.submit("k", {"a": 1}, key=key, queue=queue, priority=2, max_attempts=3, lease_sec=60, client=client)
    job = jobs.get(first["job_id"])
    same: Message = {"queue": queue, "priority": "high", "max_attempts": 3, "lease_sec": 60, "client": client}
    assert jobs.submit("k", {"a": 1}, key=key, **same).get("ignored_fields", []) == []
    hit = jobs.submit(
        "k", {"a": 1}, key=key, queue="other", priority=9, max_attempts=7, lease_sec=1, client={"node_id": "two"}
    )
    assert (hit["dedup"], hit["job_id"]) == (True, first["job_id"])
    assert {"queue", "priority", "max_attempts", "lease_sec"} <= set(hit["ignored_fields"])
    assert jobs.get(first["job_id"]) == job
    assert (job["queue"], job["priority"], job["max_attempts"], job["client"]) == (queue, 2, 3, client)


def test_unknown_members_are_ignored(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    first = jobs.submit(key=key, queue=queue, colour="red", Kind="no", trace={"id": 1})
    assert jobs.submit(key=key, queue=queue, colour="blue")["job_id"] == first["job_id"]


# -- equal payloads ---------------------------------------------------------------------------------------------------


def test_6_spelling_does_not_matter(jobs: Jobs) -> None:
    key = fresh("key")
    first = jobs.submit_text(keyed('{"kind":"k","params":{"a":1,"b":{"x":[1,2],"y":"\u00fc"}}}', key))
    for text in (
        '{"params":{"b":{"y":"\u00fc","x":[1,2]},"a":1},"kind":"k"}',
        '{ "params" : { "b" : {"y":"\\u00fc", "x" : [ 1.0 , 2e0 ] } , "a":\n1 } , "kind" : "\\u006b" }',
        '{"kind":"k","params":{"a":1.0,"b":{"x":[1,2],"y":"\u00fc"}},"queue":"elsewhere"}',
    ):
        again = jobs.submit_text(keyed(text, key))
        assert (again["dedup"], again["job_id"]) == (True, first["job_id"])
    for text in (
        '{"kind":"k","params":{"a":"1","b":{"x":[1,2],"y":"\u00fc"}}}',
        '{"kind":"k","params":{"a":1,"b":{"x":[2,1],"y":"\u00fc"}}}',
        '{"kind":"k","params":{"a":1,"b":{"x":[1,2],"y":"u\u0308"}}}',
        '{"kind":"K","params":{"a":1,"b":{"x":[1,2],"y":"\u00fc"}}}',
    ):
        assert jobs.submit_text(keyed(text, key), expect=409)["job_id"] == first["job_id"]


@pytest.mark.parametrize(("low", "high"), [(2**53, 2**53 + 1), (-(2**60) - 1, -(2**60)), (10**400, 10**400 + 1)])
def test_6_no_two_integers_are_one(jobs: Jobs, low: int, high: int) -> None:
    key = fresh("key")
    text = '{"kind":"k","params":{"id":%s}}'
    first = jobs.submit_text(keyed(text % low, key))
    assert jobs.submit_text(keyed(text % high, key), expect=409)["job_id"] == first["job_id"]
    assert jobs.submit_text(keyed(text % low, key))["dedup"] is True


def test_6_hashes_are_those_of_the_vectors(jobs: Jobs) -> None:
    """A collision shows how both hashes begin, so each vector is collided with the next that differs."""
    other = '{"kind":"other","params":{}}'
    for text, prefix in VECTORS:
        key = fresh("key")
        jobs.submit_text(keyed(text, key))
        assert jobs.submit_text(keyed(other, key), expect=409)["old_hash_prefix"] == prefix, text
        key = fresh("key")
        jobs.submit_text(keyed(other, key))
        assert jobs.submit_text(keyed(text, key), expect=409)["new_hash_prefix"] == prefix, text


# -- many in one call -------------------------------------------------------------------------------------------------


def test_5_a_batch_of_ten_with_one_key(jobs: Jobs, queue: str) -> None:
    item: Message = {"kind": "k", "params": {"n": 1}, "idempotency_key": fresh("key"), "queue": queue}
    first, *others = jobs.batch([item] * 10)
    assert (first["status"], first["dedup"]) == ("accepted", False)
    assert {(one["status"], one["dedup"], one["job_id"]) for one in others} == {("in_progress", True, first["job_id"])}
    assert len(jobs.claim(queue, max=100)["jobs"]) == 1


def test_each_item_of_a_batch_is_judged_alone(jobs: Jobs, queue: str) -> None:
    taken, key = fresh("key"), fresh("key")
    old = jobs.submit("k", {"n": 1}, key=taken, queue=queue)
    items: list[Message] = [
        {"kind": "k", "params": {"n": 2}, "idempotency_key": taken, "queue": queue},
        {"kind": "k", "params": {"n": 1}, "idempotency_key": key, "queue": queue},
        {"kind": "no spaces", "queue": queue},
        {"kind": "k", "params": {"n": 1}, "idempotency_key": taken, "queue": queue},
        {"kind": "k", "params": {"n": 3}, "idempotency_key": key, "queue": queue},
        {"kind": "k", "queue": queue},
    ]
    answers = jobs.batch(items)
    assert [one["http"] for one in answers] == [409, 200, 400, 200, 409, 200]
    assert answers[0]["error"] == answers[4]["error"] == "IDEMPOTENCY_KEY_COLLISION"
    assert (answers[2]["error"], "kind" in answers[2]["field"]) == ("invalid_request", True)
    assert (answers[3]["dedup"], answers[3]["job_id"]) == (True, old["job_id"])
    assert answers[4]["job_id"] == answers[1]["job_id"]
    claimed = [job["job_id"] for job in jobs.claim(queue, max=100)["jobs"]]
    assert claimed == [old["job_id"], answers[1]["job_id"], answers[5]["job_id"]]


# -- the cache of results ---------------------------------------------------------------------------------------------


def ended(jobs: Jobs, queue: str, key: str, result: object) -> Message:
    jobs.submit("k", {}, key=key, queue=queue)
    job = jobs.claim_one(queue)
    jobs.complete(job, result)
    return job


def test_12_a_result_up_to_the_cap_is_cached_whole_and_one_beyond_is_left_out_whole(jobs: Jobs, queue: str) -> None:
    fits, too_large = fresh("key"), fresh("key")
    text = "x" * (CAP_BYTES - ENVELOPE_BYTES)
    ended(jobs, queue, fits, text)
    job = ended(jobs, queue, too_large, text + "x")
    assert jobs.submit("k", {}, key=fits)["cached_result"] == {"ok": True, "result": text}
    hit = jobs.submit("k", {}, key=too_large)
    assert (hit["status"], hit["cached_result_omitted"]) == ("completed", "too_large")
    assert "cached_result" not in hit
    whole = jobs.result(job["job_id"])
    assert (whole["result"], whole["ok"], whole["job_id"]) == (text + "x", True, job["job_id"])
    assert whole["integrity"]["sha256"] == hit["result_sha256"]
    assert jobs.http.get(hit["result_url"]).json() == whole


@pytest.mark.parametrize("result", [None, False, 0, "", [], {}, {"a": [1.5, "\u20ac", None]}, 2**64])
def test_any_json_is_a_result(jobs: Jobs, queue: str, result: object) -> None:
    key = fresh("key")
    job = ended(jobs, queue, key, result)
    assert jobs.submit("k", {}, key=key)["cached_result"] == {"ok": True, "result": result}
    assert jobs.result(job["job_id"])["result"] == result


# -- waiting ----------------------------------------------------------------------------------------------------------


def test_31_a_submission_waits_for_the_end_and_so_do_its_twins(together: Together) -> None:
    def check(jobs: Jobs, queue: str) -> None:
        key, wait = fresh("key"), 30_000
        submit = partial(jobs.submit, "k", {}, key=key, queue=queue, wait_ms=wait)
        started = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(submit), pool.submit(submit)]
            job = jobs.claim_one(queue)
            waiting.append(pool.submit(jobs.submit, "k", {}, key=key, headers={"Prefer": "wait=30"}))
            reading = pool.submit(jobs.get, job["job_id"], wait_ms=wait)
            time.sleep(0.3)
            assert not any(one.done() for one in waiting)
            jobs.complete(job, {"n": 7})
            answers = [one.result() for one in waiting]
            assert reading.result()["state"] == "completed"
        # Had it taken their time to be up, it would have taken that long.
        assert time.monotonic() - started < wait / 1_000
        assert [one["status"] for one in answers] == ["completed"] * 3
        assert sorted(one["dedup"] for one in answers) == [False, True, True]
        first, *others = [
            {name: one[name] for name in one if name not in ("dedup", "ignored_fields")} for one in answers
        ]
        assert others == [first, first]
        assert first["cached_result"] == {"ok": True, "result": {"n": 7}}

    together(check)


def test_31_when_the_time_is_up_the_answer_is_that_of_now(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    first = jobs.submit("k", {}, key=key, queue=queue, wait_ms=50)
    assert (first["status"], first["dedup"], first["state"]) == ("accepted", False, "queued")
    assert jobs.submit("k", {}, key=key, wait_ms=50)["status"] == "in_progress"
    assert jobs.get(first["job_id"], wait_ms=50)["state"] == "queued"


@pytest.mark.each_store
def test_a_failure_ends_a_wait_too(jobs: Jobs, queue: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(jobs.submit, "k", {}, key=fresh("key"), queue=queue, wait_ms=20_000)
        jobs.fail(jobs.claim_one(queue), "boom", "no", retryable=False)
        answer = waiting.result()
    assert (answer["status"], answer["dedup"]) == ("failed", False)
    assert answer["cached_result"]["error"]["code"] == "boom"


def test_a_client_that_stops_waiting_takes_nothing_with_it(together: Together) -> None:
    def check(jobs: Jobs, queue: str) -> None:
        body = {"kind": "k", "idempotency_key": fresh("key"), "queue": queue}
        with closing(HTTPConnection(HOST, jobs.server.port, timeout=PATIENCE_SECONDS)) as gone:
            gone.request("POST", PATH, json.dumps(body | {"wait_ms": 20_000}), {"Content-Type": "application/json"})
            eventually(lambda: len(jobs.page(queue=queue)["jobs"]) == 1, "the job is stored")
        assert jobs.post(PATH, body)["dedup"] is True
        assert len(jobs.claim(queue, max=10)["jobs"]) == 1

    together(check)


# -- reading and finding ----------------------------------------------------------------------------------------------


def test_a_job_tells_its_story(jobs: Jobs, queue: str) -> None:
    before = time.time() * 1_000
    first = jobs.submit("k", {"a": [1]}, key=fresh("key"), queue=queue, priority="low", client={"node_id": "n"})
    job = jobs.get(first["job_id"])
    expected = {"request_id": first["request_id"], "kind": "k", "params": {"a": [1]}, "queue": queue, "priority": 7}
    expected |= {"state": "queued", "status": "accepted", "attempt": 0, "max_attempts": 5, "epoch": 0, "revision": 0}
    assert expected.items() <= job.items()
    assert abs(ms_of(job["created_utc"]) - before) < 60_000
    claimed = jobs.claim_one(queue, worker_id="w-1")
    job = jobs.get(first["job_id"])
    told = (job["state"], job["status"], job["attempt"], job["epoch"], job["worker_id"])
    assert told == ("leased", "in_progress", 1, 1, "w-1")
    jobs.complete(claimed, [1, 2])
    job = jobs.get(first["job_id"])
    assert (job["state"], job["status"], job["cached_result"]["result"]) == ("completed", "completed", [1, 2])
    assert ms_of(job["expires_utc"]) == ms_of(job["finished_utc"]) + 86_400_000


def test_a_job_is_found_by_key_or_by_request(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    first = jobs.submit("k", {}, key=key, queue=queue)
    assert jobs.lookup(idempotency_key=key)["job_id"] == first["job_id"]
    assert jobs.lookup(request_id=first["request_id"])["job_id"] == first["job_id"]
    unkeyed = jobs.submit("k", {}, queue=queue)
    assert jobs.lookup(request_id=unkeyed["request_id"])["job_id"] == unkeyed["job_id"]
    assert jobs.lookup(idempotency_key=key + "x", expect=404)["error"] == "not_found"
    assert jobs.lookup(request_id="00000000-0000-4000-8000-000000000000", expect=404)["error"] == "not_found"


def test_what_does_not_exist_is_not_found(jobs: Jobs) -> None:
    job: Message = {"job_id": "job_" + "0" * 32, "lease_token": "0" * 32}
    for answer in (
        jobs.get(job["job_id"], expect=404),
        jobs.result(job["job_id"], expect=404),
        jobs.cancel(job["job_id"], expect=404),
        jobs.requeue(job["job_id"], expect=404),
        jobs.complete(job, 1, expect=404),
        jobs.fail(job, expect=404),
        jobs.defer(job, expect=404),
        jobs.heartbeat(job, expect=404),
        jobs.step(job, "s", expect=404),
        jobs.report(job["job_id"], result=1, expect=404),
        jobs.report(job["job_id"], result=1, lease_token="0" * 32, expect=404),
        jobs.call("GET", f"{PATH}/job_", expect=404),
        jobs.call("GET", f"{PATH}/nothing", expect=404),
        jobs.post("/mesh/nothing", {}, expect=404),
        jobs.call("GET", "/mesh/pull_requests/node-1", expect=404),
    ):
        assert answer["error"] == "not_found"
