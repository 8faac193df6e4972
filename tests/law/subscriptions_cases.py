"""Subscriptions of streams: patterns with many matches, large bodies, and wakes of as many streams as there may be."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import orjson

from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request
from tests.law.rig import WatchedServer

MATCHED = 9_999
WAKE = 1_000
CALLERS = 8
LONG = "n" * 300
HTTP = "streams, HTTP"


def _url(server: WatchedServer, path: str) -> str:
    return f"{server.url}/v1/stream/{path}"


def _fill(server: WatchedServer, count: int, body: bytes, method: str = "PUT") -> None:
    """Create streams with long names, or append to them."""

    def some(first: int) -> None:
        with httpx.Client(headers=JSON, timeout=PATIENCE_SECONDS) as client:
            for number in range(first, count, CALLERS):
                path = f"law/{number}-{LONG}"
                client.request(method, _url(server, path), content=body).raise_for_status()

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(some, range(CALLERS)))


def _call(server: WatchedServer, method: str, path: str, body: Any = None, token: str = "") -> httpx.Response:
    headers = JSON | ({"Authorization": f"Bearer {token}"} if token else {})
    url = _url(server, f"__ds/subscriptions/law{path}")
    content = None if body is None else orjson.dumps(body)
    answer = httpx.request(method, url, content=content, headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code < 300, answer.text
    return answer


def _pull(server: WatchedServer) -> httpx.Response:
    body = {"type": "pull-wake", "pattern": "law/*", "wake_stream": "wake", "lease_ttl_ms": 600_000}
    return _call(server, "PUT", "", body)


def creation(count: int) -> Make:
    """Create a subscription whose pattern matches many streams."""

    def make(server: WatchedServer) -> Request:
        _fill(server, count, b"[]")
        return lambda: len(_pull(server).content)

    return make


def record(count: int) -> Make:
    """The record of such a subscription."""

    def make(server: WatchedServer) -> Request:
        creation(count)(server)()
        return lambda: len(_call(server, "GET", "").content)

    return make


def explicit(method: str, path: str) -> Make:
    """As many explicit streams as one call may name."""

    def make(server: WatchedServer) -> Request:
        names = [f"law/{number}-{'n' * 220}" for number in range(1_000)]
        body: dict[str, Any] = {"type": "pull-wake", "streams": names, "wake_stream": "wake"}
        if path:
            _call(server, "PUT", "", body | {"streams": ["other"]})
            body = {"streams": names[1:]}

        def request() -> int:
            _call(server, method, path, body)
            return len(orjson.dumps(body))

        return request

    return make


def woken(call: Callable[[WatchedServer, dict[str, Any]], httpx.Response] | None) -> Make:
    """Claim as many streams as one wake may have, or settle such a claim."""

    def make(server: WatchedServer) -> Request:
        creation(WAKE)(server)()
        _fill(server, WAKE, b"1", "POST")
        if call is None:
            return lambda: len(_call(server, "POST", "/claim", {"worker": "w"}).content)
        claimed = _call(server, "POST", "/claim", {"worker": "w"}).json()
        return lambda: len(call(server, claimed).request.content)

    return make


def _ack(server: WatchedServer, claimed: dict[str, Any]) -> httpx.Response:
    acks = [{"stream": one["path"], "offset": one["tail_offset"]} for one in claimed["streams"]][:600]
    body = {"wake_id": claimed["wake_id"], "generation": claimed["generation"], "acks": acks, "done": True}
    return _call(server, "POST", "/ack", body, claimed["token"])


CASES = [
    Case(HTTP, f"{MATCHED:,} streams of a pattern", "create its subscription", creation(MATCHED)),
    Case(HTTP, f"{MATCHED:,} streams of a pattern", "record of its subscription", record(MATCHED)),
    Case(HTTP, "1,000 explicit streams", "create a subscription of them", explicit("PUT", "")),
    Case(HTTP, "1,000 explicit streams", "add them", explicit("POST", "/streams")),
    Case(HTTP, "1,000 streams of a wake", "claim", woken(None)),
    Case(HTTP, "body of 256 KiB", "acks of 600 long names", woken(_ack)),
]
