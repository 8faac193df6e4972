"""The cost of pushes and pulls: statements, syncs, and pages of the log.

Nothing here is timed, so a busy machine changes nothing. The bounds have a margin; a change that exceeds one has made
every push dearer.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from bench.deltas_wire import Author, pull, push
from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.process import build_context, make_host
from semel.server.settings_loader import make_settings
from semel.store.sqlite.store import SqliteFileStore
from tests.harness.faulty_vfs import FaultyVfs
from tests.server.http.test_exchange import Reading

BATCH = 100
STORED = 30
"""Pushes before the first one that is counted."""
_CURSOR = re.compile(rb'"serverHlc":"([0-9]+)"')


class Counted:
    """A server in this process, with one connection."""

    def __init__(self, folder: Path, vfs: FaultyVfs) -> None:
        settings = make_settings(store=f"sqlite:{folder}?vfs={vfs.name}", data=str(folder), commit_thread="never")
        self.context = build_context(settings, nowhere)
        self.app = App(self.context)
        self.store = cast(SqliteFileStore, self.context.engine._store)
        self.statements: list[str] = []
        self._vfs = vfs
        self._pipe = Reading()
        self._protocol = HttpProtocol(make_host(settings, self.app), asyncio.get_running_loop())
        self._protocol.connection_made(cast(asyncio.Transport, self._pipe))

    async def send(self, request: bytes) -> bytes:
        """The answer to a request, which must be 200."""
        self._pipe.written.clear()
        self._protocol.data_received(request)
        while self._protocol.running is not None:  # noqa: ASYNC110 - a fake pipe
            await asyncio.sleep(0.001)
        assert self._pipe.statuses == [200]
        return b"".join(self._pipe.written)

    async def cost(self, request: bytes) -> tuple[int, int, Sequence[str]]:
        """Syncs, pages of the log and statements of the writer for one request."""

        def note(cursor: object, sql: str, values: object) -> bool:
            self.statements.append(sql)
            return True

        self.statements = []
        self.store._writer.exec_trace = note
        syncs, pages = self._vfs.count_syncs, self.store._checkpoints.pages
        await self.send(request)
        self.store._writer.exec_trace = None
        return self._vfs.count_syncs - syncs, self.store._checkpoints.pages - pages, self.statements


@asynccontextmanager
async def counted(folder: Path, vfs: FaultyVfs) -> AsyncIterator[tuple[Counted, Author]]:
    """A server that holds some thousand rows with random ids, and the author of the next ones."""
    server, author = Counted(folder, vfs), Author(b"writer")
    author.chance = random.Random(1)
    try:
        for surface in server.app.surfaces:
            await surface.start()
        for _ in range(STORED):
            await server.send(push(author.client, [author.new_row() for _ in range(BATCH)]))
        yield server, author
    finally:
        await server.context.engine.stop()
        server.context.audit.close()


def _run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_push_of_new_rows_costs_one_sync_and_few_pages(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-pushes") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                request = push(author.client, [author.new_row() for _ in range(BATCH)])
                syncs, pages, statements = await server.cost(request)
                assert syncs == 1
                assert pages <= 60  # a tree of random row ids takes about 130, and more with more rows
                assert len(statements) <= 24, statements

    _run(test())


def test_a_push_of_one_new_row_reads_nothing_but_the_memory(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-single-pushes") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                syncs, pages, statements = await server.cost(push(author.client, [author.new_row()]))
                assert syncs == 1
                assert pages <= 12
                assert not [sql for sql in statements if sql.startswith("SELECT")], statements

    _run(test())


def test_a_push_of_known_deltas_commits_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-known-pushes") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                request = push(author.client, [author.new_row() for _ in range(BATCH)])
                await server.send(request)
                syncs, pages, statements = await server.cost(request)
                assert (syncs, pages) == (0, 0)
                assert not [sql for sql in statements if sql.startswith(("INSERT", "UPDATE", "COMMIT"))], statements

    _run(test())


def test_pulls_cost_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-pulls") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                held = await server.send(push(author.client, [author.new_row()]))
                other = Author(b"other")
                await server.send(push(other.client, [other.new_row()]))
                # A client that has never pushed, and one that has; what they show is stored later, without a sync.
                for client, start in (("reader", b"0"), ("writer", _cursor(held))):
                    cursor = start
                    for _ in range(3):
                        syncs, _, _ = await server.cost(pull(client, cursor, 10_000))
                        assert syncs == 0
                        cursor = _cursor(b"".join(server._pipe.written))

    _run(test())


def _cursor(answer: bytes) -> bytes:
    found = _CURSOR.search(answer)
    assert found is not None
    return found[1]
