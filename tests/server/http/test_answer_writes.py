"""An answer leaves in as few writes as can be: the head waits for a body of known length, and for no other."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from semel.server.http.answer import Answer, BodyWriter, StreamedAnswer
from semel.server.http.exchange import JOINED_BYTES
from semel.server.http.protocol import HttpProtocol
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from tests.server.http.applications import Silent
from tests.server.http.test_protocol import Pipe

Pair = tuple[bytes, bytes]


class Asked:
    """One request on a connection without a socket, which is answered by hand."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.pipe = Pipe()
        self.application = Silent()

    def answer(self, headers: list[Pair], *pieces: bytes) -> list[bytes]:
        """What was written after the head, and after each piece of the body."""
        return asyncio.run(self._answer(StreamedAnswer(headers, lambda writer: self._produce(writer, pieces))))

    def reply(self, answer: Answer) -> list[bytes]:
        """What was written of a whole answer, in as many writes."""
        return asyncio.run(self._answer(answer))

    async def _answer(self, answer: Answer | StreamedAnswer) -> list[bytes]:
        self.seen: list[bytes] = []
        self.protocol = HttpProtocol(make_host(make_settings(), self.application), asyncio.get_running_loop())
        self.protocol.connection_made(cast(asyncio.Transport, self.pipe))
        self.protocol.data_received(f"{self._method} / HTTP/1.1\r\nhost: h\r\n\r\n".encode())
        self.application.requests[0].exchange.reply(answer)
        await asyncio.gather(*self.protocol.host.tasks)
        self.look()
        return self.seen

    async def _produce(self, writer: BodyWriter, pieces: tuple[bytes, ...]) -> None:
        self.look()
        for piece in pieces:
            await writer.write(piece)
            self.look()

    def look(self) -> None:
        """Note what was written since the last look."""
        self.seen.append(b"|".join(self.pipe.written))
        self.pipe.written.clear()


def length(size: int) -> list[Pair]:
    return [(b"content-length", b"%d" % size)]


OK = b"HTTP/1.1 200 OK\r\n"
LARGE = b"x" * (JOINED_BYTES + 1)

ANSWERS: dict[str, tuple[str, list[Pair], list[bytes], list[bytes]]] = {
    "one piece": ("GET", length(2), [b"ab"], [b"", OK + b"content-length: 2\r\n\r\nab", b""]),
    "two pieces": ("GET", length(2), [b"a", b"b"], [b"", OK + b"content-length: 2\r\n\r\na", b"b", b""]),
    "large": ("GET", length(len(LARGE)), [LARGE], [b"", OK + b"content-length: 65537\r\n\r\n|" + LARGE, b""]),
    "empty": ("GET", length(0), [b""], [OK + b"content-length: 0\r\n\r\n", b"", b""]),
    "of no known length": (
        "GET",
        [],
        [b"ab", b""],
        [OK + b"transfer-encoding: chunked\r\n\r\n", b"2\r\nab\r\n", b"", b"0\r\n\r\n"],
    ),
    "to HEAD": ("HEAD", [], [b""], [OK + b"\r\n"]),
    "to HEAD, with a length": ("HEAD", length(2), [b"ab"], [OK + b"content-length: 2\r\n\r\n"]),
    "the last": (
        "GET",
        [(b"connection", b"close"), *length(1)],
        [b"a"],
        [b"", OK + b"connection: close\r\ncontent-length: 1\r\n\r\na", b""],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_written_when(name: str) -> None:
    method, headers, pieces, written = ANSWERS[name]
    asked = Asked(method)
    assert asked.answer(headers, *pieces) == written
    assert (asked.protocol.running, asked.pipe.is_closed) == (None, name == "the last")


WHOLE: dict[str, tuple[str, Answer, list[bytes]]] = {
    "with a body": ("GET", Answer(200, [], b"ab"), [OK + b"content-length: 2\r\n\r\nab"]),
    "with a large body": ("GET", Answer(200, [], LARGE), [OK + b"content-length: 65537\r\n\r\n|" + LARGE]),
    "without a body": ("GET", Answer(200, []), [OK + b"content-length: 0\r\n\r\n"]),
    "204": ("GET", Answer(204, []), [b"HTTP/1.1 204 No Content\r\n\r\n"]),
    "304": ("GET", Answer(304, [(b"etag", b"1")]), [b"HTTP/1.1 304 Not Modified\r\netag: 1\r\n\r\n"]),
    "to HEAD": ("HEAD", Answer(200, [], b"ab"), [OK + b"content-length: 2\r\n\r\n"]),
    "to HEAD, without a body": ("HEAD", Answer(200, []), [OK + b"\r\n"]),
    "the last": (
        "GET",
        Answer(200, [(b"connection", b"close")], b"a"),
        [OK + b"connection: close\r\ncontent-length: 1\r\n\r\na"],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_is_written_at_once(name: str) -> None:
    method, answer, written = WHOLE[name]
    asked = Asked(method)
    assert asked.reply(answer) == written
    assert (asked.application.statuses, asked.pipe.is_closed) == ([answer.status], name == "the last")


WRONG: dict[str, tuple[list[Pair], list[bytes]]] = {
    "longer than it says": (length(1), [b"ab"]),
    "a header of two lines": ([(b"x", b"a\r\ny: b"), *length(1)], [b"a"]),
    "a name of two words": ([(b"x y", b"a"), *length(1)], [b"a"]),
}
FAULT = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 5\r\n\r\nfault"


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_not_written(name: str) -> None:
    """It is a fault where the client can still be told, else the connection ends."""
    headers, pieces = WRONG[name]
    asked = Asked("GET")
    written = [one for one in asked.answer(headers, *pieces) if one]
    is_told = not name.startswith("longer")
    assert (written, asked.pipe.is_closed) == ([FAULT] if is_told else [], not is_told)
    assert [isinstance(error, RuntimeError) for error in asked.application.errors] == [True]


def test_an_answer_shorter_than_it_says_ends_the_connection() -> None:
    asked = Asked("GET")
    assert asked.answer(length(3), b"ab")[-2:] == [OK + b"content-length: 3\r\n\r\nab", b""]
    assert asked.pipe.is_closed
    assert len(asked.application.errors) == 1


def test_a_whole_answer_with_a_header_of_two_lines_is_a_fault() -> None:
    asked = Asked("GET")
    assert asked.reply(Answer(200, [(b"x", b"a\r\ny: b")], b"secret")) == [FAULT]
