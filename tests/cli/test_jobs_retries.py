"""What `semel jobs` does when answers are lost, a queue is full, or something else answers; from a script."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.command import Semel
from tests.cli.scripted import Line, Scripted, scripted

JOB = "job_0123456789abcdef0123456789abcdef"
GONE = Line(0)


def answer(http: int = 200, **facts: Any) -> Line:
    body = json.dumps({"ok": http == 200, **facts}).encode()
    return Line(http, {"Content-Type": "application/json", "Retry-After": "0"}, body)


def refusal(status: int, code: str) -> Line:
    return answer(status, error=code, message=f"This is {code}.")


AT = "2026-01-01T00:00:00.000Z"
NEW: dict[str, Any] = {
    "request_id": "r",
    "status": "accepted",
    "state": "queued",
    "attempt": 0,
    "revision": 0,
    "created_utc": AT,
}
ACCEPTED = answer(job_id=JOB, dedup=False, **NEW)
REPEATED = answer(job_id=JOB, dedup=True, **NEW)
SHOWN: dict[str, Any] = {"kind": "k", "queue": "q", "priority": 4, "max_attempts": 3, "params": {}}


def state(name: str, **facts: Any) -> Line:
    """The answer to a read of the job."""
    return answer(**{"job_id": JOB, **NEW, **SHOWN, "state": name, **facts})


def bodies(server: Scripted) -> list[Any]:
    return [json.loads(seen.body) for seen in server.seen]


def keys_of(server: Scripted) -> list[list[str]]:
    return [[job["idempotency_key"] for job in body["jobs"]] for body in bodies(server)]


def test_without_a_key_what_may_be_queued_is_not_sent_again() -> None:
    with scripted(refusal(429, "backpressure"), refusal(503, "overloaded"), GONE, ACCEPTED) as server:
        lost = Semel(server.url).here("jobs", "submit", "k", "--no-key")
    assert (lost.code, len(server.seen)) == (1, 3)
    assert "It may be queued: without a key it was not retried" in lost.err
    with scripted(refusal(503, "not_durable"), ACCEPTED) as server:
        lost = Semel(server.url).here("jobs", "submit", "k", "--no-key")
    assert (lost.code, len(server.seen)) == (1, 1)
    assert all("idempotency_key" not in body for body in bodies(server))


def item(number: int, http: int = 200, **facts: Any) -> dict[str, Any]:
    told = {"ok": True, "job_id": f"{JOB[:-1]}{number}", "dedup": False, **NEW} if http == 200 else facts
    return {"http": http, **told}


FULL = {"ok": False, "error": "backpressure", "message": "The queue is full.", "retry_after_ms": 1}
LINES = b'{"kind": "a"}\n{"kind": "b"}\n{"kind": "c"}\n'


def test_jobs_that_found_no_room_are_sent_again_alone() -> None:
    first = answer(jobs=[item(1), item(2, 429, **FULL), item(3, 429, **FULL)])
    second = answer(jobs=[item(2), item(3, 429, **FULL)])
    with scripted(first, second, GONE, answer(jobs=[item(3)])) as server:
        run = Semel(server.url).here("jobs", "submit", "--lines", "--key", "k", "--json", stdin=LINES)
    assert [json.loads(line)["line"] for line in run.out.splitlines()] == [1, 2, 3]
    assert keys_of(server) == [["k-1", "k-2", "k-3"], ["k-2", "k-3"], ["k-3"], ["k-3"]]
    assert (run.code, run.err.splitlines()[0]) == (0, "The queue is full. [backpressure] Trying again.")


def test_patience_ends_when_nothing_gets_in_and_says_how_to_go_on() -> None:
    first = answer(jobs=[item(1), item(2, 429, **FULL), item(3, 429, **FULL)])
    with scripted(first, answer(jobs=[item(2, 429, **FULL), item(3, 429, **FULL)])) as server:
        run = Semel(server.url).here("jobs", "submit", "--lines", "--key", "k", "--retries", "2", stdin=LINES)
    assert (run.code, run.raw, len(server.seen)) == (1, b"", 4)
    advice = "Earlier lines are done: run this again with --key k, and no job is queued twice."
    assert run.err.endswith(f"Error: Lines 1 to 3: The queue is full. [backpressure] {advice}\n")


def test_a_line_without_a_key_is_not_sent_again_when_its_fate_is_unknown() -> None:
    unknown = {"ok": False, "error": "not_durable", "message": "It is not known."}
    with scripted(answer(jobs=[item(1), item(2, 503, **unknown), item(3)])) as server:
        run = Semel(server.url).here("jobs", "submit", "--lines", "--no-key", stdin=LINES)
    assert (run.code, len(server.seen)) == (1, 1)
    assert run.out == "Submitted 2 jobs: 2 new, 0 already there\n"
    assert run.err == "Line 2: It is not known. [not_durable]\nError: 1 of 3 jobs were refused.\n"
    with scripted(GONE) as server:
        run = Semel(server.url).here("jobs", "submit", "--lines", "--no-key", stdin=LINES)
    assert (run.code, len(server.seen)) == (1, 1)
    assert run.err.endswith("Lines up to 0 are done; repeating those without a key would queue them twice.\n")


def test_a_requeue_whose_answer_was_lost_is_not_given_twice() -> None:
    failed, again = state("failed", revision=2), state("queued", revision=3)
    with scripted(failed, GONE, again) as server:
        run = Semel(server.url).here("jobs", "requeue", JOB)
    assert (run.code, run.out) == (0, f"Requeued {JOB}\n")
    assert [(seen.method, seen.path) for seen in server.seen] == [
        ("GET", f"/v1/jobs/{JOB}"),
        ("POST", f"/v1/jobs/{JOB}/requeue"),
        ("GET", f"/v1/jobs/{JOB}"),
    ]
    with scripted(failed, GONE, failed, again) as server:
        run = Semel(server.url).here("jobs", "requeue", JOB)
    assert (run.code, [seen.method for seen in server.seen]) == (0, ["GET", "POST", "GET", "POST"])
    with scripted(failed, refusal(409, "job_active")) as server:
        run = Semel(server.url).here("jobs", "requeue", JOB)
    assert (run.code, run.out) == (1, "Requeued 0 jobs\n")
    assert run.err.splitlines()[-1] == "Error: 1 of 1 jobs were not requeued."


def test_a_wait_goes_on_over_lost_connections_and_answers_that_were_not_held() -> None:
    running = state("leased", attempt=1)
    with scripted(running, GONE, running, state("completed")) as server:
        run = Semel(server.url).here("jobs", "wait", JOB)
    assert (run.code, run.out) == (0, f"{JOB} is completed\n")
    assert {seen.path for seen in server.seen} == {f"/v1/jobs/{JOB}?wait_ms=30000"}


def test_a_result_that_was_changed_is_not_printed() -> None:
    integrity = {"mode": "sha256", "sha256": "e1c385f76353565a1e3f961ca50ec256b590b88c0e7e5c6af0b9299e29f13fb9"}
    facts: dict[str, Any] = {"job_id": "job_1", "result": {"note": "hello", "value": 42}, "integrity": integrity}
    ended = state("completed", job_id="job_1")
    with scripted(ended, answer(**facts)) as server:
        assert Semel(server.url).here("jobs", "result", "job_1").out == '{"note": "hello", "value": 42}\n'
    with scripted(ended, answer(**facts | {"result": {"note": "hello", "value": 43}})) as server:
        run = Semel(server.url).here("jobs", "result", "job_1")
    sentence = "Error: The result of job_1 does not match its checksum.\n"
    assert (run.code, run.raw, run.err) == (1, b"", sentence)
