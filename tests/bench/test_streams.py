"""The part `streams` of the benchmark: its readers count what they get, and the report tells what they did not get."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from bench import load_reads, load_tail
from bench.load import CLOSED, OPENED
from bench.suite import report
from bench.suite.measures import APPEND_ONE_STREAM, READERS, REFERENCE, SEMEL, TAIL, Point
from bench.suite.results import Record
from tests.bench.test_suite import ABOUT
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 120

pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60)


def measured(port: int, *options: str) -> dict[str, float]:
    """A short run of the load generator."""
    command = [sys.executable, "-m", "bench.load_reads", "--port", str(port), *options]
    command += ["--warm", "0.1", "--window", "0.5"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.stderr.split("\n") == [OPENED, CLOSED, ""]
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_every_reader_of_every_stream_gets_every_message(tmp_path: Path) -> None:
    with RunningServer(tmp_path) as server:
        found = measured(server.port, "--kind", "tail", "--connections", "20", "--streams", "2", "--rate", "20")
        stored = httpx.get(f"{server.url}/v1/stream/bench-0").json()
    assert found["units"] == found["expected"] == 10 * 10  # appends of the window, and readers of either stream
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert len(stored) == 7  # of the warm-up too
    assert {len(json.dumps(one, separators=(",", ":"))) for one in stored} == {200}


def test_catch_up_fills_a_stream_once_and_counts_what_it_reads(tmp_path: Path) -> None:
    with RunningServer(tmp_path) as server:
        for connections in ("1", "2"):
            found = measured(
                server.port, "--kind", "catch-up", "--connections", connections, "--appends", "20", "--batch", "5"
            )
            assert found["per_second"] == pytest.approx(found["units"] / 0.5)
            assert found["units"] > 0
            assert found["p99_ms"] > 0
        assert len(httpx.get(f"{server.url}/v1/stream/bench").json()) == 100


class HalfDeaf:
    """A server that answers every append, sends it to every other reader, and splits it within the time it carries."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._callers: list[socket.socket] = []
        self._readers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening and hang up."""
        self._listener.close()
        for caller in self._callers:
            caller.close()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self._callers.append(caller)
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        request = caller.recv(65_536)
        if request.startswith(b"GET"):
            self._readers.append(caller)
            caller.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: control\n\n")
            return
        while request.startswith(b"POST") and not request.endswith(b"}"):
            request += caller.recv(65_536)
        event = b"event: data\ndata: " + request.partition(b"\r\n\r\n")[2] + b"\n\n"
        middle = event.find(b" ns") - 3
        for reader in self._readers[::2] if request.startswith(b"POST") else ():
            reader.sendall(event[:middle])
            threading.Event().wait(0.01)
            reader.sendall(event[middle:])
        caller.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


@pytest.fixture
def half_deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[HalfDeaf]:
    monkeypatch.setattr(load_tail, "WARM_SECONDS", 0.2)
    monkeypatch.setattr(load_tail, "SETTLE_SECONDS", 0.5)
    server = HalfDeaf()
    yield server
    server.close()


def test_messages_that_do_not_come_are_missed_and_a_split_one_is_not(half_deaf: HalfDeaf) -> None:
    options = ["--port", str(half_deaf.port), "--kind", "tail", "--connections", "4", "--rate", "10"]
    found = load_tail.tail(load_reads.options().parse_args([*options, "--warm", "0.1", "--window", "0.5"]))
    assert (found["units"], found["expected"]) == (10, 20)


def record(point: Point, **figures: float) -> Record:
    """One measurement."""
    typical = {"p50_ms": 10.0, "p99_ms": 40.0, "server_cpu_us": 20.0, "others_busy": 0.0, "round": 0}
    return Record(point._asdict() | typical | figures)


def test_the_report_tells_what_was_received_and_the_memory() -> None:
    ours, theirs = (Point(TAIL, name, READERS) for name in (SEMEL, REFERENCE))
    records = [
        record(ours, per_second=20_000.0, units=40_000, expected=40_000, peak_mib=80.0),
        record(theirs, per_second=1_000.0, units=10_000, expected=40_000, peak_mib=400.0, p50_ms=4_000.0),
        record(Point(APPEND_ONE_STREAM, SEMEL, 64), per_second=40_000.0, units=80_000, peak_mib=70.0),
        record(Point(APPEND_ONE_STREAM, REFERENCE, 64), per_second=2_000.0, units=4_000, peak_mib=300.0),
    ]
    lines = list(report.render(report.newest([(ABOUT, records)])))
    assert f"| {TAIL} | 1000 | {SEMEL} | 20,000 | 1.00 times | 10.0 | 40.0 | 20 | 100% | 80 |" in lines
    assert f"| {TAIL} | 1000 | {REFERENCE} | 1,000 | 20.00 times | 4000.0 | 40.0 | 20 | 25% | 400 |" in lines
    assert f"| {APPEND_ONE_STREAM} | 64 | {REFERENCE} | 2,000 | 20.00 times | 10.0 | 40.0 | 20 | - | 300 |" in lines
