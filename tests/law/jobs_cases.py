"""Jobs: params, results and steps of 1 MiB, bodies of 2 MiB, claims of 100 jobs, lists of 1,000."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx

from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request, filled, nested
from tests.law.rig import MIB, WatchedServer

PARAMS = MIB - 512


def post(server: WatchedServer, path: str, body: bytes) -> Any:
    """The answer, which is a success."""
    url = f"{server.url}/v1/jobs{path}"
    answer = httpx.post(url, content=body, headers=JSON, timeout=PATIENCE_SECONDS)
    assert answer.status_code < 300, answer.text[:500]
    return answer.json()


def job(params: bytes, number: int = 0) -> bytes:
    """A submission."""
    return b'{"idempotency_key":"k%d","kind":"law","params":{"a":%s}}' % (number, params)


def submit(params: bytes) -> Make:
    """One job."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            post(server, "", job(params))
            return len(params)

        return request

    return make


def batch(params: bytes, count: int) -> Make:
    """Many jobs in one request."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            body = b'{"jobs":[' + b",".join(job(params, number) for number in range(count)) + b"]}"
            post(server, "/batch", body)
            return len(body)

        return request

    return make


def fill(server: WatchedServer, params: bytes, count: int, a_batch: int) -> None:
    """Jobs that wait."""
    for start in range(0, count, a_batch):
        numbers = range(start, min(count, start + a_batch))
        post(server, "/batch", b'{"jobs":[' + b",".join(job(params, number) for number in numbers) + b"]}")


def claim(params: bytes, count: int, a_batch: int) -> Make:
    """A claim of as many jobs as one may have."""

    def make(server: WatchedServer) -> Request:
        fill(server, params, count, a_batch)
        server.restart()

        def request() -> int:
            taken = post(server, "/claim", b'{"worker_id":"w","max":%d}' % count)
            assert taken["jobs"]
            return sum(len(json.dumps(one)) for one in taken["jobs"])

        return request

    return make


def leased(server: WatchedServer) -> tuple[str, bytes]:
    """A job that is worked on: its path, and its token."""
    fill(server, b"1", 1, 1)
    lease = post(server, "/claim", b'{"worker_id":"w"}')["jobs"][0]
    server.restart()
    return f"/{lease['job_id']}", lease["lease_token"].encode()


def report(call: str, body: bytes) -> Make:
    """Something that a worker tells; `%s` is its token."""

    def make(server: WatchedServer) -> Request:
        path, token = leased(server)
        sent = body.replace(b"TOKEN", token, 1)

        def request() -> int:
            post(server, path + call, sent)
            return len(sent)

        return request

    return make


def complete(result: bytes) -> Make:
    """A result."""
    return report("/complete", b'{"lease_token":"TOKEN","result":%s}' % result)


def get(path: str, prepare: Callable[[WatchedServer], str | None]) -> Make:
    """Something that is read, on a fresh process; `prepare` may say what stands behind the path."""

    def make(server: WatchedServer) -> Request:
        behind = prepare(server) or ""
        server.restart()

        def request() -> int:
            answer = httpx.get(f"{server.url}/v1/jobs{path}{behind}", timeout=PATIENCE_SECONDS)
            assert answer.status_code == 200, answer.text[:500]
            return len(answer.content)

        return request

    return make


def many(params: bytes, count: int, a_batch: int = 100) -> Callable[[WatchedServer], None]:
    """Jobs that wait."""
    return lambda server: fill(server, params, count, a_batch)


def done(server: WatchedServer) -> str:
    """A job with large params and a large result."""
    post(server, "", job(SHAPES["lists"]))
    lease = post(server, "/claim", b'{"worker_id":"w"}')["jobs"][0]
    body = b'{"lease_token":"%s","result":%s}' % (lease["lease_token"].encode(), SHAPES["lists"])
    post(server, f"/{lease['job_id']}/complete", body)
    return str(lease["job_id"])


def dead(server: WatchedServer) -> None:
    """1,000 jobs that have failed, each with as long an error as one may have."""
    error = b'{"lease_token":"TOKEN","retryable":false,"error":{"code":"c","message":"%s"}}' % (b"m" * 16_000)
    for start in range(0, 1_000, 100):
        numbers = range(start, start + 100)
        post(server, "/batch", b'{"jobs":[' + b",".join(job(b"1", number) for number in numbers) + b"]}")
        for lease in post(server, "/claim", b'{"worker_id":"w","max":100}')["jobs"]:
            post(server, f"/{lease['job_id']}/fail", error.replace(b"TOKEN", lease["lease_token"].encode()))


def scheduled(params: bytes, count: int) -> Callable[[WatchedServer], None]:
    """Schedules of the rarest instant there is."""

    def prepare(server: WatchedServer) -> None:
        body = b'{"cron":"59 23 29 2 *","time_zone":"Europe/Berlin","kind":"law","params":{"a":%s}}' % params
        with httpx.Client(timeout=PATIENCE_SECONDS) as client:
            for number in range(count):
                answer = client.put(f"{server.url}/v1/jobs/schedules/s{number}", content=body, headers=JSON)
                assert answer.status_code == 201, answer.text[:500]

    return prepare


def again(params: bytes) -> Make:
    """The same job under the same key."""

    def make(server: WatchedServer) -> Request:
        post(server, "", job(params))
        server.restart()

        def request() -> int:
            post(server, "", job(params))
            return len(params)

        return request

    return make


def strange(server: WatchedServer) -> Request:
    """Members that are not known."""
    names = b",".join(b'"%x":[]' % number for number in range(180_000))
    body = b'{"idempotency_key":"k","kind":"law",%s}' % names

    def request() -> int:
        post(server, "", body)
        return len(body)

    return request


def grouped(server: WatchedServer, count: int = 10_000) -> str:
    """A group of as many members as one may have; its join."""
    group: str = post(server, "", b'{"kind":"law","queue":"join","join":{"on_failure":"cancel"}}')["job_id"]
    item = b'{"kind":"law","group":"%s","delay_ms":86400000}' % group.encode()
    for _ in range(count // 100):
        told = post(server, "/batch", b'{"jobs":[' + b",".join([item] * 100) + b"]}")
        assert all(one["ok"] for one in told["jobs"])
    return group


def cancel_group(server: WatchedServer) -> Request:
    """The whole group is cancelled, by one call and what follows from it."""
    group = grouped(server)
    server.restart()

    def request() -> int:
        post(server, f"/{group}/cancel", b'{"members":true}')
        while True:
            answer = httpx.get(f"{server.url}/v1/jobs/{group}", timeout=PATIENCE_SECONDS).json()
            if answer["join"]["ended"] == answer["join"]["members"]:
                return MIB

    return request


def debounced(params: bytes) -> Make:
    """Large params that replace large params."""
    body = b'{"kind":"law","params":{"a":%s},"debounce":{"key":"d","delay_ms":86400000}}' % params

    def make(server: WatchedServer) -> Request:
        post(server, "", body)
        server.restart()

        def request() -> int:
            post(server, "", body)
            return len(params)

        return request

    return make


def unique_batch(server: WatchedServer) -> Request:
    """A batch of which each item finds the job of the first, and has a key of its own."""
    items = (b'{"kind":"law","idempotency_key":"u%d","unique":{"key":"u"}}' % number for number in range(100))
    body = b'{"jobs":[' + b",".join(items) + b"]}"

    def request() -> int:
        post(server, "/batch", body)
        return len(body)

    return request


SHAPES = {
    "zeros": filled(b"[", b"0,", b"0]", PARAMS),
    "lists": filled(b"[", b"[],", b"0]", PARAMS),
    "deep lists": filled(b"[", nested(60) + b",", b"0]", PARAMS),
    "members": b"{" + b",".join(b'"%x":1' % number for number in range(105_000)) + b"}",
    "escapes": filled(b'"', rb"\u00e9", b'"', PARAMS),
    "long integers": filled(b"[", b"9" * 30 + b",", b"0]", PARAMS),
    "doubles": filled(b"[", b"1.5,", b"0]", PARAMS),
    "one wide character": b'"' + b"v" * (PARAMS - 8) + "\U0001f600".encode() + b'"',
}

LISTED = filled(b"[", b"[],", b"0]", 20_000)
ZEROS = filled(b"[", b"0,", b"0]", 20_000)
LONG = filled(b"[", b"9" * 30 + b",", b"0]", 20_000)
BATCH, CLAIM = "batch of 100 jobs, 2 MiB", "claim of 100 jobs"
STEP = b'{"lease_token":"TOKEN","step_key":"s","result":%s}'

CASES = [
    *(Case("jobs", "params of 1 MiB", shape, submit(sent), shape == "long integers") for shape, sent in SHAPES.items()),
    Case("jobs", "params of 1 MiB", "lists, again", again(SHAPES["lists"])),
    Case("jobs", "body of 2 MiB", "members that are not known", strange),
    Case("jobs", BATCH, "zeros", batch(ZEROS, 100)),
    Case("jobs", BATCH, "lists", batch(LISTED, 100), is_quick=True),
    Case("jobs", BATCH, "long integers", batch(LONG, 100)),
    Case("jobs", BATCH, "two of 1 MB of lists", batch(filled(b"[", b"[],", b"0]", 1_000_000), 2)),
    Case("jobs", CLAIM, "20 kB of zeros each", claim(ZEROS, 100, 100)),
    Case("jobs", CLAIM, "1 MiB of lists each", claim(SHAPES["lists"], 100, 1)),
    *(Case("jobs", "result of 1 MiB", shape, complete(sent)) for shape, sent in SHAPES.items()),
    Case("jobs", "step of 1 MiB", "lists", report("/steps", STEP % SHAPES["lists"])),
    Case("jobs", "job with params and result of 1 MiB", "lists", get("/", done)),
    Case("jobs", "list of 1,000 jobs", "small ones", get("?limit=1000", many(b"1", 1_000)), is_quick=True),
    Case(
        "jobs",
        "group of 10,000 members",
        "a page of 1,000",
        get("/", lambda server: f"{grouped(server)}/members?limit=1000"),
    ),
    Case("jobs", "group of 10,000 members", "cancelled", cancel_group),
    Case("jobs", "debounce with params of 1 MiB", "lists", debounced(SHAPES["lists"])),
    Case("jobs", "batch of 100 unique jobs", "one job", unique_batch),
    Case("jobs", "list of 1,000 dead letters", "errors of 16 kB", get("/dead?limit=1000", dead)),
    Case("jobs", "list of 1,000 schedules", "leap days", get("/schedules", scheduled(b"1", 1_000))),
    Case(
        "jobs", "list of 1,000 schedules", "30 with params of 1 MiB", get("/schedules", scheduled(SHAPES["lists"], 30))
    ),
]
