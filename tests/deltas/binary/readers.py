"""Clients that ask over HTTP and read little of the answer, or nothing; each may come from an address of its own."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from types import TracebackType
from typing import Self

from tests.deltas.binary.caller import PATIENCE_SECONDS
from tests.deltas.wire import Deltas
from tests.harness.server import HOST

RECEIVED_BYTES = 16_384
"""What the system takes in for a client that does not read."""


def address_of(number: int) -> str:
    """All of 127.0.0.0/8 is this machine: to the server these are different callers."""
    return f"127.0.0.{number + 1}"


def dial(port: int, number: int = 0) -> socket.socket:
    """A connection from one of these addresses, for which the system takes in little."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    line.settimeout(PATIENCE_SECONDS)
    line.bind((address_of(number), 0))
    line.connect((HOST, port))
    return line


class Answer:
    """An answer whose head was read, and whose body is read as one likes."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self.status = int(file.readline().split()[1])
        self.headers = http.client.parse_headers(file)
        self.size = int(self.headers["Content-Length"])
        self._left = self.size

    def read(self, size: int | None = None) -> bytes:
        """The next bytes; all of them without a number."""
        wanted = self._left if size is None else min(size, self._left)
        found = self._file.read(wanted)
        self._left -= len(found)
        return found


class Reader:
    """One connection."""

    def __init__(self, port: int, number: int = 0) -> None:
        self._line = dial(port, number)
        self._file = self._line.makefile("rb")

    def ask(self, *paths: str) -> None:
        """Send requests, one behind the other, and read nothing."""
        self._line.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths))

    def answer(self) -> Answer:
        """The next answer."""
        return Answer(self._file)

    def get(self, path: str) -> int:
        """Ask, and read everything; the status."""
        self.ask(path)
        answer = self.answer()
        assert len(answer.read()) == answer.size
        return answer.status

    def close(self) -> None:
        self._file.close()
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def slow_reader(deltas: Deltas, path: str, number: int = 0) -> Iterator[Answer]:
    """One that has asked and reads what it is told to."""
    with Reader(deltas.server.port, number) as reader:
        reader.ask(path)
        answer = reader.answer()
        assert answer.status == 200
        yield answer


def held_bytes(deltas: Deltas, what: str) -> int:
    """What clients hold of the server together: answers, uploads or checkpoints."""
    found: int = deltas.send("GET", "/metrics").json()[f"semel_deltas_{what}_bytes"]
    return found
