"""Streams: bodies and pages of 16 MiB, event streams of them, and listings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request, filled, nested
from tests.law.rig import MIB, WatchedServer

LARGEST = 16 * MIB
READERS = 10


def appending(kind: str, body: bytes, headers: dict[str, str] | None = None, expected: int = 204) -> Make:
    """Append to a new stream."""

    def make(server: WatchedServer) -> Request:
        url, given = f"{server.url}/v1/stream/law", {"Content-Type": kind} | (headers or {})
        httpx.put(url, headers={"Content-Type": kind}).raise_for_status()

        def request() -> int:
            answer = httpx.post(url, content=body, headers=given, timeout=PATIENCE_SECONDS)
            assert answer.status_code == expected, answer.text
            return len(body)

        return request

    return make


def creating(body: bytes) -> Make:
    """Create a stream with its first content."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            url = f"{server.url}/v1/stream/law"
            httpx.put(url, content=body, headers=JSON, timeout=PATIENCE_SECONDS).raise_for_status()
            return len(body)

        return request

    return make


def reading(kind: str, body: bytes, readers: int = 1, **query: str) -> Make:
    """Read one page with all of an append, by several readers at once."""

    def make(server: WatchedServer) -> Request:
        appending(kind, body)(server)()
        url, asked = f"{server.url}/v1/stream/law", {"offset": "-1"} | query
        httpx.post(url, headers={"Stream-Closed": "true"}).raise_for_status()

        def read(_: int) -> int:
            with httpx.stream("GET", url, params=asked, timeout=PATIENCE_SECONDS) as answer:
                assert sum(map(len, answer.iter_raw())) >= len(body) - 4
                return len(body)

        def request() -> int:
            with ThreadPoolExecutor(readers) as pool:
                return sum(pool.map(read, range(readers)))

        return request

    return make


def polling(body: bytes) -> Make:
    """A long poll that waits for an append."""

    def make(server: WatchedServer) -> Request:
        append = appending("application/json", body)(server)
        url = f"{server.url}/v1/stream/law"

        def request() -> int:
            with ThreadPoolExecutor(1) as pool:
                asked = {"offset": "now", "live": "long-poll"}
                waiting = pool.submit(httpx.get, url, params=asked, timeout=PATIENCE_SECONDS)
                append()
                return len(body) + len(waiting.result().content)  # two requests at once

        return request

    return make


def listing(count: int) -> Make:
    """A page of a listing of streams with long names."""

    def make(server: WatchedServer) -> Request:
        with httpx.Client() as client:
            for number in range(count):
                client.put(f"{server.url}/v1/stream/{number:0>1000}").raise_for_status()

        def request() -> int:
            answer = httpx.get(f"{server.url}/v1/streams", params={"limit": str(count)}, timeout=PATIENCE_SECONDS)
            assert len(answer.json()["streams"]) == count
            return len(answer.content)

        return request

    return make


BODY = "body of 16 MiB"
PAGE = "page of 16 MiB"
SPACED = b"[ " + b" , ".join([b'"' + b"a" * 160 + b'"'] * 100_000) + b" ]"
LISTS = filled(b"[[", b"[],", b"0]]")

CASES = [
    Case("streams", BODY, "8 million zeros", appending("application/json", filled(b"[", b"0,", b"0]"), expected=413)),
    Case("streams", BODY, "5 million lists in one message", appending("application/json", LISTS), is_quick=True),
    Case("streams", BODY, "deep lists", appending("application/json", filled(b"[[", nested(60) + b",", b"0]]"))),
    Case("streams", BODY, "members", appending("application/json", filled(b"[{", b'"a":1,', b'"a":1}]'))),
    Case("streams", BODY, "one string of escapes", appending("application/json", filled(b'["', rb"\n", b'"]'))),
    Case("streams", BODY, "white space", appending("application/json", filled(b"[[", b" 0 ,", b"0]]"))),
    Case("streams", BODY, "100,000 messages with white space", creating(SPACED)),
    Case("streams", BODY, "first content", creating(LISTS)),
    Case("streams", BODY, "text under a key", appending("text/plain", b"\n" * LARGEST, {"Idempotency-Key": "k"})),
    Case("streams", BODY, "bytes", appending("application/octet-stream", b"\0" * LARGEST)),
    Case("streams", PAGE, "catch-up of JSON", reading("application/json", LISTS)),
    Case("streams", PAGE, "long poll", polling(LISTS)),
    Case(
        "streams", PAGE, "event stream of line ends", reading("text/plain", b"\n" * LARGEST, live="sse"), is_quick=True
    ),
    Case("streams", PAGE, "10 event streams of line ends", reading("text/plain", b"\n" * LARGEST, READERS, live="sse")),
    Case("streams", PAGE, "event stream of bytes", reading("application/octet-stream", b"\0" * LARGEST, live="sse")),
    Case("streams", "1,000 streams of a listing", "names of 1,000 bytes", listing(1_000)),
]
