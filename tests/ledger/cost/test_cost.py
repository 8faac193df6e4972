"""The cost of a batch of transactions: statements, syncs, rows and pages of the log.

Nothing here is timed, so a busy machine changes nothing. The bounds have a margin; a change that exceeds one has made
every transaction dearer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256 as openssl_sha256
from pathlib import Path
from types import FrameType
from typing import Any, cast

from semel.engine.engine import nowhere
from semel.server.app import App
from semel.server.http.protocol import HttpProtocol
from semel.server.process import build_context, make_host
from semel.server.settings_loader import make_settings
from semel.store.sqlite.store import SqliteFileStore
from tests.harness.faulty_vfs import FaultyVfs
from tests.server.http.test_exchange import Reading

CONNECTIONS = 64
VALUE = base64.b64encode(b"x" * 200).decode()
INSERT = re.compile(r'INSERT OR ROLLBACK INTO "?(\w+)"? VALUES (.*?)(?: ON CONFLICT|$)')


class Calls:
    """Counts the calls of Python functions, and of SHA-256, in this thread."""

    def __init__(self) -> None:
        self.python = self.hashes = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *given: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, called: Any) -> None:
        self.python += event == "call"
        self.hashes += event == "c_call" and called is openssl_sha256


class CountedLedger:
    """A server in this process, with connections that have each committed transactions of a client of their own."""

    def __init__(self, folder: Path, vfs: FaultyVfs) -> None:
        settings = make_settings(store=f"sqlite:{folder}?vfs={vfs.name}", data=str(folder), commit_thread="never")
        self.context = build_context(settings, nowhere)
        self.app = App(self.context)
        self.host = make_host(settings, self.app)
        self.store = cast(SqliteFileStore, self.context.engine._store)
        self.statements: list[str] = []
        self.vault = ""
        self._chance = random.Random(1)
        self._sequence = 0
        self._connections = [self._connect() for _ in range(CONNECTIONS)]

    async def post(self, path: str, body: Any, connection: int = 0) -> Any:
        """One request and its answer."""
        protocol, pipe = self._connections[connection]
        pipe.written.clear()
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        protocol.data_received(head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        await self._answered()
        return json.loads(bytes(b"".join(pipe.written)).partition(b"\r\n\r\n")[2])

    async def singles(self) -> None:
        """One transaction on every connection, all in one pass of the loop."""
        self._sequence += 1
        for number, (protocol, pipe) in enumerate(self._connections):
            pipe.written.clear()
            content = json.dumps(self._transaction(f"client-{number}", self._sequence)).encode()
            head = f"POST {self.vault}/writes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            protocol.data_received(head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        await self._answered()
        assert [pipe.statuses for _, pipe in self._connections] == [[200]] * CONNECTIONS

    async def bulk(self, first: int, count: int) -> None:
        """Many transactions in one request."""
        writes = [self._transaction("bulk", first + number) for number in range(count)]
        told = await self.post(f"{self.vault}/writes:bulk", {"transactions": writes})
        assert all("success" in one for one in told["results"])

    def trace(self) -> None:
        """Note every statement of the writer from now on."""

        def note(cursor: object, sql: str, values: object) -> bool:
            self.statements.append(sql)
            return True

        self.statements.clear()
        self.store._writer.exec_trace = note

    @property
    def rows(self) -> Counter[str]:
        """The rows that the noted statements have written, by table."""
        found: Counter[str] = Counter()
        for statement in self.statements:
            insert = INSERT.match(statement)
            if insert is not None:
                found[insert[1]] += insert[2].count("(")
        return found

    def _transaction(self, client: str, sequence: int) -> Any:
        key = f"user:{self._chance.randrange(10**12)}"
        operation = {"setEntity": {"key": key, "value": VALUE}}
        return {"clientId": client, "sequence": str(sequence), "operations": [operation]}

    async def _answered(self) -> None:
        while any(protocol.running is not None for protocol, _ in self._connections):  # noqa: ASYNC110 - a fake pipe
            await asyncio.sleep(0)

    def _connect(self) -> tuple[HttpProtocol, Reading]:
        pipe = Reading()
        protocol = HttpProtocol(self.host, asyncio.get_running_loop())
        protocol.connection_made(cast(asyncio.Transport, pipe))
        return protocol, pipe


@asynccontextmanager
async def counted(folder: Path, vfs: FaultyVfs) -> AsyncIterator[CountedLedger]:
    """A server with a vault in which every client has committed."""
    server = CountedLedger(folder, vfs)
    try:
        for surface in server.app.surfaces:
            await surface.start()
        org = (await server.post("/ledger/v1/orgs", {"name": "cost"}))["slug"]["slug"]
        vault = (await server.post(f"/ledger/v1/orgs/{org}/vaults", {}))["vault"]["slug"]
        server.vault = f"/ledger/v1/orgs/{org}/vaults/{vault}"
        for _ in range(3):
            await server.singles()
        yield server
    finally:
        server.store._writer.exec_trace = None
        await server.context.engine.stop()
        server.context.audit.close()


def test_a_transaction_writes_four_rows_and_a_batch_few_statements(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-ledger") as vfs:
            async with counted(tmp_path, vfs) as server:
                server.trace()
                syncs = vfs.count_syncs
                await server.singles()
                rows = server.rows
                batches = vfs.count_syncs - syncs
                each = ("ledger_block", "ledger_tree", "ledger_entity", "ledger_stream")
                assert {name: rows.pop(name) for name in each} == dict.fromkeys(each, CONNECTIONS)
                assert set(rows) <= {"ledger_org", "ledger_place", "ledger_tops", "ledger_roots"}
                assert sum(rows.values()) <= 4 * batches
                assert batches <= 2
                assert len(server.statements) <= 18 * batches, server.statements

    asyncio.run(test())


def test_a_transaction_makes_few_python_calls_and_hashes(tmp_path: Path) -> None:
    """Without head shapes and plain groups, a transaction makes about twice as many calls."""

    async def test() -> None:
        with FaultyVfs("counting-ledger-calls") as vfs:
            async with counted(tmp_path, vfs) as server:
                with Calls() as calls:
                    await server.singles()
                assert calls.python / CONNECTIONS < 115, calls.python / CONNECTIONS
                assert calls.hashes / CONNECTIONS < 18, calls.hashes / CONNECTIONS
                await server.bulk(1, 64)
                with Calls() as calls:
                    await server.bulk(65, 64)
                assert calls.python / 64 < 75, calls.python / 64
                assert calls.hashes / 64 < 18, calls.hashes / 64

    asyncio.run(test())


def test_many_transactions_of_a_client_in_one_request_write_three_rows_each(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-ledger-bulk") as vfs:
            async with counted(tmp_path, vfs) as server:
                await server.bulk(1, 64)
                server.trace()
                syncs, pages = vfs.count_syncs, server.store._checkpoints.pages
                await server.bulk(65, 64)
                rows = server.rows
                batches = vfs.count_syncs - syncs
                each = ("ledger_block", "ledger_tree", "ledger_entity")
                assert {name: rows.pop(name) for name in each} == dict.fromkeys(each, 64)
                assert sum(rows.values()) <= 5 * batches, rows
                assert batches <= 2
                assert server.store._checkpoints.pages - pages <= 4 * 64

    asyncio.run(test())


def test_duplicates_of_many_transactions_cost_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-ledger-again") as vfs:
            async with counted(tmp_path, vfs) as server:
                one = {"clientId": "again", "sequence": "1", "operations": [{"deleteEntity": {"key": "a"}}]}
                body = {"transactions": [one]}
                await server.post(f"{server.vault}/writes:bulk", body)
                syncs = vfs.count_syncs
                told = await server.post(f"{server.vault}/writes:bulk", body)
                assert told["results"][0]["replayed"] is True
                assert vfs.count_syncs == syncs

    asyncio.run(test())
