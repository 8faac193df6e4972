"""What happens when a front or the writer ends or hangs: no append is lost or doubled, and no process stays behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.harness.processes import family_of, is_there
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.server.fronts.requests import JSON, AnswerReader, request

FRONTS = 2
PATH = "/v1/stream/s"


def fronts_of(server: RunningServer) -> list[int]:
    """The process ids of the fronts."""
    found = []
    for pid in family_of(server.pid)[1:]:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"semel.server.front_process" in command:
            found.append(pid)
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path / "data", env={"SEMEL_FRONTS": str(FRONTS)}) as running:
        create(running)
        assert len(fronts_of(running)) == FRONTS
        yield running


def create(server: RunningServer) -> None:
    assert ask(server, "PUT", PATH)[0] == 201


def ask(server: RunningServer, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, server.port, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Type": JSON})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def stored(server: RunningServer) -> list[list[int]]:
    found: list[list[int]] = json.loads(ask(server, "GET", PATH + "?offset=-1")[1])
    return found


class Writer(threading.Thread):
    """A client that appends numbers one after another, and sends each again until it is acknowledged."""

    def __init__(self, server: RunningServer, name: int) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._name = name
        self._socket: socket.socket | None = None
        self.sent = 0
        self.interrupted = 0
        self.is_ending = threading.Event()

    def run(self) -> None:
        while not self.is_ending.is_set():
            self._append(self.sent)
            self.sent += 1
        if self._socket is not None:
            self._socket.close()

    def _append(self, number: int) -> None:
        body = b"[[%d, %d]]" % (self._name, number)
        data = request("POST", PATH, body, content_type=JSON, idempotency_key=f"{self._name}-{number}")
        while True:
            try:
                if self._socket is None:
                    self._socket = socket.create_connection((HOST, self._server.port), 30)
                self._socket.sendall(data)
                answer = AnswerReader(self._socket).read("POST")
            except (OSError, EOFError):
                self.interrupted += 1
                if self._socket is not None:
                    self._socket.close()
                self._socket = None
                time.sleep(0.01)
                continue
            assert answer.startswith("HTTP/1.1 204"), answer
            return


def is_replaced(server: RunningServer, victim: int) -> bool:
    return len([one for one in fronts_of(server) if one != victim]) == FRONTS


def test_killed_fronts_lose_their_connections_and_no_append(server: RunningServer) -> None:
    writers = [Writer(server, name) for name in range(8)]
    for writer in writers:
        writer.start()
    for _ in range(4):
        time.sleep(0.4)
        victim = fronts_of(server)[0]
        os.kill(victim, signal.SIGKILL)
        eventually(partial(is_replaced, server, victim), "replaced")
    time.sleep(0.4)
    for writer in writers:
        writer.is_ending.set()
    for writer in writers:
        writer.join(30)
        assert not writer.is_alive()
    assert sum(writer.interrupted for writer in writers) > 0
    rows = stored(server)
    for name, writer in enumerate(writers):
        assert [number for one, number in rows if one == name] == list(range(writer.sent)), "each once, in order"
    told = json.loads(ask(server, "GET", "/metrics")[1])
    assert told["semel_http_front_ends_total"] == 4
    eventually(lambda: json.loads(ask(server, "GET", "/metrics")[1])["semel_http_fronts"] == FRONTS, "all are ready")
    assert told["semel_http_connections"] <= len(writers) + 4


def test_appends_that_are_pipelined_are_stored_in_their_order(server: RunningServer) -> None:
    with socket.create_connection((HOST, server.port), 30) as caller:
        one = [
            request("POST", PATH, b"[[0, %d]]" % number, content_type=JSON, idempotency_key=f"p{number}")
            if number % 3
            else request("POST", PATH, b"[[0, %d]]" % number, content_type=JSON, x_request_id=f"r{number}")
            for number in range(300)
        ]
        reader = AnswerReader(caller)
        for number in range(100):  # one at a time, most of them plain
            caller.sendall(one[number])
            assert "204" in reader.read("POST")[:14]
        caller.sendall(b"".join(one[100:]))
        for _ in one[100:]:
            assert "204" in reader.read("POST")[:14]
    assert [number for _, number in stored(server)] == list(range(300))


def test_a_killed_writer_ends_its_fronts(server: RunningServer) -> None:
    fronts = fronts_of(server)
    os.kill(fronts[1], signal.SIGSTOP)
    with socket.create_connection((HOST, server.port), 30) as idle:
        server.kill()
        eventually(lambda: not any(map(is_there, fronts)), "the fronts have ended")
        idle.settimeout(10)
        with suppress(ConnectionResetError):
            assert idle.recv(1) == b""
    server.start()
    assert stored(server) == []


def test_a_stop_answers_open_requests_and_leaves_no_process(tmp_path: Path) -> None:
    env = {"SEMEL_FRONTS": str(FRONTS), "SEMEL_COMMIT_DELAY_MS": "700"}
    with RunningServer(tmp_path / "data", env=env) as server:
        create(server)
        fronts = fronts_of(server)
        callers = [socket.create_connection((HOST, server.port), 30) for _ in range(6)]
        for number, caller in enumerate(callers):
            caller.sendall(request("POST", PATH, b"[[0, 0]]", content_type=JSON, idempotency_key=f"d{number}"))
        time.sleep(0.2)
        assert server.stop() == 0
        for caller in callers:
            with caller:
                answer = AnswerReader(caller).read("POST")
                assert answer.startswith("HTTP/1.1 204"), answer
                assert caller.recv(1) == b""
        assert not any(map(is_there, fronts))
        server.start()
        assert len(stored(server)) == len(callers)


def test_a_front_that_hangs_delays_no_one_else_and_is_replaced(server: RunningServer) -> None:
    hung = fronts_of(server)[0]
    os.kill(hung, signal.SIGSTOP)
    deadline = time.monotonic() + 60
    appended = 0
    while is_there(hung):
        assert time.monotonic() < deadline
        with socket.create_connection((HOST, server.port), 30) as caller:
            caller.settimeout(1)
            try:
                caller.sendall(request("POST", PATH, b"[[0, %d]]" % appended, content_type=JSON))
                answer = AnswerReader(caller).read("POST")
            except TimeoutError:
                continue  # a connection of the front that hangs
            assert answer.startswith("HTTP/1.1 204")
            appended += 1
    assert appended > 0
    eventually(lambda: len(fronts_of(server)) == FRONTS, "it is replaced")
    for _ in range(10):
        assert ask(server, "POST", PATH, b"[[1, 1]]")[0] == 204


def test_a_stop_does_not_wait_for_a_front_that_hangs(tmp_path: Path) -> None:
    env = {"SEMEL_FRONTS": str(FRONTS), "SEMEL_SHUTDOWN_MS": "500"}
    with RunningServer(tmp_path / "data", env=env) as server:
        fronts = fronts_of(server)
        os.kill(fronts[0], signal.SIGSTOP)
        assert server.stop() == 0
        assert not any(map(is_there, fronts))
