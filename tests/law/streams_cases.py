"""Streams: bodies and pages of 16 MiB, event streams of them, large heads, and listings.

Few of them are quick: `test_streams.py` measures the largest bodies and pages in every run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request, filled, in_small_chunks, long_query, nested
from tests.law.rig import MIB, WatchedServer

LARGEST = 16 * MIB
READERS = 10
CLOSES = {"Stream-Closed": "true"}
PREFLIGHT = {
    "Origin": "http://localhost:3000",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": ",".join(["stream-seq"] * 5_000),
}


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


def forking(message: bytes) -> Make:
    """Fork behind the first of two messages of one append: the first is cut out and copied."""

    def make(server: WatchedServer) -> Request:
        url = f"{server.url}/v1/stream/law"
        httpx.put(url, content=b"[" + message + b",1]", headers=JSON, timeout=PATIENCE_SECONDS).raise_for_status()
        start = "0000000000000000_0000000000000000"
        headers = {"Stream-Forked-From": "/v1/stream/law", "Stream-Fork-Offset": start, "Stream-Fork-Sub-Offset": "1"}

        def request() -> int:
            httpx.put(f"{url}-fork", headers=headers, timeout=PATIENCE_SECONDS).raise_for_status()
            return len(message)

        return request

    return make


def chunked(size: int) -> Make:
    """An append of which each byte is a chunk."""

    def make(server: WatchedServer) -> Request:
        httpx.put(f"{server.url}/v1/stream/law", headers={"Content-Type": "text/plain"}).raise_for_status()
        return in_small_chunks("POST", "/v1/stream/law", b"\n" * size, 204, "text/plain")(server)

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


def many_appends(count: int, each: bytes, kind: str = "application/json", **query: str) -> Make:
    """A page of as many small appends as a page may have."""

    def make(server: WatchedServer) -> Request:
        url, asked = f"{server.url}/v1/stream/law", {"offset": "-1"} | query
        with httpx.Client(headers={"Content-Type": kind}) as client:
            client.put(url).raise_for_status()
            for _ in range(count):
                client.post(url, content=each).raise_for_status()
            client.post(url, headers={"Stream-Closed": "true"}).raise_for_status()

        def request() -> int:
            with httpx.stream("GET", url, params=asked, timeout=PATIENCE_SECONDS) as answer:
                size = sum(map(len, answer.iter_raw()))
            assert size >= count * len(each.strip(b"[]")), size
            return size

        return request

    return make


def head(method: str, path: str, headers: dict[str, str], expected: tuple[int, ...]) -> Make:
    """A request with a large head to a stream that is there."""

    def make(server: WatchedServer) -> Request:
        httpx.put(f"{server.url}/v1/stream/law", headers=JSON, content=b"[1,2,3]").raise_for_status()

        def request() -> int:
            url = f"{server.url}{path}"
            answer = httpx.request(method, url, headers=headers, timeout=PATIENCE_SECONDS)
            assert answer.status_code in expected, answer.text
            return len(url) + sum(len(name) + len(value) for name, value in headers.items())

        return request

    return make


def listing(count: int, prefix: str = "") -> Make:
    """A page of a listing of streams with long names."""

    def make(server: WatchedServer) -> Request:
        with httpx.Client() as client:
            for number in range(count):
                client.put(f"{server.url}/v1/stream/{prefix}{number:0>300}").raise_for_status()

        def request() -> int:
            answer = httpx.get(f"{server.url}/v1/streams", params={"limit": str(count)}, timeout=PATIENCE_SECONDS)
            assert len(answer.json()["streams"]) == count
            return len(answer.content)

        return request

    return make


LOOP = "64 KiB on the loop"
BODY, PAGE, HEAD = "body of 16 MiB", "page of 16 MiB", "head of 64 KiB"
FORK = "fork inside of an append of 16 MiB"
HTTP, POLL, SSE = "streams, HTTP", "streams, long poll", "streams, SSE"
MESSAGES = b"[ " + b" , ".join([b'"' + b"a" * 160 + b'"'] * 100_000) + b" ]"
LISTS = filled(b"[[", b"[],", b"0]]")
LINES = b"\n" * LARGEST
RETURNS = b"\r" * LARGEST
TAGS = b",".join([b'"a"'] * 14_000).decode()
MANY = {f"x-{number}": "a" * 500 for number in range(100)}
JSON_BODIES = {
    "5 million lists in one message": LISTS,
    "deep lists": filled(b"[[", nested(60) + b",", b"0]]"),
    "objects": filled(b"[[", b"{},", b"0]]"),
    "members": filled(b"[{", b'"a":1,', b'"a":1}]'),
    "short strings": filled(b"[[", b'"ab",', b"0]]"),
    "one string of escapes": filled(b'["', rb"\n", b'"]'),
    "one string of escapes and white space": filled(b'[ "', rb"\n", b'" ]'),
    "one wide letter": filled(b'["', b"a", '\U0001f600"]'.encode()),
    "one long number": filled(b"[", b"9", b"]"),
    "white space": filled(b"[[", b" 0 ,", b"0]]"),
    "nothing but white space": filled(b"[", b" ", b"0]"),
    "halves of surrogate pairs": filled(b"[[", rb'"\ud800",', b"0]]"),
    "numbers that overflow": filled(b"[[", b"1e999,", b"0]]"),
}
"""Appends that are stored."""
ON_LOOP = {
    "lists": filled(b"[[", b"[],", b"0]]", 65_536),
    "messages with white space": filled(b"[ ", b"0 , ", b"0 ]", 65_536),
    "members": filled(b"[{", b'"a":1,', b'"a":1}]', 65_536),
    "numbers that overflow": filled(b"[[", b"1e999,", b"0]]", 65_536),
}
"""The most that is read on the loop."""

CASES = [
    *(Case(HTTP, BODY, shape, appending("application/json", body)) for shape, body in JSON_BODIES.items()),
    Case(HTTP, BODY, "8 million zeros", appending("application/json", filled(b"[", b"0,", b"0]"), expected=413)),
    Case(HTTP, BODY, "lists without an end", appending("application/json", LISTS[:-1], expected=400)),
    Case(HTTP, BODY, "16 million levels", appending("application/json", b"[" * LARGEST, expected=400)),
    Case(HTTP, BODY, "100,000 messages with white space", creating(MESSAGES)),
    Case(HTTP, BODY, "first content", creating(LISTS)),
    Case(HTTP, BODY, "text under a key", appending("text/plain", LINES, {"Idempotency-Key": "k"})),
    Case(HTTP, BODY, "bytes", appending("application/octet-stream", b"\0" * LARGEST)),
    Case(HTTP, FORK, "a message of lists", forking(filled(b"[", b"[],", b"0]", LARGEST - 16))),
    Case(HTTP, FORK, "a message of one string", forking(filled(b'"', b"a", b'"', LARGEST - 16)), is_quick=True),
    Case(HTTP, BODY, "chunks of one byte", chunked(2 * MIB), is_quick=True),
    Case(HTTP, HEAD, "If-None-Match of 14,000 tags", head("GET", "/v1/stream/law", {"If-None-Match": TAGS}, (200,))),
    Case(HTTP, HEAD, "If-Match of 14,000 tags", head("POST", "/v1/stream/law", {"If-Match": TAGS, **CLOSES}, (412,))),
    Case(HTTP, HEAD, "100 headers", head("GET", "/v1/stream/law", MANY, (200,))),
    Case(HTTP, HEAD, "query of 30,000 fields", head("GET", f"/v1/stream/law?{long_query('a&')}", {}, (200,))),
    Case(HTTP, HEAD, "query of escapes", head("GET", f"/v1/stream/law?{long_query('%41', 'a=')}", {}, (200,))),
    Case(HTTP, HEAD, "listing with 30,000 fields", head("GET", f"/v1/streams?{long_query('a&')}", {}, (200, 400))),
    Case(
        HTTP,
        HEAD,
        "listing with a prefix of escapes",
        head("GET", f"/v1/streams?{long_query('%41', 'prefix=')}", {}, (200,)),
    ),
    Case(HTTP, HEAD, "name of escapes", head("GET", f"/v1/stream/{long_query('%41')}", {}, (400,))),
    Case(HTTP, HEAD, "preflight", head("OPTIONS", "/v1/stream/law", PREFLIGHT, (204,)), is_quick=True),
    *(Case(HTTP, LOOP, shape, appending("application/json", body)) for shape, body in ON_LOOP.items()),
    Case(HTTP, PAGE, "catch-up of JSON", reading("application/json", LISTS)),
    Case(HTTP, PAGE, "catch-up of bytes", reading("application/octet-stream", b"\0" * LARGEST)),
    Case(HTTP, PAGE, "4,096 appends", many_appends(4_096, b"[0]")),
    Case(HTTP, "1,000 streams of a listing", "names of 1,000 bytes", listing(1_000, "a" * 700)),
    Case(POLL, PAGE, "of lists", polling(LISTS)),
    Case(POLL, PAGE, "of what is there", reading("application/json", LISTS, live="long-poll"), is_quick=True),
    Case(SSE, PAGE, "of line ends", reading("text/plain", LINES, live="sse"), is_quick=True),
    Case(SSE, PAGE, "of carriage returns", reading("text/plain", RETURNS, live="sse")),
    Case(SSE, PAGE, "10 of line ends at once", reading("text/plain", LINES, READERS, live="sse")),
    Case(SSE, PAGE, "of bytes", reading("application/octet-stream", b"\0" * LARGEST, live="sse")),
    Case(SSE, PAGE, "of JSON", reading("application/json", LISTS, live="sse")),
    Case(SSE, PAGE, "of 4,096 appends", many_appends(4_096, b"\n" * 200, "text/plain", live="sse")),
]
