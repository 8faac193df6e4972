"""A server in this process, asked without sockets, whose statements, syncs and pages of the log are counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, cast

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.namespaces import build_context
from semel.server.process import make_host
from semel.server.settings_loader import make_settings
from semel.store.sqlite.store import SqliteFileStore
from tests.harness.faulty_vfs import FaultyVfs
from tests.server.http.test_exchange import Reading


class BatchCost(NamedTuple):
    """What some requests have cost."""

    statements: Sequence[str]
    syncs: int
    pages: int


class CountedServer:
    """A server with a SQLite store, all of whose commits are made on the loop."""

    def __init__(self, folder: Path, vfs: FaultyVfs, connections: int) -> None:
        settings = make_settings(store=f"sqlite:{folder}?vfs={vfs.name}", data=str(folder), commit_thread="never")
        self.context = build_context(settings, nowhere)
        self.app = App(self.context)
        self.host = make_host(settings, self.app)
        self.store = cast(SqliteFileStore, self.context.engine._store)
        self.statements: list[str] = []
        self._vfs = vfs
        self._begun = (0, 0)
        self.connections = [self._connect() for _ in range(connections)]

    async def send(self, requests: Sequence[bytes]) -> list[bytes]:
        """One request on each connection, all in one pass of the loop; the answers."""
        pairs = list(zip(self.connections, requests, strict=False))
        assert len(pairs) == len(requests)
        for (protocol, pipe), request in pairs:
            pipe.written.clear()
            protocol.data_received(request)
        while any(protocol.running is not None for (protocol, _), _ in pairs):  # noqa: ASYNC110 - a fake pipe
            await asyncio.sleep(0)
        return [b"".join(pipe.written) for (_, pipe), _ in pairs]

    def count(self) -> None:
        """Count from now on."""

        def note(cursor: object, sql: str, values: object) -> bool:
            self.statements.append(sql)
            return True

        self.statements.clear()
        self.store._writer.exec_trace = note
        self._begun = (self._vfs.count_syncs, self.store._checkpoints.pages)

    @property
    def cost(self) -> BatchCost:
        """The cost since `count`."""
        syncs, pages = self._begun
        return BatchCost(list(self.statements), self._vfs.count_syncs - syncs, self.store._checkpoints.pages - pages)

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """The server, until the end of the block."""
        try:
            for surface in self.app.surfaces:
                await surface.start()
            yield
        finally:
            self.store._writer.exec_trace = None
            await self.context.engine.stop()
            self.context.audit.close()

    def _connect(self) -> tuple[HttpProtocol, Reading]:
        pipe = Reading()
        protocol = HttpProtocol(self.host, asyncio.get_running_loop())
        protocol.connection_made(cast(asyncio.Transport, pipe))
        return protocol, pipe


def posted(path: str, body: bytes, more: bytes = b"") -> bytes:
    """A request with a JSON body; `more` are further header lines, each with its end."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()
    return head + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def status_of(answer: bytes) -> int:
    """The status of an answer."""
    return int(answer[9:12])
