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
from typing import Any

from tests.harness.counted_server import CountedServer, posted, status_of
from tests.harness.faulty_vfs import FaultyVfs

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


class CountedLedger(CountedServer):
    """A server with connections that have each committed transactions of a client of their own."""

    def __init__(self, folder: Path, vfs: FaultyVfs) -> None:
        super().__init__(folder, vfs, CONNECTIONS)
        self.vault = ""
        self._chance = random.Random(1)
        self._sequence = 0

    async def post(self, path: str, body: Any) -> Any:
        """One request and its answer."""
        [answer] = await self.send([posted(path, json.dumps(body).encode())])
        return json.loads(answer.partition(b"\r\n\r\n")[2])

    async def singles(self) -> None:
        """One transaction on every connection, all in one pass of the loop."""
        self._sequence += 1
        bodies = [self._transaction(f"client-{number}", self._sequence) for number in range(CONNECTIONS)]
        answers = await self.send([posted(f"{self.vault}/writes", json.dumps(body).encode()) for body in bodies])
        assert [status_of(answer) for answer in answers] == [200] * CONNECTIONS

    async def bulk(self, first: int, count: int) -> None:
        """Many transactions in one request."""
        writes = [self._transaction("bulk", first + number) for number in range(count)]
        told = await self.post(f"{self.vault}/writes:bulk", {"transactions": writes})
        assert all("success" in one for one in told["results"])

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


@asynccontextmanager
async def counted(folder: Path, vfs: FaultyVfs) -> AsyncIterator[CountedLedger]:
    """A server with a vault in which every client has committed."""
    server = CountedLedger(folder, vfs)
    async with server.started():
        org = (await server.post("/ledger/v1/orgs", {"name": "cost"}))["slug"]["slug"]
        vault = (await server.post(f"/ledger/v1/orgs/{org}/vaults", {}))["vault"]["slug"]
        server.vault = f"/ledger/v1/orgs/{org}/vaults/{vault}"
        for _ in range(3):
            await server.singles()
        yield server


def test_a_transaction_writes_four_rows_and_a_batch_few_statements(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-ledger") as vfs:
            async with counted(tmp_path, vfs) as server:
                server.count()
                await server.singles()
                rows, batches = server.rows, server.cost.syncs
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
                server.count()
                await server.bulk(65, 64)
                rows, batches = server.rows, server.cost.syncs
                each = ("ledger_block", "ledger_tree", "ledger_entity")
                assert {name: rows.pop(name) for name in each} == dict.fromkeys(each, 64)
                assert sum(rows.values()) <= 5 * batches, rows
                assert batches <= 2
                assert server.cost.pages <= 4 * 64

    asyncio.run(test())


def test_duplicates_of_many_transactions_cost_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-ledger-again") as vfs:
            async with counted(tmp_path, vfs) as server:
                one = {"clientId": "again", "sequence": "1", "operations": [{"deleteEntity": {"key": "a"}}]}
                body = {"transactions": [one]}
                await server.post(f"{server.vault}/writes:bulk", body)
                server.count()
                told = await server.post(f"{server.vault}/writes:bulk", body)
                assert told["results"][0]["replayed"] is True
                assert server.cost.syncs == 0

    asyncio.run(test())
