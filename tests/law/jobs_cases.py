"""Jobs: params of 1 MiB, bodies of 2 MiB, claims of 100 jobs, results of 1 MiB, lists of 1,000 jobs."""

from __future__ import annotations

import json
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

        def request() -> int:
            taken = post(server, "/claim", b'{"worker_id":"w","max":%d}' % count)
            assert taken["jobs"]
            return sum(len(json.dumps(one)) for one in taken["jobs"])

        return request

    return make


def complete(result: bytes) -> Make:
    """A result."""

    def make(server: WatchedServer) -> Request:
        fill(server, b"1", 1, 1)
        lease = post(server, "/claim", b'{"worker_id":"w"}')["jobs"][0]
        body = b'{"lease_token":"%s","result":%s}' % (lease["lease_token"].encode(), result)

        def request() -> int:
            post(server, f"/{lease['job_id']}/complete", body)
            return len(body)

        return request

    return make


def listing(params: bytes, count: int) -> Make:
    """A page of the list of jobs."""

    def make(server: WatchedServer) -> Request:
        fill(server, params, count, 100)

        def request() -> int:
            url = f"{server.url}/v1/jobs"
            answer = httpx.get(url, params={"limit": str(count)}, timeout=PATIENCE_SECONDS)
            assert len(answer.json()["jobs"]) == count
            return len(answer.content)

        return request

    return make


SHAPES = {
    "zeros": filled(b"[", b"0,", b"0]", PARAMS),
    "lists": filled(b"[", b"[],", b"0]", PARAMS),
    "deep lists": filled(b"[", nested(60) + b",", b"0]", PARAMS),
    "members": b"{" + b",".join(b'"%x":1' % number for number in range(105_000)) + b"}",
    "escapes": filled(b'"', rb"\u00e9", b'"', PARAMS),
    "long integers": filled(b"[", b"9" * 30 + b",", b"0]", PARAMS),
    "doubles": filled(b"[", b"1.5,", b"0]", PARAMS),
}

CASES = [
    *(Case("jobs", "params of 1 MiB", shape, submit(sent), shape == "long integers") for shape, sent in SHAPES.items()),
    Case("jobs", "batch of 100 jobs, 2 MiB", "zeros", batch(filled(b"[", b"0,", b"0]", 20_000), 100)),
    Case(
        "jobs", "batch of 100 jobs, 2 MiB", "long integers", batch(filled(b"[", b"9" * 30 + b",", b"0]", 20_000), 100)
    ),
    Case("jobs", "claim of 100 jobs", "20 kB of zeros each", claim(filled(b"[", b"0,", b"0]", 20_000), 100, 100)),
    Case("jobs", "claim of 100 jobs", "1 MiB of lists each", claim(SHAPES["lists"], 100, 1), is_quick=False),
    *(Case("jobs", "result of 1 MiB", shape, complete(sent)) for shape, sent in SHAPES.items()),
    Case("jobs", "list of 1,000 jobs", "small ones", listing(b"1", 1_000), is_quick=True),
]
