"""One case of the law: a limit, the worst shape of a request within it, and how to send it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import NamedTuple

from tests.law.rig import MIB, WatchedServer

Request = Callable[[], int]
"""Sends a request, and returns how many bytes it had, or its answer if that is larger."""
Make = Callable[[WatchedServer], Request]
"""Brings the server into the state that the request needs."""

PATIENCE_SECONDS = 120.0
JSON = {"Content-Type": "application/json"}
_CHUNKS_AT_ONCE = 64 * 1024


class Case(NamedTuple):
    """What is measured."""

    surface: str
    limit: str
    shape: str
    make: Make
    is_quick: bool = False
    """Whether it is one of the few that every run of the tests measures."""

    @property
    def name(self) -> str:
        """What it is called in a run."""
        return f"{self.surface}: {self.limit}, {self.shape}"


def later(made: Callable[[], Make]) -> Make:
    """A case whose data are made when it is measured."""

    def make(server: WatchedServer) -> Request:
        return made()(server)

    return make


def filled(beginning: bytes, unit: bytes, end: bytes, size: int = 16 * MIB) -> bytes:
    """A text of at most this size: a beginning, as many units as fit, and an end."""
    return beginning + unit * ((size - len(beginning) - len(end)) // len(unit)) + end


def nested(depth: int) -> bytes:
    """Arrays inside of arrays."""
    return b"[" * depth + b"]" * depth


def in_small_chunks(method: str, path: str, body: bytes, expected: int, kind: str = "application/json") -> Make:
    """A request with a body of which each byte is a chunk of its own."""

    def make(server: WatchedServer) -> Request:
        host, port = server.url.removeprefix("http://").split(":")
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: {kind}\r\n"
        head += "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"

        def request() -> int:
            with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as sock:
                sock.sendall(head.encode())
                for start in range(0, len(body), _CHUNKS_AT_ONCE):
                    some = body[start : start + _CHUNKS_AT_ONCE]
                    sock.sendall(b"".join(b"1\r\n%c\r\n" % letter for letter in some))
                sock.sendall(b"0\r\n\r\n")
                answer = sock.recv(65_536)
            assert int(answer.split()[1]) == expected, answer
            return len(body)

        return request

    return make


def long_query(unit: str, beginning: str = "") -> str:
    """A query that fills the head of a request."""
    return beginning + unit * ((60_000 - len(beginning)) // len(unit))
