"""Bells and streams: they outlive their loop, many open files, and readers that are woken all the time."""

from __future__ import annotations

import asyncio
import fcntl
import re
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.utils import accept_key

from semel.client.access import find_access
from semel.client.errors import NoAnswerError
from semel.client.transport import websocket
from semel.client.transport.http_transport import Transport
from semel.client.transport.network import Bell
from semel.client.transport.socket_network import BlockingStream
from semel.client.transport.websocket import open_websocket
from tests.client.both import EACH_LOOP, network_of

SECONDS = 60.0


@contextmanager
def listening() -> Iterator[tuple[str, socket.socket]]:
    """A port, and the socket that accepts on it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}", server


def test_a_ring_after_the_loop_has_ended_does_nothing() -> None:
    async def made() -> Bell:
        return network_of("async").bell()

    asyncio.run(made()).ring()


def test_a_process_with_many_open_files_can_wait_for_bytes() -> None:
    """`select` refuses descriptors above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = 1_500
    if soft <= high:
        resource.setrlimit(resource.RLIMIT_NOFILE, (high + 100, hard))
    try:
        one, other = socket.socketpair()
        moved = socket.socket(fileno=fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, high))
        one.close()
        stream = BlockingStream(moved)
        states = [stream.is_idle]
        other.sendall(b"x")
        states.append(stream.is_idle)
        stream.close()
        other.close()
        assert [*states, stream.is_idle] == [True, False, False]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def shake_hands(other: socket.socket) -> None:
    """Answer the handshake of a WebSocket, and nothing after it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += other.recv(65_536)
    found = re.search(rb"(?i)sec-websocket-key: (\S+)", head)
    assert found is not None
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append(f"Sec-WebSocket-Accept: {accept_key(found[1].decode())}")
    other.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())


@EACH_LOOP
async def test_a_silent_websocket_ends_although_its_reader_is_woken_all_the_time(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.2)
    with listening() as (url, server):
        peers: list[socket.socket] = []

        def serve() -> None:
            peers.append(server.accept()[0])
            shake_hands(peers[0])

        threading.Thread(target=serve).start()
        transport = Transport(find_access({}, url), network_of(kind), 1)
        bell = transport.network.bell()
        async with open_websocket(transport, "/ws", 1_000) as opened:

            async def wait_on() -> None:
                while True:
                    bell.ring()
                    await asyncio.sleep(0.001)
                    assert await opened.receive(SECONDS, bell) is None

            async with asyncio.timeout(SECONDS):
                with pytest.raises(NoAnswerError):
                    await wait_on()
        peers[0].close()
        bell.close()
