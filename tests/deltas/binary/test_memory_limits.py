"""Answers that nobody reads, frames that nobody finishes: together they have a bound, and each caller has one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress

import pytest
from websockets.frames import Frame, Opcode

from tests.deltas.binary.caller import Line, pull_frame, push_frame
from tests.deltas.binary.readers import Reader, dial, held_bytes
from tests.deltas.vectors import columns, delta
from tests.deltas.wire import Deltas, fresh, hlcs
from tests.harness.server import HOST, RunningServer
from tests.harness.together import check_log, eventually

MIB = 1024 * 1024
ANSWERS, UPLOADS = 32 * MIB, 4 * MIB
"""One caller may have half of each."""
ROW_BYTES = 900_000
PAGE_BYTES = 9 * ROW_BYTES
"""Two such pages are what one caller may have, and four what all may have."""


class HastyServer(RunningServer):
    """The real server, with little room, and little time to wait for it."""

    def launch(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.deltas.binary.hasty_main", "serve"]
        command += ["--host", HOST, "--port", str(self.port), "--data", str(self.data)]
        settings = {"SEMEL_DELTAS_ANSWERS_BYTES": str(ANSWERS), "SEMEL_MAX_UPLOADS_BYTES": str(UPLOADS)}
        with self.output.open("ab") as output:
            variables = os.environ | settings | {"SEMEL_LEDGER_GRPC_PORT": "0"} | dict(env)
            self._process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
        return self._process


@pytest.fixture(scope="module")
def deltas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    server = HastyServer(tmp_path_factory.mktemp("hasty") / "data")
    with server:
        client = Deltas(server)
        yield client
        client.close()
    check_log(server)


@pytest.fixture(scope="module")
def large(deltas: Deltas) -> str:
    """A gateway that is one large page."""
    gateway, hlc = fresh("gw"), hlcs()
    for number in range(9):
        deltas.push(gateway, [delta("INSERT", columns(text="x" * ROW_BYTES), row=f"r{number}", hlc=next(hlc))])
    return gateway


def pull(gateway: str) -> str:
    return f"/v1/sync/{gateway}/pull?since=0&clientId={fresh('reader')}&limit=10000"


def unread(deltas: Deltas, gateway: str, pages: int, stack: ExitStack, number: int = 0) -> list[Reader]:
    """So many pulls of one caller whose answers are on their way, and not read."""
    before = held_bytes(deltas, "answers")
    readers = [stack.enter_context(Reader(deltas.server.port, number)) for _ in range(pages)]
    for reader in readers:
        reader.ask(pull(gateway))
    eventually(lambda: held_bytes(deltas, "answers") > before + pages * PAGE_BYTES, "they are on their way")
    return readers


def nothing_is_held(deltas: Deltas, what: str) -> None:
    eventually(lambda: held_bytes(deltas, what) == 0, f"the room of {what} is given back")


def test_pages_in_all_and_for_each_caller(deltas: Deltas, large: str) -> None:
    small = fresh("gw")
    deltas.push(small, [delta("INSERT", columns(a=1))])
    with ExitStack() as stack:
        first = unread(deltas, large, 2, stack)
        assert deltas.call("GET", pull(large), expect=503).code == "BACKPRESSURE_ERROR"
        assert len(deltas.pull(small).ids) == 1
        second = unread(deltas, large, 2, stack, 1)
        with Reader(deltas.server.port, 2) as another:
            assert another.get(pull(large)) == 503
            assert another.get(pull(small)) == 200
        for reader in (*first, *second):
            answer = reader.answer()
            assert (answer.status, len(answer.read())) == (200, answer.size)
        nothing_is_held(deltas, "answers")
        assert len(deltas.pull(large, limit=10_000).ids) == 9


def test_those_who_leave_give_their_room_back(deltas: Deltas, large: str) -> None:
    with ExitStack() as stack:
        unread(deltas, large, 2, stack)
    nothing_is_held(deltas, "answers")


def line_of(deltas: Deltas, gateway: str, stack: ExitStack, number: int = 0) -> tuple[Line, socket.socket]:
    """A WebSocket for which the system takes in little, and the connection below it."""
    raw = dial(deltas.server.port, number)
    line = Line(deltas.server.port, gateway, fresh("socket"), line=raw)
    return stack.enter_context(line), raw


def test_pages_over_websocket(deltas: Deltas, large: str) -> None:
    with ExitStack() as stack:
        unread(deltas, large, 1, stack)
        slow, _ = line_of(deltas, large, stack)
        slow.send(pull_frame("a", 0))
        eventually(lambda: held_bytes(deltas, "answers") > 1.5 * PAGE_BYTES, "both are on their way")
        third, _ = line_of(deltas, large, stack)
        third.send(pull_frame("b", 0))
        assert third.ending()[0] == 1013
        another, _ = line_of(deltas, large, stack, 1)
        assert len(another.pull().deltas) == 9
        assert len(slow.answer().deltas) == 9
    nothing_is_held(deltas, "answers")


def test_a_broadcast_waits_for_room(deltas: Deltas, large: str) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    with ExitStack() as stack:
        line, _ = line_of(deltas, gateway, stack)
        line.pull()
        readers = unread(deltas, large, 2, stack)
        told = delta("INSERT", columns(text="x" * ROW_BYTES), row="r1", hlc=next(hlc))
        deltas.push(gateway, [told])
        assert line.behind(1.0) == []
        for reader in readers:
            reader.close()
        assert line.broadcast().ids == [told["deltaId"]]
    nothing_is_held(deltas, "answers")


def unfinished(deltas: Deltas, gateway: str, stack: ExitStack, number: int = 0) -> tuple[Line, socket.socket, bytes]:
    """A WebSocket on which a large push is missing its last byte; and that byte."""
    line, raw = line_of(deltas, gateway, stack, number)
    made = delta("INSERT", columns(text="x" * ROW_BYTES), row=fresh("row"), client="a", hlc=next(hlcs()))
    frame = Frame(Opcode.BINARY, push_frame([made], "a")).serialize(mask=True)
    with suppress(ConnectionError):  # one that is refused, and stands still meanwhile, is cut off
        raw.sendall(frame[:-1])
    return line, raw, frame[-1:]


def test_frames_in_all_and_for_each_caller(deltas: Deltas) -> None:
    gateway = fresh("gw")
    with ExitStack() as stack:
        held = [unfinished(deltas, gateway, stack, number // 2) for number in range(2)]
        eventually(lambda: held_bytes(deltas, "uploads") > 2 * ROW_BYTES, "they arrive")
        assert unfinished(deltas, gateway, stack)[0].ending()[0] == 1013
        held += [unfinished(deltas, gateway, stack, 1 + number // 2) for number in range(2)]
        eventually(lambda: held_bytes(deltas, "uploads") > 4 * ROW_BYTES, "these too")
        assert unfinished(deltas, gateway, stack, 2)[0].ending()[0] == 1013
        with Reader(deltas.server.port, 2) as another:
            assert another.get(pull(gateway)) == 200
        for line, raw, last in held:
            raw.sendall(last)
            assert line.answer().hlc
    nothing_is_held(deltas, "uploads")
    assert len(deltas.log(gateway)) == 4


def test_bodies_over_http_are_among_them(deltas: Deltas) -> None:
    with ExitStack() as stack:
        for number in range(4):
            unfinished(deltas, fresh("gw"), stack, number // 2)
        eventually(lambda: held_bytes(deltas, "uploads") > 4 * ROW_BYTES, "they arrive")
        pieces = (b" " * 100_000 for _ in range(8))
        refused = deltas.call("POST", f"/v1/sync/{fresh('gw')}/push", pieces, expect=503)
        assert refused.code == "BACKPRESSURE_ERROR"
    nothing_is_held(deltas, "uploads")
