"""A closed connection frees its memory at once: nothing that it has read waits for a garbage collection.

A server collects rarely, so a cycle of references would keep the head of every closed connection, 64 KiB each.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from h2.config import H2Configuration
from h2.connection import H2Connection

from semel.server.process import ServerProcess
from semel.server.settings import ServerSettings
from semel.server.settings_loader import make_settings
from tests.harness.server import HOST

CONNECTIONS = 5
MOST_LOOKS = 100
"""How often a test looks whether the server has seen the ends, 20 ms apart."""
PAD = b"X-Pad: " + b"p" * 40_000 + b"\r\n"
"""A head that is large, and within the limit."""
OWNERS = ("semel.server.", "semel.surfaces.", "websockets.", "h2.", "hpack.", "httptools.")
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
LINES = b"".join(b"X-Pad-%d: %b\r\n" % (number, b"p" * 6_000) for number in range(6))
"""The same in lines of a length that a handshake may have."""
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n" + JSON + b"\r\n"


def head(line: bytes, *more: bytes) -> bytes:
    return line + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(more)


def grpc(path: str, body: bytes | None, *, is_last: bool = True) -> bytes:
    """A call with large metadata, as the first bytes of a connection; without a path none."""
    client = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    client.initiate_connection()
    if path:
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "a", "te": "trailers"}
        more = {"content-type": "application/grpc", **{f"x-pad-{number}": "p" * 1_000 for number in range(6)}}
        client.send_headers(1, [*fields.items(), *more.items()])
        if body is not None:
            client.send_data(1, bytes(1) + len(body).to_bytes(4) + body, end_stream=is_last)
    return client.data_to_send()


def event_frame() -> bytes:
    """A `connect` message, masked."""
    text = (
        b'{"type":"connect","msg_id":"1","timestamp":0,"protocol_version":"1.0",'
        b'"payload":{"token":"t","client_id":"c"}}'
    )
    return bytes((0x81, 0xFE)) + len(text).to_bytes(2) + bytes(4) + text


READ = head(b"GET /v1/stream/none")
SENT: dict[str, list[bytes]] = {
    "nothing": [],
    "half a head": [READ + PAD],
    "half a head in pieces": [READ, PAD, PAD],
    "a head too large": [READ + PAD + PAD],
    "a malformed head": [READ + PAD + b"bad\x00\r\n\r\n"],
    "two hosts": [READ + PAD + b"Host: b\r\n\r\n"],
    "one request": [READ + PAD + b"\r\n"],
    "requests that are kept alive": [READ + PAD + b"\r\n"] * 3,
    "pipelined requests": [(READ + PAD + b"\r\n") * 3],
    "a refused method": [head(b"BREW /v1/stream/none") + PAD + b"\r\n"],
    "a last request": [READ + PAD + b"Connection: close\r\n\r\n"],
    "a created stream": [head(b"PUT /v1/stream/s", PAD, JSON, b"Content-Length: 2\r\n\r\n[]")],
    "an append": [head(b"POST /v1/stream/s", PAD, JSON, b"Content-Length: 1\r\n\r\n1")] * 2,
    "a keyed append": [
        head(
            b"POST /v1/stream/s", b"Idempotency-Key: k\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n1"
        )
    ]
    * 3,
    "half a body": [head(b"POST /v1/stream/s", PAD, JSON, b"Content-Length: 9\r\n\r\n1")],
    "a chunked body": [head(b"POST /v1/stream/s", PAD, CHUNKED, b"1\r\n1\r\n0\r\n\r\n")],
    "half a chunked body": [head(b"POST /v1/stream/s", PAD, CHUNKED, b"1\r\n1\r\n")],
    "a broken chunk": [head(b"POST /v1/stream/s", PAD, CHUNKED, b"1\r\n1\r\nzz\r\n")],
    "a body that is awaited": [
        head(
            b"POST /v1/stream/s",
            PAD,
            JSON,
            b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n",
        )
    ],
    "a long poll": [head(b"GET /v1/stream/s?offset=now&live=long-poll", PAD, b"\r\n")],
    "an event stream of a stream": [head(b"GET /v1/stream/s?offset=now&live=sse", PAD, b"\r\n")],
    "an event stream of events": [head(b"GET /v1/events?partition=p", PAD, b"Accept: text/event-stream\r\n\r\n")],
    "an event that is submitted": [head(b"POST /v1/events", PAD, JSON, b"Content-Length: 2\r\n\r\n{}")],
    "a job claim that waits": [
        head(b"POST /v1/jobs/claim", PAD, JSON, b"Content-Length: 34\r\n\r\n")
        + b'{"worker_id": "w", "wait_ms": 9000}'[:34]
    ],
    "a WebSocket": [head(b"GET /v1/events", UPGRADE, LINES, b"\r\n"), event_frame()],
    "a WebSocket of deltas": [head(b"GET /v1/sync/g/ws", UPGRADE, LINES, b"\r\n")],
    "a WebSocket that sends half a frame": [head(b"GET /v1/events", UPGRADE, LINES, b"\r\n"), event_frame()[:40]],
    "a WebSocket that sends a broken frame": [head(b"GET /v1/events", UPGRADE, LINES, b"\r\n"), b"\xff" * 20],
    "a handshake that is refused": [head(b"GET /v1/events", UPGRADE, LINES, b"Origin: http://foreign.test\r\n\r\n")],
    "a handshake with a long line": [head(b"GET /v1/events", UPGRADE, PAD, b"\r\n")],
    "gRPC without a call": [grpc("", None)],
    "a gRPC call": [grpc("/ledger.v1.HealthService/Check", b"")],
    "half a gRPC call": [grpc("/ledger.v1.HealthService/Check", None)],
    "an unknown gRPC call": [grpc("/ledger.v1.None/None", b"")],
    "a gRPC stream that waits": [grpc("/ledger.v1.WriteService/StreamWrites", None)],
    "a malformed gRPC message": [grpc("/ledger.v1.WriteService/Write", b"\xff\xff")],
    "a gRPC health watch": [grpc("/grpc.health.v1.Health/Watch", b"", is_last=True)],
    "a broken preface of gRPC": [b"GET / HTTP/1.1\r\n" + PAD],
}


class QuietProcess(ServerProcess):
    """A server that is stopped by its test, not by a signal."""

    async def serve(self) -> None:
        await self._serve()

    def stop(self) -> None:
        self._stop.set()


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """The ports of HTTP and gRPC of a server on this loop."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def announce(number: int, settings: ServerSettings) -> None:
        port.set_result(number)

    with socket.create_server((HOST, 0)) as free:
        grpc_port = free.getsockname()[1]
    settings = make_settings(store=f"sqlite:{folder}", data=str(folder), port=0, ledger_grpc_port=grpc_port)
    process = QuietProcess(settings, announce, lambda point: None)
    running = asyncio.create_task(process.serve())
    try:
        yield await asyncio.wait_for(port, 60), grpc_port
    finally:
        process.stop()
        await running


def living() -> Counter[str]:
    """The objects of servers and their libraries that a collector knows, by class."""
    classes = Counter(type(one) for one in gc.get_objects())
    return Counter({f"{kind.__module__}.{kind.__qualname__}": number for kind, number in classes.items()})


async def exchange(port: int, pieces: list[bytes], *, is_reset: bool = False) -> None:
    """One connection that sends these pieces, reads what comes, and is closed or reset by the client."""
    reader, writer = await asyncio.open_connection(HOST, port)
    with suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(65_536), 0.05)
        if is_reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()
        await writer.wait_closed()


def run(main: Callable[[], Coroutine[Any, Any, None]], loop: str) -> None:
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if loop == "uvloop":
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@pytest.mark.parametrize(("loop", "is_reset"), [("uvloop", True), ("asyncio", False)])
def test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector(
    loop: str, is_reset: bool, tmp_path: Path
) -> None:
    left: dict[str, dict[str, int]] = {}

    async def main() -> None:
        async with serving(tmp_path / "data") as (port, grpc_port):
            for _ in range(2):  # the first round fills caches
                for name, pieces in SENT.items():
                    at = grpc_port if "gRPC" in name else port
                    left[name] = await left_behind(at, pieces, is_reset=is_reset)

    run(main, loop)
    assert {name: kinds for name, kinds in left.items() if kinds} == {}


async def left_behind(port: int, pieces: list[bytes], *, is_reset: bool) -> dict[str, int]:
    """Objects by class that are still there when some connections have ended; none may be there for each of them."""
    gc.collect()
    gc.disable()
    try:
        before, found = living(), dict[str, int]()
        await asyncio.gather(*(exchange(port, pieces, is_reset=is_reset) for _ in range(CONNECTIONS)))
        for _ in range(MOST_LOOKS):
            more = living() - before
            found = {kind: count for kind, count in more.items() if kind.startswith(OWNERS) and count >= CONNECTIONS}
            if not found:
                break
            await asyncio.sleep(0.02)
        return found
    finally:
        gc.enable()
