"""The ledger on a database: its term rises with every restore and with nothing else, and a key creates one thing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.engine.contract import Write
from semel.engine.engine import Engine, nowhere
from semel.engine.group_commit import Commit
from semel.kernel.errors import Refusal
from semel.store.open import open_store
from semel.store.protocol import Range
from semel.surfaces.ledger.commands import CHANCE_BYTES, CreatedPlace, CreateOrg, CreateVault
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerLimits
from semel.surfaces.ledger.model import BlockHeader, LedgerPlace, SetEntity
from semel.surfaces.ledger.reading import org
from semel.surfaces.ledger.tables import ALONE, LEDGER_MADE, LEDGER_TERM
from semel.surfaces.ledger.term_watch import LedgerMaintenance
from semel.surfaces.ledger.validation import prepare, write_command
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.backup.clone import clone
from tests.engine.rig import Recorder
from tests.harness.postgres.shared import fresh_url, shared_cluster

PATIENCE_SECONDS = 60.0
AT_ONCE = 4
ORGS = (7001, 7002)
OWN = LedgerPlace(ORGS[0])
KEY = b"the caller's key"


class Node:
    """An engine on a store, opened as a server's start opens it."""

    def __init__(self, url: str, reach: Callable[[str], None] = nowhere) -> None:
        world = SystemWorld()
        self.observer = Recorder()
        self.engine = Engine(open_store(url, TABLES, MIGRATIONS, world.wall_ms), world, None, self.observer, reach)
        self.ledger = LedgerContract()
        self._upkeep = LedgerMaintenance(self.engine, self.ledger, world)

    async def begin(self) -> int:
        """The term that it writes in."""
        await self._upkeep.begin()
        row = await self.engine.read(lambda reading: reading.get(LEDGER_TERM, ALONE))
        assert row is not None
        return row.term

    async def send(self, command: Any) -> Any:
        return await self.engine.submit(Write(self.ledger, command))

    async def write(self, sequence: int) -> BlockHeader:
        """One block; its header."""
        prepared = prepare(LedgerLimits(), OWN, b"ann", sequence, b"", (SetEntity(b"k", b"v"),))
        answer = await self.send(write_command(LedgerLimits(), prepared, b"client:ann", b"node", bytes(CHANCE_BYTES)))
        header: BlockHeader = answer.committed.header
        return header


def on_node(url: str, *works: Callable[[Node], Any]) -> tuple[int, list[Any]]:
    """One life of a process: its term, and what came of its work."""

    async def live() -> tuple[int, list[Any]]:
        node = Node(url)
        try:
            return await node.begin(), [await work(node) for work in works]
        finally:
            await node.engine.stop()

    return asyncio.run(asyncio.wait_for(live(), PATIENCE_SECONDS))


def term_of(url: str) -> int:
    """The term of a start."""
    return on_node(url)[0]


def make_orgs(node: Node) -> Any:
    return asyncio.gather(*[node.send(CreateOrg(b"org", (slug,), b"", b"")) for slug in ORGS])


def schema_of(url: str) -> str:
    return httpx.URL(url).params["schema"]


# -- terms ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def written() -> str:
    """A schema with one block, of term 1."""
    url = fresh_url()
    term, (_, header) = on_node(url, make_orgs, lambda node: node.write(1))
    assert (term, header.term, header.height) == (1, 1, 1)
    return url


def check_risen(url: str) -> None:
    """What is written from here on is told apart from what was written, and lost, before; a further start is not."""
    term, [header] = on_node(url, lambda node: node.write(2))
    assert (term, header.term, header.height) == (2, 2, 2)
    assert term_of(url) == 2


def test_a_backup_in_sqlite_that_comes_back_into_the_cluster_is_another_term(written: str, tmp_path: Path) -> None:
    backup, target = f"sqlite:{tmp_path}/backup", fresh_url()
    clone(written, backup)
    _, [lost] = on_node(written, lambda node: node.write(2))
    assert (lost.term, lost.height) == (1, 2)
    clone(backup, target)
    check_risen(target)


def test_a_dump_that_is_loaded_is_another_term(written: str) -> None:
    """In the place of what it was taken of, with everything named as before."""
    cluster, schema = shared_cluster(), schema_of(written)
    dump = cluster.dump(schema)
    _, [lost] = on_node(written, lambda node: node.write(2))
    assert (lost.term, lost.height) == (1, 2)
    cluster.execute(f"DROP SCHEMA {schema} CASCADE")
    cluster.load(dump)
    check_risen(written)


def at_once(url: str) -> list[int]:
    """The terms of nodes that start in the same moment."""
    barrier = threading.Barrier(AT_ONCE)

    def start() -> int:
        barrier.wait(PATIENCE_SECONDS)
        return term_of(url)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [started.result(PATIENCE_SECONDS) for started in [pool.submit(start) for _ in range(AT_ONCE)]]


def test_nodes_that_start_at_once_raise_the_term_once(written: str) -> None:
    """On nothing, and on what was restored."""
    assert at_once(fresh_url()) == [1] * AT_ONCE
    target = fresh_url()
    clone(written, target)
    assert at_once(target) == [2] * AT_ONCE


def test_every_start_on_sqlite_raises_the_term(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/data"
    assert [term_of(url) for _ in range(3)] == [1, 2, 3]


# -- a key for one creation -------------------------------------------------------------------------------------------


class Hold:
    """Keeps an engine at a point, once, from when it is armed until it is let go."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._is_armed = False
        self.reached, self._go = threading.Event(), threading.Event()

    def __call__(self, point: str) -> None:
        if self._is_armed and point == self._point:
            self._is_armed = False
            self.reached.set()
            assert self._go.wait(PATIENCE_SECONDS)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Until the end of the block at the latest."""
        self._is_armed = True
        try:
            yield
        finally:
            self._go.set()


def is_anyone_waiting() -> bool:
    """Whether a session of the cluster waits for a lock that another one holds."""
    return bool(shared_cluster().execute("SELECT 1 FROM pg_locks WHERE NOT granted"))


async def until_it_waits(creation: asyncio.Task[Any]) -> None:
    """The other node has nothing left to do but wait, or, if nothing holds it up, has done it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not creation.done() and not await asyncio.to_thread(is_anyone_waiting):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def create_on_both(url: str) -> tuple[Sequence[Any], Sequence[Node], Sequence[int]]:
    """The same key for vaults of two organizations: the second begins when the first has decided, but not stored."""
    hold = Hold("decided")
    nodes = [Node(url, hold), Node(url)]
    try:
        for node in nodes:
            await node.begin()
        await make_orgs(nodes[0])
        with hold.armed():
            first = asyncio.create_task(nodes[0].send(CreateVault(ORGS[0], (100,), 0, b"me", KEY)))
            assert await asyncio.to_thread(hold.reached.wait, PATIENCE_SECONDS)
            second = asyncio.create_task(nodes[1].send(CreateVault(ORGS[1], (100,), 0, b"me", KEY)))
            await until_it_waits(second)
        answers = await asyncio.gather(first, second)
        entries = await nodes[1].engine.read(lambda look: [org(look, slug).entries for slug in ORGS])
        made = await nodes[1].engine.read(lambda look: look.range(Range(LEDGER_MADE, "", (), 10)))
        assert [(row.owner, row.key, row.org, row.vault) for row in made] == [(b"me", KEY, ORGS[0], 100)]
        return answers, nodes, entries
    finally:
        for node in nodes:
            await node.engine.stop()


def test_one_key_for_vaults_of_two_organizations_on_two_nodes_makes_one() -> None:
    (first, second), nodes, entries = asyncio.run(asyncio.wait_for(create_on_both(fresh_url()), PATIENCE_SECONDS))
    assert isinstance(first, CreatedPlace)
    assert first.place == LedgerPlace(ORGS[0], 100)
    assert isinstance(second, Refusal)
    assert second.code == "ledger:failed_precondition"
    assert entries == [1, 0]
    for node in nodes:
        assert (node.observer.failures, node.observer.faults) == ([], [])
        assert Commit.ROLLED_BACK not in {report.commit for report in node.observer.batches}
