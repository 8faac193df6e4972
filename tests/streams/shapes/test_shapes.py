"""Heads that are known by their bytes: what is cut, what is learned, and the same answers as on the full path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import pytest

from semel.kernel.keys import visible_key
from semel.server.http.head_shapes import MAX_PIPELINED, MAX_SHAPE_BYTES, MAX_SHAPES, CutHead, HeadShapes, cut
from semel.server.http.protocol import HttpProtocol
from semel.surfaces.streams import http_writes, shaped_append
from tests.streams.shapes.differential import Server, compare, prepare

CASES = 300
HEAD = b"POST /v1/stream/s HTTP/1.1\r\nHost: x\r\nIdempotency-Key: %b\r\nContent-Length: 2\r\n\r\n"


def test_a_head_is_cut_at_its_key() -> None:
    data = HEAD % b"k1" + b"{}"
    assert cut(data) == CutHead(
        b"POST /v1/stream/s HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \r\nContent-Length: 2", b"k1", 54, len(data) - 2
    )


def test_a_head_without_a_key_is_its_own_shape() -> None:
    assert cut(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n") == CutHead(b"POST / HTTP/1.1\r\nHost: x", b"", 28, 28)


@pytest.mark.parametrize("key", [b"", b" k", b"k ", b"a b", b"a\tb", b"a\x00b", b"a\rb", b"caf\xc3\xa9", b"x" * 257])
def test_a_key_that_does_not_end_with_its_line_has_no_shape(key: bytes) -> None:
    assert cut(HEAD % key) is None


@pytest.mark.parametrize(
    "data", [b"POST / HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nX: " + bytes(MAX_SHAPE_BYTES) + b"\r\n\r\n"]
)
def test_a_head_that_is_not_whole_or_long_has_no_shape(data: bytes) -> None:
    assert cut(data) is None


class Taken:
    """A shape that takes everything."""

    length = 2
    is_pipelined = False

    def take(self, connection: HttpProtocol, key: bytes, body: bytes) -> bool:
        """Taken."""
        return True


def new_connection() -> HttpProtocol:
    """A connection without an earlier head."""
    return cast("HttpProtocol", SimpleNamespace(known_head=None, running=None, waiting=()))


def shapes_with(data: bytes) -> HeadShapes:
    """Shapes that have learned one head."""
    shapes = HeadShapes(65_536)
    shapes.learn(data, 2, lambda key: Taken())
    return shapes


@pytest.mark.parametrize(
    ("data", "is_taken"),
    [
        (HEAD % b"k2" + b"[]", True),
        (HEAD % b"k2" + b"[1]", False),
        (HEAD % b"k2" + b"[", False),
        ((HEAD % b"k2" + b"[]").replace(b"Host: x", b"Host: y"), False),
        ((HEAD % b"k2" + b"[]").replace(b"Idempotency-Key", b"idempotency-key"), False),
        ((HEAD % b"k2" + b"[]").replace(b"Content-Length: 2", b"Content-Length: 3"), False),
    ],
)
@pytest.mark.parametrize("is_next", [False, True], ids=["first", "next"])
def test_a_head_is_known_by_every_byte_but_its_key(data: bytes, is_taken: bool, is_next: bool) -> None:
    shapes, connection = shapes_with(HEAD % b"k1" + b"{}"), new_connection()
    if is_next:
        assert shapes.take(connection, HEAD % b"k1" + b"{}")
        assert connection.known_head is not None
    assert shapes.take(connection, data) == (len(data) if is_taken else 0)


@pytest.mark.parametrize("known", [HEAD % b"k1" + b"{}", HEAD.replace(b"Idempotency-Key: %b\r\n", b"") + b"{}"])
def test_the_next_head_of_a_connection_is_split_as_the_first_one(known: bytes) -> None:
    taken: list[tuple[bytes, bytes]] = []
    shape = Taken()
    shape.take = lambda connection, key, body: not taken.append((key, body))  # type: ignore[method-assign,func-returns-value]
    shapes = HeadShapes(65_536)
    shapes.learn(known, 2, lambda key: shape)
    connection = new_connection()
    for _ in range(2):
        assert shapes.take(connection, known)
    assert taken[0] == taken[1]


@pytest.mark.parametrize("key", [b"", b" k", b"k ", b"a b", b"a\tb", b"a\nb", b"caf\xc3\xa9", b"x" * 257, b'"a\\"b"'])
def test_a_key_that_must_be_parsed_is_not_visible(key: bytes) -> None:
    assert visible_key(key) is None


def test_bytes_that_begin_with_a_part_of_a_request_teach_nothing() -> None:
    assert len(shapes_with(HEAD % b"k1" + b"{")) == 0


def test_requests_that_came_together_are_taken_only_if_their_shape_is_pipelined() -> None:
    data = HEAD % b"k1" + b"{}"
    shapes = shapes_with(data + HEAD % b"k2" + b"{}")
    assert shapes.take(new_connection(), data + data) == 0
    with patch.object(Taken, "is_pipelined", True):
        assert shapes.take(new_connection(), data + data) == 2 * len(data)
        assert shapes.take(new_connection(), data + data[:-1]) == len(data)
        assert shapes.take(new_connection(), data + b"GET / HTTP/1.1\r\n\r\n") == len(data)
        assert shapes.take(new_connection(), data * (MAX_PIPELINED + 1)) == MAX_PIPELINED * len(data)


def test_the_number_of_shapes_is_bounded() -> None:
    shapes = HeadShapes(65_536)
    for number in range(MAX_SHAPES + 10):
        shapes.learn(HEAD.replace(b"Host: x", b"Host: %d" % number) % b"k" + b"{}", 2, lambda key: Taken())
    assert len(shapes) <= MAX_SHAPES


def test_the_shapes_and_the_full_path_give_the_same_answers_and_content() -> None:
    taken = asyncio.run(compare(1, CASES))
    assert taken.appends > CASES / 6
    assert taken.alone > CASES / 30


PLAIN = (
    b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b"
)


def on_a_server(test: Callable[[Server], Awaitable[None]], folder: Path) -> None:
    """Run a test on a server that has the streams of the comparison."""

    async def run() -> None:
        server = Server(folder, is_blind=False)
        try:
            await prepare(server)
            await test(server)
        finally:
            await server.stop()

    asyncio.run(run())


def test_two_requests_without_a_key_are_not_taken_for_one(tmp_path: Path) -> None:
    async def test(server: Server) -> None:
        for _ in range(3):
            assert (await server.send(0, (PLAIN % (b"", 2, b"11"),))).count(b" 204 ") == 1
        both = PLAIN % (b"", 2, b"11") + PLAIN % (b"", 2, b"22")
        assert (await server.send(0, (both,))).count(b" 204 ") == 2
        read = b"GET /v1/stream/s HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await server.send(1, (read,))).endswith(b"[11,11,11,11,22]")

    on_a_server(test, tmp_path)


def test_a_shorter_body_does_not_shorten_the_key(tmp_path: Path) -> None:
    def keyed(key: bytes, body: bytes) -> tuple[bytes]:
        return (PLAIN % (b"Idempotency-Key: " + key + b"\r\n", len(body), body),)

    async def test(server: Server) -> None:
        for number in range(3):
            assert b" 204 " in await server.send(0, keyed(b"first-%d" % number, b"11"))
        assert b"idempotency-replayed: true" not in await server.send(0, keyed(b"key-12", b"5"))
        assert b"idempotency-replayed: true" in await server.send(1, keyed(b"key-12", b"5"))

    on_a_server(test, tmp_path)


def take_any_length(self: HeadShapes, connection: HttpProtocol, data: bytes) -> int:
    """A look-up that does not count the bytes of the body."""
    head = cut(data)
    shape = None if head is None else self._known.get(head.shape)
    is_taken = head is not None and shape is not None and shape.take(connection, head.key, data[head.body_at :])
    return len(data) if is_taken else 0


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (HeadShapes, "take", take_any_length),
        (http_writes, "VARYING", ()),
        (shaped_append, "plain_fingerprint", lambda body: b"another"),
    ],
)
def test_a_planted_difference_is_found(owner: object, name: str, planted: Callable[..., object] | tuple[()]) -> None:
    with patch.object(owner, name, planted), pytest.raises(AssertionError):
        asyncio.run(compare(1, 6 * CASES))
