"""What HTTP/1.1 forbids is refused before any handler sees it, and what a client announces is judged when it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.server import RunningServer
from tests.streams.wire import Wire, is_problem, request

SLICE = b"x" * 16_384


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"SEMEL_STORE": "memory:", "SEMEL_MAX_BODY_BYTES": "4096"}
    with RunningServer(tmp_path_factory.mktemp("malformed") / "data", env=env) as running:
        httpx.put(running.url + "/v1/stream/there", headers={"Content-Type": "text/plain"}).raise_for_status()
        yield running


def told(server: RunningServer, *pieces: bytes) -> httpx.Response:
    """The answer to these bytes, on a connection of their own that must end behind it if it is a refusal."""
    with Wire(server) as wire:
        for piece in pieces:
            wire.send(piece)
        answer = wire.answer()
        if answer.status_code >= 400:
            assert wire.closed()
        return answer


# -- Version and Host -------------------------------------------------------------------------------------------------

LEGAL = {
    "one Host": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a port": b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:8788\r\n\r\n",
    "IPv6": b"GET /livez HTTP/1.1\r\nHost: [::1]:8788\r\n\r\n",
    "HTTP/1.0 with a Host": b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n",
    "HTTP/1.0 without a Host": b"GET /livez HTTP/1.0\r\n\r\n",
}


@pytest.mark.parametrize("name", LEGAL)
def test_b5_a_legal_head_is_served(server: RunningServer, name: str) -> None:
    assert told(server, LEGAL[name]).status_code == 200


ILLEGAL = {
    "no Host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "the same Host twice": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nhost: localhost\r\n\r\n",
    "two Hosts over HTTP/1.0": b"GET /livez HTTP/1.0\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    "two names in one Host": b"GET /livez HTTP/1.1\r\nHost: localhost, evil.example\r\n\r\n",
    "a Host with a path": b"GET /livez HTTP/1.1\r\nHost: localhost/x\r\n\r\n",
    "a Host with a user": b"GET /livez HTTP/1.1\r\nHost: a@localhost\r\n\r\n",
    "a Host with a broken port": b"GET /livez HTTP/1.1\r\nHost: localhost:http\r\n\r\n",
    "HTTP/0.9": b"GET /livez HTTP/0.9\r\nHost: localhost\r\n\r\n",
    "HTTP/0.9 without a version": b"GET /livez\r\n\r\n",
    "HTTP/2.0 in the words of 1.1": b"GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "a WebSocket without a Host": b"GET /v1/events HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    "a WebSocket with two Hosts": b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n"
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_b5_an_illegal_head_is_400(server: RunningServer, name: str) -> None:
    answer = told(server, ILLEGAL[name])
    assert (answer.status_code, is_problem(answer)["code"]) == (400, "INVALID_REQUEST")


# -- Location ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9000", "127.0.0.1:9000", "[::1]:8788"])
def test_b5_location_is_absolute_where_the_host_is_this_machine(server: RunningServer, host: str) -> None:
    path = f"/v1/stream/own-{host.encode().hex()}"
    with Wire(server) as wire:
        wire.send(f"PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n".encode())
        assert wire.answer().headers["Location"] == f"http://{host}{path}"


def test_b5_location_names_the_listener_without_a_host(server: RunningServer) -> None:
    with Wire(server) as wire:
        wire.send(b"PUT /v1/stream/old HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
        assert wire.answer().headers["Location"] == f"{server.url}/v1/stream/old"


def test_b5_location_never_copies_a_foreign_host(tmp_path: Path) -> None:
    """With a token, because a server without credentials may refuse such a Host altogether."""
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:", "SEMEL_TOKEN_ACTIVE": "t0ken"}) as guarded:
        for number, host in enumerate(("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80")):
            path = f"/v1/stream/{number}"
            with Wire(guarded) as wire:
                wire.send(f"PUT {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer t0ken\r\n".encode())
                wire.send(b"Content-Length: 0\r\n\r\n")
                assert wire.answer().headers["Location"] == path


# -- Chunks -----------------------------------------------------------------------------------------------------------


def chunked(*fields: bytes) -> bytes:
    return request("POST", "/v1/stream/there", b"Content-Type: text/plain", b"Transfer-Encoding: chunked", *fields)


def test_b5_chunks_with_short_extensions_and_trailers_are_served(server: RunningServer) -> None:
    answer = told(server, chunked(), b"1;name=value\r\na\r\n", b"0\r\nX-Checksum: 1\r\n\r\n")
    assert answer.status_code == 204


def test_b5_many_small_chunks_are_no_excess(server: RunningServer) -> None:
    assert told(server, chunked(), *([b"1\r\na\r\n" * 100] * 40), b"0\r\n\r\n").status_code == 204


ENDLESS = {
    "an extension": (b"1;", SLICE),
    "a number of zeros": (b"", b"0" * len(SLICE)),
    "many extensions": (b"", (b"1;" + b"e" * 1_000 + b"\r\na\r\n") * 16),
    "a trailer": (b"0\r\nX-Trailer: ", SLICE),
    "many trailers": (b"0\r\n", b"X-Trailer: 1\r\n" * 1_200),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_b5_chunk_extensions_and_trailers_without_end_are_400(server: RunningServer, name: str) -> None:
    before, again = ENDLESS[name]
    answer = told(server, chunked(), before, *([again] * 64))
    assert (answer.status_code, is_problem(answer)["code"]) == (400, "INVALID_REQUEST")


def test_b5_a_trailer_is_no_header(server: RunningServer) -> None:
    """Else one behind a body could say what a proxy in front has looked for in vain."""
    end = b"0\r\nIdempotency-Key: smuggled\r\n\r\n"
    appends = [told(server, chunked() + body + end) for body in (b"1\r\na\r\n", b"1\r\nb\r\n")]
    assert [(one.status_code, "Idempotency-Replayed" in one.headers) for one in appends] == [(204, False)] * 2


# -- Expect -----------------------------------------------------------------------------------------------------------


def test_b5_an_answer_in_place_of_continue_ends_the_connection(server: RunningServer) -> None:
    """The client may or may not send its body then: what follows could not be told from a request."""
    with Wire(server) as wire:
        wire.send(request("POST", "/nowhere", b"Expect: 100-continue", b"Content-Length: 2"))
        answer = wire.answer()
        assert (answer.status_code, answer.headers["Connection"]) == (404, "close")
        assert wire.closed()


def test_b5_http_1_0_is_never_told_to_continue(server: RunningServer) -> None:
    with Wire(server) as wire:
        head = b"POST /v1/stream/there HTTP/1.0\r\nContent-Type: text/plain\r\nExpect: 100-continue\r\n"
        wire.send(head + b"Content-Length: 1\r\n\r\na")
        assert wire.answer().status_code == 204
