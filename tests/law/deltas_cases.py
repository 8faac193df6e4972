"""Deltas: pushes of 1 MiB over both wires, pulls of 10,000 entries and of 8 MiB, checkpoints."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
from websockets.sync.client import connect

from semel.server.deltas.proto.sync_pb2 import SyncPull, SyncPush
from tests.deltas.vectors import delta, now_ms, stamp
from tests.deltas_binary.caller import PULL, PUSH, row_delta
from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request
from tests.law.rig import MIB, WatchedServer

LARGEST = MIB - 2_048
Deltas = list[dict[str, Any]]


def deltas_of(count: int, cells: list[dict[str, Any]], client: str = "a", rows: int = 10**9, part: int = 0) -> Deltas:
    """Inserts of rows that all have these cells."""
    start = now_ms() - 60_000
    return [
        delta(
            "INSERT", cells, row=f"{part}-{number % rows}", client=client, hlc=stamp(start, number % 60_000), table="t"
        )
        for number in range(count)
    ]


def body_of(deltas: Deltas, client: str = "a") -> bytes:
    """A push as JSON."""
    return orjson.dumps({"clientId": client, "deltas": deltas})


def push(server: WatchedServer, deltas: Deltas, client: str = "a") -> int:
    """Push over HTTP; how large it was."""
    body = body_of(deltas, client)
    url = f"{server.url}/v1/sync/law/push"
    answer = httpx.post(url, content=body, headers=JSON, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200, answer.text[:500]
    return len(body)


def by_http(deltas: Deltas) -> Make:
    """Push over HTTP."""
    return lambda server: lambda: push(server, deltas)


def by_socket(deltas: Deltas) -> Make:
    """Push over WebSocket."""

    def make(server: WatchedServer) -> Request:
        frame = PUSH + SyncPush(client_id="a", deltas=[row_delta(one) for one in deltas]).SerializeToString()

        def request() -> int:
            url = f"{server.url.replace('http', 'ws')}/sync/law/ws?clientId=a"
            with connect(url, max_size=None) as socket:
                socket.send(frame)
                socket.recv(PATIENCE_SECONDS)
            return len(frame)

        return request

    return make


def pull(pushes: list[Deltas], wire: str) -> Make:
    """A page as large as one may be."""

    def make(server: WatchedServer) -> Request:
        for deltas in pushes:
            push(server, deltas)

        def by_get() -> int:
            asked = {"since": "0", "clientId": "b", "limit": "10000"}
            answer = httpx.get(f"{server.url}/v1/sync/law/pull", params=asked, timeout=PATIENCE_SECONDS)
            assert answer.json()["deltas"], answer.text[:500]
            return len(answer.content)

        def by_frame() -> int:
            url = f"{server.url.replace('http', 'ws')}/sync/law/ws?clientId=b"
            with connect(url, max_size=None) as socket:
                socket.send(PULL + SyncPull(client_id="b", since_hlc=0, max_deltas=10_000).SerializeToString())
                return len(socket.recv(PATIENCE_SECONDS))

        return by_get if wire == "HTTP" else by_frame

    return make


def checkpoint(pushes: list[Deltas]) -> Make:
    """A checkpoint of rows."""

    def make(server: WatchedServer) -> Request:
        for deltas in pushes:
            push(server, deltas)

        def request() -> int:
            url = f"{server.url}/v1/sync/law/checkpoint"
            answer = httpx.get(url, params={"clientId": "b"}, timeout=PATIENCE_SECONDS)
            assert answer.status_code in (200, 404), answer.text[:500]
            return len(answer.content)

        return request

    return make


def cells(count: int, size: int) -> list[dict[str, Any]]:
    """Columns of a row."""
    return [{"column": f"c{number}", "value": "v" * size} for number in range(count)]


LISTS: list[Any] = [[] for _ in range(250_000)]
MANY = deltas_of(3_500, [{"column": "c", "value": 1}])
WIDE = deltas_of(20, cells(900, 20))
ONE = deltas_of(1, [{"column": "c", "value": LISTS}])
PAGES = [deltas_of(3_300, [{"column": "c", "value": 1}], part=part) for part in range(3)]
HEAVY = [deltas_of(1, [{"column": "c", "value": "v" * (LARGEST - 1_000)}], part=part) for part in range(8)]
PUSHED, PULLED = "push of 1 MiB", "page of 10,000 entries or 8 MiB"

CASES = [
    Case("deltas, HTTP", PUSHED, "3,500 small deltas", by_http(MANY), is_quick=True),
    Case("deltas, HTTP", PUSHED, "20 rows of 900 columns", by_http(WIDE)),
    Case("deltas, HTTP", PUSHED, "one value of lists", by_http(ONE)),
    Case("deltas, WebSocket", PUSHED, "3,500 small deltas", by_socket(MANY), is_quick=True),
    Case("deltas, WebSocket", PUSHED, "20 rows of 900 columns", by_socket(WIDE)),
    Case("deltas, WebSocket", PUSHED, "one value of lists", by_socket(ONE)),
    Case("deltas, HTTP", PULLED, "9,900 small entries", pull(PAGES, "HTTP"), is_quick=True),
    Case("deltas, HTTP", PULLED, "8 entries of 1 MiB", pull(HEAVY, "HTTP")),
    Case("deltas, WebSocket", PULLED, "9,900 small entries", pull(PAGES, "WebSocket")),
    Case("deltas, HTTP", "checkpoint", "9,900 rows", checkpoint(PAGES)),
]
