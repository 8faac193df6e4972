"""Connections for tests of the HTTP host: without a socket, and on one."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

import httptools

from semel.server.http.protocol import HttpProtocol
from semel.server.listen import listen
from semel.server.process import make_host
from semel.server.settings import ServerSettings
from semel.server.settings_loader import make_settings
from tests.server.http.applications import Echo
from tests.server.http.test_protocol import Pipe


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


def fed(pieces: Iterable[bytes]) -> Outcome:
    """What came of pieces that arrive one after another, without a socket."""
    return asyncio.run(_fed(pieces))


async def _fed(pieces: Iterable[bytes]) -> Outcome:
    pipe, application = Pipe(), Echo()
    protocol = HttpProtocol(make_host(make_settings(), application), asyncio.get_running_loop())
    protocol.connection_made(cast(asyncio.Transport, pipe))
    for piece in pieces:
        if pipe.is_closed:
            break
        protocol.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    outcome = Outcome(
        *answers_in(b"".join(pipe.written)), [one.raw_path for one in application.requests], pipe.is_closed
    )
    protocol.connection_lost(None)
    await asyncio.gather(*protocol.host.tasks)
    return outcome


class Listening:
    """A host with an application on a port, in a thread of its own."""

    def __init__(self, settings: ServerSettings | None = None) -> None:
        self._settings = settings or make_settings(port=0)
        self.application = Echo()
        self.port = 0
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        host = make_host(self._settings, self.application)
        listener = listen("127.0.0.1", 0, "--port")
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
        assert self._ready.wait(10)
        try:
            yield self
        finally:
            assert self._loop is not None
            assert self._stop is not None
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(10)

    def told(self, sent: bytes) -> Outcome:
        """What came of bytes on a connection that the client ends behind them."""
        self.application.requests.clear()
        with socket.create_connection(("127.0.0.1", self.port), 10) as caller:
            caller.sendall(sent)
            received, is_closed = _all_of(caller)
        return Outcome(*answers_in(received), [one.raw_path for one in self.application.requests], is_closed)


def _all_of(caller: socket.socket) -> tuple[bytes, bool]:
    """What arrives until the server ends the connection, or is silent for a moment; and whether it was the end."""
    received = b""
    caller.settimeout(0.15)
    try:
        while piece := caller.recv(65_536):
            received += piece
    except TimeoutError:
        return received, False
    except ConnectionResetError:
        return received, True
    return received, True
