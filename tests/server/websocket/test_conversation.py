"""The conversation over one WebSocket, without a wire: turns, flow control, and every way to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from semel.server.auth.principals import DEVELOPER
from semel.server.auth.revocation import Revocation
from semel.server.context import Context
from semel.server.websocket.connection_limits import MAX_MESSAGES, ConversationLimits
from semel.server.websocket.conversation import Conversation
from semel.server.websocket.transport import WebSocket

INBOX_BYTES = 1_000
NOW_MS = 1_000_000


class Pipe:
    """Stands for the socket: keeps what it is told."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_reading = True
        self.waiting = 0
        self.pings = 0
        self.closed: list[tuple[int, str]] = []
        self.is_closed = asyncio.Event()

    def read_on(self, wanted: bool) -> None:
        self.is_reading = wanted

    def unsent(self) -> int:
        return self.waiting

    def ping(self) -> None:
        self.pings += 1

    def close(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))
        self.is_closed.set()


class Echo(Conversation):
    """Answers a message with itself: a binary one at once, a text in a task, when the gate is open."""

    def __init__(self, pipe: Pipe, ping_seconds: float = 60, stall_seconds: float = 60) -> None:
        context = cast(Context, SimpleNamespace(world=SimpleNamespace(wall_ms=self._now)))
        limits = ConversationLimits(INBOX_BYTES, ping_seconds, stall_seconds)
        super().__init__(context, cast(WebSocket, pipe), limits)
        self.wall_ms: Callable[[], int] = lambda: NOW_MS
        self.gate = asyncio.Event()
        self.told: list[bytes] = []
        self.ends = 0

    def _now(self) -> int:
        return self.wall_ms()

    def take(self) -> bool:
        message = self._inbox.pop()
        if message.kind.name == "TEXT":
            self.start(self._answer, message.raw)
        else:
            self.told.append(message.kind.name.encode() if message.limit else message.raw)
        return True

    async def _answer(self, raw: bytes) -> None:
        await self.gate.wait()
        if raw == b"bad":
            raise ValueError(raw)
        self.told.append(raw)

    def failed(self, error: Exception) -> None:
        self.told.append(type(error).__name__.encode())

    def ended(self, has_pong: bool) -> None:
        self.ends += 1

    def abandoned(self) -> None:
        self.told.append(b"abandoned")

    def stopping(self) -> None:
        self.close(1001, "stopping")

    def expired(self) -> None:
        self.close(1008, "expired")

    def silent(self) -> None:
        self.close(1013, "silent")

    def stalled(self) -> None:
        self.close(1013, "stalled")


def talk(scenario: Callable[[Echo, Pipe], Awaitable[None]], **limits: float) -> None:
    async def run() -> None:
        pipe = Pipe()
        echo = Echo(pipe, **limits)
        await scenario(echo, pipe)
        echo.lost()

    asyncio.run(run())


async def rest(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def test_messages_behind_one_that_waits_are_answered_after_it_in_order() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        echo.received(b"1", is_text=False)
        for text in (b"2", b"bad"):
            echo.received(text, is_text=True)
        echo.received(b"4", is_text=False)
        echo.too_large(10)
        await rest()
        assert echo.told == [b"1"]
        echo.gate.set()
        await rest()
        assert echo.told == [b"1", b"2", b"ValueError", b"4", b"TOO_LARGE"]

    talk(scenario)


@pytest.mark.parametrize(("count", "size"), [(MAX_MESSAGES, 1), (2, INBOX_BYTES // 2)])
def test_a_full_inbox_stops_reading_until_messages_were_taken(count: int, size: int) -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        echo.received(b"first", is_text=True)
        for _ in range(count):
            assert pipe.is_reading
            echo.received(b"x" * size, is_text=False)
        assert not pipe.is_reading
        echo.gate.set()
        await rest()
        assert (pipe.is_reading, len(echo.told)) == (True, count + 1)

    talk(scenario)


def test_a_client_that_does_not_read_is_not_read_from_and_not_answered() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        pipe.is_full = True
        echo.filled()
        echo.received(b"1", is_text=False)
        assert (pipe.is_reading, echo.told) == (False, [])
        pipe.is_full = False
        echo.drained()
        assert (pipe.is_reading, echo.told) == (True, [b"1"])

    talk(scenario)


def test_a_shutdown_answers_what_is_under_way_and_nothing_behind_it() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        for text in (b"1", b"2"):
            echo.received(text, is_text=True)
        await rest()
        echo.shut_down()
        echo.received(b"3", is_text=True)
        assert pipe.closed == []
        echo.gate.set()
        await rest()
        assert (echo.told, pipe.closed, echo.ends) == ([b"1"], [(1001, "stopping")], 1)

    talk(scenario)


def test_work_that_has_not_begun_is_not_done_after_the_end() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        echo.gate.set()
        echo.received(b"1", is_text=True)
        echo.close(1000, "enough")
        await rest()
        assert (echo.told, pipe.closed, echo.ends) == ([], [(1000, "enough")], 1)

    talk(scenario)


def test_a_lost_connection_ends_once_and_cancels_its_work() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        echo.received(b"1", is_text=True)
        await rest()
        echo.lost()
        echo.gate.set()
        await rest()
        assert (echo.told, pipe.closed, echo.ends) == ([b"abandoned"], [], 1)

    talk(scenario)


def test_it_ends_with_its_credential() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        revocation = Revocation()
        echo.end_with(replace(DEVELOPER, revocation=revocation, expires_at_ms=NOW_MS + 60_000))
        assert pipe.closed == []
        revocation.come()
        assert pipe.closed == [(1008, "expired")]

    talk(scenario)


@pytest.mark.parametrize("left_ms", [0, 5])
def test_it_ends_when_its_credential_expires(left_ms: int) -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        echo.wall_ms = iter([NOW_MS - left_ms, NOW_MS]).__next__
        echo.end_with(replace(DEVELOPER, expires_at_ms=NOW_MS))
        await asyncio.wait_for(pipe.is_closed.wait(), 30)
        assert pipe.closed == [(1008, "expired")]

    talk(scenario)


def test_a_silent_client_is_pinged_and_then_let_go() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        await asyncio.wait_for(pipe.is_closed.wait(), 30)
        assert (pipe.closed, pipe.pings >= 1) == ([(1013, "silent")], True)

    talk(scenario, ping_seconds=0.02)


def test_a_client_that_is_not_read_from_is_not_silent() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        pipe.is_reading = False
        await asyncio.sleep(0.1)
        assert pipe.closed == []

    talk(scenario, ping_seconds=0.02)


def test_a_stalled_client_is_let_go() -> None:
    async def scenario(echo: Echo, pipe: Pipe) -> None:
        pipe.is_full, pipe.waiting = True, 100
        echo.filled()
        await asyncio.wait_for(pipe.is_closed.wait(), 30)
        assert pipe.closed == [(1013, "stalled")]

    talk(scenario, stall_seconds=0.01)
