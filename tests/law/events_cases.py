"""Events: messages and bodies of 1 MiB, pages of 1 MiB, and live events."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request, filled, nested
from tests.law.rig import MIB, WatchedServer

LARGEST = MIB - 2_048
"""Of the events: what is left of a message is its envelope."""
ITEMS = 100


def items(event: bytes, count: int = 1, partitions: int = 1) -> bytes:
    """Items with events of this text."""
    names = json.dumps([f"{number:0>128}" for number in range(partitions)]).encode()
    each = b'{"id":"%d","partitions":%s,"event":{"type":"event","payload":%s}}'
    return b"[" + b",".join(each % (number, names, event) for number in range(count)) + b"]"


def envelope(kind: str, payload: bytes) -> str:
    """One message of the server's own dialect."""
    head = {"type": kind, "msg_id": "m", "timestamp": 1, "protocol_version": "1.0"}
    return json.dumps(head)[:-1] + ',"payload":' + payload.decode() + "}"


def connected(server: WatchedServer) -> ClientConnection:
    """A connection that may submit."""
    socket = connect(f"{server.url.replace('http', 'ws')}/v1/events", max_size=None)
    socket.send(envelope("connect", b'{"token":"t","client_id":"default"}'))
    assert json.loads(socket.recv(PATIENCE_SECONDS))["type"] == "connected"
    return socket


def by_socket(events: bytes) -> Make:
    """Submit over WebSocket."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            message = envelope("submit_events", b'{"events":' + events + b"}")
            with connected(server) as socket:
                socket.send(message)
                answer = json.loads(socket.recv(PATIENCE_SECONDS))
                assert answer["type"] in ("submit_events_result", "error"), answer
            return len(message)

        return request

    return make


def by_post(events: bytes) -> Make:
    """Submit with POST."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            body = b'{"events":' + events + b"}"
            answer = httpx.post(f"{server.url}/v1/events", content=body, headers=JSON, timeout=PATIENCE_SECONDS)
            assert answer.status_code in (200, 400), answer.text
            return len(body)

        return request

    return make


def stored(server: WatchedServer, events: bytes, times: int = 1) -> None:
    """Events that are there."""
    for turn in range(times):
        body = b'{"events":' + events.replace(b'{"id":"', b'{"id":"%d-' % turn) + b"}"
        answer = httpx.post(f"{server.url}/v1/events", content=body, headers=JSON, timeout=PATIENCE_SECONDS)
        assert all(one["status"] == "committed" for one in answer.json()["results"]), answer.text


def page(events: bytes, times: int) -> Make:
    """A page of the log over HTTP."""

    def make(server: WatchedServer) -> Request:
        stored(server, events, times)

        def request() -> int:
            asked: dict[str, Any] = {"partition": f"{0:0>128}", "since": 0, "limit": 1_000}
            answer = httpx.get(f"{server.url}/v1/events", params=asked, timeout=PATIENCE_SECONDS)
            assert answer.json()["events"], answer.text
            return len(answer.content)

        return request

    return make


def sync(events: bytes, times: int, partitions: int = 1) -> Make:
    """A page of the log over WebSocket."""

    def make(server: WatchedServer) -> Request:
        stored(server, events, times)
        names = json.dumps([f"{number:0>128}" for number in range(partitions)]).encode()

        def request() -> int:
            with connected(server) as socket:
                asked = b'{"partitions":' + names + b',"since_committed_id":0,"limit":1000}'
                socket.send(envelope("sync", asked))
                answer = socket.recv(PATIENCE_SECONDS)
                assert json.loads(answer)["type"] == "sync_response"
                return len(answer)

        return request

    return make


def tail(events: bytes) -> Make:
    """An event stream that is sent what another client submits."""

    def make(server: WatchedServer) -> Request:
        def read() -> int:
            asked = {"partition": f"{0:0>128}", "since": "0"}
            accept = {"Accept": "text/event-stream"}
            size = 0
            url = f"{server.url}/v1/events"
            with httpx.stream("GET", url, params=asked, headers=accept, timeout=PATIENCE_SECONDS) as answer:
                assert answer.headers["Content-Type"].startswith("text/event-stream"), answer.read()
                for piece in answer.iter_raw():
                    size += len(piece)
                    if size >= len(events) // 2:
                        return size
            return size

        def request() -> int:
            with ThreadPoolExecutor(1) as pool:
                reader = pool.submit(read)
                stored(server, events)
                return max(reader.result(), len(events))

        return request

    return make


MESSAGE = "message of 1 MiB"
PAGE = "page of 1 MiB"
EACH = LARGEST // ITEMS - 250
SHAPES = {
    "100 items": items(filled(b"[", b"0,", b"0]", EACH), ITEMS),
    "64 partitions an item": items(b'"' + b"a" * 1_200 + b'"', ITEMS, 64),
    "one event of zeros": items(filled(b"[", b"0,", b"0]", LARGEST)),
    "one event of lists": items(filled(b"[", b"[],", b"0]", LARGEST)),
    "one event of deep lists": items(filled(b"[", nested(58) + b",", b"0]", LARGEST)),
    "one event of members": items(b"{" + b",".join(b'"%x":1' % number for number in range(105_000)) + b"}"),
    "one event of escapes": items(filled(b'"', rb"\u00e9", b'"', LARGEST)),
    "one event of doubles": items(filled(b"[", b"1.5,", b"0]", LARGEST)),
    "one event of long integers": items(filled(b"[", b"9" * 30 + b",", b"0]", LARGEST)),
    "one name twice": items(filled(b"{", b'"a":1,', b'"a":1}', LARGEST)),
}
QUICK = "one event of long integers"

CASES = [
    *(Case("events, WebSocket", MESSAGE, shape, by_socket(sent), shape == QUICK) for shape, sent in SHAPES.items()),
    *(Case("events, HTTP", MESSAGE, shape, by_post(sent)) for shape, sent in SHAPES.items()),
    Case("events, HTTP", PAGE, "one event of lists", page(SHAPES["one event of lists"], 1)),
    Case("events, HTTP", PAGE, "1,000 events", page(items(filled(b"[", b"0,", b"0]", 600), ITEMS), 10), is_quick=True),
    Case("events, WebSocket", PAGE, "1,000 events", sync(items(filled(b"[", b"0,", b"0]", 600), ITEMS), 10)),
    Case("events, WebSocket", PAGE, "1,000 events of 64 partitions", sync(items(b"0", ITEMS, 64), 10, 64)),
    Case("events, HTTP", "live events", "one event of lists", tail(SHAPES["one event of lists"])),
    Case("events, HTTP", "live events", "100 items", tail(SHAPES["100 items"])),
]
