"""The cost of a batch of plain appends: statements, syncs, pages of the log, memory, switches and system calls.

Nothing here is timed, so a busy machine changes nothing. The bounds have a margin; a change that exceeds one has made
every append dearer.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.process import build_context, make_host
from semel.server.settings_loader import make_settings
from semel.store.sqlite.store import SqliteFileStore
from tests.harness.faulty_vfs import FaultyVfs
from tests.harness.server import HOST, RunningServer
from tests.server.http.test_exchange import Reading

CONNECTIONS = 64
BODY = b'{"content":"' + b"x" * 186 + b'"}'
PUT = b"PUT /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n"


def append(number: int) -> bytes:
    """An append under a key of its own."""
    head = b"POST /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"Idempotency-Key: key-%012d\r\nContent-Length: %d\r\n\r\n" % (number, len(BODY)) + BODY


class Counted:
    """A server in this process, with connections that have each sent one append."""

    def __init__(self, folder: Path, vfs: FaultyVfs) -> None:
        settings = make_settings(store=f"sqlite:{folder}?vfs={vfs.name}", data=str(folder), commit_thread="never")
        self.context = build_context(settings, nowhere)
        self.app = App(self.context)
        self.host = make_host(settings, self.app)
        self.store = cast(SqliteFileStore, self.context.engine._store)
        self.statements: list[str] = []
        self.numbers = 0
        self._connections = [self._connect() for _ in range(CONNECTIONS)]

    async def send(self, data: bytes) -> int:
        """One request on the first connection; its status."""
        protocol, pipe = self._connections[0]
        pipe.written.clear()
        protocol.data_received(data)
        await self._answered()
        return pipe.statuses[0]

    async def round(self) -> None:
        """One append on every connection, all in one pass of the loop."""
        for protocol, pipe in self._connections:
            pipe.written.clear()
            self.numbers += 1
            protocol.data_received(append(self.numbers))
        await self._answered()
        assert [pipe.statuses for _, pipe in self._connections] == [[204]] * CONNECTIONS

    def trace(self) -> None:
        """Note every statement of the writer from now on."""

        def note(cursor: object, sql: str, values: object) -> bool:
            self.statements.append(sql)
            return True

        self.statements.clear()
        self.store._writer.exec_trace = note

    async def _answered(self) -> None:
        while any(protocol.running is not None for protocol, _ in self._connections):  # noqa: ASYNC110 - a fake pipe
            await asyncio.sleep(0)

    def _connect(self) -> tuple[HttpProtocol, Reading]:
        pipe = Reading()
        protocol = HttpProtocol(self.host, asyncio.get_running_loop())
        protocol.connection_made(cast(asyncio.Transport, pipe))
        return protocol, pipe


@asynccontextmanager
async def counted(folder: Path, vfs: FaultyVfs) -> AsyncIterator[Counted]:
    """A server that is warm: every connection has sent an append, and the shape of its head is known."""
    server = Counted(folder, vfs)
    try:
        for surface in server.app.surfaces:
            await surface.start()
        assert await server.send(PUT) == 201
        for _ in range(2):
            await server.round()
        yield server
    finally:
        server.store._writer.exec_trace = None
        await server.context.engine.stop()
        server.context.audit.close()


def test_a_batch_of_appends_costs_five_statements_and_one_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-appends") as vfs:
            async with counted(tmp_path, vfs) as server:
                server.trace()
                syncs, pages = vfs.count_syncs, server.store._checkpoints.pages
                await server.round()
                assert len(server.statements) <= 5, server.statements
                assert vfs.count_syncs - syncs == 1
                assert server.store._checkpoints.pages - pages <= 16  # a tree of random keys takes about 97

    asyncio.run(test())


def test_a_batch_of_duplicates_costs_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-duplicates") as vfs:
            async with counted(tmp_path, vfs) as server:
                syncs = vfs.count_syncs
                server.numbers -= CONNECTIONS
                await server.round()
                assert vfs.count_syncs == syncs

    asyncio.run(test())


def test_appends_leave_no_memory_behind_but_their_entries_in_the_index(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-memory") as vfs:
            async with counted(tmp_path, vfs) as server:
                for _ in range(20):
                    await server.round()
                vfs.operations.clear()
                gc.collect()
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
                for _ in range(20):
                    await server.round()
                vfs.operations.clear()
                gc.collect()
                left = (tracemalloc.get_traced_memory()[0] - before) / (20 * CONNECTIONS)
                tracemalloc.stop()
                assert left < 80

    asyncio.run(test())


def test_an_append_costs_few_switches_and_system_calls(tmp_path: Path) -> None:
    rounds = 40
    with RunningServer(tmp_path, env={"SEMEL_COMMIT_THREAD": "never"}) as server:
        callers = [socket.create_connection((HOST, server.port)) for _ in range(CONNECTIONS)]
        callers[0].sendall(PUT)
        assert b" 201 " in callers[0].recv(65_536)
        numbers = iter(range(1_000_000))
        _round(server.pid, callers, numbers)
        before = counters(server.pid)
        for _ in range(rounds):
            _round(server.pid, callers, numbers)
        switches, calls = (after - first for after, first in zip(counters(server.pid), before, strict=True))
        for caller in callers:
            caller.close()
    appends = rounds * CONNECTIONS
    assert switches / appends < 0.5  # two threads that meet take about 0.76
    assert calls / appends < 3


def _round(pid: int, callers: list[socket.socket], numbers: Iterator[int]) -> None:
    """An append on every connection; the server is stopped until all have arrived, so that they are one batch."""
    os.kill(pid, signal.SIGSTOP)
    for caller in callers:
        caller.sendall(append(next(numbers)))
    os.kill(pid, signal.SIGCONT)
    for caller in callers:
        assert caller.recv(65_536)[9:12] == b"204"


def counters(pid: int) -> tuple[int, int]:
    """Voluntary switches of all threads, and calls that read or write."""
    switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        switches += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return switches, int(io["syscr"]) + int(io["syscw"])
