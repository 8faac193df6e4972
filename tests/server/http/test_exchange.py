"""One connection from outside: turns of pipelined requests, forms of answers, upgrades, and the end with its server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.events.raw_frames import HANDSHAKE, RawSocket, frame
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.server.http.pipe import Reading
from tests.streams.wire import Wire, request

__all__ = ["Reading"]

GET = request("GET", "/livez")
POLL = request("GET", "/v1/stream/s?live=long-poll&offset=now")
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"SEMEL_STORE": "memory:", "SEMEL_STREAMS_LONG_POLL_MS": "600000"}
    with RunningServer(tmp_path_factory.mktemp("turns") / "data", env=env) as running:
        httpx.put(running.url + "/v1/stream/s", headers=TEXT).raise_for_status()
        yield running


def readers(server: RunningServer) -> int:
    return int(httpx.get(server.url + "/metrics").json()["semel_live_readers"])


def append(server: RunningServer) -> None:
    httpx.post(server.url + "/v1/stream/s", headers=TEXT, content=b"x").raise_for_status()


def test_pipelined_requests_are_answered_in_order_though_the_first_waits(server: RunningServer) -> None:
    with Wire(server) as wire, Wire(server) as other:
        wire.send(POLL + GET * 100)
        eventually(lambda: readers(server) == 1, "the poll waits")
        other.send(GET)
        assert other.answer().status_code == 200, "nobody else waits for it"
        append(server)
        first = wire.answer()
        assert (first.status_code, first.content) == (200, b"x")
        assert [wire.answer().json()["status"] for _ in range(100)] == ["ok"] * 100


def test_a_client_that_leaves_is_waited_for_no_longer(server: RunningServer) -> None:
    for leave in (Wire.reset, Wire.finish):
        with Wire(server) as wire:
            wire.send(POLL)
            eventually(lambda: readers(server) == 1, "the poll waits")
            leave(wire)
            eventually(lambda: readers(server) == 0, "the poll has ended")


def test_the_rest_of_a_body_that_is_answered_early_is_dropped_and_the_next_request_is_served(
    server: RunningServer,
) -> None:
    with Wire(server) as wire:
        wire.send(request("POST", "/v1/stream/none", b"Content-Type: text/plain", body=bytes(200_000)) + GET)
        assert [wire.answer().status_code for _ in range(2)] == [404, 200]


FORMS: dict[str, tuple[bytes, str, int, Callable[[httpx.Response], bool]]] = {
    "a body": (GET, "GET", 200, lambda answer: int(answer.headers["Content-Length"]) == len(answer.content) > 0),
    "to HEAD": (request("HEAD", "/livez"), "HEAD", 200, lambda answer: int(answer.headers["Content-Length"]) > 0),
    "204": (
        request("POST", "/v1/stream/s", b"Content-Type: text/plain", body=b"x"),
        "POST",
        204,
        lambda answer: "Content-Length" not in answer.headers,
    ),
    "a refusal": (
        request("GET", "/nowhere"),
        "GET",
        404,
        lambda answer: int(answer.headers["Content-Length"]) == len(answer.content),
    ),
}


def test_every_answer_says_where_it_ends(server: RunningServer) -> None:
    """So that the next one on its connection is read as what it is."""
    tag = httpx.get(server.url + "/openapi.json").headers["ETag"].encode()
    same = request("GET", "/openapi.json", b"If-None-Match: " + tag), "GET", 304, lambda answer: not answer.content
    with Wire(server) as wire:
        for name, (sent, method, status, is_right) in (FORMS | {"304": same}).items():
            wire.send(sent)
            answer = wire.answer(method)
            assert (answer.status_code, is_right(answer)) == (status, True), name
        wire.send(request("GET", "/livez", b"Connection: close"))
        assert wire.answer().headers["Connection"] == "close"
        assert wire.closed()


def test_answers_that_wait_leave_when_the_server_stops_and_their_connection_ends(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_STREAMS_LONG_POLL_MS": "600000"}) as server:
        httpx.put(server.url + "/v1/stream/s", headers=TEXT).raise_for_status()
        with Wire(server) as wire:
            wire.send(POLL + GET)
            eventually(lambda: readers(server) == 1, "the poll waits")
            assert server.stop() == 0
            assert [wire.answer().status_code for _ in range(2)] == [204, 200]
            assert wire.closed()


def test_bytes_behind_a_handshake_are_not_lost(server: RunningServer) -> None:
    hello = b'{"type":"connect","protocol_version":"1.0","msg_id":"1","timestamp":0,'
    hello += b'"payload":{"client_id":"c","token":"t"}}'
    for message in (hello, hello.replace(b'"t"', b'"%b"' % (b"t" * 50_000))):
        with closing(RawSocket(server.port, 30)) as socket:
            assert socket.upgrade(HANDSHAKE + frame(message)) == 101
            assert b'"connected"' in getattr(socket.receive(), "payload", b"")


def test_no_upgrade_while_an_answer_is_due(server: RunningServer) -> None:
    with Wire(server) as wire:
        wire.send(POLL + HANDSHAKE)
        eventually(lambda: readers(server) == 1, "the poll waits")
        append(server)
        statuses = [wire.answer().status_code for _ in range(2)]
        assert statuses[0] == 200
        assert statuses[1] >= 400
        assert wire.closed()


@pytest.mark.parametrize("part", ["header", "target"])
def test_a_handshake_with_a_line_that_is_too_long_is_a_problem_document(server: RunningServer, part: str) -> None:
    target = "/v1/events" + ("?" + "t" * 9_000 if part == "target" else "")
    lines = HANDSHAKE.split(b"\r\n")[2:-2] + ([b"Cookie: " + b"c" * 9_000] if part == "header" else [])
    with Wire(server) as wire:
        wire.send(request("GET", target, *lines))
        answer = wire.answer()
        assert (answer.status_code, answer.headers["Content-Type"]) == (431, "application/problem+json")
        assert wire.closed()
