"""Odd and oversized things in reports, schedules and orders: each gets its own answer, and nobody else waits for it.

They are judged before any store is asked, so one store will do.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
import pytest

from tests.harness.together import eventually
from tests.jobs.wire import ABSENT, PATH, Answer, Jobs, Message, fresh, read_answer

MIB = 1024 * 1024
DIGITS = "9" * 400
YEARLY = "0 0 1 1 *"
TRIES = 20
"""A server that lets others wait fails each of them, a machine with other work most of them."""


def check_refused(answer: Answer, field: str) -> None:
    assert (answer.http, answer["error"], answer["field"]) == (400, "invalid_request", field), dict(answer)


def leased(jobs: Jobs, queue: str) -> Message:
    """A job that this test holds."""
    jobs.submit("k", {}, queue=queue)
    return jobs.claim_one(queue)


# -- reports ----------------------------------------------------------------------------------------------------------


def test_an_error_with_an_integer_of_400_digits_is_taken(jobs: Jobs, queue: str) -> None:
    def fail(job: Message, retryable: str) -> Answer:
        error = f'{{"code":"big","message":"it broke","details":{{"n":{DIGITS}}}}}'
        head = f'"lease_token":"{job["lease_token"]}","retryable":{retryable},"retry_after_ms":0'
        return jobs.post(f"{PATH}/{job['job_id']}/fail", content=f'{{{head},"error":{error}}}'.encode())

    job_id = jobs.submit("k", {}, queue=queue)["job_id"]
    assert fail(jobs.claim_one(queue), "true")["state"] == "queued"
    assert fail(jobs.claim_one(queue), "false")["state"] == "failed"
    seen = jobs.get(job_id)
    told = [(one["code"], one["message"], one["attempt"]) for one in seen["errors"]]
    assert told == [("big", "it broke", 1), ("big", "it broke", 2)]
    assert seen["cached_result"]["error"]["details"] == {"n": int(DIGITS)}
    assert jobs.result(job_id)["error"]["details"] == {"n": int(DIGITS)}


def test_a_checksum_of_null_is_none(jobs: Jobs, queue: str) -> None:
    job = leased(jobs, queue)
    before = jobs.prometheus()
    jobs.complete(job, 1, integrity=None)
    after = jobs.prometheus()
    series = 'semel_jobs_integrity_total{{outcome="{}"}}'
    told = {name: after[series.format(name)] - before[series.format(name)] for name in ("missing", "verified")}
    assert told == {"missing": 1, "verified": 0}


def test_a_completion_without_a_result_is_refused_and_the_lease_stays(jobs: Jobs, queue: str) -> None:
    job = leased(jobs, queue)
    check_refused(jobs.complete(job, ABSENT, expect=400), "result")
    check_refused(jobs.complete(job, ABSENT, reslut=5, expect=400), "result")
    check_refused(jobs.report(job["job_id"], lease_token=job["lease_token"], expect=400), "result")
    assert jobs.get(job["job_id"])["state"] == "leased"
    jobs.complete(job, None)
    assert jobs.get(job["job_id"])["cached_result"] == {"ok": True, "result": None}


def test_a_run_is_measured_from_its_claim_whatever_heartbeats_came(jobs: Jobs, queue: str) -> None:
    job = leased(jobs, queue)
    before = jobs.prometheus()["semel_jobs_run_seconds_sum"]
    time.sleep(0.5)
    jobs.heartbeat(job)
    jobs.complete(job, 1)
    assert jobs.prometheus()["semel_jobs_run_seconds_sum"] - before >= 0.49


def test_a_claim_of_many_large_jobs_is_answered_in_parts(jobs: Jobs, queue: str) -> None:
    params = {"a": "x" * (MIB - 20)}
    for _ in range(6):
        jobs.submit("k", params, queue=queue)
    seen: list[Message] = []
    while len(seen) < 6:
        claimed = jobs.claim(queue, max=100)
        assert claimed["jobs"]
        assert len(claimed.raw) < 5 * MIB
        assert [job["params"] for job in claimed["jobs"]] == [params] * len(claimed["jobs"])
        seen += claimed["jobs"]
    for job in seen:
        jobs.complete(job, 1)


# -- heartbeats that are too large ------------------------------------------------------------------------------------


def numbers(size: int) -> str:
    return "[" + ",".join(["1.5e-7"] * (size // 7)) + "]"


@pytest.mark.parametrize("shape", ["{}", '{{"a":{}}}'], ids=["array", "inside"])
def test_progress_of_two_megabytes_is_refused_and_others_are_answered_meanwhile(
    jobs: Jobs, queue: str, shape: str
) -> None:
    job = leased(jobs, queue)
    progress = shape.format(numbers(2 * MIB - 200))
    body = f'{{"lease_token":"{job["lease_token"]}","progress":{progress}}}'.encode()
    path = f"{PATH}/{job['job_id']}/heartbeat"

    def is_alive_meanwhile() -> bool:
        """Whether nobody had to wait for half as long as the large heartbeat took."""
        with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=jobs.server.url) as other:
            other.get("/health")
            longest, began = 0.0, time.monotonic()
            sent = pool.submit(jobs.post, path, content=body, expect=400)
            while not sent.done():
                asked = time.monotonic()
                assert other.get("/health").status_code == 200
                longest = max(longest, time.monotonic() - asked)
            check_refused(sent.result(), "progress")
            return longest < (time.monotonic() - began) / 2

    assert any(is_alive_meanwhile() for _ in range(TRIES))
    assert jobs.get(job["job_id"])["progress"] is None


# -- schedules and orders ---------------------------------------------------------------------------------------------


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("field", "members"),
    [
        ("catch_up", '"cron":"0 0 1 1 *","catch_up":"\\ud800"'),
        ("params", f'"cron":"0 0 1 1 *","params":{nested(65)}'),
        ("cron", '"cron":"0 0 30 2 *"'),
        ("cron", '"cron":"0 0 31 4,6,9,11 *"'),
    ],
    ids=["half a surrogate", "65 levels", "February 30", "31 of short months"],
)
def test_a_schedule_that_could_never_be_told_or_run_is_refused(jobs: Jobs, field: str, members: str) -> None:
    name = fresh("never")
    content = f'{{"kind":"k",{members}}}'.encode()
    check_refused(jobs.call("PUT", f"{PATH}/schedules/{name}", content=content, expect=400), field)
    assert jobs.schedule(name, expect=404)["error"] == "not_found"


def test_a_schedule_may_have_params_of_64_levels_and_a_day_that_comes_in_leap_years(jobs: Jobs) -> None:
    content = f'{{"kind":"k","cron":"0 0 29 2 *","params":{nested(64)}}}'.encode()
    name = fresh("deep")
    assert jobs.call("PUT", f"{PATH}/schedules/{name}", content=content, expect=201)["next_instant"]


@pytest.mark.parametrize("name", ["\x00\x01", "a\nb", "a\x7f", "a\x85"], ids=ascii)
def test_a_queue_with_a_control_character_is_refused(jobs: Jobs, name: str) -> None:
    check_refused(jobs.set_queue(quote(name), 1, expect=400), "queue")
    assert name not in [one["queue"] for one in jobs.call("GET", f"{PATH}/queues")["queues"]]


def test_a_requeue_with_a_body_that_is_not_json_is_refused(jobs: Jobs, queue: str) -> None:
    job = leased(jobs, queue)
    jobs.fail(job, retryable=False)
    path = f"{PATH}/{job['job_id']}/requeue"
    for content in (b"not json", b"{", b"[]"):
        assert jobs.post(path, content=content, expect=400)["error"] == "invalid_request"
    seen = jobs.get(job["job_id"])
    assert (seen["state"], seen["revision"]) == ("failed", 0)
    assert jobs.requeue(job["job_id"])["revision"] == 1


@pytest.mark.parametrize("path", [PATH, "/mesh/submit_request"])
def test_a_web_page_must_say_what_it_sends(jobs: Jobs, queue: str, path: str) -> None:
    """Without a type a browser would not ask us first whether a page of another origin may send it."""
    body = json.dumps({"kind": "k", "queue": queue}).encode()
    origin = {"Origin": "http://localhost:5173"}
    for headers in (origin, origin | {"Content-Type": "text/plain"}):
        refused = read_answer(jobs.http.post(path, content=body, headers=headers))
        assert (refused.http, refused["error"]) == (415, "unsupported_media_type")
    assert jobs.page(queue=queue)["jobs"] == []
    assert read_answer(jobs.http.post(path, content=body)).http == 200
    typed = origin | {"Content-Type": "application/json"}
    assert read_answer(jobs.http.post(path, content=body, headers=typed)).http == 200
    eventually(lambda: len(jobs.page(queue=queue)["jobs"]) == 2, "both are there")
