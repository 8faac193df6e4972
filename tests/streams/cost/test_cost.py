"""The cost of a batch of plain appends: statements, syncs, pages of the log and memory.

Nothing here is timed, so a busy machine changes nothing. The bounds have a margin; a change that exceeds one has made
every append dearer.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.harness.counted_server import CountedServer, posted, status_of
from tests.harness.faulty_vfs import FaultyVfs

CONNECTIONS = 64
BODY = b'{"content":"' + b"x" * 186 + b'"}'
PUT = b"PUT /v1/stream/s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n"


def append(number: int) -> bytes:
    """An append under a key of its own."""
    return posted("/v1/stream/s", BODY, b"Idempotency-Key: key-%012d\r\n" % number)


class CountedAppends(CountedServer):
    """A server with connections that have each sent one append."""

    numbers = 0

    async def round(self) -> None:
        """One append on every connection, all in one pass of the loop."""
        self.numbers += CONNECTIONS
        answers = await self.send([append(self.numbers - place) for place in range(CONNECTIONS)])
        assert [status_of(answer) for answer in answers] == [204] * CONNECTIONS


@asynccontextmanager
async def counted(folder: Path, vfs: FaultyVfs) -> AsyncIterator[CountedAppends]:
    """A server that is warm: every connection has sent an append, and the shape of its head is known."""
    server = CountedAppends(folder, vfs, CONNECTIONS)
    async with server.started():
        assert [status_of(answer) for answer in await server.send([PUT])] == [201]
        for _ in range(2):
            await server.round()
        yield server


def test_a_batch_of_appends_costs_six_statements_and_one_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-appends") as vfs:
            async with counted(tmp_path, vfs) as server:
                server.count()
                await server.round()
                assert len(server.cost.statements) <= 6, server.cost.statements  # one looks for other programs
                assert server.cost.syncs == 1
                assert server.cost.pages <= 16  # a tree of random keys takes about 97

    asyncio.run(test())


def test_a_batch_of_duplicates_costs_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-duplicates") as vfs:
            async with counted(tmp_path, vfs) as server:
                server.count()
                server.numbers -= CONNECTIONS
                await server.round()
                assert server.cost.syncs == 0

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
