"""The loop of the load generator: connections, when a request is to be sent, and what is counted.

One thread, non-blocking sockets and a selector. A closed loop sends the next request of a connection when the last one
is answered, so a slow answer delays all that would have come after it. An open loop has a schedule: request number i is
due at i / rate, whatever the server does. When no connection is free, the request waits, and its latency counts from
the time at which it was due. So a stall of the server is seen by every request of that time (no coordinated omission).
"""

from __future__ import annotations

import select
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

HOST = "127.0.0.1"
RECEIVE_BYTES = 16_384
"""More would cost a mapping of memory a call."""
IDLE_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
NOT_AN_ANSWER = -1


class BrokenError(Exception):
    """An answer that must not be: the figures would mean nothing."""


class Source(Protocol):
    """What is sent, and what is made of the answers."""

    def prepare(self, port: int) -> None:
        """Bring the server into the state that the measurement begins with."""

    def open(self, caller: socket.socket, connection: int) -> None:
        """Shake hands on a new connection, which still blocks."""

    def request(self, connection: int) -> bytes | None:
        """The next request of a connection; None when there is no other."""

    def cut(self, buffer: bytes) -> int:
        """The bytes of the first answer in the buffer; 0 when it is not whole."""

    def answered(self, connection: int, answer: bytes) -> int:
        """The units of work that an answer stands for, or NOT_AN_ANSWER."""


class Schedule:
    """When the requests of an open loop are due."""

    def __init__(self, rate: float, start: float) -> None:
        self._interval = 1.0 / rate
        self._start = start
        self._given = 0

    def due(self, now: float) -> float | None:
        """When the next request was to be sent, if that time has come; the one after it is the next then."""
        intended = self._start + self._given * self._interval
        if intended > now:
            return None
        self._given += 1
        return intended

    def wait(self, now: float) -> float:
        """Seconds until the next request is due."""
        return max(0.0, self._start + self._given * self._interval - now)


class Count:
    """Units and latencies of a window, by the time of the answer, or by that of the intended request."""

    def __init__(self, opens: float, closes: float, *, by_intended: bool) -> None:
        self.opens, self.closes = opens, closes
        self._by_intended = by_intended
        self.units = 0
        self.last = opens
        """When the last answer that counts came."""
        self.seconds: list[float] = []

    def add(self, intended: float, now: float, units: int) -> None:
        """One answer."""
        if self.opens <= (intended if self._by_intended else now) < self.closes:
            self.units += units
            self.last = now
            if units:
                self.seconds.append(now - intended)


class _Connection:
    __slots__ = ("caller", "number", "rest", "sent", "unsent")

    def __init__(self, caller: socket.socket, number: int) -> None:
        self.caller = caller
        self.number = number
        self.rest = b""
        self.unsent = b""
        self.sent: deque[float] = deque()
        """When the requests under way were due, oldest first."""


class Loop:
    """Connections to one port, each with a number of requests under way at most."""

    def __init__(self, source: Source, port: int, connections: int, in_flight: int) -> None:
        self._source = source
        self._selector = selectors.DefaultSelector()
        self._free: deque[_Connection] = deque()
        self._connections: list[_Connection] = []
        self._is_done = False
        for number in range(connections):
            caller = socket.create_connection((HOST, port), 30)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            source.open(caller, number)
            caller.setblocking(False)
            connection = _Connection(caller, number)
            self._selector.register(caller, selectors.EVENT_READ, connection)
            self._connections.append(connection)
        for _ in range(in_flight):
            self._free += self._connections

    def run(self, count: Count, rate: float | None, edge: Callable[[bool], None]) -> float:
        """Warm up until the count opens and go on until it closes; `edge` is called at both times. Seconds between."""
        now = time.perf_counter()
        schedule = Schedule(rate, now) if rate else None
        edges = [(count.opens, True), (count.closes, False)]
        opened = closed = now
        while edges and not (self._is_done and not self._under_way()):
            self._send_due(now, schedule)
            self._receive(count, schedule, self._pause(schedule, edges[0][0] - now, now))
            now = time.perf_counter()
            if now >= edges[0][0]:
                _, is_opening = edges.pop(0)
                edge(is_opening)
                opened, closed = (now, now) if is_opening else (opened, now)
        if edges:  # the source has no more: the window ends with its last answer
            closed = now
            edge(False)
        self._drain(count, schedule)
        return closed - opened

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        for connection in self._connections:
            connection.caller.close()

    def _pause(self, schedule: Schedule | None, until_edge: float, now: float) -> float:
        pause = min(IDLE_SECONDS, max(0.0, until_edge))
        return min(pause, schedule.wait(now)) if schedule is not None and self._free else pause

    def _send_due(self, now: float, schedule: Schedule | None) -> None:
        while self._free and not self._is_done:
            intended = now if schedule is None else schedule.due(now)
            if intended is None:
                return
            self._send(self._free.popleft(), intended)

    def _send(self, connection: _Connection, intended: float) -> None:
        content = self._source.request(connection.number)
        if content is None:
            self._is_done = True
            return
        connection.sent.append(intended)
        if connection.unsent:
            connection.unsent += content
            return
        try:
            done = connection.caller.send(content)
        except BlockingIOError:
            done = 0
        if done < len(content):
            connection.unsent = content[done:]
            self._selector.modify(connection.caller, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)

    def _receive(self, count: Count, schedule: Schedule | None, pause: float) -> None:
        if schedule is not None:  # the selector itself rounds up to a millisecond
            select.select([self._selector], [], [], pause)
            pause = 0
        for key, events in self._selector.select(pause):
            connection: _Connection = key.data
            if events & selectors.EVENT_WRITE:
                self._flush(connection)
            if events & selectors.EVENT_READ:
                self._take(connection, count, schedule)

    def _flush(self, connection: _Connection) -> None:
        done = connection.caller.send(connection.unsent)
        connection.unsent = connection.unsent[done:]
        if not connection.unsent:
            self._selector.modify(connection.caller, selectors.EVENT_READ, connection)

    def _take(self, connection: _Connection, count: Count, schedule: Schedule | None) -> None:
        data = connection.caller.recv(RECEIVE_BYTES)
        if not data:
            raise BrokenError("the server closed a connection")
        source, now = self._source, time.perf_counter()
        buffer = connection.rest + data if connection.rest else data
        while buffer:
            size = source.cut(buffer)
            if not size:
                break
            answer, buffer = (buffer, b"") if size == len(buffer) else (buffer[:size], buffer[size:])
            units = source.answered(connection.number, answer)
            if units == NOT_AN_ANSWER:
                continue
            count.add(connection.sent.popleft(), now, units)
            if schedule is None and not self._is_done:
                self._send(connection, now)
            else:
                self._free.append(connection)
        connection.rest = buffer

    def _under_way(self) -> bool:
        return any(connection.sent for connection in self._connections)

    def _drain(self, count: Count, schedule: Schedule | None) -> None:
        """Wait for what is under way: an open loop must not leave out its slowest requests."""
        self._is_done = True
        deadline = time.perf_counter() + PATIENCE_SECONDS
        while (now := time.perf_counter()) < deadline and self._under_way():
            self._receive(count, schedule, IDLE_SECONDS)
            while (
                schedule is not None and self._free and (intended := schedule.due(min(now, count.closes))) is not None
            ):
                self._is_done = False  # what was due within the window is sent, however late
                self._send(self._free.popleft(), intended)
                self._is_done = True
        if self._under_way():
            raise BrokenError(f"no answer within {PATIENCE_SECONDS:.0f} s")
