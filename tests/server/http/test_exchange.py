"""One request and its connection: turns, bodies in pieces, clients that leave, tasks, upgrades."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from semel.server.http.answer import Answer, BodyWriter, ClientGoneError, StreamedAnswer
from semel.server.http.application import UpgradedConnection
from semel.server.http.exchange import BACKLOG_BYTES
from semel.server.http.flow import Crowd
from semel.server.http.protocol import REQUESTS_A_TURN, HttpProtocol
from semel.server.http.request import Request
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from tests.server.http.applications import Echo, Silent
from tests.server.http.corpus import get, head
from tests.server.http.test_protocol import Pipe
from tests.server.http.wire import answers_in

GET = get()


class Reading(Pipe):
    """A transport that knows whether it is read."""

    is_reading = True

    def pause_reading(self) -> None:
        """Nothing is read from now on."""
        self.is_reading = False

    def resume_reading(self) -> None:
        """It is read again."""
        self.is_reading = True

    def abort(self) -> None:
        """The connection ends."""
        self.is_closed = True

    def set_protocol(self, protocol: object) -> None:
        """Another protocol has it."""
        self.protocol = protocol

    @property
    def statuses(self) -> list[int]:
        """Of the answers so far."""
        return answers_in(b"".join(self.written))[0]


class Connected:
    """A connection without a socket, on a loop that runs."""

    def __init__(self, application: Silent) -> None:
        self.application = application
        self.pipe = Reading()
        self.protocol = HttpProtocol(make_host(make_settings(), application), asyncio.get_running_loop())
        self.protocol.connection_made(cast(asyncio.Transport, self.pipe))

    @property
    def requests(self) -> list[Request]:
        """What the application was given."""
        return self.application.requests

    async def send(self, data: bytes) -> None:
        """Bytes arrive, and everything has its turn."""
        self.protocol.data_received(data)
        await self.settle()

    async def settle(self) -> None:
        """Everything has its turn."""
        for _ in range(10):
            await asyncio.sleep(0)


def run(test: Callable[[Connected], Coroutine[Any, Any, None]], application: Silent | None = None) -> None:
    """Run a test on a connection."""

    async def connected() -> None:
        one = Connected(application or Silent())
        await test(one)
        one.protocol.connection_lost(None)
        await asyncio.gather(*one.protocol.host.tasks)

    asyncio.run(connected())


# ---- Turns ----


def test_pipelined_requests_run_one_after_another_and_the_socket_is_not_read_meanwhile() -> None:
    async def test(one: Connected) -> None:
        await one.send(GET * 3)
        assert (len(one.requests), one.pipe.is_reading) == (1, False)
        one.requests[0].exchange.reply(Answer(200, []))
        assert (len(one.requests), one.pipe.is_reading) == (2, False)
        one.requests[1].exchange.reply(Answer(200, []))
        assert (len(one.requests), one.pipe.is_reading) == (3, True)
        one.requests[2].exchange.reply(Answer(201, []))
        assert one.pipe.statuses == [200, 200, 201]

    run(test)


class Prompt(Silent):
    """Answers at once."""

    def handle(self, request: Request) -> Answer | None:
        """200."""
        self.requests.append(request)
        return Answer(200, [])


def test_many_small_requests_leave_others_their_turn() -> None:
    async def test(one: Connected) -> None:
        one.protocol.data_received(GET * 100)
        assert len(one.requests) == REQUESTS_A_TURN
        await one.settle()
        assert one.pipe.statuses == [200] * 100

    run(test, Prompt())


def test_a_client_that_does_not_read_its_answers_has_one_further_request_run() -> None:
    async def test(one: Connected) -> None:
        one.protocol.pause_writing()
        await one.send(GET * 3)
        assert (len(one.requests), one.pipe.written, one.pipe.is_reading) == (1, [], False)
        one.protocol.resume_writing()
        await one.settle()
        assert (one.pipe.statuses, one.pipe.is_reading) == ([200] * 3, True)

    run(test, Prompt())


def test_a_second_answer_is_dropped() -> None:
    async def test(one: Connected) -> None:
        await one.send(GET)
        for status in (200, 500):
            one.requests[0].exchange.reply(Answer(status, []))
        assert one.pipe.statuses == [200]

    run(test)


# ---- Bodies ----


def test_a_body_that_is_not_read_stops_the_socket() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Content-Length: 1000000"))
        exchange = one.requests[0].exchange
        reading = []
        for piece in (b"x" * BACKLOG_BYTES, b"x"):
            await one.send(piece)
            reading.append(one.pipe.is_reading)
        assert len(await exchange.read_piece()) == BACKLOG_BYTES + 1
        assert [*reading, one.pipe.is_reading] == [True, False, True]

    run(test)


def test_a_whole_body_is_given_with_its_request_and_reading_it_ends_at_once() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Content-Length: 3") + b"abc")
        assert (one.requests[0].is_whole, one.requests[0].body) == (True, b"abc")
        assert await one.requests[0].exchange.read_piece() == b""

    run(test)


def test_continue_is_said_when_the_body_is_asked_for_and_not_before() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Expect: 100-continue", b"Content-Length: 3"))
        request = one.requests[0]
        assert (request.is_whole, request.announced, one.pipe.written) == (False, 3, [])
        reader = asyncio.ensure_future(request.exchange.read_piece())
        await one.settle()
        assert one.pipe.written == [b"HTTP/1.1 100 Continue\r\n\r\n"]
        await one.send(b"abc")
        assert await reader == b"abc"
        request.exchange.reply(Answer(200, []))
        assert not one.pipe.is_closed

    run(test)


def test_an_answer_in_place_of_continue_ends_the_connection() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Expect: 100-continue", b"Content-Length: 3"))
        one.requests[0].exchange.reply(Answer(413, []))
        assert (one.pipe.statuses, one.pipe.is_closed) == ([413], True)
        assert b"connection: close\r\n" in one.pipe.written[0]

    run(test)


def test_the_rest_of_a_body_that_is_answered_early_is_dropped_and_the_next_request_served() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Content-Length: 300000"))
        one.requests[0].exchange.reply(Answer(200, []))
        await one.send(b"x" * 300_000 + GET)
        assert [request.method for request in one.requests] == ["POST", "GET"]

    run(test)


# ---- Clients that leave ----


def test_everything_that_waits_for_a_client_that_leaves_is_told_once() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Content-Length: 3"))
        request, calls = one.requests[0], []
        request.on_gone = lambda: calls.append("gone")
        reader = asyncio.ensure_future(request.exchange.read_piece())
        await one.settle()
        one.protocol.connection_lost(None)
        one.protocol.connection_lost(None)
        with pytest.raises(ClientGoneError):
            await reader
        assert (request.gone, calls) == (True, ["gone"])
        request.exchange.reply(Answer(200, []))
        assert one.pipe.written == []

    run(test)


def test_a_request_whose_turn_has_not_come_is_never_run_when_its_client_leaves() -> None:
    async def test(one: Connected) -> None:
        await one.send(GET * 2)
        one.protocol.connection_lost(None)
        one.requests[0].exchange.reply(Answer(200, []))
        assert len(one.requests) == 1

    run(test)


def test_a_broken_body_is_a_client_that_has_gone_and_a_refusal() -> None:
    async def test(one: Connected) -> None:
        await one.send(head(b"Transfer-Encoding: chunked"))
        reader = asyncio.ensure_future(one.requests[0].exchange.read_piece())
        await one.send(b"no size\r\n")
        with pytest.raises(ClientGoneError):
            await reader
        assert (one.pipe.statuses, one.pipe.is_closed) == ([400], True)

    run(test)


# ---- Tasks and streams ----


def test_a_coroutine_that_fails_is_answered_by_the_application() -> None:
    async def fail() -> Answer:
        raise ValueError

    async def test(one: Connected) -> None:
        await one.send(GET)
        one.requests[0].later(fail())
        await one.settle()
        assert (one.pipe.statuses, [type(error) for error in one.application.errors]) == ([500], [ValueError])

    run(test)


def test_a_coroutine_that_is_cancelled_ends_the_connection() -> None:
    async def test(one: Connected) -> None:
        await one.send(GET)
        one.requests[0].later(asyncio.sleep(60, Answer(200, [])))
        await one.settle()
        for task in one.protocol.host.tasks:
            task.cancel()
        await one.settle()
        assert (one.pipe.statuses, one.pipe.is_closed, one.application.errors) == ([], True, [])

    run(test)


def streamed(produce: Callable[[BodyWriter], Coroutine[Any, Any, None]], closed: list[str]) -> StreamedAnswer:
    """An answer that notes when it is let go."""
    return StreamedAnswer([], produce, lambda: closed.append("closed"))


def test_a_stream_waits_for_a_slow_client_and_is_let_go_once() -> None:
    async def produce(writer: BodyWriter) -> None:
        for piece in (b"a", b"b"):
            await writer.write(piece)

    async def test(one: Connected) -> None:
        closed: list[str] = []
        await one.send(GET)
        one.protocol.pause_writing()
        one.requests[0].exchange.reply(streamed(produce, closed))
        await one.settle()
        assert one.pipe.written == []
        one.protocol.resume_writing()
        await one.settle()
        assert b"".join(one.pipe.written).endswith(b"\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n")
        assert (closed, one.pipe.is_closed) == (["closed"], False)

    run(test)


def test_a_stream_that_fails_behind_its_head_ends_the_connection() -> None:
    async def produce(writer: BodyWriter) -> None:
        await writer.write(b"a")
        raise ValueError

    async def test(one: Connected) -> None:
        closed: list[str] = []
        await one.send(GET)
        one.requests[0].exchange.reply(streamed(produce, closed))
        await one.settle()
        assert (one.pipe.is_closed, len(one.application.errors), closed) == (True, 1, ["closed"])
        assert not b"".join(one.pipe.written).endswith(b"0\r\n\r\n")

    run(test)


def test_a_stream_to_a_client_that_has_left_is_let_go() -> None:
    async def produce(writer: BodyWriter) -> None:
        while True:
            await writer.write(b"a")
            await asyncio.sleep(0)

    async def test(one: Connected) -> None:
        closed: list[str] = []
        await one.send(GET * 2)
        one.requests[0].exchange.reply(streamed(produce, closed))
        await one.settle()
        one.protocol.connection_lost(None)
        one.requests[0].exchange.reply(streamed(produce, closed))
        await one.settle()
        assert (closed, one.application.errors) == (["closed"] * 2, [])

    run(test)


# ---- Stopping and upgrades ----


def test_a_connection_ends_behind_the_last_answer_when_the_server_stops() -> None:
    async def test(one: Connected) -> None:
        await one.send(GET * 2)
        one.protocol.shutdown()
        for number in range(2):
            assert not one.pipe.is_closed
            one.requests[number].exchange.reply(Answer(200, []))
        assert (one.pipe.statuses, one.pipe.is_closed) == ([200, 200], True)
        assert [b"connection: close" in written for written in one.pipe.written] == [False, True]

    run(test)


class Socket:
    """Takes a connection over."""

    on_lost: Callable[[], None] | None = None

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:
        """It is ours."""

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self.received.append(data)

    def shutdown(self) -> None:
        """Nothing to do."""


class Upgrading(Silent):
    """Speaks something else at one path."""

    def __init__(self) -> None:
        super().__init__()
        self.socket = Socket()

    def socket_at(self, raw_path: bytes) -> Callable[[], UpgradedConnection] | None:
        """At one path."""
        return (lambda: self.socket) if raw_path == b"/socket" else None


HANDSHAKE = get(b"Connection: Upgrade", b"Upgrade: websocket", target=b"/socket?a")


def test_bytes_behind_a_handshake_are_not_lost() -> None:
    application = Upgrading()

    async def test(one: Connected) -> None:
        host = one.protocol.host
        await one.send(HANDSHAKE + b"\x81\x00")
        sent = b"GET /socket?a HTTP/1.1\r\nhost: h\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
        assert application.socket.received == [sent, b"\x81\x00"]
        assert (one.pipe.protocol, host.connections) == (application.socket, {application.socket})
        assert application.socket.on_lost is not None
        application.socket.on_lost()
        assert host.connections == set()

    run(test, application)


def test_a_large_rest_behind_a_handshake_is_not_lost() -> None:
    application = Upgrading()

    async def test(one: Connected) -> None:
        await one.send(HANDSHAKE + b"x" * 100_000)
        assert len(b"".join(application.socket.received[1:])) == 100_000
        assert one.pipe.is_reading

    run(test, application)


def test_no_upgrade_while_an_answer_is_due() -> None:
    async def test(one: Connected) -> None:
        await one.send(GET + HANDSHAKE)
        one.requests[0].exchange.reply(Answer(200, []))
        one.requests[1].exchange.reply(Answer(426, []))
        assert (one.pipe.statuses, one.pipe.is_closed) == ([200, 426], True)

    run(test, Upgrading())


# ---- Crowds ----


def test_costly_connections_have_one_turn_in_a_pass_of_the_loop() -> None:
    async def passes() -> list[int]:
        crowd, turns, number = Crowd(), [], 0
        for _ in range(3):
            crowd.add(lambda: turns.append(number))
        for number in range(6):  # noqa: B007 - the callbacks see it
            await asyncio.sleep(0)
        return turns

    assert len(set(asyncio.run(passes()))) == 3


def test_a_flood_of_tiny_chunks_arrives_whole_beside_other_requests() -> None:
    content = b"0123456789" * 2_000
    chunks = b"".join(b"1\r\n%c\r\n" % letter for letter in content) + b"0\r\n\r\n"

    async def test(one: Connected) -> None:
        for begin in range(0, len(chunks), 10_000):
            one.protocol.data_received(chunks[begin : begin + 10_000] if begin else CHUNKED + chunks[:10_000])
        for _ in range(40):
            await one.settle()
        assert answers_in(b"".join(one.pipe.written))[1] == [b"POST /x? " + content]
        assert one.pipe.is_reading

    run(test, Echo())


CHUNKED = head(b"Transfer-Encoding: chunked")
