"""Streams and the law of the event loop: no request holds it for long or takes much memory, however it is shaped."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.law.rig import HOLD_MS, MIB, WatchedServer, watched

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
BODY = 16 * MIB


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WatchedServer]:
    with watched(tmp_path) as running:
        yield running


def filled(beginning: bytes, unit: bytes, end: bytes, size: int = BODY) -> bytes:
    """A body of about this size."""
    return beginning + unit * ((size - len(beginning) - len(end)) // len(unit)) + end


APPENDS = {
    "zeros": (filled(b"[", b"0,", b"0]"), 413),
    "lists in one message": (filled(b"[[", b"[],", b"0]]"), 204),
    "deep lists": (filled(b"[[", b"[" * 60 + b"]" * 60 + b",", b"0]]"), 204),
    "members": (filled(b"[{", b'"a":1,', b'"a":1}]'), 204),
    "escapes": (filled(b'["', rb"\n", b'"]'), 204),
    "spaces": (filled(b"[[", b" 0 ,", b"0]]"), 204),
    "a wide string": (filled(b'["', b"a", '\U0001f600"]'.encode()), 204),
}


@pytest.mark.parametrize("shape", APPENDS)
def test_a2_a_json_append_of_16_mib_does_not_hold_the_loop(server: WatchedServer, shape: str) -> None:
    body, status = APPENDS[shape]
    url = f"{server.url}/v1/stream/large"
    httpx.put(url, headers=JSON).raise_for_status()
    answers: list[int] = []
    cost = server.cost_of(lambda: answers.append(httpx.post(url, content=body, headers=JSON, timeout=120).status_code))
    assert answers == [status]
    assert cost.hold_ms < HOLD_MS
    assert cost.memory_bytes < cost.allowed_bytes(len(body))


def test_a2_an_append_to_no_stream_is_refused_before_it_is_split(server: WatchedServer) -> None:
    body = filled(b"[[", b"[],", b"0]]")
    answers: list[int] = []
    url = f"{server.url}/v1/stream/nowhere"
    spent = server.cpu_seconds
    cost = server.cost_of(lambda: answers.append(httpx.post(url, content=body, headers=JSON, timeout=120).status_code))
    assert answers == [404]
    assert cost.hold_ms < HOLD_MS
    assert server.cpu_seconds - spent < 0.5  # to split it takes four times as long


def test_a2_more_messages_than_allowed_are_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    with watched(tmp_path, STREAMS_MAX_MESSAGES="1000", STORE="memory:") as server:
        url = f"{server.url}/v1/stream/many"
        assert httpx.put(url, headers=JSON, content=b"[" + b",".join([b"1"] * 1_000) + b"]").status_code == 201
        for message in (b"1", b"[1]", b'"' + b"a" * 1_000 + b'"'):
            refused = httpx.post(url, headers=JSON, content=b"[" + b",".join([message] * 1_001) + b"]")
            problem = refused.json()
            assert (refused.status_code, problem["code"]) == (413, "PAYLOAD_TOO_LARGE")
            assert "1000 messages" in problem["detail"]
        assert len(httpx.get(url).json()) == 1_000
        assert httpx.post(url, headers=JSON, content=b"[" + b",".join([b"2"] * 1_000) + b"]").status_code == 204


READERS = 10


def test_a1_ten_event_streams_of_16_mib_of_line_ends_do_not_hold_the_loop(server: WatchedServer) -> None:
    url = f"{server.url}/v1/stream/lines"
    httpx.put(url, headers=TEXT).raise_for_status()
    httpx.post(url, headers=TEXT, content=b"\n" * BODY, timeout=120).raise_for_status()
    httpx.post(url, headers={"Stream-Closed": "true"}).raise_for_status()

    def read(_: int) -> int:
        with httpx.stream("GET", url, params={"offset": "-1", "live": "sse"}, timeout=120) as events:
            return sum(map(len, events.iter_raw()))

    def read_together() -> None:
        with ThreadPoolExecutor(READERS) as pool:
            sizes.update(pool.map(read, range(READERS)))

    sizes: set[int] = set()
    cost = server.cost_of(read_together)
    assert len(sizes) == 1
    assert sizes.pop() > len(b"data:\n") * BODY
    assert cost.hold_ms < HOLD_MS
    assert cost.memory_bytes < READERS * cost.allowed_bytes(BODY) / 4  # what they share is not there ten times


@pytest.mark.parametrize("mode", [{}, {"live": "long-poll"}])
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a1_a_page_of_16_mib_does_not_hold_the_loop(server: WatchedServer, kind: str, mode: dict[str, str]) -> None:
    url = f"{server.url}/v1/stream/page"
    body = filled(b"[[", b"[],", b"0]]")
    httpx.put(url, headers={"Content-Type": kind}).raise_for_status()
    httpx.post(url, headers={"Content-Type": kind}, content=body, timeout=120).raise_for_status()
    sizes: list[int] = []

    def read() -> None:
        answer = httpx.get(url, params={"offset": "-1"} | mode, timeout=120)
        sizes.append(len(answer.content))

    cost = server.cost_of(read)
    assert sizes == [len(body)]
    assert cost.hold_ms < HOLD_MS
    assert cost.memory_bytes < cost.allowed_bytes(len(body))
