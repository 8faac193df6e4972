"""WebSocket frames by hand: a client that can break every rule of RFC 6455, and checks those the server is under."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from tests.harness.server import HOST

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
ABRUPT = 1006
"""The connection ended without a close frame."""
HANDSHAKE = (
    b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class FrameError(Exception):
    """The server has sent what no server may send."""


class SilenceError(Exception):
    """Nothing has come in time."""


class Frame(NamedTuple):
    """One frame from the server."""

    opcode: int
    payload: bytes


class Ended(NamedTuple):
    """The end of a connection, and the code that the server gave for it."""

    code: int


def frame(
    payload: bytes,
    opcode: int = TEXT,
    *,
    fin: bool = True,
    reserved: int = 0,
    mask: bytes | None = b"\x01\x02\x03\x04",
    length: int | None = None,
    wide: bool = False,
) -> bytes:
    """A client's frame; `length` is announced instead of the true one, `wide` writes the length with too many bytes."""
    announced = len(payload) if length is None else length
    head = bytes([fin << 7 | reserved << 4 | opcode])
    masked = 0 if mask is None else 0x80
    if announced < 126 and not wide:
        head += bytes([masked | announced])
    elif announced < 65_536 and not (wide and announced > 125):
        head += bytes([masked | 126]) + struct.pack(">H", announced)
    else:
        head += bytes([masked | 127]) + struct.pack(">Q", announced)
    return head + payload if mask is None else head + mask + _masked(payload, mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    key = int.from_bytes((mask * (len(payload) // 4 + 1))[: len(payload)])
    return (int.from_bytes(payload) ^ key).to_bytes(len(payload))


def unframed(data: bytes) -> bytes:
    """The text inside a client's frame."""
    start = {126: 4, 127: 10}.get(data[1] & 0x7F, 2)
    return _masked(data[start + 4 :], data[start : start + 4])


class RawSocket:
    """A TCP connection to a server, frame by frame once it is upgraded."""

    def __init__(self, port: int, seconds: float) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._seconds = seconds
        self._buffer = b""
        self.end: Ended | None = None

    def upgrade(self, request: bytes = HANDSHAKE) -> int:
        """Send a handshake and return the status of the answer; 0 if the connection ends without one."""
        self.send(request)
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return 0
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        version, _, rest = head.partition(b" ")
        if version not in (b"HTTP/1.1", b"HTTP/1.0") or not rest[:3].isdigit():
            raise FrameError(f"no answer of HTTP: {head[:100]!r}")
        return int(rest[:3])

    def send(self, data: bytes) -> None:
        """Send all of it, or as much as the server takes before it closes."""
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self, seconds: float | None = None) -> Frame | Ended:
        """The next frame; a close frame, like a bare end, ends the connection."""
        if self.end is not None:
            return self.end
        self._socket.settimeout(self._seconds if seconds is None else seconds)
        head = self._exactly(2)
        if head is None:
            self.end = Ended(ABRUPT)
            return self.end
        size = self._length(head)
        payload = self._exactly(size)
        if payload is None:
            raise FrameError("a frame was cut off")
        if head[0] & 0xF == CLOSE:
            if size == 1:
                raise FrameError("a close frame of one byte")
            self.end = Ended(struct.unpack(">H", payload[:2])[0] if payload else 1005)
            return self.end
        return Frame(head[0] & 0xF, payload)

    def close(self) -> None:
        """Break it off."""
        self._socket.close()

    def _length(self, head: bytes) -> int:
        if head[0] & 0xF0 != 0x80 or head[1] & 0x80:
            raise FrameError(f"a frame from the server begins with {head.hex()}")
        if head[0] & 0xF not in (TEXT, CLOSE, PING, PONG):
            raise FrameError(f"the server sent the opcode {head[0] & 0xF}")
        if head[1] < 126:
            return head[1]
        size = self._exactly(2 if head[1] == 126 else 8)
        if size is None:
            raise FrameError("a frame was cut off")
        return int.from_bytes(size)

    def _exactly(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            if not self._more():
                return None
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _more(self) -> bool:
        try:
            data = self._socket.recv(262_144)
        except TimeoutError:
            raise SilenceError from None
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)


def resident_bytes(pid: int) -> int:
    """The memory that a process has in use; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return 0
