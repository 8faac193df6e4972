"""A WebSocket by hand: for frames that no library sends, and for a reader that stops reading."""

from __future__ import annotations

import base64
import os
import socket
import struct
from types import TracebackType
from typing import NamedTuple, Self

from tests.events.wire import PATH, PATIENCE_SECONDS
from tests.harness.server import HOST

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


class Frame(NamedTuple):
    """One frame as it came."""

    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int:
        """The code of a close frame."""
        assert self.opcode == CLOSE
        code: int = struct.unpack("!H", self.payload[:2])[0]
        return code


class HandMade:
    """One TCP connection, upgraded; it answers nothing by itself, not even a ping."""

    def __init__(self, port: int, *headers: bytes) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_SECONDS)
        key = base64.b64encode(os.urandom(16))
        lines = [b"GET %s HTTP/1.1" % PATH.encode(), b"Host: localhost", b"Upgrade: websocket", b"Connection: Upgrade"]
        lines += [b"Sec-WebSocket-Key: " + key, b"Sec-WebSocket-Version: 13", *headers]
        self._socket.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
        self._buffer = b""
        while b"\r\n\r\n" not in self._buffer:
            assert self._more(), "no answer to the upgrade"
        self.head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        assert self.head.startswith(b"HTTP/1.1 101 "), self.head

    def send(self, payload: bytes, opcode: int = TEXT, *, first_byte: int = 0x80, masked: bool = True) -> None:
        """One frame; the first byte holds the bits beside the opcode."""
        mask = os.urandom(4) if masked else b""
        bit = 0x80 if masked else 0
        if len(payload) < 126:
            length = bytes([bit | len(payload)])
        elif len(payload) < 65_536:
            length = bytes([bit | 126]) + struct.pack("!H", len(payload))
        else:
            length = bytes([bit | 127]) + struct.pack("!Q", len(payload))
        body = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload)) if masked else payload
        self._socket.sendall(bytes([first_byte | opcode]) + length + mask + body)

    def frame(self) -> Frame | None:
        """The next frame, or None at the end of the connection."""
        head = self._exactly(2)
        if head is None:
            return None
        assert head[0] & 0x70 == 0, "no extension was agreed on"
        assert head[1] & 0x80 == 0, "a server masks nothing"
        size = head[1]
        if size == 126:
            size = struct.unpack("!H", self._exactly(2) or b"")[0]
        elif size == 127:
            size = struct.unpack("!Q", self._exactly(8) or b"")[0]
        payload = self._exactly(size)
        return None if payload is None else Frame(head[0] & 0x0F, payload)

    def close_frame(self) -> Frame | None:
        """What ends the connection: a close frame, or None if there is none; frames before it are passed over."""
        for _ in range(10_000):
            frame = self.frame()
            if frame is None or frame.opcode == CLOSE:
                return frame
        raise AssertionError("the connection does not end")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _exactly(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            if not self._more():
                return None
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def _more(self) -> bool:
        try:
            data = self._socket.recv(65_536)
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)
