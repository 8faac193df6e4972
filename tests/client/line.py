"""The line to a server on which every fault of a network, a proxy and a server can be played, request by request."""

from __future__ import annotations

import asyncio
import re
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httptools

from tests.harness.server import HOST, free_port

PIECE = 65_536
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request and its answer."""

    request: float = 1.0
    """The part of the request that arrives. The rest does not, and the connection ends."""
    answer: float = 1.0
    """The part of the answer that is given back. The rest is not, and the connection ends."""
    instead: bytes | None = None
    """What is given back in place of the answer; without `request` the server is not asked."""
    is_refused: bool = False
    """Nobody listens, until the line is mended."""
    is_silent: bool = False
    """The rest of the answer never comes, and the connection stays."""
    is_slow: bool = False
    """An interim answer comes first, and then the answer byte by byte."""
    is_last: bool = False
    """The connection ends behind the answer."""


CUT_REQUEST = Fault(request=0.0)
CUT_ANSWER = Fault(answer=0.0)


class LineCutError(Exception):
    """This connection has ended."""


class Line:
    """Passes requests on in the loop of the test, and plays a fault on each of those that it was told to wait for."""

    def __init__(self, port: int, *, is_kept: bool = False) -> None:
        """A port that is to be kept while nobody listens is one that no outgoing connection takes."""
        self.port = free_port() if is_kept else 0
        self.plan: deque[Fault | None] = deque()
        """What happens to the next requests that match; None passes one on."""
        self.wanted = ""
        """A pattern of the method and the target of these requests."""
        self.asked: list[bytes] = []
        """The requests that matched."""
        self.times: list[float] = []
        """When they came, by the clock of the loop."""
        self.targets: list[str] = []
        """Method and target of every request."""
        self.received = 0
        """Bytes that have been given to clients."""
        self.left: int | None = None
        """Bytes that are still given before the connection ends; None is no end."""
        self.fell_silent = asyncio.Event()
        """Set when an answer is kept back."""
        self._target = port
        self._lines: set[asyncio.Task[None]] = set()
        self._is_open = True
        self._opening: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The server's address, over this line."""
        return f"http://{HOST}:{self.port}"

    def play(self, *faults: Fault | None, on: str = "") -> None:
        """Play these on the next requests whose method and target match a pattern."""
        self.plan, self.wanted = deque(faults), on
        self.asked.clear()
        self.times.clear()
        if faults and faults[0] is not None and faults[0].is_refused:
            self.plan.popleft()
            self._is_open = False
            self._server.close()

    def mend(self, error: Exception | None = None) -> None:
        """Listen again, if nobody does; from any thread."""
        if not self._is_open:
            self._is_open = True
            self._loop.call_soon_threadsafe(self._listen_again, socket.create_server((HOST, self.port)))

    async def cut(self) -> None:
        """End all connections, whatever passes on them."""
        lines = tuple(self._lines)
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.sleep(0)
        if self._opening is not None:
            await self._opening
        self._server.close()
        await self.cut()

    def _listen_again(self, listening: socket.socket) -> None:
        async def listen() -> None:
            self._server = await asyncio.start_server(self._serve, sock=listening)

        self._opening = self._loop.create_task(listen())

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = self._loop.create_task(self._pass_on(reader, writer))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sides = [writer]
        with suppress(OSError, LineCutError, asyncio.IncompleteReadError, asyncio.CancelledError):
            answers, questions = await asyncio.open_connection(HOST, self._target, limit=2**24)
            sides.append(questions)
            while True:
                request = await _request(reader)
                await self._play(self.due(request), request, _Sides(reader, writer, answers, questions))
        for side in sides:
            side.close()
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(*(side.wait_closed() for side in sides), return_exceptions=True)

    def due(self, request: bytes) -> Fault:
        """What happens to a request."""
        target = request.partition(b" HTTP/1.1")[0].decode()
        self.targets.append(target)
        if re.search(self.wanted, target) is None:
            return Fault()
        self.asked.append(request)
        self.times.append(self._loop.time())
        return (self.plan.popleft() if self.plan else None) or Fault()

    async def _play(self, fault: Fault, request: bytes, sides: _Sides) -> None:
        if fault.request or fault.instead is None:
            sides.questions.write(request[: int(len(request) * fault.request)])
            await sides.questions.drain()
        if fault.request < 1.0 and fault.instead is None:
            raise LineCutError
        is_head = request.startswith(b"HEAD ")
        if fault == Fault():
            await self._relay(sides, is_head=is_head)
            return
        answer = await _answer(sides.answers, is_head=is_head) if fault.request else b""
        answer = answer if fault.instead is None else fault.instead
        given = answer[: int(len(answer) * fault.answer)]
        for piece in _slowly(given) if fault.is_slow else (given,):
            await self._give(piece, sides.client)
        if fault.is_silent:
            self.fell_silent.set()
            await asyncio.Event().wait()
        if fault.is_last or fault.answer < 1.0:
            raise LineCutError

    async def _relay(self, sides: _Sides, *, is_head: bool) -> None:
        """The answer as it comes, which may never end; behind an upgrade both sides say what they want."""
        end = _AnswerEnd(is_head=is_head)
        while not end.is_reached:
            data = await sides.answers.read(PIECE)
            if not data:
                raise LineCutError
            end.feed(data)
            await self._give(data, sides.client)
        if end.is_upgrade:
            pumps = [
                asyncio.create_task(_pump(sides.reader, sides.questions.write)),
                asyncio.create_task(self._pump_back(sides)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
            raise LineCutError

    async def _pump_back(self, sides: _Sides) -> None:
        while data := await sides.answers.read(PIECE):
            await self._give(data, sides.client)

    async def _give(self, data: bytes, client: asyncio.StreamWriter) -> None:
        is_cut = self.left is not None and self.left < len(data)
        given = data[: self.left] if is_cut else data
        self.received += len(given)
        client.write(given)
        await client.drain()
        if is_cut:
            self.left = None
            raise LineCutError
        if self.left is not None:
            self.left -= len(given)


@dataclass(frozen=True, slots=True)
class _Sides:
    reader: asyncio.StreamReader
    client: asyncio.StreamWriter
    answers: asyncio.StreamReader
    questions: asyncio.StreamWriter


class _AnswerEnd:
    """Finds the end of an answer."""

    def __init__(self, *, is_head: bool) -> None:
        self.is_reached = self.is_upgrade = False
        self._is_head = is_head
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.is_reached = self.is_upgrade = True

    def on_headers_complete(self) -> None:
        self.is_reached = self._is_head

    def on_message_complete(self) -> None:
        self.is_reached = True


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    return head + (await reader.readexactly(int(length[1])) if length else b"")


async def _answer(answers: asyncio.StreamReader, *, is_head: bool) -> bytes:
    end, whole = _AnswerEnd(is_head=is_head), b""
    while not end.is_reached:
        data = await answers.read(PIECE)
        if not data:
            raise LineCutError
        end.feed(data)
        whole += data
    return whole


def _slowly(answer: bytes) -> list[bytes]:
    return [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", *(answer[at : at + 1] for at in range(len(answer)))]


async def _pump(reader: asyncio.StreamReader, write: Callable[[bytes], None]) -> None:
    while data := await reader.read(PIECE):
        write(data)
