"""Deltas: pushes of 1 MiB and of 10,000 deltas over both wires, rows of 2 MiB, pages of 8 MiB, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import orjson
from websockets.sync.client import ClientConnection, connect

from semel.surfaces.deltas.proto.sync_pb2 import SyncPull, SyncPush
from tests.deltas.binary.caller import PULL, PUSH, row_delta
from tests.deltas.vectors import delta, now_ms, stamp
from tests.law.case import JSON, PATIENCE_SECONDS, Case, Make, Request, later
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


def by_http(deltas: Deltas, before: Sequence[Deltas] = ()) -> Make:
    """Push over HTTP, to a gateway that has something."""

    def make(server: WatchedServer) -> Request:
        fill(server, before)
        return lambda: push(server, deltas)

    return make


def body_by_http(body: bytes, status: int = 200) -> Make:
    """Push a body as it stands."""

    def make(server: WatchedServer) -> Request:
        def request() -> int:
            url = f"{server.url}/v1/sync/law/push"
            answer = httpx.post(url, content=body, headers=JSON, timeout=PATIENCE_SECONDS)
            assert answer.status_code == status, answer.text[:500]
            return len(body)

        return request

    return make


def fill(server: WatchedServer, pushes: Sequence[Deltas]) -> None:
    """What is there before; a fresh process has no memory to spare from it."""
    for deltas in pushes:
        push(server, deltas)
    if pushes:
        server.restart()


def socket_of(server: WatchedServer, client: str) -> ClientConnection:
    """A WebSocket of a client."""
    return connect(f"{server.url.replace('http', 'ws')}/sync/law/ws?clientId={client}", max_size=None)


def by_socket(deltas: Deltas, before: Sequence[Deltas] = ()) -> Make:
    """Push over WebSocket."""

    def make(server: WatchedServer) -> Request:
        told = [row_delta(one) for one in deltas]
        for row, one in zip(told, deltas, strict=True):
            for column, sent in zip(row.columns, one["columns"], strict=True):
                column.value = orjson.dumps(sent["value"])
        frame = PUSH + SyncPush(client_id="a", deltas=told).SerializeToString()
        assert len(frame) <= MIB
        fill(server, before)

        def request() -> int:
            with socket_of(server, "a") as socket:
                socket.send(frame)
                socket.recv(PATIENCE_SECONDS)
            return len(frame)

        return request

    return make


def pull(pushes: Sequence[Deltas], wire: str) -> Make:
    """A page as large as one may be."""

    def make(server: WatchedServer) -> Request:
        fill(server, pushes)

        def by_get() -> int:
            asked = {"since": "0", "clientId": "b", "limit": "10000"}
            answer = httpx.get(f"{server.url}/v1/sync/law/pull", params=asked, timeout=PATIENCE_SECONDS)
            assert answer.json()["deltas"], answer.text[:500]
            return len(answer.content)

        def by_frame() -> int:
            with socket_of(server, "b") as socket:
                socket.send(PULL + SyncPull(client_id="b", since_hlc=0, max_deltas=10_000).SerializeToString())
                return len(socket.recv(PATIENCE_SECONDS))

        return by_get if wire == "HTTP" else by_frame

    return make


def broadcast(deltas: Deltas) -> Make:
    """What one client pushes, and another is told without asking."""

    def make(server: WatchedServer) -> Request:
        push(server, deltas_of(1, [{"column": "c", "value": 1}], client="z", part=99), "z")
        body = body_of(deltas)

        def request() -> int:
            with socket_of(server, "b") as socket:
                socket.send(PULL + SyncPull(client_id="b", since_hlc=0, max_deltas=10_000).SerializeToString())
                socket.recv(PATIENCE_SECONDS)
                push(server, deltas)
                return max(len(body), len(socket.recv(PATIENCE_SECONDS)))

        return request

    return make


def checkpoint(pushes: Sequence[Deltas]) -> Make:
    """A checkpoint of rows."""

    def make(server: WatchedServer) -> Request:
        fill(server, pushes)

        def request() -> int:
            url = f"{server.url}/v1/sync/law/checkpoint"
            answer = httpx.get(url, params={"clientId": "b"}, timeout=PATIENCE_SECONDS)
            assert answer.status_code == 200, answer.text[:500]
            return len(answer.content)

        return request

    return make


def cells(count: int, size: int) -> list[dict[str, Any]]:
    """Columns of a row."""
    return [{"column": f"c{number}", "value": "v" * size} for number in range(count)]


def value(made: Any, part: int = 0) -> Deltas:
    """One row of one value."""
    return deltas_of(1, [{"column": "c", "value": made}], part=part)


def deep(levels: int) -> Any:
    """Arrays inside of arrays."""
    made: Any = 0
    for _ in range(levels):
        made = [made]
    return made


FILL = LARGEST - 1_000
ONE_CELL = [{"column": "c", "value": 1}]


def lists() -> list[Any]:
    """As many empty lists as fit in a push."""
    return [[] for _ in range(340_000)]


def deletes(count: int) -> Deltas:
    """The smallest deltas."""
    start = now_ms() - 60_000
    return [
        delta("DELETE", [], row=f"{number:x}", client="a", hlc=stamp(start, number), table="t")
        for number in range(count)
    ]


def large_row() -> list[Deltas]:
    """Two pushes that make a row of almost 2 MiB."""
    return [deltas_of(1, cells(900, 1_000), part=0), deltas_of(1, [{"column": "d", "value": "v" * FILL}], part=0)]


def strange_body() -> bytes:
    """Members that no push has."""
    return body_of([])[:-1] + b"," + b",".join(b'"%x":1' % number for number in range(100_000)) + b"}"


VALUES: dict[str, Callable[[], Any]] = {
    "lists": lists,
    "deep lists": lambda: [deep(55) for _ in range(9_000)],
    "members": lambda: {f"{number:x}": 1 for number in range(100_000)},
    "doubles": lambda: [1.5] * 250_000,
    "one wide character": lambda: "v" * (FILL - 8) + "\U0001f600",
    "escapes": lambda: "\\" * (FILL // 2 - 8),
}
PUSHED, PULLED = "push of 1 MiB", "page of 10,000 entries or 8 MiB"
HTTP, SOCKET = "deltas, HTTP", "deltas, WebSocket"


def valued(shape: str, count: int = 1) -> list[Deltas]:
    """Pushes of one row each with a value of this shape."""
    return [value(VALUES[shape](), part) for part in range(count)]


def one_value(make: Callable[[Deltas], Make], shape: str) -> Make:
    """One push of a value of this shape."""
    return later(lambda: make(valued(shape)[0]))


def many() -> Deltas:
    """As many small inserts as fit in a push."""
    return deltas_of(5_000, ONE_CELL)


def wide() -> Deltas:
    """Rows of 1,000 columns."""
    return deltas_of(25, cells(1_000, 8))


def pages() -> list[Deltas]:
    """Pushes of 13,200 small rows."""
    return [deltas_of(3_300, ONE_CELL, part=part) for part in range(4)]


def heavy() -> list[Deltas]:
    """Pushes of one large text each."""
    return [value("v" * FILL, part) for part in range(8)]


def large_rows() -> list[Deltas]:
    """Pushes of one row of almost 1 MiB each."""
    return [deltas_of(1, cells(900, 1_000), part=part) for part in range(16)]


def sixteen() -> Deltas:
    """One more cell for each of those rows."""
    return [one for part in range(16) for one in value(1, part)]


# Each is made when it is measured: all of them at once would be in the memory of every process that collects tests.
CASES = [
    Case(HTTP, "as many deltas as fit in a push", "small inserts", later(lambda: by_http(many())), is_quick=True),
    Case(SOCKET, "10,000 deltas of a push", "deletes", later(lambda: by_socket(deletes(10_000))), is_quick=True),
    Case(SOCKET, "as many deltas as fit in a push", "small inserts", later(lambda: by_socket(many()))),
    Case(HTTP, "as many deltas as fit in a push", "again", later(lambda: by_http(sent := many(), [sent]))),
    Case(HTTP, "1,000 columns of a delta", "25 rows", later(lambda: by_http(wide()))),
    Case(SOCKET, "1,000 columns of a delta", "25 rows", later(lambda: by_socket(wide()))),
    *(Case(HTTP, PUSHED, f"one value: {shape}", one_value(by_http, shape)) for shape in VALUES),
    *(Case(SOCKET, PUSHED, f"one value: {shape}", one_value(by_socket, shape)) for shape in VALUES),
    Case(HTTP, PUSHED, "members that are not known", later(lambda: body_by_http(strange_body()))),
    Case(HTTP, "row of 2 MiB", "one more column", later(lambda: by_http(value(1), large_row()))),
    Case(HTTP, "row of 2 MiB", "16 rows of 1 MiB", later(lambda: by_http(sixteen(), large_rows()))),
    Case(HTTP, PULLED, "10,000 small entries", later(lambda: pull(pages(), "HTTP")), is_quick=True),
    Case(HTTP, PULLED, "8 entries of 1 MiB", later(lambda: pull(heavy(), "HTTP"))),
    Case(HTTP, PULLED, "8 entries of lists", later(lambda: pull(valued("lists", 8), "HTTP"))),
    Case(
        HTTP,
        PULLED,
        "8 entries with a wide character",
        later(lambda: pull(valued("one wide character", 8), "HTTP")),
    ),
    Case(SOCKET, PULLED, "10,000 small entries", later(lambda: pull(pages(), "WebSocket"))),
    Case(SOCKET, PULLED, "8 entries of 1 MiB", later(lambda: pull(heavy(), "WebSocket"))),
    Case(SOCKET, PULLED, "8 entries of lists", later(lambda: pull(valued("lists", 8), "WebSocket"))),
    Case(
        SOCKET,
        PULLED,
        "8 entries with a wide character",
        later(lambda: pull(valued("one wide character", 8), "WebSocket")),
    ),
    Case(SOCKET, "broadcast", "5,000 small entries", later(lambda: broadcast(many()))),
    Case(SOCKET, "broadcast", "an entry of lists", later(lambda: broadcast(*valued("lists")))),
    Case(HTTP, "checkpoint", "13,200 rows", later(lambda: checkpoint(pages()))),
    Case(HTTP, "checkpoint", "16 rows of 1 MiB", later(lambda: checkpoint(large_rows()))),
]
