"""A server in this process, asked without sockets: requests are given to connections, answers are taken from pipes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.namespaces import build_context
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from semel.surfaces.streams.http import StreamsHttp
from semel.surfaces.streams.live import SharedReads
from tests.server.http.test_exchange import Reading

CHANGING = (b"date", b"x-request-id")
"""Headers that differ between two answers to the same request."""


class Answered(NamedTuple):
    """One answer."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class Served:
    """The server and one connection for plain requests."""

    def __init__(self, folder: Path, vfs: str = "", **settings: object) -> None:
        store = f"sqlite:{folder}" + (f"?vfs={vfs}" if vfs else "")
        made = make_settings(store=store, data=str(folder), **settings)
        self.context = build_context(made, nowhere)
        self.app = App(self.context)
        self.host = make_host(made, self.app)
        [self.streams] = [one for one in self.app.surfaces if isinstance(one, StreamsHttp)]
        self.reads: SharedReads = self.streams._reads._shared_reads
        self.pages = self.streams._metrics.pages
        self._protocol, self._pipe = self.connect()

    def connect(self) -> tuple[HttpProtocol, Reading]:
        """A further connection."""
        pipe = Reading()
        protocol = HttpProtocol(self.host, asyncio.get_running_loop())
        protocol.connection_made(cast(asyncio.Transport, pipe))
        return protocol, pipe

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answered:
        """The answer to one request."""
        self._pipe.written.clear()
        self._protocol.data_received(request(method, target, body, **headers))
        while self._protocol.running is not None:  # noqa: ASYNC110 - a fake pipe
            await asyncio.sleep(0)
        return answer_in(b"".join(self._pipe.written))

    def open(self, target: str) -> tuple[HttpProtocol, Reading]:
        """Ask for an answer that goes on."""
        protocol, pipe = self.connect()
        protocol.data_received(request("GET", target))
        return protocol, pipe


def request(method: str, target: str, body: bytes = b"", **headers: str) -> bytes:
    """The bytes of a request; an underscore in a header's name is a dash."""
    lines = [f"{method} /v1/stream/{target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answer_in(data: bytes) -> Answered:
    """The only answer in these bytes."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    named = (line.split(b": ", 1) for line in lines)
    return Answered(int(first.split()[1]), {name: value for name, value in named if name not in CHANGING}, body)


@asynccontextmanager
async def served(folder: Path, vfs: str = "", **settings: object) -> AsyncIterator[Served]:
    """A running server."""
    server = Served(folder, vfs, commit_thread="never", **settings)
    try:
        for surface in server.app.surfaces:
            await surface.start()
        yield server
    finally:
        server.context.is_stopping = True
        server.context.engine.signals.send_all()
        for task in list(server.host.tasks):
            task.cancel()
        await asyncio.gather(*server.host.tasks, return_exceptions=True)
        await server.context.engine.stop()
        server.context.audit.close()
