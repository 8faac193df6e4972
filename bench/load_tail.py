"""The tail of streams for many event-stream readers: the part of `bench.load_reads` that is called `tail`.

One process, one thread and one clock: a message carries the time right before its append was sent, and a latency is
from there to the moment at which one reader has it. Appends are sent on a schedule, whatever the server does, each on a
connection of its own that was opened before: a server that lags behind is not spared any of them. The messages of the
warm-up, which has a fixed number of appends, are awaited before the window opens, and those of the window before it
closes, for a while each; what has not come by then is missing from what was received.
"""

from __future__ import annotations

import argparse
import math
import re
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from bench.load import CLOSED, OPENED, figures
from bench.load_loop import HOST, BrokenError, Count, Schedule
from bench.load_sources import paths
from bench.load_wires import ask, cut_http, post

MESSAGE = b'{"content":"%s"}'
MESSAGE_BYTES = 200
RECEIVE_BYTES = 65_536
AT_ONCE = 50
"""Readers that are connected before the first of them is heard."""
READY_SECONDS = 60.0
WARM_APPENDS = 2
"""Appends to each stream before the window opens: messages that every reader gets, whatever the number of streams."""
WARM_SECONDS = 20.0
"""How long the messages of the warm-up are awaited."""
SETTLE_SECONDS = 5.0
"""How long those of the window are, once the last of them was sent."""
_SENT = re.compile(rb"at (\d+) ns")


def message(text: bytes = b"") -> bytes:
    """A message of 200 bytes."""
    return MESSAGE % text.ljust(MESSAGE_BYTES - len(MESSAGE) + 2, b"x")


class Peer:
    """One connection, and what has come of an answer or of an event that is not whole."""

    __slots__ = ("is_ready", "rest", "socket")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""
        self.is_ready = False

    def receive(self) -> bytes:
        """What has come; nothing when the server has closed the connection."""
        data = self.socket.recv(RECEIVE_BYTES)
        return self.rest + data if data and self.rest else data


class Crowd:
    """The readers of some streams, the same number for each, and a new connection for every append."""

    def __init__(self, port: int, streams: list[str], readers: int) -> None:
        self._port = port
        self._streams = streams
        self._each = readers // len(streams)
        self._selector = selectors.DefaultSelector()
        self._peers: list[Peer] = []
        self._writers: deque[Peer] = deque()
        self._ready = 0
        self._appended = 0
        self.got = 0
        self.count = Count(0.0, 0.0, by_intended=True)
        """Of the messages that were sent while it was open."""

    def connect(self) -> None:
        """Until every reader has got its first control event."""
        wanted = self._each * len(self._streams)
        for number in range(wanted):
            path = self._streams[number % len(self._streams)]
            head = f"GET {path}?live=sse&offset=now HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
            self._add(self._heard).socket.sendall(head)
            if number % AT_ONCE == 0 or number == wanted - 1:
                self._pump(READY_SECONDS, partial(self._are_ready, number + 1))
        if not self._are_ready(wanted):
            raise BrokenError(f"only {self._ready} readers were answered within {READY_SECONDS:.0f} s")

    def append(self, rate: float, count: int, patience: float) -> int:
        """Append to the streams in turn at a rate, then wait for the readers; what they should have got."""
        self._writers.extend(self._add(self._answered) for _ in range(count))
        schedule = Schedule(rate, time.perf_counter())
        wanted = self.got + count * self._each
        while self._writers:
            now = time.perf_counter()
            if schedule.due(now) is not None:
                self._append()
            else:
                self._turn(schedule.wait(now))
        self._pump(patience, lambda: self.got >= wanted)
        return count * self._each

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        for peer in self._peers:
            peer.socket.close()

    def _add(self, taker: Callable[[Peer], None]) -> Peer:
        peer = Peer(self._port)
        self._peers.append(peer)
        self._selector.register(peer.socket, selectors.EVENT_READ, (taker, peer))
        return peer

    def _append(self) -> None:
        path = self._streams[self._appended % len(self._streams)]
        self._appended += 1
        self._writers.popleft().socket.sendall(post(path, message(b"at %d ns" % time.perf_counter_ns())))

    def _are_ready(self, readers: int) -> bool:
        return self._ready >= readers

    def _pump(self, seconds: float, is_done: Callable[[], bool]) -> None:
        until = time.perf_counter() + seconds
        while not is_done() and (left := until - time.perf_counter()) > 0:
            self._turn(min(left, 0.05))

    def _turn(self, pause: float) -> None:
        for key, _ in self._selector.select(max(0.0, pause)):
            taker, peer = key.data
            taker(peer)

    def _heard(self, peer: Peer) -> None:
        """A reader has got something: whole lines are looked at, and the rest is kept."""
        data = peer.receive()
        now = time.perf_counter_ns()
        if not data:
            raise BrokenError("the server closed an event stream")
        end = data.rfind(b"\n") + 1
        peer.rest = data[end:]
        if not peer.is_ready and b"event: control" in data:
            peer.is_ready = True
            self._ready += 1
        for sent in _SENT.findall(data, 0, end):
            self.got += 1
            self.count.add(int(sent) / 1e9, now / 1e9, 1)

    def _answered(self, peer: Peer) -> None:
        """An append was answered: its connection is not used again, because servers close those that were idle."""
        data = peer.receive()
        if not data:
            raise BrokenError("the server closed a connection instead of an answer")
        size = cut_http(data)
        peer.rest = data[size:]
        if size:
            if data[9:10] != b"2":
                raise BrokenError(f"an append was refused: {data[:500]!r}")
            self._selector.unregister(peer.socket)
            peer.socket.close()


def tail(asked: argparse.Namespace) -> dict[str, object]:
    """Some streams, their readers, and appends at a steady rate."""
    streams = paths(asked.path, asked.streams)
    for path in streams:
        ask(asked.port, "PUT", path)
    crowd = Crowd(asked.port, streams, asked.connections)
    crowd.connect()
    crowd.append(asked.rate, WARM_APPENDS * len(streams), WARM_SECONDS)
    print(OPENED, file=sys.stderr, flush=True)
    opens, used = time.perf_counter(), time.process_time()
    crowd.count = Count(opens, math.inf, by_intended=True)
    appends = math.ceil(asked.rate * asked.window)
    expected = crowd.append(asked.rate, appends, SETTLE_SECONDS)
    seconds = max(appends / asked.rate, crowd.count.last - opens)
    busy = (time.process_time() - used) / (time.perf_counter() - opens)
    print(CLOSED, file=sys.stderr, flush=True)
    crowd.close()
    return figures(crowd.count, seconds, busy) | {"expected": expected}
