"""Ways to run the engine under a test: one batch in this thread, or the whole engine with its lane held at will."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ParamSpec

from semel.engine.batch import run
from semel.engine.caller import WaitingCaller
from semel.engine.clock import DecisionClock
from semel.engine.contract import Contract, EngineError, Order, Write
from semel.engine.engine import Engine, EngineLimits
from semel.engine.group_commit import BatchReport, BatchResult, QueuedWrite
from semel.engine.soft_changes import SoftChanges
from semel.engine.surroundings import Surroundings
from semel.store.memory import MemoryStore
from semel.store.protocol import (
    AnyTable,
    Changes,
    CommitUnknownError,
    Hear,
    LoadedRows,
    Lock,
    Range,
    Row,
    Store,
    StoreAwayError,
    StoreBrokenError,
    StoreError,
    StoreHeldError,
    Touch,
    TryAgainError,
    Tx,
)
from semel.store.sole_node import SoleNode
from semel.store.table import Key
from tests.engine.toy import TABLES, Nothing, Toy, ToyWorld

P = ParamSpec("P")
PATIENCE_SECONDS = 60.0


def on_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """A test that runs on an event loop of its own, and not for ever."""

    @functools.wraps(test)
    def runs(*arguments: P.args, **named: P.kwargs) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(test(*arguments, **named), PATIENCE_SECONDS)

        asyncio.run(bounded())

    return runs


class Recorder:
    """An observer that keeps what it hears."""

    def __init__(self) -> None:
        self.batches: list[BatchReport] = []
        self.faults: list[tuple[str, BaseException]] = []
        self.failures: list[BaseException] = []
        self.jumps: list[int] = []

    def batch(self, report: BatchReport) -> None:
        self.batches.append(report)

    def fault(self, error_id: str, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        self.faults.append((error_id, error))

    def store_failure(self, error: BaseException, callers: Sequence[WaitingCaller] = ()) -> None:
        self.failures.append(error)

    def clock_jump(self, ahead_ms: int) -> None:
        self.jumps.append(ahead_ms)


class Gate:
    """A `reach` hook that can hold the lane at a named point."""

    def __init__(self) -> None:
        self._point: str | None = None
        self._reached = threading.Event()
        self._opened = threading.Event()
        self.also: Callable[[str], None] = lambda point: None
        """Told each point after the gate."""

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._point = None
            self._reached.set()
            assert self._opened.wait(PATIENCE_SECONDS), "nobody opened the gate"
        self.also(point)

    def close(self, point: str) -> None:
        """The next time this point is reached, wait there."""
        self._reached.clear()
        self._opened.clear()
        self._point = point

    def open(self) -> None:
        """Let the lane go on."""
        self._point = None
        self._opened.set()

    async def reached(self) -> None:
        """Wait until the lane stands at the gate."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_SECONDS), "the gate was not reached"


FAILURES: Mapping[str, type[Exception]] = {
    "": StoreError,
    "again": TryAgainError,
    "away": StoreAwayError,
    "held": StoreHeldError,
    "unknown": CommitUnknownError,
}


class FaultyStore(SoleNode):
    """A store whose parts fail on demand; each fault is a number of times that it happens."""

    def __init__(self, inside: Store) -> None:
        self._inside = inside
        self.faults: dict[str, int] = {}
        self.locks: list[Sequence[Lock]] = []
        self.loads: list[tuple[Mapping[AnyTable, Sequence[Key]], Sequence[Range]]] = []
        self.flushes: list[Changes] = []
        self.soft_commits = 0
        self.soft_stored = threading.Event()
        self.is_closed = False
        self.hear: Hear | None = None

    @property
    def lanes(self) -> int:
        return self._inside.lanes

    @property
    def readers(self) -> int:
        return self._inside.readers

    def begin(self, locks: Sequence[Lock], *, durable: bool = True, wait: bool = True) -> Tx:
        self.check("begin" if durable else "begin softly")
        self.locks.append(locks)
        return _FaultyTx(self, self._inside.begin(locks, durable=durable), durable)

    def read(self) -> Any:
        self.check("read")
        return self._inside.read()

    def follow(self, hear: Hear) -> None:
        self.hear = hear

    def tidy(self) -> None:
        self.check("tidy")
        self._inside.tidy()

    def close(self) -> None:
        self.is_closed = True
        self._inside.close()

    def check(self, what: str) -> None:
        """Fail if it is time to; a fault may name a kind of failure behind what fails, as in "commit unknown"."""
        for kind, error in FAILURES.items():
            fault = f"{what} {kind}".strip()
            if self.faults.get(fault, 0) > 0:
                self.faults[fault] -= 1
                raise (error if kind or what not in ("commit", "tidy") else StoreBrokenError)(
                    f"{fault} failed on demand"
                )


class _FaultyTx:
    def __init__(self, store: FaultyStore, inside: Tx, durable: bool) -> None:
        self._store = store
        self._inside = inside
        self._durable = durable

    @property
    def now_ms(self) -> int:
        return self._inside.now_ms

    def load(self, keys: Any, ranges: Sequence[Range]) -> LoadedRows:
        self._store.loads.append(({table: list(wanted) for table, wanted in keys.items()}, list(ranges)))
        self._store.check(f"load {len(self._store.loads)}")
        return self._inside.load(keys, ranges)

    def flush(self, changes: Changes) -> None:
        self._store.check("flush")
        self._store.flushes.append(changes)
        self._inside.flush(changes)

    def rotate(self, table: AnyTable) -> None:
        self._inside.rotate(table)

    def commit(self) -> Collection[Touch]:
        self._store.check("commit")
        undone = self._inside.commit()
        if not self._durable:
            self._store.soft_commits += 1
            self._store.soft_stored.set()
        return undone

    def check(self) -> None:
        self._store.check("check")
        self._inside.check()

    def rollback(self) -> None:
        self._inside.rollback()


class Desk:
    """Runs single batches in this thread."""

    def __init__(self, store: Store | None = None, world: ToyWorld | None = None) -> None:
        self.world = world or ToyWorld()
        self.store = FaultyStore(store or MemoryStore(TABLES, self.world.wall_ms))
        self.observer = Recorder()
        self.soft = SoftChanges()
        self.toy = Toy()
        self.admitted: set[Order] = set()
        self.around = Surroundings(
            store=self.store,
            soft=self.soft,
            timekeeper=DecisionClock(self.world, self.observer),
            observer=self.observer,
            error_id=lambda: self.world.random_bytes(4).hex(),
            is_admitted=lambda order: order in self.admitted,
            reach=lambda point: None,
        )

    def run(self, *commands: Any, contract: Contract | None = None) -> BatchResult:
        """One batch of these commands."""
        return run(self.around, [QueuedWrite(Write(contract or self.toy, command), command) for command in commands])

    def answers(self, *commands: Any, contract: Contract | None = None) -> list[Any]:
        """What one batch answers, in the order of decision."""
        return [outcome.answer for _, outcome in self.run(*commands, contract=contract).decided]

    def find(self, table: AnyTable, key: Key) -> Row | None:
        """One stored row."""
        with self.store.read() as snapshot:
            row: Row | None = snapshot.get(table, key)
            return row

    def scan(self, table: AnyTable) -> list[Row]:
        """All stored rows of a table."""
        with self.store.read() as snapshot:
            return list(snapshot.range(Range(table, "", (), 1_000)))


class Bench:
    """An engine with what a test needs around it."""

    def __init__(self, store: Store | None, limits: EngineLimits | None, world: ToyWorld | None) -> None:
        self.world = world or ToyWorld()
        self.store = FaultyStore(store or MemoryStore(TABLES, self.world.wall_ms))
        self.toy = Toy()
        self.gate = Gate()
        self.observer = Recorder()
        self.engine = Engine(self.store, self.world, limits, self.observer, self.gate)

    async def submit(self, command: Any, caller: WaitingCaller | None = None, size: int = 0, cost: int = 1) -> Any:
        """One write."""
        return await self.engine.submit(self.toy.write(command, size, cost), caller)

    async def outcome(self, command: Any, caller: WaitingCaller | None = None) -> Any:
        """The answer, or the error that came in its place."""
        try:
            return await self.submit(command, caller)
        except EngineError as error:
            return error

    async def together(self, *commands: Any) -> list[Any]:
        """Outcomes of commands that wait together and so are gathered into one batch (if it holds them all)."""
        async with self.held():
            sent = [asyncio.create_task(self.outcome(command)) for command in commands]
            await asyncio.sleep(0)
        return await asyncio.gather(*sent)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Within the block the lane stands still in the middle of a batch that changes nothing."""
        self.gate.close("locked")
        plug = asyncio.create_task(self.submit(Nothing()))
        await self.gate.reached()
        try:
            yield
        finally:
            self.gate.open()
        await plug

    async def reports(self) -> list[BatchReport]:
        """What was reported so far; a report comes after its answers, so this waits until the lane is past it."""
        async with self.held():
            return list(self.observer.batches)

    def find(self, table: AnyTable, key: Key) -> Row | None:
        """One row as a reader sees it, without soft changes."""
        with self.store.read() as snapshot:
            row: Row | None = snapshot.get(table, key)
            return row


@asynccontextmanager
async def running(
    store: Store | None = None, limits: EngineLimits | None = None, world: ToyWorld | None = None
) -> AsyncIterator[Bench]:
    """An engine that is stopped at the end, whatever happened."""
    bench = Bench(store, limits, world)
    try:
        yield bench
    finally:
        bench.gate.open()
        await bench.engine.stop()


@contextmanager
def slow_call(loop: asyncio.AbstractEventLoop, name: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Holds back a call that another thread hands to the loop: (reached, go on)."""
    reached, go_on = threading.Event(), threading.Event()
    original = loop.call_soon_threadsafe

    def call(function: Callable[..., object], *arguments: Any, **named: Any) -> asyncio.Handle:
        if getattr(function, "__name__", "") == name:
            reached.set()
            assert go_on.wait(PATIENCE_SECONDS)
        return original(function, *arguments, **named)

    loop.call_soon_threadsafe = call  # type: ignore[method-assign, assignment]
    try:
        yield reached, go_on
    finally:
        go_on.set()
        loop.call_soon_threadsafe = original  # type: ignore[method-assign]
