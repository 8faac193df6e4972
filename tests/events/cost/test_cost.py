"""The cost of a batch of plain events: statements, syncs, pages of the log, memory and writes.

Nothing here is timed, so a busy machine changes nothing. The bounds have a margin; a change that exceeds one has made
every event dearer.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.events.in_process import InProcess, PipeClient, in_process, request
from tests.harness.faulty_vfs import FaultyVfs

CONNECTIONS = 32
PAD = "x" * 150


def submission(number: int, items: int = 1) -> bytes:
    """Events under ids of their own."""
    events = [
        {"id": f"event-{number:012}-{place}", "partitions": ["p"], "event": {"type": "t", "pad": PAD}}
        for place in range(items)
    ]
    return request("submit_events", {"events": events})


class Counted:
    """A server in this process, with connections that have each sent an event."""

    def __init__(self, server: InProcess, clients: list[PipeClient]) -> None:
        self.server = server
        self.clients = clients
        self.statements: list[str] = []
        self.numbers = 0

    async def round(self, items: int = 1) -> None:
        """A submission on every connection, all in one pass of the loop."""
        self.forget()
        for client in self.clients:
            self.numbers += 1
            client.send(submission(self.numbers, items))
        for client in self.clients:
            answer = (await client.until(1, "submit_events_result"))[0]
            assert [one["status"] for one in answer["payload"]["results"]] == ["committed"] * items

    def forget(self) -> None:
        """Drop the answers so far."""
        for client in self.clients:
            client.messages.clear()
            client.pipe.written.clear()

    def trace(self) -> None:
        """Note every statement of the writer from now on."""

        def note(cursor: object, sql: str, values: object) -> bool:
            self.statements.append(sql)
            return True

        self.server.store._writer.exec_trace = note


@asynccontextmanager
async def counted(folder: Path, vfs: str = "", connections: int = CONNECTIONS) -> AsyncIterator[Counted]:
    """A server that is warm."""
    async with in_process(folder, vfs) as server:
        found = Counted(server, [await server.connect() for _ in range(connections)])
        for _ in range(2):
            await found.round()
        yield found


def test_a_batch_of_events_costs_eight_statements_and_one_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-events") as vfs:
            async with counted(tmp_path, vfs.name) as server:
                server.trace()
                store = server.server.store
                syncs, pages = vfs.count_syncs, store._checkpoints.pages
                await server.round()
                assert len(server.statements) <= 8, server.statements  # one looks for other programs
                assert vfs.count_syncs - syncs == 1
                assert store._checkpoints.pages - pages <= 16

    asyncio.run(test())


def test_submissions_of_100_events_are_one_batch(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-submissions") as vfs:
            async with counted(tmp_path, vfs.name, connections=4) as server:
                syncs = vfs.count_syncs
                await server.round(items=100)
                assert vfs.count_syncs - syncs <= 2

    asyncio.run(test())


def test_a_batch_of_repeated_events_costs_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-repeated-events") as vfs:
            async with counted(tmp_path, vfs.name) as server:
                syncs = vfs.count_syncs
                server.numbers -= CONNECTIONS
                await server.round()
                assert vfs.count_syncs == syncs

    asyncio.run(test())


def test_live_events_of_a_batch_are_one_write_for_each_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async with counted(tmp_path) as server:
            reader = await server.server.connect(["p"])
            before = len(await reader.until(2))
            for _ in range(100):  # the reader catches up, and is then fed with the others
                if len(server.server.service.feed):
                    break
                await asyncio.sleep(0.01)
            await server.round()
            writes: list[int] = []
            for _ in range(2_000):
                writes.append(len(reader.pipe.written))
                if len(reader.read()) - before == CONNECTIONS:
                    break
                await asyncio.sleep(0.001)
            assert len(reader.messages) - before == CONNECTIONS
            assert sum(writes) <= 2

    asyncio.run(test())


def test_events_leave_no_memory_behind_but_their_entries_in_the_index(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-memory-of-events") as vfs:
            async with counted(tmp_path, vfs.name) as server:
                for _ in range(20):
                    await server.round()
                vfs.operations.clear()
                gc.collect()
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
                for _ in range(20):
                    await server.round()
                server.forget()
                vfs.operations.clear()
                gc.collect()
                left = (tracemalloc.get_traced_memory()[0] - before) / (20 * CONNECTIONS)
                tracemalloc.stop()
                assert left < 80

    asyncio.run(test())
