"""A host with an application on a socket, and what comes of bytes that are sent to it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import httptools

from semel.server.listen import listen
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from tests.harness.server import HOST
from tests.server.http.applications import Echo

PATIENCE_SECONDS = 30.0


class Outcome(NamedTuple):
    """What came of bytes on one connection."""

    statuses: list[int]
    bodies: list[bytes]
    paths: list[bytes]
    """Of the requests that the application was given."""
    is_closed: bool


class _Answers:
    """Reads answers with a parser of its own."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.bodies: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """More of them."""
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        """One begins."""
        self.bodies.append(b"")

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self.bodies[-1] += body

    def on_message_complete(self) -> None:
        """It has ended."""
        self.statuses.append(self._parser.get_status_code())


def answers_in(data: bytes) -> tuple[list[int], list[bytes]]:
    """Statuses and bodies of the answers in a stream of bytes."""
    answers = _Answers()
    if data:
        answers.feed(data)
    return answers.statuses, answers.bodies


class Listening:
    """A host with an application on a port, in a thread of its own."""

    def __init__(self) -> None:
        self.application = Echo()
        self.port = 0
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        host = make_host(make_settings(port=0), self.application)
        listener = listen(HOST, 0, "--port")
        await host.start([listener])
        self.port = listener.getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        await host.stop(1.0)

    @contextmanager
    def running(self) -> Iterator[Listening]:
        """Serve as long as this is open."""
        thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        thread.start()
        assert self._ready.wait(PATIENCE_SECONDS)
        try:
            yield self
        finally:
            assert self._loop is not None
            assert self._stop is not None
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(PATIENCE_SECONDS)

    def told(self, pieces: Iterable[bytes], answers: int | None = None) -> Outcome:
        """What came of pieces that are sent one after another: until the server ends the connection, or has given so
        many answers; with none to wait for, the client says that it has sent all.
        """
        self.application.requests.clear()
        with socket.create_connection((HOST, self.port), PATIENCE_SECONDS) as caller:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            heard, is_closed = _Answers(), False
            try:
                for piece in pieces:
                    caller.sendall(piece)
                if answers == 0:
                    caller.shutdown(socket.SHUT_WR)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was refused before all of it was sent, and the answer is still there
            while not is_closed and (not answers or len(heard.statuses) < answers):
                piece = _received(caller)
                is_closed = not piece
                if piece:
                    heard.feed(piece)
        paths = [one.raw_path for one in self.application.requests]
        return Outcome(heard.statuses, heard.bodies, paths, is_closed)


def _received(caller: socket.socket) -> bytes:
    try:
        return caller.recv(65_536)
    except ConnectionResetError:
        return b""
