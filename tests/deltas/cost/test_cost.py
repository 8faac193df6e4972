"""The cost of pushes and pulls: statements, syncs, and pages of the log.

Nothing here is timed, so a busy machine changes nothing. The bounds have a margin; a change that exceeds one has made
every push dearer.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.deltas.cost.wire import Author, pull, push
from tests.harness.counted_server import BatchCost, CountedServer, status_of
from tests.harness.faulty_vfs import FaultyVfs

BATCH = 100
STORED = 30
"""Pushes before the first one that is counted."""
_CURSOR = re.compile(rb'"serverHlc":"([0-9]+)"')


class CountedDeltas(CountedServer):
    """A server with one connection."""

    async def ask(self, request: bytes) -> bytes:
        """The answer to a request, which must be 200."""
        [answer] = await self.send([request])
        assert status_of(answer) == 200
        return answer

    async def cost_of(self, request: bytes) -> BatchCost:
        """The cost of one request."""
        self.count()
        await self.ask(request)
        return self.cost


@asynccontextmanager
async def counted(folder: Path, vfs: FaultyVfs) -> AsyncIterator[tuple[CountedDeltas, Author]]:
    """A server that holds some thousand rows with random ids, and the author of the next ones."""
    server, author = CountedDeltas(folder, vfs, 1), Author(b"writer")
    author.chance = random.Random(1)
    async with server.started():
        for _ in range(STORED):
            await server.ask(push(author.client, [author.new_row() for _ in range(BATCH)]))
        yield server, author


def _run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_push_of_new_rows_costs_one_sync_and_few_pages(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-pushes") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                request = push(author.client, [author.new_row() for _ in range(BATCH)])
                statements, syncs, pages = await server.cost_of(request)
                assert syncs == 1
                assert pages <= 60  # a tree of random row ids takes about 130, and more with more rows
                assert len(statements) <= 24, statements

    _run(test())


def test_a_push_of_one_new_row_reads_nothing_but_the_memory(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-single-pushes") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                statements, syncs, pages = await server.cost_of(push(author.client, [author.new_row()]))
                assert syncs == 1
                assert pages <= 12
                assert not [sql for sql in statements if sql.startswith("SELECT")], statements

    _run(test())


def test_a_push_of_known_deltas_commits_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-known-pushes") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                request = push(author.client, [author.new_row() for _ in range(BATCH)])
                await server.ask(request)
                statements, syncs, pages = await server.cost_of(request)
                assert (syncs, pages) == (0, 0)
                assert not [sql for sql in statements if sql.startswith(("INSERT", "UPDATE", "COMMIT"))], statements

    _run(test())


def test_pulls_cost_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-pulls") as vfs:
            async with counted(tmp_path, vfs) as (server, author):
                held = await server.ask(push(author.client, [author.new_row()]))
                other = Author(b"other")
                await server.ask(push(other.client, [other.new_row()]))
                # A client that has never pushed, and one that has; what they show is stored later, without a sync.
                for client, start in (("reader", b"0"), ("writer", _cursor(held))):
                    cursor = start
                    for _ in range(3):
                        server.count()
                        cursor = _cursor(await server.ask(pull(client, cursor, 10_000)))
                        assert server.cost.syncs == 0

    _run(test())


def _cursor(answer: bytes) -> bytes:
    found = _CURSOR.search(answer)
    assert found is not None
    return found[1]
