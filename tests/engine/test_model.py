"""Keyed writes against a plain model, with crashes at every named point of the commit path.

What was answered is there after the crash, retries of the rest change nothing twice, and every answer to one key is the
same answer. A crash is an exception that ends the writing thread as the end of the process would; the next engine then
starts on a copy of the files as they lie on disk at that moment, or, in memory, on the rows as they are.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from semel.engine.contract import EngineError, NotStoredError
from semel.engine.engine import POINTS
from semel.store.memory import MemoryStore
from semel.store.open import open_store
from semel.store.protocol import Store
from tests.engine.rig import Bench
from tests.engine.toy import COUNTER, MIGRATIONS, RECEIPT, TABLES, Add, ReceiptRow, ToyWorld
from tests.harness.postgres.shared import fresh_url

STORED_AFTER = ("committed", "answered")
FILES = ("semel.db", "semel.db-wal")
Identity = tuple[bytes, bytes]


class Crash(BaseException):
    """The end of the process, seen from inside."""


class Disk(ABC):
    """Where the rows are while processes come and go."""

    @abstractmethod
    def start(self) -> Store:
        """The first process."""

    @abstractmethod
    def survive(self) -> Callable[[], Store]:
        """Called at the moment of the crash: how the next process opens the store."""


class MemoryDisk(Disk):
    """The rows stay where they are."""

    def start(self) -> Store:
        self._store = MemoryStore(TABLES, ToyWorld().wall_ms)
        return self._store

    def survive(self) -> Callable[[], Store]:
        return lambda: self._store


class SqliteDisk(Disk):
    """A new folder for each process, with the files as the last one left them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._processes = 0

    def start(self) -> Store:
        return open_store(f"sqlite:{self._folder()}", TABLES, MIGRATIONS, ToyWorld().wall_ms)

    def survive(self) -> Callable[[], Store]:
        before = self._folder()
        self._processes += 1
        self._folder().mkdir()
        for name in FILES:
            shutil.copy(before / name, self._folder() / name)
        return self.start

    def _folder(self) -> Path:
        return self._root / str(self._processes)


class PostgresDisk(Disk):
    """A schema; the server keeps it while nodes come and go."""

    def __init__(self) -> None:
        self._url = fresh_url(lanes="1")

    def start(self) -> Store:
        return open_store(self._url, TABLES, MIGRATIONS, ToyWorld().wall_ms)

    def survive(self) -> Callable[[], Store]:
        return self.start


class System:
    """One process after another on one disk, and what their clients know."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._loop = asyncio.new_event_loop()
        self._bench = self._loop.run_until_complete(self._boot(disk.start()))
        self.amounts: dict[Identity, int] = {}
        self.answers: dict[Identity, int] = {}
        self.in_doubt: set[Identity] = set()

    def close(self) -> None:
        """An orderly end."""
        self._loop.run_until_complete(self._bench.engine.stop())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def send(self, *identities: Identity, crash_at: str | None = None) -> None:
        """Send writes in one batch; with a crash, start the next process afterwards."""
        self._loop.run_until_complete(self._send(identities, crash_at))

    def retry(self) -> None:
        """Send everything again that was never answered."""
        if self.in_doubt:
            self.send(*sorted(self.in_doubt))
        assert not self.in_doubt

    def ask_for_another_amount(self, identity: Identity) -> None:
        """The same key with another request is refused, and changes nothing."""
        name, key = identity
        other = Add(name, key, self.amounts[identity] + 1)
        assert self._loop.run_until_complete(self._bench.submit(other)) is None

    def check(self) -> None:
        """Counters are the sums of their receipts, and what was answered is among them."""
        receipts: dict[bytes, list[ReceiptRow]] = defaultdict(list)
        for name, key in self.amounts:
            row = self._bench.find(RECEIPT, (name, key))
            if row is not None:
                receipts[name].append(ReceiptRow(*row))
            assert row is not None or (name, key) not in self.answers
        for name in {name for name, _ in self.amounts}:
            rows = sorted(receipts[name], key=lambda row: row.answer)
            counter = self._bench.find(COUNTER, (name,))
            assert (0 if counter is None else counter.value) == sum(row.amount for row in rows)
            reached = 0
            for row in rows:
                reached += row.amount
                assert row.amount == self.amounts[row.name, row.key]
                assert row.answer == reached
                assert self.answers.get((row.name, row.key), reached) == reached

    async def _boot(self, store: Store) -> Bench:
        return Bench(store, None, None)

    async def _send(self, identities: Iterable[Identity], crash_at: str | None) -> None:
        bench, failed = self._bench, asyncio.create_task(self._bench.engine.failed.wait())
        fresh = {one for one in identities if bench.find(RECEIPT, one) is None}
        async with bench.held():
            sent = [(one, asyncio.create_task(bench.submit(Add(*one, self.amounts[one])))) for one in identities]
            await asyncio.sleep(0)
            self.in_doubt.update(one for one in identities if one not in self.answers)
            if crash_at is not None:
                bench.gate.also = _crash_in_next_batch(crash_at)
        everyone = asyncio.gather(*(task for _, task in sent), return_exceptions=True)
        ends: list[asyncio.Future[Any]] = [failed, everyone]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if crash_at is not None:
            await self._die(bench)
        failed.cancel()
        for one, task in sent:
            self._hear(one, task)
        everyone.cancel()
        if crash_at is not None and bench.engine.failure is not None:
            stored = [self._bench.find(RECEIPT, one) is not None for one in fresh]
            assert stored == [crash_at in STORED_AFTER] * len(fresh)

    async def _die(self, bench: Bench) -> None:
        """The next process takes over; without a crash (a batch of hits passes fewer points) it is a restart."""
        restart = self._disk.survive()
        await bench.engine.stop()
        self._bench = await self._boot(restart())

    def _hear(self, identity: Identity, task: asyncio.Task[int]) -> None:
        if not task.done():
            task.cancel()
            return
        error = task.exception()
        if error is None:
            assert self.answers.setdefault(identity, task.result()) == task.result()
            self.in_doubt.discard(identity)
        else:
            assert isinstance(error, EngineError)
            if isinstance(error, NotStoredError) and identity not in self.answers:
                assert self._bench.find(RECEIPT, identity) is None


def _crash_in_next_batch(point: str) -> Callable[[str], None]:
    is_next = False

    def reach(passed: str) -> None:
        nonlocal is_next
        is_next = is_next or passed == "gathered"
        if is_next and passed == point:
            raise Crash

    return reach


def _disk(kind: str, folder: Path) -> Disk:
    if kind == "memory":
        return MemoryDisk()
    return SqliteDisk(folder) if kind == "sqlite" else PostgresDisk()


@contextmanager
def system(kind: str) -> Iterator[System]:
    with tempfile.TemporaryDirectory() as folder:
        made = System(_disk(kind, Path(folder)))
        try:
            yield made
        finally:
            made.close()


IDENTITIES = st.tuples(st.sampled_from((b"a", b"b")), st.sampled_from((b"j", b"k", b"l", b"m", b"n", b"o")))
BATCHES = st.lists(IDENTITIES, min_size=1, max_size=5)


class KeyedWrites(RuleBasedStateMachine):
    """Clients that write, retry and crash the server."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self._context = system(self.kind)
        self.system = self._context.__enter__()

    def _named(self, batch: list[Identity], amount: int) -> list[Identity]:
        for identity in batch:
            self.system.amounts.setdefault(identity, amount)
        return batch

    @rule(batch=BATCHES, amount=st.integers(1, 9))
    def write(self, batch: list[Identity], amount: int) -> None:
        self.system.send(*self._named(batch, amount))

    @rule(batch=BATCHES, amount=st.integers(1, 9), point=st.sampled_from(POINTS))
    def write_and_crash(self, batch: list[Identity], amount: int, point: str) -> None:
        self.system.send(*self._named(batch, amount), crash_at=point)

    @rule()
    def retry(self) -> None:
        self.system.retry()

    @rule(identity=IDENTITIES)
    def reuse_a_key(self, identity: Identity) -> None:
        if identity in self.system.answers:
            self.system.ask_for_another_amount(identity)

    @invariant()
    def everything_adds_up(self) -> None:
        self.system.check()

    def teardown(self) -> None:
        try:
            self.system.retry()
            self.system.send(*self.system.amounts) if self.system.amounts else None
            self.system.check()
            assert set(self.system.answers) == set(self.system.amounts)
        finally:
            self._context.__exit__(None, None, None)


class KeyedWritesOnDisk(KeyedWrites):
    """The same on files."""

    kind = "sqlite"


class KeyedWritesOnServer(KeyedWrites):
    """The same on a database server."""

    kind = "postgres"


MACHINES = {KeyedWrites: 80, KeyedWritesOnDisk: 80, KeyedWritesOnServer: 20}


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.kind)
def test_random_writes_retries_and_crashes(machine: type[KeyedWrites]) -> None:
    examples = MACHINES[machine]
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=14, deadline=None))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_each_point(kind: str, point: str) -> None:
    with system(kind) as running:
        before, batch = [(b"a", b"before"), (b"b", b"before")], [(b"a", b"k"), (b"b", b"k"), (b"a", b"l"), (b"a", b"k")]
        running.amounts = dict.fromkeys((*before, *batch), 3)
        running.send(*before)
        for turn in range(3):
            crashed = [*batch, (b"a", str(turn).encode()), before[0]]
            running.amounts |= dict.fromkeys(crashed, 3)
            running.send(*crashed, crash_at=point)
            running.check()
            assert point == "answered" or (b"a", str(turn).encode()) in running.in_doubt
            running.retry()
            running.check()
        running.send(*running.amounts)
        assert running.answers[b"b", b"k"] == 6
        assert sorted(running.answers[identity] for identity in running.amounts if identity[0] == b"a") == [
            3 * count for count in range(1, 7)
        ]
