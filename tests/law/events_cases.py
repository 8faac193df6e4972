"""Events: messages and bodies of 1 MiB in every dialect, pages of 1 MiB, live events, and what surrounds a message."""

from __future__ import annotations

import json
import os
import string
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice, product
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request, filled, in_small_chunks, long_query, nested
from tests.law.rig import MIB, WatchedServer

LARGEST = MIB - 2_048
"""Of the items: what is left of a message is its envelope."""
STORED = 1_005_000
"""Of one event that every reader can be sent: a message less the room for names."""
ITEMS = 100
AT_ONCE = 15_900
"""About the most that is read on the loop, with its envelope."""
NAME = f"{0:0>128}"
"""Of a partition, and as long as one may be."""
SEED, V1, V2 = "seed", "1.3", "2.x"


def items(event: bytes, count: int = 1, partitions: int = 1) -> bytes:
    """Items with events of this payload."""
    names = json.dumps([f"{number:0>128}" for number in range(partitions)]).encode()
    each = b'{"id":"%d","partitions":%s,"event":{"type":"event","payload":%s}}'
    return b"[" + b",".join(each % (number, names, event) for number in range(count)) + b"]"


def placed(names: bytes) -> bytes:
    """One item with a small event, in these partitions."""
    return b'[{"id":"0","partitions":[%s],"event":{"type":"event"}}]' % names


def camel_items(event: bytes, meta: bytes = b'{"clientTs":1}', count: int = 1) -> bytes:
    """The same in the dialects of published clients."""
    each = b'{"id":"%d","partitions":["%s"],"partition":"p","projectId":"%s","type":"event","schemaVersion":1,'
    each += b'"payload":%s,"meta":%s}'
    name = NAME.encode()
    return b"[" + b",".join(each % (number, name, name, event, meta) for number in range(count)) + b"]"


def envelope(kind: str, payload: bytes, dialect: str = SEED, more: bytes = b"") -> str:
    """One message."""
    head = {"type": kind, "msg_id": "m", "timestamp": 1, "protocol_version": "1.0"}
    if dialect != SEED:
        head = {"type": kind, "msgId": "m", "protocolVersion": "1.0"}
    return json.dumps(head)[:-1] + more.decode() + ',"payload":' + payload.decode() + "}"


@contextmanager
def connected(server: WatchedServer, dialect: str = SEED, client: str = "default") -> Iterator[ClientConnection]:
    """A connection that may submit."""
    who = {"token": "t", "client_id": client} if dialect == SEED else {"token": "t", "clientId": client}
    if dialect == V2:
        who["projectId"] = NAME
    with connect(f"{server.url.replace('http', 'ws')}/v1/events", max_size=None) as socket:
        socket.send(envelope("connect", json.dumps(who).encode(), dialect))
        assert json.loads(socket.recv(PATIENCE_SECONDS))["type"] == "connected"
        yield socket


def by_socket(events: bytes, dialect: str = SEED, more: bytes = b"", answer: str = "submit_events_result") -> Make:
    """Submit over WebSocket."""

    def make(server: WatchedServer) -> Request:
        message = envelope("submit_events", b'{"events":' + events + b"}", dialect, more)
        assert len(message) <= MIB

        def request() -> int:
            with connected(server, dialect) as socket:
                socket.send(message)
                told = json.loads(socket.recv(PATIENCE_SECONDS))
                assert told["type"] == answer, told
            return len(message)

        return request

    return make


def many_messages(events: bytes, count: int) -> Make:
    """Messages that arrive while the connection is busy with a request before them."""

    def make(server: WatchedServer) -> Request:
        messages = [
            envelope("submit_events", b'{"events":' + events.replace(b'{"id":"', b'{"id":"%d-' % number) + b"}")
            for number in range(count)
        ]

        def request() -> int:
            with connected(server) as socket:
                socket.send(asked_for(SEED))
                for message in messages:
                    socket.send(message)
                told = [json.loads(socket.recv(PATIENCE_SECONDS))["type"] for _ in range(count + 1)]
                assert told == ["sync_response", *["submit_events_result"] * count], told
            return sum(map(len, messages))

        return request

    return make


def in_tiny_frames(size: int) -> Make:
    """A message of which each byte has a frame."""

    def make(server: WatchedServer) -> Request:
        message = envelope("submit_events", b'{"events":' + items(b'"' + b"a" * size + b'"') + b"}").encode()

        def request() -> int:
            with connected(server) as socket:
                frames = bytearray()
                for place, letter in enumerate(message):
                    key = os.urandom(4)
                    opcode = (0 if place else 1) | (0x80 if place == len(message) - 1 else 0)
                    frames += struct.pack("BB4sB", opcode, 0x81, key, letter ^ key[0])
                socket.socket.sendall(frames)
                assert json.loads(socket.recv(PATIENCE_SECONDS))["type"] == "submit_events_result"
            return len(message)

        return request

    return make


def handshake(headers: dict[str, str]) -> Make:
    """A connection that is made with a large head."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            url = f"{server.url.replace('http', 'ws')}/v1/events"
            with connect(url, additional_headers=headers) as socket:
                socket.ping().wait(PATIENCE_SECONDS)
            return sum(len(name) + len(value) for name, value in headers.items())

        return request

    return make


def by_post(events: bytes, expected: int = 200, more: bytes = b"") -> Make:
    """Submit with POST."""

    def make(server: WatchedServer) -> Request:
        body = b'{"events":' + events + more + b"}"
        assert len(body) <= MIB

        def request() -> int:
            answer = httpx.post(f"{server.url}/v1/events", content=body, headers=JSON, timeout=PATIENCE_SECONDS)
            assert answer.status_code == expected, answer.text
            return len(body)

        return request

    return make


def stored(server: WatchedServer, events: bytes, times: int = 1) -> None:
    """Events that are there."""
    for turn in range(times):
        body = b'{"events":' + events.replace(b'{"id":"', b'{"id":"%d-' % turn) + b"}"
        answer = httpx.post(f"{server.url}/v1/events", content=body, headers=JSON, timeout=PATIENCE_SECONDS)
        assert all(one["status"] == "committed" for one in answer.json()["results"]), answer.text


def page(events: bytes, times: int, query: dict[str, Any] | None = None, *, is_empty: bool = False) -> Make:
    """A page of the log over HTTP."""

    def make(server: WatchedServer) -> Request:
        stored(server, events, times)

        def request() -> int:
            asked: dict[str, Any] = {"partition": NAME, **(query or {"since": 0, "limit": 1_000})}
            answer = httpx.get(f"{server.url}/v1/events", params=asked, timeout=PATIENCE_SECONDS)
            assert bool(answer.json()["events"]) != is_empty, answer.text
            return len(answer.content)

        return request

    return make


def asked_for(dialect: str, partitions: int = 1, types: dict[str, list[str]] | None = None) -> str:
    """A `sync` from the beginning of the log, which also subscribes."""
    names = [f"{number:0>128}" for number in range(partitions)]
    if dialect == V2:
        wanted: dict[str, Any] = {"projectId": NAME, "sinceCommittedId": 0, "limit": 1_000}
    elif dialect == V1:
        wanted = {"partitions": names, "sinceCommittedId": 0, "limit": 1_000}
    else:
        wanted = {"partitions": names, "subscription_partitions": names, "since_committed_id": 0, "limit": 1_000}
        wanted |= types or {}
    return envelope("sync", json.dumps(wanted).encode(), dialect)


def sync(events: bytes, times: int, partitions: int = 1, dialect: str = SEED) -> Make:
    """A page of the log over WebSocket."""

    def make(server: WatchedServer) -> Request:
        stored(server, events, times)

        def request() -> int:
            with connected(server, dialect) as socket:
                socket.send(asked_for(dialect, partitions))
                answer = socket.recv(PATIENCE_SECONDS)
                told = json.loads(answer)
                assert told["type"] == "sync_response", told
                assert told["payload"]["events"]
                return len(answer)

        return request

    return make


def live(events: bytes, dialect: str = SEED, times: int = 1, types: dict[str, list[str]] | None = None) -> Make:
    """A subscriber over WebSocket that is sent what another client submits."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            with connected(server, dialect, "reader") as socket:
                socket.send(asked_for(dialect, types=types))
                assert json.loads(socket.recv(PATIENCE_SECONDS))["type"] == "sync_response"
                stored(server, events, times)
                size = 0
                for _ in range(times * events.count(b'{"id":')):
                    heard = socket.recv(PATIENCE_SECONDS)
                    assert json.loads(heard)["type"] == "event_broadcast"
                    size += len(heard)
                return size + times * len(events)  # two requests at once

        return request

    return make


def tail(events: bytes, *, is_history: bool = False) -> Make:
    """An event stream that is sent what another client submits, or has submitted before."""

    def make(server: WatchedServer) -> Request:
        if is_history:
            stored(server, events)

        def read() -> int:
            accept = {"Accept": "text/event-stream"}
            size = 0
            url, asked = f"{server.url}/v1/events", {"partition": NAME, "since": "0"}
            with httpx.stream("GET", url, params=asked, headers=accept, timeout=PATIENCE_SECONDS) as answer:
                assert answer.headers["Content-Type"].startswith("text/event-stream"), answer.read()
                for piece in answer.iter_raw():
                    size += len(piece)
                    if size >= len(events):
                        return size
            return size

        def request() -> int:
            with ThreadPoolExecutor(1) as pool:
                reader = pool.submit(read)
                if is_history:
                    return reader.result()
                stored(server, events)
                return reader.result() + len(events)  # two requests at once

        return request

    return make


def reading(query: Callable[[], str], headers: dict[str, str] | None = None) -> Make:
    """A GET with a large head, whatever it is answered."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            url = f"{server.url}/v1/events?{query()}"
            answer = httpx.get(url, headers=headers, timeout=PATIENCE_SECONDS)
            assert answer.status_code in (200, 400), answer.text
            return len(url) + sum(map(len, headers or ()))

        return request

    return make


def in_chunks() -> Make:
    """A body of which each byte is a chunk."""
    body = b'{"events":' + items(filled(b"[", b"0,", b"0]", STORED)) + b"}"
    return in_small_chunks("POST", "/v1/events", body, 200)


WS, HTTP, SSE = "events, WebSocket", "events, HTTP", "events, SSE"
LOOP = "16 KiB on the loop"
MESSAGE, PAGE, LIVE, HEAD = "message of 1 MiB", "page of 1 MiB", "live event of 1 MiB", "head of 64 KiB"
EACH = LARGEST // ITEMS - 250
LETTERS = [*string.ascii_letters, *string.digits, "-", "_"]
NAMES = ",".join(f'"{"".join(name)}":1' for name in islice(product(LETTERS, repeat=3), 125_000)).encode()
"""As many members as an event can have: names of three letters."""
SHAPES = {
    "lists": filled(b"[", b"[],", b"0]", STORED),
    "deep lists": filled(b"[", nested(58) + b",", b"0]", STORED),
    "objects": filled(b"[", b"{},", b"0]", STORED),
    "objects of a member": filled(b"[", b'{"":1},', b"0]", STORED),
    "members": b"{" + NAMES + b"}",
    "short strings": filled(b"[", b'"ab",', b"0]", STORED),
    "zeros": filled(b"[", b"0,", b"0]", STORED),
    "doubles": filled(b"[", b"1.5,", b"0]", STORED),
    "whole doubles": filled(b"[", b"1.0,", b"0]", STORED),
    "escapes": filled(b'"', rb"\u00e9", b'"', STORED),
    "one wide letter": filled(b'"', b"a", '\U0001f600"'.encode(), STORED),
    "white space": filled(b"[", b" " * 60 + b"[],", b"0]", STORED),
}
"""Payloads of one event that is committed."""
REFUSED = {
    "long integers": items(filled(b"[", b"9" * 30 + b",", b"0]", LARGEST - 256)),
    "numbers that overflow": items(filled(b"[", b"1e999,", b"0]", LARGEST - 256)),
    "halves of surrogate pairs": items(filled(b'"', rb"\ud800", b'"', LARGEST - 256)),
    "500,000 levels": items(nested((LARGEST - 512) // 2)),
}
"""Items whose answer is a rejection."""
BROKEN = {
    "one name twice": items(filled(b"{", b'"a":1,', b'"a":1}', LARGEST - 256)),
    "lists without an end": items(filled(b"[", b"[],", b"0", LARGEST - 256)),
    "350,000 items": filled(b"[", b"{},", b"{}]", LARGEST - 256),
    "one list of lists for items": filled(b"[", b"[],", b"0]", LARGEST - 256),
}
"""Requests that are refused as a whole."""
MANY = {
    "100 items of zeros": items(filled(b"[", b"0,", b"0]", EACH), ITEMS),
    "100 items of lists": items(filled(b"[", b"[],", b"0]", EACH), ITEMS),
    "64 partitions an item": items(b'"' + b"a" * 1_200 + b'"', ITEMS, 64),
    "one partition 7,000 times": placed(b",".join([b'"%s"' % NAME.encode()] * 7_000)),
    "110,000 partitions": placed(b",".join(b'"%x"' % number for number in range(110_000))),
    "members of an event": items(b"0").replace(b'"type"', NAMES + b',"type"'),
    "members of an item": items(b"0").replace(b'"event"', NAMES + b',"event"', 1),
}
CAMEL = {
    "payload of lists": camel_items(b'{"a":' + SHAPES["lists"] + b"}"),
    "payload of members": camel_items(SHAPES["members"]),
    "meta of members": camel_items(b"{}", b'{"clientTs":1,' + NAMES + b"}"),
    "meta of lists": camel_items(b"{}", b'{"clientTs":1,"a":' + SHAPES["lists"] + b"}"),
}
ON_LOOP = {
    "lists": items(filled(b"[", b"[],", b"0]", AT_ONCE)),
    "members": items(b'{"\\u003a":1,' + NAMES[: AT_ONCE // 8 * 8 - 17] + b"}"),
    "whole doubles": items(filled(b"[", b"1.0,", b"0]", AT_ONCE)),
    "numbers that overflow": items(filled(b"[", b"1e999,", b"0]", AT_ONCE)),
    "halves of surrogate pairs": items(filled(b"[", rb'"\ud800",', b"0]", AT_ONCE)),
    "objects of a member": items(filled(b"[", b'{"\\u003a":1},', b"0]", AT_ONCE)),
}
"""What is read on the loop: with colons in names, the slow way."""
SMALL = items(filled(b"[", b"0,", b"0]", 600), ITEMS)


ALL = {**{f"one event of {shape}": items(sent) for shape, sent in SHAPES.items()}, **REFUSED, **MANY}
QUICK = {WS: {"one event of deep lists", "one event of members"}, HTTP: {"numbers that overflow", "100 items of lists"}}

CASES = [
    *(Case(WS, MESSAGE, shape, by_socket(sent), shape in QUICK[WS]) for shape, sent in ALL.items()),
    *(Case(WS, MESSAGE, shape, by_socket(sent, answer="error")) for shape, sent in BROKEN.items()),
    Case(WS, MESSAGE, "members of the message", by_socket(items(b"0"), more=b"," + NAMES)),
    Case(WS, MESSAGE, "lists in the message", by_socket(items(b"0"), more=b',"a":' + SHAPES["lists"])),
    *(Case(WS, MESSAGE, f"1.3: {shape}", by_socket(sent, V1)) for shape, sent in CAMEL.items()),
    *(Case(WS, MESSAGE, f"2.x: {shape}", by_socket(sent, V2)) for shape, sent in CAMEL.items()),
    Case(WS, MESSAGE, "40,000 frames of one byte", in_tiny_frames(40_000)),
    Case(WS, HEAD, "handshake with 100 headers", handshake({f"x-{n}": "a" * 500 for n in range(100)})),
    *(Case(HTTP, MESSAGE, shape, by_post(sent), shape in QUICK[HTTP]) for shape, sent in ALL.items()),
    *(Case(HTTP, MESSAGE, shape, by_post(sent, 400)) for shape, sent in BROKEN.items()),
    Case(HTTP, MESSAGE, "members of the body", by_post(items(b"0"), more=b"," + NAMES)),
    Case(HTTP, MESSAGE, "chunks of one byte", in_chunks(), is_quick=True),
    Case(HTTP, HEAD, "query of 20,000 fields", reading(lambda: long_query("a&"))),
    Case(HTTP, HEAD, "one long partition", reading(lambda: long_query("%41", "partition="))),
    Case(HTTP, HEAD, "100 headers", reading(lambda: f"partition={NAME}", {f"x-{n}": "a" * 500 for n in range(100)})),
    Case(HTTP, PAGE, "one event of lists", page(items(SHAPES["lists"]), 1)),
    Case(HTTP, PAGE, "1,000 events", page(SMALL, 10), is_quick=True),
    *(
        Case(WS, PAGE, f"{name}: one event of {shape}", sync(items(SHAPES[shape]), 1, dialect=name))
        for name in (SEED, V1, V2)
        for shape in ("deep lists", "members")
    ),
    *(Case(WS, PAGE, f"{dialect}: 1,000 events", sync(SMALL, 10, dialect=dialect)) for dialect in (SEED, V1, V2)),
    *(Case(WS, LOOP, shape, by_socket(sent), shape == "lists") for shape, sent in ON_LOOP.items()),
    *(Case(HTTP, LOOP, shape, by_post(sent), shape == "members") for shape, sent in ON_LOOP.items()),
    Case(WS, LOOP, "60 messages of whole doubles at once", many_messages(ON_LOOP["whole doubles"], 60), is_quick=True),
    Case(WS, LOOP, "1.3: 64 live events of lists", live(ON_LOOP["lists"], V1, 64), is_quick=True),
    Case(WS, PAGE, "1,000 events of 64 partitions", sync(items(b"0", ITEMS, 64), 10, 64)),
    *(
        Case(
            WS,
            LIVE,
            f"{dialect}: one event of {shape}",
            live(items(SHAPES[shape]), dialect),
            (dialect, shape) == (V1, "deep lists"),
        )
        for dialect in (SEED, V1, V2)
        for shape in ("deep lists", "members")
    ),
    Case(WS, LIVE, "1.3: ten events of lists for a reader that is behind", live(items(SHAPES["lists"]), V1, 10)),
    Case(WS, LIVE, "1.3: 100 items of lists", live(MANY["100 items of lists"], V1)),
    Case(WS, LIVE, "100 items of zeros", live(MANY["100 items of zeros"])),
    Case(SSE, LIVE, "one event of lists", tail(items(SHAPES["lists"])), is_quick=True),
    Case(SSE, LIVE, "100 items of zeros", tail(MANY["100 items of zeros"])),
    Case(SSE, "history", "one event of lists", tail(items(SHAPES["lists"]), is_history=True)),
    Case(SSE, "history", "100 items of zeros", tail(MANY["100 items of zeros"], is_history=True)),
]
