"""A WebSocket client connection that costs as little as it can, and the frames of the Insieme 2.x dialect.

The load generators share two cores with the server that they measure. So frames are put together from prepared bytes,
the mask is zero (a legal one, which leaves a payload as it is, and which a server takes off all the same), and nothing
that comes in is parsed as JSON: it is looked through for the few bytes that tell what it is.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import cast

HOST = "127.0.0.1"
PATH = "/v1/events"
TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
HEADER_BYTES = {126: 4, 127: 10}
MASK = b"\0\0\0\0"
PAD = "x" * 100


class BrokenError(Exception):
    """The other side said something that makes the measurement worthless."""


def frame(payload: bytes, opcode: int = TEXT) -> bytes:
    """A whole masked frame."""
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + MASK + payload


def message(kind: str, payload: dict[str, object]) -> bytes:
    """An envelope as the 2.x client sends it."""
    envelope = {
        "type": kind,
        "protocolVersion": "1.0",
        "timestamp": 1_760_000_000_000,
        "msgId": "m",
        "payload": payload,
    }
    return json.dumps(envelope, separators=(",", ":")).encode()


def connect_frame(client: str, project: str) -> bytes:
    """The first message; the token names the client, which is all that Insieme's server is set up to ask."""
    return frame(message("connect", {"token": client, "clientId": client, "projectId": project}))


def sync_frame(project: str) -> bytes:
    """Asks for the history, and makes a connection live."""
    return frame(message("sync", {"projectId": project, "sinceCommittedId": 0, "limit": 1}))


class Drafts:
    """Makes `submit_events` frames of one size, each event with an id of its own."""

    def __init__(self, client: str, project: str) -> None:
        item = {
            "id": "@",
            "partition": "board",
            "projectId": project,
            "type": "card.moved",
            "schemaVersion": 1,
            "payload": {"card": 3, "to": "done", "pad": PAD},
            "meta": {"clientId": client, "clientTs": 1_760_000_000_990},
        }
        whole = message("submit_events", {"events": [item]})
        self._opening, rest = whole.split(b"[", 1)
        one, self._closing = rest.rsplit(b"]", 1)
        self._before, self._after = one.split(b"@")

    def frame(self, ids: list[bytes]) -> bytes:
        """One batch."""
        between = b"%s,%s" % (self._after, self._before)
        items = self._before + between.join(ids) + self._after
        return frame(b"%s[%s]%s" % (self._opening, items, self._closing))


class Wire(asyncio.Protocol):
    """One connection: shakes hands, answers pings, and hands the payload of each text frame on."""

    def __init__(self, client: str, project: str) -> None:
        self._first = connect_frame(client, project)
        self._buffer = bytearray()
        self._is_upgraded = False
        self.is_over = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the upgrade."""
        self.transport = cast(asyncio.WriteTransport, transport)
        self.transport.write(
            f"GET {PATH} HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )

    def connection_lost(self, error: Exception | None) -> None:
        """Only at the end of a measurement."""
        if not self.is_over:
            raise BrokenError("the server closed a connection")

    def data_received(self, data: bytes) -> None:
        """Take frames off the buffer."""
        self._buffer += data
        if not self._is_upgraded and not self._upgrade():
            return
        buffer, at, end = self._buffer, 0, len(self._buffer)
        while end - at >= 2:
            size = buffer[at + 1]
            start = at + HEADER_BYTES.get(size, 2)
            if start > end:
                break
            if size >= 126:
                size = int.from_bytes(buffer[at + 2 : start], "big")
            if start + size > end:
                break
            self._take(buffer[at] & 0x0F, bytes(buffer[start : start + size]))
            at = start + size
        del buffer[:at]

    def received(self, payload: bytes) -> None:
        """A text frame has come."""
        raise NotImplementedError

    def _take(self, opcode: int, payload: bytes) -> None:
        if opcode == TEXT:
            self.received(payload)
        elif opcode == PING:
            self.transport.write(frame(payload, PONG))
        elif opcode == CLOSE and not self.is_over:
            raise BrokenError(f"the server closed a connection: {payload!r}")

    def _upgrade(self) -> bool:
        head, found, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if not found:
            return False
        if not head.startswith(b"HTTP/1.1 101"):
            raise BrokenError(f"no WebSocket: {head!r}")
        self._buffer[:] = rest
        self._is_upgraded = True
        self.transport.write(self._first)
        return True


async def opened(wires: Sequence[Wire], port: int) -> None:
    """Connect them all at once."""
    loop = asyncio.get_running_loop()
    factories: list[Callable[[], Wire]] = [partial(_same, wire) for wire in wires]
    await asyncio.gather(*(loop.create_connection(factory, HOST, port) for factory in factories))


def _same(wire: Wire) -> Wire:
    return wire


@contextmanager
def faults_raised() -> Iterator[None]:
    """Collects what goes wrong inside the loop's callbacks, and raises the first of it at the end."""
    faults: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context.get("exception") or BrokenError(context)))
    yield
    if faults:
        raise faults[0]


def kind_of(payload: bytes) -> bytes:
    """The message's type; both servers write it within the first bytes, Semel and Insieme alike as the first key."""
    before, found, rest = payload[:200].partition(b'"type":"')
    return rest[: rest.index(b'"')] if found else before
