"""Clients that do not read, do not answer or have gone without a word are let go; those that are there are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest
from websockets.frames import Frame, Opcode

from tests.deltas.binary.caller import Line, joined, pull_frame
from tests.deltas.binary.impatient_main import PATIENCE_SECONDS, PING_SECONDS, TIMES
from tests.deltas.binary.readers import dial
from tests.deltas.vectors import columns, delta
from tests.deltas.wire import Deltas, fresh, hlcs
from tests.harness.server import HOST, RunningServer
from tests.harness.together import check_log, eventually, in_time, unless_held_up, unless_late

Impatient = Callable[[float], Deltas]


class ImpatientServer(RunningServer):
    """The real server, with timers of a fraction of a second, or so many times as long."""

    def __init__(self, data: Path, times: float) -> None:
        super().__init__(data)
        self._times = times

    def launch(self, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.deltas.binary.impatient_main", "serve"]
        command += ["--host", HOST, "--port", str(self.port), "--data", str(self.data)]
        settings = {"SEMEL_DELTAS_LIVE_BYTES": "20000", "SEMEL_LEDGER_GRPC_PORT": "0", TIMES: str(self._times)}
        with self.output.open("ab") as output:
            variables = os.environ | settings | dict(env)
            self._process = subprocess.Popen(command, env=variables, stdout=output, stderr=output)
        return self._process


@contextmanager
def impatience(data: Path, times: float) -> Iterator[Deltas]:
    server = ImpatientServer(data, times)
    with server:
        client = Deltas(server)
        yield client
        client.close()
    check_log(server)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Impatient]:
    """A server for each number of times; only those who were late ask for another than the first."""
    folder = tmp_path_factory.mktemp("impatient")
    with ExitStack() as stack:
        yield cache(lambda times: stack.enter_context(impatience(folder / f"data-{times}", times)))


@pytest.fixture
def deltas(impatient: Impatient) -> Deltas:
    return impatient(1.0)


def open_sockets(deltas: Deltas) -> int:
    found: int = deltas.send("GET", "/metrics").json()["semel_deltas_sockets"]
    return found


def test_one_that_never_says_what_it_has(impatient: Impatient) -> None:
    in_time(lambda times: hear_and_say_nothing(impatient(times), times), 1.0)


def hear_and_say_nothing(deltas: Deltas, times: float) -> None:
    gateway, hlc, began = fresh("gw"), hlcs(), time.monotonic()
    with Line.mute(deltas.server.port, gateway, "a") as line:
        with unless_late(lambda: began, times * PING_SECONDS):
            line.pull()
            deltas.push(gateway, [delta("INSERT", columns(x=1), row="r1", client="b", hlc=next(hlc))], client="b")
            line.broadcast()
        assert line.ending()[0] == 1013


def test_one_that_has_gone_without_a_word(impatient: Impatient) -> None:
    in_time(lambda times: pull_and_say_nothing(impatient(times), times), 1.0)


def pull_and_say_nothing(deltas: Deltas, times: float) -> None:
    began = time.monotonic()
    with Line.mute(deltas.server.port, fresh("gw"), "a") as line:
        with unless_late(lambda: began, times * PING_SECONDS):
            line.pull()
        assert line.ending()[0] == 1013


def test_one_that_pulls_again_and_never_says_what_it_has_stays(impatient: Impatient) -> None:
    """Its pull says where it stands: the pong of the broadcast before is owed no more."""
    in_time(lambda times: pull_again_and_say_nothing(impatient(times), times), 1.0)


def pull_again_and_say_nothing(deltas: Deltas, times: float) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    with (
        unless_held_up(times * PATIENCE_SECONDS / 2, lambda: open_sockets(deltas)),
        Line.mute(deltas.server.port, gateway, "a") as line,
    ):
        deltas.push(gateway, [delta("INSERT", columns(x=1), row="r1", client="b", hlc=next(hlc))], client="b")
        line.pull()
        deltas.push(gateway, [delta("INSERT", columns(x=1), row="r2", client="b", hlc=next(hlc))], client="b")
        line.broadcast()
        for _ in range(4):
            assert [entry["rowId"] for entry in line.pull().deltas] == ["r1", "r2"]
            time.sleep(times * PATIENCE_SECONDS / 2)  # the point of the test: in all, longer than a pong may take


def test_one_that_asks_and_does_not_read(deltas: Deltas) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    for number in range(3):
        made = [delta("INSERT", columns(text="x" * 900_000), row=f"r{number}", client="b", hlc=next(hlc))]
        deltas.push(gateway, made, client="b")
    with Line.mute(deltas.server.port, gateway, "a") as line:
        with suppress(OSError):  # it may be let go before it has asked for all of it
            for _ in range(20):
                line.send(pull_frame("a", 0))
        eventually(lambda: open_sockets(deltas) == 0, "it is let go")


def test_one_whose_frame_never_ends(deltas: Deltas) -> None:
    """It says something now and then: a byte of a large frame."""
    raw = dial(deltas.server.port)
    with Line(deltas.server.port, fresh("gw"), "a", line=raw) as line:
        frame = Frame(Opcode.BINARY, b"\x01" + b"x" * 1_000_000).serialize(mask=True)
        # It may be let go, and cut off, while it sends; what it was told then is there to read.
        with suppress(ConnectionError):
            raw.sendall(frame[:-1_000])
        raw.settimeout(0.1)
        for place in range(len(frame) - 1_000, len(frame) - 1):
            with suppress(OSError):
                raw.sendall(frame[place : place + 1])
            with suppress(TimeoutError):
                assert line.ending()[0] == 1013
                return
    raise AssertionError("it was listened to all the time")


def test_one_that_is_silent_and_there(impatient: Impatient) -> None:
    """Its WebSocket answers pings: that is enough."""
    in_time(lambda times: listen_and_say_nothing(impatient(times), times), 1.0)


def listen_and_say_nothing(deltas: Deltas, times: float) -> None:
    gateway, hlc = fresh("gw"), hlcs()
    with (
        unless_held_up(times * PATIENCE_SECONDS / 2, lambda: open_sockets(deltas)),
        joined(deltas.server.port, gateway, "a") as a,
    ):
        a.pull()
        time.sleep(times * 2.3)  # the point of the test: longer than a silent one is kept
        deltas.push(gateway, [delta("INSERT", columns(x=1), row="r1", client="b", hlc=next(hlc))], client="b")
        assert [entry["rowId"] for entry in a.broadcast().deltas] == ["r1"]
