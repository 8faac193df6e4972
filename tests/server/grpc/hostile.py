"""A client that speaks HTTP/2 over a real socket, and may say what no honest one would."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, Event, ResponseReceived, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from tests.harness.server import HOST

PATIENCE_SECONDS = 60.0
CHECK = "/ledger.v1.HealthService/Check"
Header = tuple[str | bytes, str | bytes]


def framed(content: bytes, flag: int = 0) -> bytes:
    """A message as gRPC sends it."""
    return bytes([flag]) + len(content).to_bytes(4, "big") + content


class HostileClient:
    """One connection, and all that was heard on it."""

    def __init__(self, port: int) -> None:
        config = H2Configuration(client_side=True, header_encoding=None)
        config.validate_outbound_headers = config.normalize_outbound_headers = False
        self.h2 = H2Connection(config)
        self.h2.initiate_connection()
        self.events: list[Event] = []
        self._socket = socket.create_connection((HOST, port), PATIENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def open(self, *more: Header, path: str | bytes = CHECK, method: str = "POST") -> int:
        """Begin a call; the number of its stream. A later header takes the place of one of the usual ones."""
        stream = self.h2.get_next_available_stream_id()
        usual: dict[str | bytes, str | bytes] = {":method": method, ":scheme": "http", ":path": path}
        usual |= {":authority": "x", "te": "trailers", "content-type": "application/grpc"}
        self.h2.send_headers(stream, list((usual | dict(more)).items()))
        return stream

    def call(self, *more: Header, data: bytes = framed(b""), path: str | bytes = CHECK) -> int:
        """A whole call."""
        stream = self.open(*more, path=path)
        self.h2.send_data(stream, data, end_stream=True)
        return stream

    def send(self, data: bytes = b"") -> None:
        """Send what h2 has to say, and these bytes, as far as the server takes them."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(self.h2.data_to_send() + data)

    def hear(self) -> bool:
        """Wait for more, which is acknowledged as h2 does it; whether the connection goes on."""
        try:
            data = self._socket.recv(65_536)
        except ConnectionResetError:
            data = b""
        if not data:
            return False
        with suppress(ProtocolError):  # behind a GOAWAY h2 takes nothing
            self.events += self.h2.receive_data(data)
        self.send()
        return True

    def until_closed(self) -> None:
        """Hear all until the server ends the connection."""
        self.send()
        while self.hear():
            pass

    def status(self, stream: int) -> int:
        """How a call ends: its gRPC status, or minus the HTTP status of what is no gRPC."""
        self.send()
        while True:
            for event in self._of((TrailersReceived, ResponseReceived), stream):
                fields = dict(event.headers)
                if b"grpc-status" in fields:
                    return int(fields[b"grpc-status"])
                if fields.get(b":status", b"200") != b"200":
                    return -int(fields[b":status"])
            assert self.hear(), "the connection ended before the call"

    def content(self, stream: int) -> bytes:
        """The bytes of an answer so far."""
        return b"".join(event.data for event in self._of((DataReceived,), stream))

    def is_reset(self, stream: int) -> bool:
        """Whether the server has cut a call off."""
        return bool(self._of((StreamReset,), stream))

    @property
    def goodbye(self) -> int | None:
        """The error that the server gave for the end of the connection."""
        found = [event for event in self.events if isinstance(event, ConnectionTerminated)]
        return int(found[-1].error_code or 0) if found else None

    def _of(self, kinds: Iterable[type[Event]], stream: int) -> list[Any]:
        return [
            one for one in self.events if isinstance(one, tuple(kinds)) and getattr(one, "stream_id", None) == stream
        ]
