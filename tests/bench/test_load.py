"""The load generator: when requests are due, what a latency counts from, where an answer ends, and what is counted."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable

import pytest

from bench.load import figures, options, percentile
from bench.load_loop import NOT_AN_ANSWER, BrokenError, Count, Loop, Schedule
from bench.load_sources import Appends, NatsMessages, RedisScript
from bench.load_wires import bulk, cut_http, cut_nats, cut_resp, cut_websocket


def test_requests_are_due_at_even_distances_whatever_the_server_does() -> None:
    schedule = Schedule(rate=4.0, start=10.0)
    assert schedule.due(9.99) is None
    assert schedule.wait(9.5) == pytest.approx(0.5)
    assert [schedule.due(10.6) for _ in range(4)] == [10.0, 10.25, 10.5, None]
    assert schedule.wait(10.6) == pytest.approx(0.15)
    assert schedule.wait(11.0) == 0.0


def latencies(stall: float, *, is_open: bool) -> list[float]:
    """One connection at 100 requests a second for 3 s on a fake clock; the server stalls once, at second 1."""
    schedule, count = Schedule(100.0, 0.0), Count(0.0, 3.0, by_intended=is_open)
    now, is_stalled = 0.0, False
    while now < 3.0:
        intended = schedule.due(now)
        if intended is None:
            now += schedule.wait(now) + 1e-9
            continue
        began = intended if is_open else now
        now += 0.001
        if now > 1.0 and not is_stalled:
            now, is_stalled = now + stall, True
        count.add(began, now, 1)
    return sorted(count.seconds, reverse=True)


def test_a_stall_counts_for_every_request_that_was_due_meanwhile() -> None:
    found = latencies(1.0, is_open=True)
    assert found[0] == pytest.approx(1.001, abs=1e-6)
    # 100 requests were due during the stall; each waited for the rest of it and for those before it.
    assert sum(one > 0.1 for one in found) == pytest.approx(100, abs=2)
    assert found[50] == pytest.approx(1.001 - 50 * 0.009, abs=0.01)
    assert percentile(sorted(found), 99.0) > 0.9


def test_a_closed_count_sees_the_same_stall_once() -> None:
    found = latencies(1.0, is_open=False)
    assert sum(one > 0.1 for one in found) == 1
    assert percentile(sorted(found), 99.0) < 0.01


def test_a_closed_loop_counts_by_the_answer_and_an_open_one_by_the_intended_time() -> None:
    closed, opened = Count(1.0, 2.0, by_intended=False), Count(1.0, 2.0, by_intended=True)
    for count in (closed, opened):
        count.add(0.9, 1.1, 1)
        count.add(1.5, 1.6, 0)  # a claim is no unit and has no latency of its own
        count.add(1.9, 2.5, 1)
    assert (closed.units, len(closed.seconds), closed.last) == (1, 1, 1.6)
    assert closed.seconds[0] == pytest.approx(0.2)
    assert (opened.units, len(opened.seconds), opened.last) == (1, 1, 2.5)
    assert opened.seconds[0] == pytest.approx(0.6)


def test_a_percentile_is_the_least_value_that_the_share_does_not_exceed() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (50.0, 99.0, 99.5, 100.0)] == [50.0, 99.0, 100.0, 100.0]
    assert percentile([7.0], 50.0) == 7.0
    assert percentile([], 99.0) == 0.0


def test_figures_tell_units_a_second_and_the_curve_in_milliseconds() -> None:
    count = Count(0.0, 2.0, by_intended=False)
    for _ in range(10):
        count.add(0.5, 0.504, 100)
    found = figures(count, 2.0, 0.25)
    assert (found["per_second"], found["units"], found["load_busy"]) == (500.0, 1_000, 0.25)
    assert found["p50_ms"] == found["p99_ms"] == pytest.approx(4.0)


HTTP = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
EMPTY = b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n"
LONG = bytes([0x81, 126, 1, 0]) + b"x" * 256


@pytest.mark.parametrize(
    ("cut", "answer"),
    [
        (cut_http, HTTP),
        (cut_http, CHUNKED),
        (cut_http, EMPTY),
        (cut_resp, b"$15\r\n1700000000000-0\r\n"),
        (cut_resp, b"$-1\r\n"),
        (cut_resp, b"+OK\r\n"),
        (cut_nats, b'MSG _IN.0 1 24\r\n{"stream":"B","seq":123}\r\n'),
        (cut_nats, b"PING\r\n"),
        (cut_websocket, bytes([0x81, 5]) + b"hello"),
        (cut_websocket, LONG),
    ],
)
def test_an_answer_ends_where_its_protocol_says(cut: Callable[[bytes], int], answer: bytes) -> None:
    assert [cut(answer[:size]) for size in range(len(answer))] == [0] * len(answer)
    assert cut(answer) == cut(answer + answer) == len(answer)


def test_a_command_of_redis_is_an_array_of_bulks() -> None:
    assert bulk(b"GET", b"key") == b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"


def test_an_unexpected_answer_ends_the_run() -> None:
    fresh, known = (options().parse_args(["--port", "1", "--keys", keys]) for keys in ("random", "repeated"))
    assert Appends(fresh).answered(0, EMPTY) == 1
    assert RedisScript(known).answered(0, b"$5\r\nknown\r\n") == 1
    assert NatsMessages(fresh).answered(0, b"PING\r\n") == NOT_AN_ANSWER
    for source, answer in (
        (Appends(fresh), b"HTTP/1.1 503 Busy\r\n\r\n"),
        (RedisScript(fresh), b"$5\r\nknown\r\n"),
        (RedisScript(fresh), b"-OOM\r\n"),
        (NatsMessages(fresh), b'MSG a 1 9\r\n{"seq":1,"duplicate":true}\r\n'),
    ):
        with pytest.raises(BrokenError):
            source.answered(0, answer)


class Numbers:
    """Requests of eight digits and a line end, echoed by the server."""

    cut = staticmethod(cut_resp)

    def __init__(self, count: int) -> None:
        self._count = count
        self.sent: list[bytes] = []
        self.heard: list[bytes] = []

    def prepare(self, port: int) -> None:
        """Nothing."""

    def open(self, caller: socket.socket, connection: int) -> None:
        """Nothing."""

    def request(self, connection: int) -> bytes | None:
        """The next number."""
        if len(self.sent) == self._count:
            return None
        self.sent.append(b"+%07d\r\n" % len(self.sent))
        return self.sent[-1]

    def answered(self, connection: int, answer: bytes) -> int:
        """Keep it."""
        self.heard.append(answer)
        return 1


def echo(listener: socket.socket) -> None:
    """Send back what comes, on every connection, a thread for each."""

    def serve(caller: socket.socket) -> None:
        with caller:
            while data := caller.recv(4_096):
                caller.sendall(data)

    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(caller,), daemon=True).start()


@pytest.mark.parametrize(("connections", "in_flight", "rate"), [(3, 1, None), (1, 8, None), (4, 1, 5_000.0)])
def test_every_request_is_sent_once_and_answered_once(connections: int, in_flight: int, rate: float | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=echo, args=(listener,), daemon=True).start()
        source = Numbers(500)
        loop = Loop(source, listener.getsockname()[1], connections, in_flight)
        now = time.perf_counter()
        count = Count(now, math.inf, by_intended=rate is not None)
        edges: list[bool] = []
        loop.run(count, rate, edges.append)
        loop.close()
    assert sorted(source.heard) == source.sent
    assert count.units == len(count.seconds) == 500
    assert edges == [True, False]
