"""Limits and credentials hold over all fronts together, and connections that are upgraded work through them."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.events.wire import fresh, item, serving
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import Issuer, token_file
from tests.server.fronts.requests import JSON, AnswerReader, request

FRONTS = {"SEMEL_FRONTS": "3"}
PATH = "/v1/stream/s"


def tokens_of(folder: Path, **tokens: str) -> Path:
    return token_file(folder, {name: (token, ("read", "write"), ()) for name, token in tokens.items()})


@pytest.fixture
def callers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def call(server: RunningServer, stack: ExitStack) -> socket.socket:
    return stack.enter_context(closing(socket.create_connection((HOST, server.port), 30)))


def ask(sock: socket.socket, data: bytes) -> str:
    sock.sendall(data)
    return AnswerReader(sock).read(data.split(b" ", 1)[0].decode())


def test_the_limit_of_connections_is_that_of_all_fronts(tmp_path: Path, callers: ExitStack) -> None:
    env = {**FRONTS, "SEMEL_HTTP_MAX_CONNECTIONS": "6"}
    with RunningServer(tmp_path / "data", env=env) as server:
        time.sleep(0.2)  # the probe of the start has gone
        some = [call(server, callers) for _ in range(6)]
        for sock in some:
            assert ask(sock, request("GET", "/livez")).startswith("HTTP/1.1 200")
        for _ in range(4):
            assert AnswerReader(call(server, callers)).read("GET").startswith("HTTP/1.1 503")
        some[0].close()

        def is_free() -> bool:
            with closing(socket.create_connection((HOST, server.port), 30)) as sock:
                return ask(sock, request("GET", "/livez")).startswith("HTTP/1.1 200")

        eventually(is_free, "there is room for another connection")
        reader = AnswerReader(some[1])
        some[1].sendall(request("GET", "/metrics"))
        reader.read("GET")
        told = json.loads(reader.body)
        assert told["semel_connections_refused_total{reason=connections}"] >= 4
        assert told["semel_http_requests_total{method=-,status=503,surface=none}"] >= 4
        assert 5 <= told["semel_http_connections"] <= 6


def test_the_share_of_a_principal_is_that_of_all_fronts(tmp_path: Path, callers: ExitStack) -> None:
    tokens = tokens_of(tmp_path, ada="secret")
    env = {
        **FRONTS,
        "SEMEL_TOKENS": str(tokens),
        "SEMEL_QUEUE_WRITES": "8",
        "SEMEL_QUEUE_PRINCIPAL_SHARE": "0.5",
        "SEMEL_COMMIT_DELAY_MS": "800",
        "SEMEL_COMMIT_THREAD": "always",
    }
    fields = {"authorization": "Bearer secret", "content_type": JSON}
    with RunningServer(tmp_path / "data", env=env) as server:
        assert ask(call(server, callers), request("PUT", PATH, b"", **fields)).startswith("HTTP/1.1 201")
        some = [call(server, callers) for _ in range(24)]
        for sock in some:
            sock.sendall(request("POST", PATH, b"[1]", **fields))
        statuses = [AnswerReader(sock).read("POST")[9:12] for sock in some]
        assert set(statuses) == {"204", "503"}, statuses
        assert statuses.count("503") >= 24 - 3 * 4, "at most 4 wait at a time"


def test_a_withdrawn_token_is_refused_by_every_front(tmp_path: Path, callers: ExitStack) -> None:
    tokens = tokens_of(tmp_path, ada="secret", bob="other")
    fields = {"authorization": "Bearer secret", "content_type": JSON}
    with RunningServer(tmp_path / "data", env={**FRONTS, "SEMEL_TOKENS": str(tokens)}) as server:
        some = [call(server, callers) for _ in range(12)]
        assert ask(some[0], request("PUT", PATH, b"", **fields)).startswith("HTTP/1.1 201")
        append = request("POST", PATH, b"[1]", **fields)
        for _ in range(3):  # from the second on they are plain
            assert {ask(sock, append)[9:12] for sock in some} == {"204"}
        tokens_of(tmp_path, bob="other")
        os.kill(server.pid, signal.SIGHUP)
        eventually(lambda: "was read again" in server.output_tail(), "the file is read")
        assert {ask(sock, append)[9:12] for sock in some} == {"401"}
        stored = ask(some[0], request("GET", PATH + "?offset=-1", authorization="Bearer other"))
        assert stored.rpartition("\n")[2] == json.dumps([1] * 36, separators=(",", ":"))


def test_an_expired_token_is_refused_without_a_signal(tmp_path: Path, callers: ExitStack) -> None:
    issuer = Issuer(tmp_path)
    with RunningServer(tmp_path / "data", env={**FRONTS, "SEMEL_JWT_KEYS": str(issuer.keys)}) as server:
        ends = int(time.time()) + 8
        token = issuer.signed({"sub": "ada", "exp": ends, "role": "write"})
        fields = {"authorization": f"Bearer {token}", "content_type": JSON}
        some = [call(server, callers) for _ in range(6)]
        assert ask(some[0], request("PUT", PATH, b"", **fields)).startswith("HTTP/1.1 201")
        append = request("POST", PATH, b"[1]", **fields)
        statuses = []
        while time.time() < ends + 1:
            statuses = [ask(sock, append)[9:12] for sock in some]
            assert set(statuses) <= {"204", "401"}
        assert set(statuses) == {"401"}


def test_websockets_of_all_fronts_get_every_event(tmp_path: Path) -> None:
    with serving(tmp_path / "data", store="sqlite", FRONTS="3") as events:
        peers = [events.peer() for _ in range(8)]
        room = fresh("room")
        for peer in peers:
            peer.subscribe(room)
        text = "x" * 30_000
        numbers = [peer.commit(item([room], {"type": "t", "text": text}))[0] for peer in peers]
        for number, peer in enumerate(peers):
            told = peer.broadcasts(len(peers) - 1)
            own = numbers[number]
            assert [one["committed_id"] for one in told] == [one for one in numbers if one != own]
