"""How connections end: behind streamed answers, held answers and refusals, and when the last bytes are not read."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from semel.server.http import head as heads
from semel.server.http.answer import Answer, BodyWriter, StreamedAnswer
from semel.server.http.protocol import HttpProtocol
from tests.server.http.applications import Echo, Silent
from tests.server.http.corpus import get, head
from tests.server.http.test_exchange import Connected, Reading, run

GET = get()


async def one_piece(writer: BodyWriter) -> None:
    await writer.write(b"x")


def test_a_streamed_answer_that_ends_while_the_server_stops_ends_its_connection() -> None:
    async def test(one: Connected) -> None:
        ended = asyncio.Event()

        async def produce(writer: BodyWriter) -> None:
            await ended.wait()

        await one.send(GET)
        one.requests[0].exchange.reply(StreamedAnswer([], produce))
        await one.settle()
        one.protocol.shutdown()
        assert not one.pipe.is_closed
        ended.set()
        await one.settle()
        assert (one.pipe.is_closed, b"".join(one.pipe.written)[-5:]) == (True, b"0\r\n\r\n")

    run(test)


def test_a_streamed_answer_whose_client_left_while_it_waited_is_not_begun() -> None:
    async def test(one: Connected) -> None:
        await one.send(GET)
        one.protocol.pause_writing()
        one.requests[0].exchange.reply(StreamedAnswer([], one_piece))
        await one.settle()
        one.pipe.is_closed = True
        one.protocol.connection_lost(None)
        await one.settle()
        assert (one.pipe.written, one.application.errors, one.application.statuses) == ([], [], [])

    run(test)


def test_a_streamed_answer_to_a_request_that_was_refused_is_not_sent() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Transfer-Encoding: chunked"))
        one.protocol.pause_writing()
        one.requests[0].exchange.reply(StreamedAnswer([], one_piece))
        await one.send(b"not a chunk\r\n")
        one.protocol.resume_writing()
        await one.settle()
        assert (one.pipe.statuses, one.pipe.is_closed) == ([400], True)

    run(test)


def test_a_held_answer_leaves_though_the_body_behind_it_breaks() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Transfer-Encoding: chunked"))
        one.protocol.pause_writing()
        one.requests[0].exchange.reply(Answer(201, []))
        await one.send(b"not a chunk\r\n")
        assert not one.pipe.is_closed
        one.protocol.resume_writing()
        await one.settle()
        assert (one.pipe.statuses, one.pipe.is_closed) == ([201], True)
        assert b"connection: close\r\n" in b"".join(one.pipe.written)

    run(test)


def test_a_connection_that_comes_while_the_server_stops_is_closed() -> None:
    async def test(one: Connected) -> None:
        one.protocol.host.is_stopping = True
        late = Reading()
        protocol = HttpProtocol(one.protocol.host, asyncio.get_running_loop())
        protocol.connection_made(cast(asyncio.Transport, late))
        assert (late.is_closed, late.written) == (True, [])
        protocol.connection_lost(None)

    run(test)


def test_a_connection_that_closes_gets_no_further_refusal_and_is_cut_off() -> None:
    async def test(one: Connected) -> None:
        host, stall = one.protocol.host, one.protocol.limits.stall_seconds
        now = one.protocol.loop.time()
        await one.send(b"nonsense\r\n\r\n")
        one.pipe.unsent = 1_000
        sent = len(one.pipe.written)
        aborted: list[bool] = []
        one.pipe.abort = lambda: aborted.append(True)  # type: ignore[method-assign]
        host.close_overdue(now + 1_000)
        one.pipe.unsent = 900  # a slow reader has its time anew
        host.close_overdue(now + 1_000 + stall)
        assert (len(one.pipe.written), aborted) == (sent, [])
        host.close_overdue(now + 1_001 + 2 * stall)
        assert (len(one.pipe.written), aborted) == (sent, [True])

    run(test)


def test_long_hosts_are_not_remembered() -> None:
    async def test(one: Connected) -> None:
        await one.send(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % (b"h" * 60_000))
        assert len(one.requests) == 1
        assert all(len(known) <= heads.KNOWN_HOST_BYTES for known in heads._good_hosts)

    run(test)


UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="
)


@pytest.mark.parametrize("line", [b"Cookie: " + b"c" * 9_000, b""], ids=["header", "target"])
def test_a_handshake_with_a_line_that_websockets_does_not_take_is_a_problem_document(line: bytes) -> None:
    class Sockets(Echo):
        def socket_at(self, raw_path: bytes):  # type: ignore[no-untyped-def]
            """Every path speaks WebSocket."""
            return object

    async def test(one: Connected) -> None:
        target = b"/" if line else b"/" + b"t" * 9_000
        await one.send(b"GET %b HTTP/1.1\r\nHost: h\r\n%b\r\n%b\r\n\r\n" % (target, UPGRADE, line or b"X: y"))
        assert (one.pipe.statuses, one.pipe.is_closed) == ([431], True)
        assert b"application/problem+json" in b"".join(one.pipe.written)

    run(test, cast(Silent, Sockets()))
