"""A connection that does not get on is closed: silent, slow, or never asking for anything."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import cast

import pytest

from semel.server.http.connection_limit import http_limits_of
from semel.server.http.protocol import STALL_BYTES, HttpProtocol
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from tests.server.http.applications import Silent

LIMITS = http_limits_of(make_settings())

HEAD = b"POST /v1/stream/s HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n"


class Clock(asyncio.BaseEventLoop):
    """A loop that runs nothing and whose time is set by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1_000.0

    def time(self) -> float:
        """The time that was set."""
        return self.seconds

    def create_task(self, coro, **kwargs):  # type: ignore[no-untyped-def]
        """Nothing runs here."""
        coro.close()
        return cast("asyncio.Task[None]", asyncio.Future(loop=self))


class Pipe:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unsent = 0
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.written.append(data)

    def close(self) -> None:
        """The connection ends."""
        self.is_closed = True

    def is_closing(self) -> bool:
        """Whether it has ended."""
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        """What waits for the client to read."""
        return self.unsent

    def get_extra_info(self, name: str) -> None:
        """Nothing is known."""

    def pause_reading(self) -> None:
        """Nothing is read here."""

    def resume_reading(self) -> None:
        """Nothing is read here."""


class Connected:
    """A protocol without a socket."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.pipe = Pipe()
        self.protocol = HttpProtocol(make_host(make_settings(), Silent()), self.clock)
        self.protocol.connection_made(cast(asyncio.Transport, self.pipe))

    def after(self, seconds: float, data: bytes = b"") -> bool:
        """Whether it is overdue when so much time has passed, and some data has come."""
        self.clock.seconds += seconds
        if data:
            self.protocol.data_received(data)
        return self.protocol.is_overdue(self.clock.seconds)


@pytest.fixture
def connected() -> Iterator[Connected]:
    one = Connected()
    yield one
    one.clock.close()


def test_one_that_never_asks(connected: Connected) -> None:
    assert not connected.after(LIMITS.idle_seconds - 1)
    assert connected.after(1)


def test_one_that_falls_silent_in_the_head(connected: Connected) -> None:
    assert not connected.after(0, b"POST /v1/stream/s HTTP/1.1\r\n")
    assert not connected.after(LIMITS.silence_seconds - 1)
    assert connected.after(1)


def test_a_head_that_trickles_in(connected: Connected) -> None:
    connected.after(0, b"POST /v1/stream/s HTTP/1.1\r\nx: ")
    overdue = [connected.after(10, b"x") for _ in range(int(LIMITS.head_seconds / 10))]
    assert overdue == [False, False, True]


def test_a_body_has_longer_but_not_for_ever(connected: Connected) -> None:
    connected.after(0, HEAD)
    overdue = [connected.after(20, b"x") for _ in range(int(LIMITS.body_seconds / 20))]
    assert overdue == [False] * 29 + [True]


def test_silence_is_not_counted_while_we_do_not_listen(connected: Connected) -> None:
    connected.after(0, HEAD)
    connected.protocol.flow.pause_reading()
    assert not connected.after(LIMITS.silence_seconds)


def test_one_that_does_not_read_its_answer(connected: Connected) -> None:
    connected.protocol.pause_writing()
    connected.after(LIMITS.stall_seconds)
    assert connected.protocol.is_stalled(connected.clock.seconds)
    connected.protocol.resume_writing()
    assert not connected.protocol.is_stalled(connected.clock.seconds)


def stalls(connected: Connected, unsent: Iterable[int]) -> list[bool]:
    """Whether it counts as stalled, every few seconds, while so much is left to be read."""
    found = []
    for connected.pipe.unsent in unsent:
        connected.after(LIMITS.stall_seconds / 4)
        found.append(connected.protocol.is_stalled(connected.clock.seconds))
    return found


def test_one_that_reads_slowly_but_steadily(connected: Connected) -> None:
    connected.pipe.unsent = 8_000_000
    connected.protocol.pause_writing()
    assert not any(stalls(connected, range(8_000_000, 100_000, -STALL_BYTES // 2)))


def test_one_that_reads_a_byte_now_and_then(connected: Connected) -> None:
    connected.pipe.unsent = 8_000_000
    connected.protocol.pause_writing()
    assert stalls(connected, range(8_000_000, 0, -1_000_000))[-1] is False
    assert stalls(connected, range(500_000, 499_995, -1)) == [False, False, False, False, True]


def test_one_that_is_written_to_meanwhile(connected: Connected) -> None:
    """What is added is not taken for what was not read."""
    connected.pipe.unsent = 1_000_000
    connected.protocol.pause_writing()
    assert stalls(connected, [2_000_000, 2_000_000 - STALL_BYTES, 1_900_000, 1_900_000, 1_900_000]) == [False] * 5


def test_a_large_body_in_one_read_is_no_large_head(connected: Connected) -> None:
    body = b"x" * 200_000
    connected.after(0, b"POST /v1/stream/s HTTP/1.1\r\nhost: h\r\ncontent-length: 200000\r\n\r\n" + body)
    assert not connected.pipe.is_closed
    assert connected.pipe.written == []
