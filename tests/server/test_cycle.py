"""An answer leaves in as few writes as can be: the head waits for a body of known length, and for no other."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from uvicorn.server import ServerState

from semel.server.cycle import JOINED_BYTES, Cycle
from semel.server.process import host_config
from semel.server.protocol import SemelProtocol
from semel.server.settings import Settings
from tests.server.test_protocol import Clock, Pipe

Pair = tuple[bytes, bytes]


class Asked:
    """One request on a connection without a socket, which is answered by hand."""

    def __init__(self, method: str) -> None:
        self._clock, config = Clock(), host_config(Settings())
        config.load()
        self.pipe = Pipe()
        protocol = SemelProtocol(config, ServerState(), {}, self._clock)
        protocol.connection_made(cast(asyncio.Transport, self.pipe))
        protocol.data_received(f"{method} / HTTP/1.1\r\nhost: h\r\n\r\n".encode())
        self.cycle = cast(Cycle, protocol.cycle)

    def answer(self, headers: list[Pair], *pieces: bytes) -> list[bytes]:
        """What was written after the head, and after each piece of the body."""
        try:
            return asyncio.run(self._answer(headers, *pieces))
        finally:
            self._clock.close()

    async def _answer(self, headers: list[Pair], *pieces: bytes) -> list[bytes]:
        seen: list[bytes] = []
        body: list[dict[str, Any]] = [{"type": "http.response.body", "body": one, "more_body": True} for one in pieces]
        body[-1]["more_body"] = False
        for message in ({"type": "http.response.start", "status": 200, "headers": headers}, *body):
            await self.cycle.send(message)
            seen.append(b"|".join(self.pipe.written))
            self.pipe.written.clear()
        return seen


def length(size: int) -> list[Pair]:
    return [(b"content-length", b"%d" % size)]


OK = b"HTTP/1.1 200 OK\r\n"
LARGE = b"x" * (JOINED_BYTES + 1)

ANSWERS: dict[str, tuple[str, list[Pair], list[bytes], list[bytes]]] = {
    "one piece": ("GET", length(2), [b"ab"], [b"", OK + b"content-length: 2\r\n\r\nab"]),
    "two pieces": ("GET", length(2), [b"a", b"b"], [b"", OK + b"content-length: 2\r\n\r\na", b"b"]),
    "large": ("GET", length(len(LARGE)), [LARGE], [b"", OK + b"content-length: 65537\r\n\r\n|" + LARGE]),
    "empty": ("GET", length(0), [b""], [OK + b"content-length: 0\r\n\r\n", b""]),
    "of no known length": (
        "GET",
        [],
        [b"ab", b""],
        [OK + b"transfer-encoding: chunked\r\n\r\n", b"2\r\nab\r\n", b"0\r\n\r\n"],
    ),
    "to HEAD": ("HEAD", [], [b""], [OK + b"\r\n", b""]),
    "to HEAD, with a length": ("HEAD", length(2), [b"ab"], [b"", OK + b"content-length: 2\r\n\r\n"]),
    "the last": (
        "GET",
        [(b"connection", b"close"), *length(1)],
        [b"a"],
        [b"", OK + b"connection: close\r\ncontent-length: 1\r\n\r\na"],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_written_when(name: str) -> None:
    method, headers, pieces, written = ANSWERS[name]
    asked = Asked(method)
    assert asked.answer(headers, *pieces) == written
    assert (asked.cycle.response_complete, asked.pipe.is_closed) == (True, name == "the last")


WRONG: dict[str, tuple[list[Pair], list[bytes]]] = {
    "longer than it says": (length(1), [b"ab"]),
    "shorter than it says": (length(3), [b"ab"]),
    "a header of two lines": ([(b"x", b"a\r\ny: b"), *length(1)], [b"a"]),
    "a name of two words": ([(b"x y", b"a"), *length(1)], [b"a"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_not_written(name: str) -> None:
    headers, pieces = WRONG[name]
    asked = Asked("GET")
    with pytest.raises(RuntimeError):
        asked.answer(headers, *pieces)
    assert asked.pipe.written == []
