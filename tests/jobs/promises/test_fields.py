"""What is refused before anything is looked up: fields, JSON, methods, sizes. Nothing is stored, no lease is touched.

Requests are judged before any store is asked, so one store will do.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.jobs.wire import ABSENT, CLAIM, PATH, RESULT, SUBMIT, Answer, Jobs, Message, fresh, ms_of, without_absent

MIB = 1024 * 1024
LONG_AGO, FAR = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


def check_refused(answer: Answer, field: str) -> None:
    """A 400 that names the field, or a part of it."""
    assert (answer.http, answer["error"]) == (400, "invalid_request"), (answer.http, dict(answer))
    named = answer["field"]
    assert named == field or named.startswith((f"{field}.", f"{field}[")), dict(answer)


def check_unchanged(jobs: Jobs, before: Message) -> None:
    """The end of a lease is told by two clocks, so it may be told a millisecond apart."""
    after = jobs.get(before["job_id"])
    assert after | {"lease_until_utc": None} == before | {"lease_until_utc": None}
    assert abs(ms_of(after["lease_until_utc"]) - ms_of(before["lease_until_utc"])) <= 50


# -- submit -----------------------------------------------------------------------------------------------------------

SUBMISSIONS: list[tuple[str, Any]] = [
    ("idempotency_key", ""),
    ("idempotency_key", " "),
    ("idempotency_key", "\u00a0\u2003"),
    ("idempotency_key", "k" * 257),
    ("idempotency_key", "a\x00b"),
    ("idempotency_key", "a\nb"),
    ("idempotency_key", "a\x7fb"),
    ("idempotency_key", "a\x85b"),
    ("idempotency_key", 7),
    ("generated_key", 1),
    ("generated_key", "true"),
    ("generated_key", []),
    ("idempotency_key", ["k"]),
    ("idempotencyKey", "k"),
    ("idempotency-key", "k"),
    ("idempotencykey", "k"),
    ("IdempotencyKey", "k"),
    ("IDEMPOTENCY-KEY", None),
    ("kind", ABSENT),
    ("kind", None),
    ("kind", ""),
    ("kind", 1),
    ("kind", "with space"),
    ("kind", "k\u00fc"),
    ("kind", "a/b"),
    ("kind", "k" * 129),
    ("params", None),
    ("params", []),
    ("params", "{}"),
    ("params", 1),
    ("client", "node"),
    ("client", []),
    ("client", {"node_id": 1}),
    ("client", {"node_id": "n" * 129}),
    ("queue", ""),
    ("queue", "q" * 65),
    ("queue", 1),
    ("priority", -1),
    ("priority", 10),
    ("priority", 1.5),
    ("priority", "urgent"),
    ("priority", "4"),
    ("priority", True),
    ("delay_ms", -1),
    ("delay_ms", 31_536_000_001),
    ("delay_ms", "5"),
    ("delay_ms", 0.5),
    ("delay_ms", True),
    ("run_at", "tomorrow"),
    ("run_at", 1_760_000_000_000),
    ("run_at", "2026-01-01T00:00:00"),
    ("run_at", "2026-13-01T00:00:00Z"),
    ("max_attempts", 0),
    ("max_attempts", 101),
    ("max_attempts", "5"),
    ("max_attempts", True),
    ("lease_sec", 0),
    ("lease_sec", 86_401),
    ("lease_sec", 1.5),
    ("on_failed", "again"),
    ("on_failed", True),
    ("wait_ms", -1),
    ("wait_ms", 30_001),
    ("wait_ms", "1"),
]


@pytest.mark.parametrize(("field", "value"), SUBMISSIONS, ids=lambda value: ascii(value)[:24])
def test_7_a_bad_field_of_a_submission_is_named_and_nothing_is_stored(
    jobs: Jobs, queue: str, field: str, value: Any
) -> None:
    key, before = fresh("key"), jobs.metrics()
    body = without_absent({"kind": "k", "idempotency_key": key, "queue": queue} | {field: value})
    for path in (PATH, SUBMIT):
        check_refused(jobs.post(path, body, expect=400), field)
    after = jobs.metrics()
    assert after["idempotency_store_size"] == before["idempotency_store_size"]
    assert jobs.page(queue=queue)["jobs"] == []  # the depth of all queues changes by leases of earlier tests that end
    assert jobs.submit("k", key=key, queue=queue)["status"] == "accepted"


def test_a_delay_and_an_instant_are_one_too_many(jobs: Jobs, queue: str) -> None:
    refused = jobs.submit("k", queue=queue, delay_ms=5, run_at=FAR, expect=400)
    assert refused["error"] == "invalid_request"
    assert refused["field"] in ("delay_ms", "run_at")
    assert jobs.submit("k", queue=queue, run_at=LONG_AGO)["state"] == "queued"
    assert jobs.submit("k", queue=queue, run_at=FAR)["state"] == "scheduled"
    assert jobs.submit("k", queue=queue, delay_ms=31_536_000_000)["state"] == "scheduled"


@pytest.mark.parametrize("value", ["", "k" * 257, '""', '"' + "k" * 257 + '"'])
def test_a_bad_key_in_the_header_is_refused(jobs: Jobs, queue: str, value: str) -> None:
    refused = jobs.submit("k", queue=queue, headers={"Idempotency-Key": value}, expect=400)
    assert refused["error"] == "invalid_request"
    assert refused["field"].lower().replace("-", "_") == "idempotency_key"


def test_a_quoted_key_is_measured_without_its_quotes(jobs: Jobs, queue: str) -> None:
    key = fresh("k") + "k" * 200
    key += "k" * (256 - len(key))
    first = jobs.submit("k", queue=queue, headers={"Idempotency-Key": f'"{key}"'})
    assert jobs.submit("k", queue=queue, key=key)["job_id"] == first["job_id"]


def deep(levels: int) -> str:
    return '{"kind":"k","params":{"a":' + "[" * levels + "]" * levels + "}}"


TEXTS = {
    "nothing": "",
    "cut off": '{"kind":"k"',
    "more behind it": '{"kind":"k"}{}',
    "letters behind it": '{"kind":"k"} x',
    "a list": '[{"kind":"k"}]',
    "a string": '"k"',
    "null": "null",
    "a byte order mark": '\ufeff{"kind":"k"}',
    "a name twice": '{"kind":"k","kind":"k"}',
    "a name twice in params": '{"kind":"k","params":{"a":1,"a":1}}',
    "a name twice, escaped": '{"kind":"k","params":{"a":1,"\\u0061":1}}',
    "a name twice deep down": '{"kind":"k","params":{"a":[{"b":1,"b":2}]}}',
    "half a pair": '{"kind":"k","params":{"a":"\\ud800"}}',
    "half a pair as a name": '{"kind":"k","params":{"\\udc00":1}}',
    "NaN": '{"kind":"k","params":{"a":NaN}}',
    "Infinity": '{"kind":"k","params":{"a":-Infinity}}',
    "too large a number": '{"kind":"k","params":{"a":1e999}}',
    "too many digits": '{"kind":"k","params":{"a":' + "9" * 4_301 + "}}",
    "a comment": '{"kind":"k" /* k */}',
    "single quotes": "{'kind':'k'}",
    "a final comma": '{"kind":"k",}',
    "a leading zero": '{"kind":"k","params":{"a":01}}',
    "a raw line feed": '{"kind":"k","params":{"a":"\n"}}',
    "too deep": deep(65),
    "far too deep": deep(100_000),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_7_a_body_that_is_not_a_strict_object_is_refused(jobs: Jobs, text: str) -> None:
    for path in (PATH, SUBMIT, f"{PATH}/claim", f"{PATH}/batch", f"{PATH}/lookup"):
        assert jobs.post(path, content=text.encode(), expect=400)["error"] == "invalid_request"


def test_7_bytes_that_are_not_utf_8_are_refused(jobs: Jobs) -> None:
    for content in (b'{"kind":"\xff"}', b'{"kind":"k","params":{"a":"\xed\xa0\x80"}}', '{"kind":"k"}'.encode("utf-16")):
        assert jobs.post(PATH, content=content, expect=400)["error"] == "invalid_request"


def test_numbers_at_the_edge_are_taken(jobs: Jobs, queue: str) -> None:
    """The largest integer and the deepest value that are allowed, and a zero with a sign, which is zero."""
    digits = "9" * 4_300
    assert jobs.submit_text(f'{{"kind":"k","queue":"{queue}","params":{{"a":{digits}}}}}')["status"] == "accepted"
    key = fresh("key")
    zero = '{"kind":"k","idempotency_key":"%s","queue":"%s","params":{"a":%s}}'
    first = jobs.submit_text(zero % (key, queue, "0"))
    for other in ("-0", "0.0", "-0e5"):
        assert jobs.submit_text(zero % (key, queue, other))["job_id"] == first["job_id"]
    assert digits.encode() in jobs.get(jobs.claim_one(queue)["job_id"]).raw


def test_params_of_a_mebibyte_are_taken_and_larger_ones_are_not(jobs: Jobs, queue: str) -> None:
    fits = MIB - len('{"a":""}')
    assert jobs.submit("k", {"a": "x" * fits}, queue=queue)["status"] == "accepted"
    check_refused(jobs.submit("k", {"a": "x" * (fits + 1)}, queue=queue, expect=400), "params")
    # White space and escapes do not count: what is measured is the canonical form.
    spaced = json.dumps({"kind": "k", "queue": queue, "params": {"a": "x" * fits}}, indent=100)
    assert jobs.submit_text(spaced + " " * 1_000)["status"] == "accepted"


def test_a_body_over_two_mebibytes_is_too_large(jobs: Jobs) -> None:
    content = b'{"kind":"k"' + b" " * (2 * MIB) + b"}"
    for path in (PATH, SUBMIT, f"{PATH}/claim"):
        assert jobs.post(path, content=content, expect=413)["error"] == "too_large"


@pytest.mark.parametrize("items", [[], [{"kind": "k"}] * 101, {"kind": "k"}, "x", None, ABSENT])
def test_a_batch_has_one_to_a_hundred_items(jobs: Jobs, items: Any) -> None:
    check_refused(jobs.post(f"{PATH}/batch", without_absent({"jobs": items}), expect=400), "jobs")


def test_an_item_of_a_batch_that_is_no_object_is_refused_alone(jobs: Jobs, queue: str) -> None:
    answers = jobs.batch([{"kind": "k", "queue": queue}, 7, {"kind": "k", "queue": queue}])
    assert [one["http"] for one in answers] == [200, 400, 200]


# -- workers ----------------------------------------------------------------------------------------------------------

CLAIMS: list[tuple[str, Any]] = [
    ("worker_id", ABSENT),
    ("worker_id", ""),
    ("worker_id", 1),
    ("worker_id", "w" * 129),
    ("max", 0),
    ("max", 101),
    ("max", "1"),
    ("max", 1.5),
    ("max", True),
    ("kinds", "k"),
    ("kinds", [1]),
    ("kinds", ["with space"]),
    ("queues", "q"),
    ("queues", [1]),
    ("queues", ["q" * 65]),
    ("wait_ms", -1),
    ("wait_ms", 30_001),
    ("lease_sec", 0),
    ("lease_sec", "1"),
    ("claim_id", ""),
    ("claim_id", "c" * 65),
    ("claim_id", 1),
]


@pytest.mark.parametrize(("field", "value"), CLAIMS, ids=lambda value: ascii(value)[:24])
def test_a_bad_field_of_a_claim_is_named_and_nothing_is_taken(jobs: Jobs, queue: str, field: str, value: Any) -> None:
    job_id = jobs.submit("k", queue=queue)["job_id"]
    body = without_absent({"worker_id": "w", "queues": [queue]} | {field: value})
    for path in (f"{PATH}/claim", CLAIM):
        check_refused(jobs.post(path, body, expect=400), field)
    assert jobs.get(job_id)["epoch"] == 0


def test_a_worker_may_be_called_a_node(jobs: Jobs, queue: str) -> None:
    jobs.submit("k", queue=queue)
    [job] = jobs.post(CLAIM, {"node_id": "n-1", "queues": [queue]})["jobs"]
    assert jobs.get(job["job_id"])["worker_id"] == "n-1"
    check_refused(jobs.post(CLAIM, {"node_id": "n" * 129}, expect=400), "node_id")


REPORTS: list[tuple[str, str, Any]] = [
    ("complete", "lease_token", 1),
    ("complete", "integrity", "sha256"),
    ("complete", "integrity", {"mode": "md5", "sha256": "0" * 64}),
    ("complete", "integrity", {"mode": "sha256", "sha256": 7}),
    ("fail", "error", ABSENT),
    ("fail", "error", "boom"),
    ("fail", "error", {"code": 1, "message": "m"}),
    ("fail", "error", {"code": "c", "message": []}),
    ("fail", "retryable", "no"),
    ("fail", "retryable", 0),
    ("fail", "retry_after_ms", -1),
    ("fail", "retry_after_ms", "5"),
    ("defer", "delay_ms", -1),
    ("defer", "delay_ms", 86_400_001),
    ("defer", "delay_ms", "5"),
    ("steps", "step_key", ABSENT),
    ("steps", "step_key", ""),
    ("steps", "step_key", "s" * 257),
    ("steps", "step_key", 1),
]


@pytest.mark.parametrize(("call", "field", "value"), REPORTS, ids=lambda value: ascii(value)[:24])
def test_a_bad_field_of_a_report_is_named_and_the_lease_stays(
    jobs: Jobs, queue: str, call: str, field: str, value: Any
) -> None:
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    before = jobs.get(job["job_id"])
    good: Message = {"lease_token": job["lease_token"], "error": {"code": "c", "message": "m"}, "step_key": "s"}
    good |= {"result": 1, "delay_ms": 0}
    answer = jobs.post(f"{PATH}/{job['job_id']}/{call}", without_absent(good | {field: value}), expect=400)
    check_refused(answer, field)
    check_unchanged(jobs, before)
    jobs.complete(job, "after all")


@pytest.mark.parametrize(
    ("field", "value"), [("job_id", ABSENT), ("job_id", 1), ("ok", ABSENT), ("ok", "yes"), ("ok", 1)], ids=ascii
)
def test_a_bad_field_of_a_result_of_the_mesh_is_named(jobs: Jobs, queue: str, field: str, value: Any) -> None:
    first = jobs.submit("k", queue=queue)
    body = without_absent({"job_id": first["job_id"], "ok": True, "result": 1} | {field: value})
    for path in (RESULT, "/mesh/submit_result"):
        check_refused(jobs.post(path, body, expect=400), field)
    assert jobs.get(first["job_id"])["state"] == "queued"


def test_a_result_that_is_too_large_leaves_the_lease(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    jobs.submit("k", key=key, queue=queue)
    job = jobs.claim_one(queue)
    before = jobs.get(job["job_id"])
    assert jobs.complete(job, "x" * MIB, expect=413)["error"] == "too_large"
    assert jobs.complete(job, "x" * (2 * MIB), expect=413)["error"] == "too_large"
    assert jobs.step(job, "s", "x" * MIB, expect=413)["error"] == "too_large"
    check_unchanged(jobs, before)
    assert jobs.submit("k", key=key)["status"] == "in_progress"
    jobs.complete(job, "smaller")
    assert jobs.submit("k", key=key)["cached_result"]["result"] == "smaller"


# -- the rest ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("state=lost", "state"),
        ("state=", "state"),
        ("queue=" + "q" * 65, "queue"),
        ("kind=with%20space", "kind"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=ten", "limit"),
        ("limit=-5", "limit"),
        ("after=nonsense", "after"),
        ("after=", "after"),
    ],
)
def test_a_bad_filter_of_the_list_is_named(jobs: Jobs, query: str, field: str) -> None:
    check_refused(jobs.call("GET", f"{PATH}?{query}", expect=400), field)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "after=nonsense"])
def test_a_bad_filter_of_the_dead_letters_is_named(jobs: Jobs, query: str) -> None:
    check_refused(jobs.call("GET", f"{PATH}/dead?{query}", expect=400), query.partition("=")[0])


@pytest.mark.parametrize("wait_ms", ["-1", "30001", "x", ""])
def test_a_bad_wait_of_a_reader_is_named(jobs: Jobs, queue: str, wait_ms: str) -> None:
    job_id = jobs.submit("k", queue=queue)["job_id"]
    check_refused(jobs.call("GET", f"{PATH}/{job_id}?wait_ms={wait_ms}", expect=400), "wait_ms")


def test_what_nobody_reads_from_a_url_is_refused(jobs: Jobs, queue: str) -> None:
    """A key that is sent there would protect nothing, and nobody would be told."""
    key = fresh("key")
    body = {"kind": "k", "queue": queue}
    for path, sent in ((PATH, body), (SUBMIT, body), (f"{PATH}/batch", {"jobs": [body]}), (CLAIM, {"worker_id": "w"})):
        check_refused(jobs.post(f"{path}?idempotency_key={key}", sent, expect=400), "query")
    assert jobs.listed(limit=10, queue=queue) == []
    job_id = jobs.submit("k", key=key, queue=queue)["job_id"]
    check_refused(jobs.post(f"{PATH}/{job_id}/cancel?force=true", {}, expect=400), "query")
    for path in (f"{PATH}/{job_id}/result", f"{PATH}/queues", f"{PATH}/queues/{queue}", f"{PATH}/schedules"):
        check_refused(jobs.call("GET", f"{path}?limit=1", expect=400), "query")
    assert jobs.get(job_id)["state"] == "queued"


def test_a_lookup_names_exactly_one_thing(jobs: Jobs) -> None:
    for body in ({}, {"idempotency_key": "k", "request_id": "r"}):
        assert jobs.post(f"{PATH}/lookup", body, expect=400)["error"] == "invalid_request"
    check_refused(jobs.lookup(idempotency_key="", expect=400), "idempotency_key")
    check_refused(jobs.lookup(idempotency_key=5, expect=400), "idempotency_key")
    check_refused(jobs.lookup(request_id=5, expect=400), "request_id")


def test_force_is_true_or_false(jobs: Jobs, queue: str) -> None:
    key = fresh("key")
    job_id = jobs.submit("k", key=key, queue=queue)["job_id"]
    check_refused(jobs.cancel(job_id, force="yes", expect=400), "force")
    check_refused(jobs.release(key, force=1, expect=400), "force")
    assert jobs.get(job_id)["state"] == "queued"


def test_methods_and_content_types(jobs: Jobs, queue: str) -> None:
    for method, path in (("GET", SUBMIT), ("PUT", PATH), ("GET", f"{PATH}/claim"), ("DELETE", f"{PATH}/lookup")):
        answer = jobs.call(method, path, expect=405)
        assert answer["error"] == "method_not_allowed"
        assert answer.headers["Allow"]
    body = json.dumps({"kind": "k", "queue": queue}).encode()
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = jobs.post(PATH, content=body, headers={"Content-Type": content_type}, expect=415)
        assert answer["error"] == "unsupported_media_type"
    for content_type in ("application/json; charset=utf-8", "Application/JSON"):
        assert jobs.post(PATH, content=body, headers={"Content-Type": content_type})["dedup"] is False


# -- the order of judgement -------------------------------------------------------------------------------------------


def test_fields_are_judged_before_the_key(jobs: Jobs, queue: str) -> None:
    """A known key with a bad field is neither a hit nor a collision."""
    key = fresh("key")
    jobs.submit("k", {"n": 1}, key=key, queue=queue)
    check_refused(jobs.submit("k", {"n": 1}, key=key, priority=99, expect=400), "priority")
    check_refused(jobs.submit("k", {"n": 2}, key=key, priority=99, expect=400), "priority")


def test_the_lease_is_judged_before_the_checksum(jobs: Jobs, queue: str) -> None:
    """A worker without a lease learns just that, not whether its hash was right."""
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    wrong = {"mode": "sha256", "sha256": "0" * 64}
    stranger = job | {"lease_token": "f" * 32}
    assert jobs.complete(stranger, 1, integrity=wrong, expect=409)["error"] == "lease_lost"
    assert jobs.complete(job, 1, integrity=wrong, expect=422)["error"] == "result_integrity_fail"
    jobs.complete(job, 1)
    assert jobs.complete(stranger, 1, integrity=wrong, expect=409)["error"] == "lease_lost"


@pytest.mark.parametrize("token", ["f" * 32, "", "x", "F" * 32, "f" * 64, "\u00fc" * 32])
def test_a_token_that_never_was_changes_nothing(jobs: Jobs, queue: str, token: str) -> None:
    """Whatever it looks like: the job stays with the worker that holds it."""
    jobs.submit("k", queue=queue)
    job = jobs.claim_one(queue)
    before = jobs.get(job["job_id"])
    stranger = job | {"lease_token": token}
    for answer in (
        jobs.complete(stranger, 1, expect=None),
        jobs.fail(stranger, expect=None),
        jobs.fail(stranger, retryable=False, expect=None),
        jobs.defer(stranger, expect=None),
        jobs.heartbeat(stranger, expect=None),
        jobs.step(stranger, "s", 1, expect=None),
        jobs.report(job["job_id"], result=1, lease_token=token, expect=None),
    ):
        told = (answer.http, answer["error"])
        assert told == (409, "lease_lost") or (told == (400, "invalid_request") and token != "f" * 32), told
    check_unchanged(jobs, before)
    assert jobs.step(job, "s")["known"] is False
    jobs.complete(job, 1)
