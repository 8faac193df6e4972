"""The events surface in this process, with connections that have no socket."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.namespaces import build_context
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from semel.store.sqlite.store import SqliteFileStore
from semel.surfaces.events.http import EventsHttp
from semel.surfaces.events.service import EventService
from semel.surfaces.events.socket import EventSocket
from tests.events.raw_frames import HANDSHAKE
from tests.server.http.test_exchange import Reading

TURNS = 20_000
"""Limit on the passes of the loop until an answer must have come."""
_MASK = b"\x01\x02\x03\x04"


def masked(text: bytes) -> bytes:
    """A whole frame of a client."""
    size = len(text)
    head = bytes([0x81, 0x80 | size]) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    mask = (_MASK * (size // 4 + 1))[:size]
    return head + _MASK + (int.from_bytes(text, "big") ^ int.from_bytes(mask, "big")).to_bytes(size, "big")


def request(kind: str, payload: Any, name: str = "m") -> bytes:
    """A message of the snake_case dialect."""
    message = {
        "type": kind,
        "msg_id": name,
        "timestamp": 1_760_000_000_000,
        "protocol_version": "1.0",
        "payload": payload,
    }
    return json.dumps(message, separators=(",", ":")).encode()


class SocketPipe(Reading):
    """A transport of a WebSocket."""

    protocol: EventSocket

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever unsent."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The address of the client."""
        return ("127.0.0.1", 1) if name == "peername" else default


class PipeClient:
    """One connection, after its handshake."""

    def __init__(self, server: InProcess) -> None:
        self.pipe = SocketPipe()
        protocol = HttpProtocol(server.host, asyncio.get_running_loop())
        protocol.connection_made(cast(asyncio.Transport, self.pipe))
        protocol.data_received(HANDSHAKE)
        assert self.pipe.written[0].startswith(b"HTTP/1.1 101")
        self.pipe.written.clear()
        self.messages: list[dict[str, Any]] = []

    def send(self, *texts: bytes) -> None:
        """These messages arrive at once."""
        self.pipe.protocol.data_received(b"".join(map(masked, texts)))

    def read(self) -> list[dict[str, Any]]:
        """All messages so far."""
        data = b"".join(self.pipe.written)
        self.pipe.written.clear()
        while data:
            size = data[1]
            start = 2 if size < 126 else 4 if size == 126 else 10
            size = size if size < 126 else int.from_bytes(data[2:start], "big")
            if data[0] == 0x81:
                self.messages.append(json.loads(data[start : start + size]))
            data = data[start + size :]
        return self.messages

    async def until(self, count: int, kind: str = "") -> list[dict[str, Any]]:
        """Wait until there are this many messages, or this many of a kind."""
        for _ in range(TURNS):
            found = [one for one in self.read() if kind in ("", one["type"])]
            if len(found) >= count:
                return found
            await asyncio.sleep(0)
        raise AssertionError(f"{len(self.messages)} of {count} messages have come: {self.messages[-1:]}")


class InProcess:
    """A server in this process."""

    def __init__(self, folder: Path, vfs: str = "") -> None:
        store = f"sqlite:{folder}" + (f"?vfs={vfs}" if vfs else "")
        self.settings = make_settings(store=store, data=str(folder), commit_thread="never")
        self.context = build_context(self.settings, nowhere)
        self.app = App(self.context)
        self.host = make_host(self.settings, self.app)
        self.store = cast(SqliteFileStore, self.context.engine._store)
        self.surface = next(one for one in self.app.surfaces if isinstance(one, EventsHttp))
        self._clients = itertools.count()

    @property
    def service(self) -> EventService:
        """The state that all connections share."""
        return self.surface._service

    async def connect(self, partitions: Sequence[str] = ()) -> PipeClient:
        """A client of the snake_case dialect, live on these partitions."""
        client = PipeClient(self)
        client.send(request("connect", {"token": "t", "client_id": f"client-{next(self._clients)}"}))
        await client.until(1, "connected")
        if partitions:
            names = list(partitions)
            sync = {"partitions": names, "subscription_partitions": names, "since_committed_id": 0}
            client.send(request("sync", sync))
            await client.until(1, "sync_response")
        return client


@asynccontextmanager
async def in_process(folder: Path, vfs: str = "") -> AsyncIterator[InProcess]:
    """A server with its live feed."""
    server = InProcess(folder, vfs)
    for surface in server.app.surfaces:
        await surface.start()
    feed = asyncio.create_task(server.service.feed.run())
    try:
        yield server
    finally:
        server.store._writer.exec_trace = None
        feed.cancel()
        with suppress(asyncio.CancelledError):
            await feed
        await server.context.engine.stop()
        server.context.audit.close()
