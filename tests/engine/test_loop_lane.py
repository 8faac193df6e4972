"""Group commit on the event loop: batches, budget, heavy writes, failures, COMMIT in a thread, plain writes, stop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from semel.engine import loop_lane, loop_queue
from semel.engine.batch_runner import BatchLimits
from semel.engine.commit_placement import LOOK_EVERY, REMEMBERED, CommitPlacement, CommitThread
from semel.engine.contract import DecisionResult, NotStoredError, OutcomeUnknownError, OverloadedError, View, Write
from semel.engine.engine import Engine, EngineLimits
from semel.engine.group_commit import Commit
from semel.engine.loop_lane import LoopLane
from semel.engine.loop_queue import LIGHT_BYTES, LIGHT_COST
from semel.engine.plain_write import LoadedByKey, PlainResult, PlainWrite
from semel.kernel.clock import Now
from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable, Changes, Lock, StoreBrokenError, Touch
from semel.store.table import Key
from tests.engine.rig import FaultyStore, Recorder, on_loop
from tests.engine.toy import COUNTER, RECEIPT, TABLES, Add, CounterRow, Look, ReceiptRow, Step, Toy, ToyWorld

MAIN = threading.main_thread().name


@pytest.fixture(autouse=True)
def ample_budget() -> Iterator[None]:
    """A busy machine must not end a batch early; the tests of the budget have one of their own."""
    with patch.object(loop_lane, "BUDGET_SECONDS", 60.0):
        yield


class ThreadedToy(Toy):
    """Keeps the thread of each decision, and may take its time."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.seconds = 0.0

    def decide(self, view: View, command: Any, now: Now) -> DecisionResult:
        """Decide as the toy does."""
        self.threads.append(threading.current_thread().name)
        time.sleep(self.seconds)
        return super().decide(view, command, now)

    def plain_keys(self, writes: Sequence[Any]) -> Mapping[AnyTable, Iterable[Key]]:
        """The counter and the receipt of each."""
        return {
            COUNTER: {(one.command.name,): None for one in writes},
            RECEIPT: [(one.command.name, one.command.key) for one in writes],
        }

    def decide_plain(self, rows: LoadedByKey, writes: Sequence[Any], now: Now) -> PlainResult:
        """An addition to a counter that exists, under a key that does not."""
        counters = {key: row.value for key, row in rows[COUNTER].items()}
        decided, left, receipts = [], [], []
        for one in writes:
            name, key, amount = one.command
            if (name,) not in counters or (name, key) in rows[RECEIPT]:
                left.append(one)
                continue
            counters[name,] += amount
            receipts.append(ReceiptRow(name, key, amount, counters[name,]))
            decided.append((one, counters[name,]))
        changed = [CounterRow(key[0], value, 0) for key, value in counters.items()]
        return PlainResult(decided, left, {RECEIPT: receipts}, {COUNTER: changed if decided else []}, [])


class PlainAdd(PlainWrite):
    """A plain addition, with a future for its answer."""

    __slots__ = ("command",)

    def __init__(self, contract: Any, command: Add, size: int = 1) -> None:
        super().__init__(contract, command.name, size)
        self.command = command
        self.future = asyncio.get_running_loop().create_future()

    def full(self) -> Write:
        """The same for the rules."""
        return Write(self.contract, self.command, self.size)


class LoopBench:
    """An engine whose loop writes; without `commits` a thread writes."""

    def __init__(self, commits: CommitThread | None, limits: EngineLimits | None) -> None:
        self.world = ToyWorld()
        self.store = FaultyStore(MemoryStore(TABLES, self.world.wall_ms))
        self.toy = ThreadedToy()
        self.observer = Recorder()
        self.points: list[tuple[str, str]] = []
        self.engine = Engine(self.store, self.world, limits, self.observer, self._reach, commits)

    def _reach(self, point: str) -> None:
        self.points.append((point, threading.current_thread().name))

    def admit(self, command: Any, size: int = 0, cost: int = 1) -> asyncio.Future[Any]:
        """One write."""
        return self.engine.admit(self.toy.write(command, size, cost))

    def admit_plain(self, command: Add) -> asyncio.Future[Any]:
        """One plain write."""
        write = PlainAdd(self.toy, command)
        self.engine.admit_plain(write)
        assert write.future is not None
        return write.future

    async def outcomes(self, *sent: asyncio.Future[Any]) -> list[Any]:
        """Answers, or the kinds of the errors in their place."""
        told = await asyncio.gather(*sent, return_exceptions=True)
        return [type(one) if isinstance(one, BaseException) else one for one in told]

    def value(self, name: bytes) -> int:
        """A counter on the store."""
        with self.store.read() as snapshot:
            row = snapshot.get(COUNTER, (name,))
            return 0 if row is None else int(row.value)

    @property
    def commits(self) -> list[int]:
        """The numbers of writes of the durable batches."""
        return [report.writes for report in self.observer.batches if report.commit is Commit.DURABLE]


@asynccontextmanager
async def on_the_loop(
    commits: CommitThread | None = CommitThread.NEVER, limits: EngineLimits | None = None
) -> AsyncIterator[LoopBench]:
    """An engine that is stopped at the end."""
    bench = LoopBench(commits, limits)
    try:
        yield bench
    finally:
        await bench.engine.stop()


# ---- Batches ----


@on_loop
async def test_an_answer_comes_after_the_commit() -> None:
    async with on_the_loop() as bench:
        seen: list[tuple[str, bool]] = []
        sent = bench.admit(Add(b"a", b"k"))
        with patch.object(bench, "points", _Watching(seen, sent)):
            await sent
        assert seen == [
            ("gathered", False),
            ("locked", False),
            ("loaded", False),
            ("decided", False),
            ("flushed", False),
            ("committed", False),
            ("answered", True),
        ]


class _Watching:
    """Notes at each point whether the answer is there."""

    def __init__(self, seen: list[tuple[str, bool]], sent: asyncio.Future[Any]) -> None:
        self._seen = seen
        self._sent = sent

    def append(self, reached: tuple[str, str]) -> None:
        """A point is reached."""
        self._seen.append((reached[0], self._sent.done()))


@on_loop
async def test_the_budget_ends_a_batch_and_the_rest_follows_in_order() -> None:
    async with on_the_loop() as bench:
        with patch.object(loop_lane, "BUDGET_SECONDS", -1.0):
            sent = [bench.admit(Add(b"a", b"k%d" % number)) for number in range(4)]
            assert await bench.outcomes(*sent) == [1, 2, 3, 4]
        assert bench.commits == [1, 1, 1, 1]


@on_loop
async def test_writes_that_wait_for_a_predecessor_are_decided_in_sequence() -> None:
    async with on_the_loop() as bench:
        late, early = bench.admit(Step(b"s", 2)), bench.admit(Step(b"s", 1))
        told = await bench.outcomes(late, early)
        assert [kind for kind in told if isinstance(kind, type)] == []


@pytest.mark.parametrize(("size", "cost"), [(LIGHT_BYTES + 1, 1), (0, LIGHT_COST + 1)])
@on_loop
async def test_a_heavy_write_runs_in_the_thread_and_others_keep_their_order(size: int, cost: int) -> None:
    async with on_the_loop() as bench:
        first = bench.admit(Add(b"a", b"k1"))
        heavy = bench.admit(Add(b"a", b"k2"), size, cost)
        last = bench.admit(Add(b"a", b"k3"))
        assert await bench.outcomes(first, heavy, last) == [1, 2, 3]
        assert [name == MAIN for name in bench.toy.threads] == [True, False, True]


@on_loop
async def test_reads_go_on_while_the_thread_decides_a_heavy_write() -> None:
    async with on_the_loop() as bench:
        bench.toy.seconds = 0.2
        heavy = bench.admit(Add(b"a", b"k"), 0, LIGHT_COST + 1)
        await asyncio.sleep(0.02)
        await bench.engine.read(lambda reading: None)
        assert not heavy.done()
        assert await heavy == 1


HEAVY = LIGHT_BYTES + 1
STEPPED = "stored"


@pytest.mark.parametrize("sizes", [(0, 0), (HEAVY, 0), (0, HEAVY), (HEAVY, HEAVY)])
@on_loop
async def test_a_write_finds_its_predecessor_whichever_of_them_is_heavy(sizes: tuple[int, int]) -> None:
    async with on_the_loop() as bench:
        late, early = bench.admit(Step(b"s", 2), sizes[1]), bench.admit(Step(b"s", 1), sizes[0])
        assert await bench.outcomes(late, early) == [STEPPED, STEPPED]


@on_loop
async def test_a_write_finds_its_predecessor_when_every_batch_is_late() -> None:
    async with on_the_loop() as bench:
        with patch.object(loop_lane, "BUDGET_SECONDS", -1.0):
            steps = [bench.admit(Step(b"s", 3))]
            others = [bench.admit(Add(b"a", b"k%d" % number)) for number in range(100)]
            steps += [bench.admit(Step(b"s", 2)), bench.admit(Step(b"s", 1))]
            assert await bench.outcomes(*steps) == [STEPPED] * 3
            assert await bench.outcomes(*others) == list(range(1, 101))


# ---- Failures ----


@on_loop
async def test_a_checkpoint_that_fails_beside_a_commit_waits_for_its_answers() -> None:
    async with on_the_loop(CommitThread.ALWAYS) as bench:
        await bench.admit(Add(b"a", b"k0"))
        committing, go_on = threading.Event(), threading.Event()

        def held() -> None:
            committing.set()
            assert go_on.wait(60)

        with patch.object(MemoryStore, "begin", _before_commit(MemoryStore.begin, held)):
            sent = bench.admit_plain(Add(b"a", b"k"))
            assert await asyncio.to_thread(committing.wait, 60)
            failed: Future[None] = Future()
            failed.set_exception(StoreBrokenError("the checkpoint failed"))
            lane = bench.engine._lanes[0]
            assert isinstance(lane, LoopLane)
            lane._end_checkpoint(failed)
            assert (sent.done(), bench.engine.failure) == (False, None)
            go_on.set()
            assert await sent == 2
        await asyncio.wait_for(bench.engine.failed.wait(), 10)
        assert (type(bench.engine.failure), bench.engine.waiting_writes) == (StoreBrokenError, 0)


def _before_commit(begin: Callable[..., Any], act: Callable[[], None]) -> Callable[..., Any]:
    """Acts before each COMMIT."""

    def begun(*arguments: Any, **named: Any) -> Any:
        tx = begin(*arguments, **named)
        commit = tx.commit

        def committed() -> Any:
            act()
            return commit()

        tx.commit = committed
        return tx

    return begun


@on_loop
async def test_a_thread_that_takes_no_work_ends_the_lane() -> None:
    bench = LoopBench(CommitThread.NEVER, None)
    with patch.object(ThreadPoolExecutor, "submit", side_effect=RuntimeError("no more threads")):
        sent = [bench.admit(Add(b"a", b"k"), HEAVY), bench.admit(Add(b"a", b"l"))]
        assert await bench.outcomes(*sent) == [OutcomeUnknownError, NotStoredError]
    await bench.engine.stop()
    assert bench.value(b"a") == 0


@pytest.mark.parametrize("fault", ["begin", "load 1", "flush"])
@on_loop
async def test_a_batch_that_fails_begins_anew_in_the_thread(fault: str) -> None:
    async with on_the_loop() as bench:
        bench.store.faults = {fault: 1}
        sent = [bench.admit(Add(b"a", b"k%d" % number)) for number in range(3)]
        assert await bench.outcomes(*sent) == [1, 2, 3]
        assert {name for point, name in bench.points if point == "committed"} != {MAIN}
        assert bench.value(b"a") == 3


@pytest.mark.parametrize("commits", [CommitThread.NEVER, CommitThread.ALWAYS])
@on_loop
async def test_after_a_failed_commit_callers_get_unknown_and_the_engine_stops(commits: CommitThread) -> None:
    async with on_the_loop(commits) as bench:
        await bench.admit(Add(b"a", b"k0"))
        bench.store.faults = {"commit": 1}
        sent = [bench.admit(Add(b"a", b"k1")), bench.admit_plain(Add(b"b", b"k1")), bench.admit_plain(Add(b"a", b"k2"))]
        told = await bench.outcomes(*sent)
        assert told == [OutcomeUnknownError, OutcomeUnknownError, NotStoredError]  # the last one waits for the first
        await asyncio.wait_for(bench.engine.failed.wait(), 10)
        with pytest.raises(NotStoredError):
            bench.admit(Add(b"a", b"k3"))
        assert bench.engine.waiting_writes == 0


@on_loop
async def test_writes_behind_a_failed_commit_are_told_that_nothing_was_stored() -> None:
    async with on_the_loop() as bench:
        bench.store.faults = {"commit": 1}
        with patch.object(loop_lane, "BUDGET_SECONDS", -1.0):
            sent = [bench.admit(Add(b"a", b"k%d" % number)) for number in range(3)]
            told = await bench.outcomes(*sent)
        assert told[0] is OutcomeUnknownError
        assert set(told[1:]) <= {OutcomeUnknownError, NotStoredError}
        assert bench.value(b"a") == 0


@on_loop
async def test_a_long_checkpoint_runs_in_the_writers_thread_and_writes_wait_for_it() -> None:
    async with on_the_loop() as bench:
        threads: list[str] = []

        def tidy() -> None:
            threads.append(threading.current_thread().name)

        def is_long() -> bool:
            return not threads

        with patch.object(bench.store, "is_tidy_long", is_long), patch.object(bench.store, "tidy", tidy):
            assert await bench.admit(Add(b"a", b"k")) == 1
            assert not bench.engine.is_settled  # the writer's thread has the store
            assert await bench.admit(Add(b"a", b"l")) == 2
        assert threads[0] != MAIN
        assert set(threads[1:]) <= {MAIN}


# ---- Announced commits ----


@pytest.mark.parametrize("commits", [CommitThread.NEVER, CommitThread.ALWAYS])
@on_loop
async def test_a_commit_is_announced_before_its_callers_are_answered(commits: CommitThread) -> None:
    async with on_the_loop(commits) as bench:
        announced: list[bytes] = []
        answered: list[int] = []

        def note(changes: Changes | None) -> None:
            assert changes is not None
            assert len(answered) == len(announced)
            rows = [*changes.inserts.get(COUNTER, ()), *changes.updates.get(COUNTER, ())]
            announced.extend(row.name for row in rows)

        bench.engine.watch_commits(note)
        assert bench.engine.sees_all_commits
        for number, size in enumerate((0, LIGHT_BYTES + 1, 0)):
            answered.append(await bench.admit(Add(b"c%d" % number, b"k"), size))
        assert announced == [b"c0", b"c1", b"c2"]
        assert await bench.admit(Add(b"c0", b"k")) == 1  # a replay commits nothing
        assert len(announced) == 3


@on_loop
async def test_a_commit_that_failed_is_not_announced() -> None:
    async with on_the_loop() as bench:
        announced: list[Changes | None] = []
        bench.engine.watch_commits(announced.append)
        bench.store.faults = {"commit": 1}
        assert await bench.outcomes(bench.admit(Add(b"a", b"k"))) == [OutcomeUnknownError]
        assert announced == []
        assert not bench.engine.is_settled


@on_loop
async def test_a_watcher_that_fails_drops_what_it_holds_and_keeps_no_caller_from_its_answer() -> None:
    async with on_the_loop() as bench:
        announced: list[Changes | None] = []

        def fail(changes: Changes | None) -> None:
            announced.append(changes)
            if changes is not None:
                raise KeyError

        bench.engine.watch_commits(fail)
        for number, size in enumerate((0, LIGHT_BYTES + 1, 0), start=1):
            assert await asyncio.wait_for(bench.admit(Add(b"a", b"k%d" % number), size), 10) == number
        assert [changes is None for changes in announced] == [False, True] * 3
        assert bench.engine.failure is None


# ---- COMMIT in a thread ----


def test_commit_moves_to_a_thread_when_it_is_slow_and_back_when_it_is_fast() -> None:
    placement = CommitPlacement(CommitThread.AUTO)
    places = []
    for seconds in (0.0003, 0.003, 0.0003):
        for _ in range(REMEMBERED):
            placement.took(seconds)
        places.append(placement.is_apart)
    assert places == [False, True, False]


def test_one_slow_commit_moves_nothing() -> None:
    placement = CommitPlacement(CommitThread.AUTO)
    for number in range(8 * LOOK_EVERY):
        placement.took(1.0 if number % LOOK_EVERY == 0 else 0.0003)
    assert not placement.is_apart


@pytest.mark.parametrize(("wanted", "is_apart"), [(CommitThread.ALWAYS, True), (CommitThread.NEVER, False)])
def test_a_setting_fixes_the_place_of_commit(wanted: CommitThread, is_apart: bool) -> None:
    placement = CommitPlacement(wanted)
    for _ in range(2 * REMEMBERED):
        placement.took(0.0001 if is_apart else 1.0)
    assert placement.is_apart is is_apart


# ---- Plain writes ----


IN_BOTH = pytest.mark.parametrize("lane", [CommitThread.NEVER, None], ids=["loop", "thread"])
"""On the loop, and in the thread of a shared store."""


@IN_BOTH
@on_loop
async def test_plain_writes_of_one_pass_are_one_batch_without_the_rules(lane: CommitThread | None) -> None:
    async with on_the_loop(lane) as bench:
        await bench.admit(Add(b"a", b"k0"))
        bench.toy.decided.clear()
        sent = [bench.admit_plain(Add(b"a", b"p%d" % number)) for number in range(4)]
        assert await bench.outcomes(*sent) == [2, 3, 4, 5]
        assert bench.toy.decided == []
        assert (bench.value(b"a"), bench.engine.waiting_writes, bench.engine.waiting_bytes) == (5, 0, 0)
    # A thread may begin before the last write is admitted, and reports a batch after its answers.
    assert sum(bench.commits) == 5 if lane is None else bench.commits == [1, 4]


@IN_BOTH
@on_loop
async def test_what_is_not_plain_by_its_rows_is_decided_by_the_rules(lane: CommitThread | None) -> None:
    async with on_the_loop(lane) as bench:
        await bench.admit(Add(b"a", b"k0"))
        new, again, plain = (bench.admit_plain(Add(*given)) for given in ((b"b", b"k"), (b"a", b"k0"), (b"a", b"k1")))
        assert await bench.outcomes(new, again, plain) == [1, 1, 2]
        assert bench.toy.decided[1:] == [Add(b"b", b"k"), Add(b"a", b"k0")]


@IN_BOTH
@on_loop
async def test_a_batch_of_plain_writes_takes_soft_changes_along(lane: CommitThread | None) -> None:
    async with on_the_loop(lane) as bench:
        await bench.outcomes(bench.admit(Add(b"a", b"k0")), bench.admit(Add(b"b", b"k0")))
        bench.store.soft_stored.clear()
        bench.engine.touch([Touch(COUNTER, (b"a",), "seen_at", 5_000)])
        assert await bench.admit_plain(Add(b"b", b"k1")) == 2
        assert len(bench.engine.soft) == 0
        assert not bench.store.soft_stored.is_set()
        with bench.store.read() as snapshot:
            row = snapshot.get(COUNTER, (b"a",))
        assert row is not None
        assert row.seen_at == 5_000


def _told_without_changes(rows: LoadedByKey, writes: Sequence[Any], now: Now) -> PlainResult:
    return PlainResult([(one, 7) for one in writes], (), {}, {}, ())


@on_loop
async def test_plain_writes_that_change_nothing_leave_soft_changes_to_a_commit_of_their_own() -> None:
    async with on_the_loop() as bench:
        await bench.admit(Add(b"a", b"k0"))
        bench.engine.touch([Touch(COUNTER, (b"a",), "seen_at", 5_000)])
        with patch.object(
            bench.toy, "decide_plain", lambda rows, writes, now: PlainResult([(writes[0], 7)], (), {}, {}, ())
        ):
            assert await bench.admit_plain(Add(b"a", b"k0")) == 7
        assert len(bench.engine.soft) == 1
        assert bench.commits == [1]


@on_loop
async def test_a_plain_write_is_not_answered_from_rows_that_may_be_old() -> None:
    async with on_the_loop() as bench:
        await bench.admit(Add(b"a", b"k0"))
        bench.store.faults["check again"] = 1
        with patch.object(bench.toy, "decide_plain", _told_without_changes):
            assert await bench.admit_plain(Add(b"a", b"k0")) == 7
        assert bench.store.faults["check again"] == 0


@on_loop
async def test_a_plain_write_under_the_lock_of_another_write_waits_for_it_and_stays_plain() -> None:
    async with on_the_loop() as bench:
        await bench.outcomes(bench.admit(Add(b"a", b"k0")), bench.admit(Add(b"b", b"k0")))
        bench.toy.decided.clear()
        sent = [bench.admit(Add(b"a", b"k1")), bench.admit_plain(Add(b"a", b"k2")), bench.admit_plain(Add(b"b", b"k2"))]
        assert await bench.outcomes(*sent) == [2, 3, 2]
        assert bench.toy.decided == [Add(b"a", b"k1")]
        assert bench.commits[-2:] == [2, 1]


@IN_BOTH
@on_loop
async def test_plain_writes_of_a_batch_that_fails_are_decided_by_the_rules(
    lane: CommitThread | None,
) -> None:
    async with on_the_loop(lane) as bench:
        await bench.admit(Add(b"a", b"k0"))
        bench.store.faults = {"flush": 1}
        assert await bench.outcomes(*(bench.admit_plain(Add(b"a", b"p%d" % one)) for one in range(3))) == [2, 3, 4]
        assert bench.toy.decided[1:] == [Add(b"a", b"p0"), Add(b"a", b"p1"), Add(b"a", b"p2")]
        assert bench.value(b"a") == 4


class Faulty(PlainAdd):
    """A plain write whose answer cannot be sent."""

    __slots__ = ()

    def settle(self, answer: Any) -> None:
        """Fail."""
        raise BrokenPipeError


@IN_BOTH
@on_loop
async def test_an_answer_that_cannot_be_sent_keeps_no_other_caller_from_its_own(lane: CommitThread | None) -> None:
    async with on_the_loop(lane) as bench:
        await bench.admit(Add(b"a", b"k0"))
        bench.engine.admit_plain(Faulty(bench.toy, Add(b"a", b"p0")))
        assert await bench.outcomes(bench.admit_plain(Add(b"a", b"p1")), bench.admit(Add(b"b", b"k"))) == [3, 1]
        assert [type(error) for _, error in bench.observer.faults] == [BrokenPipeError]
        assert (bench.engine.failure, bench.engine.waiting_writes) == (None, 0)


@IN_BOTH
@on_loop
async def test_plain_writes_whose_decision_raises_are_decided_by_the_rules(lane: CommitThread | None) -> None:
    async with on_the_loop(lane) as bench:
        await bench.admit(Add(b"a", b"k0"))
        with patch.object(ThreadedToy, "decide_plain", side_effect=ValueError):
            assert await bench.outcomes(*(bench.admit_plain(Add(b"a", b"p%d" % one)) for one in range(2))) == [2, 3]
        assert [type(error) for _, error in bench.observer.faults] == [ValueError]


@on_loop
async def test_a_plain_write_waits_behind_a_write_under_its_lock_that_is_left_for_a_later_batch() -> None:
    async with on_the_loop(limits=EngineLimits(batch=BatchLimits(writes=1))) as bench:
        await bench.outcomes(bench.admit(Add(b"a", b"k0")), bench.admit(Add(b"b", b"k0")))
        sent = [bench.admit(Add(b"b", b"k1")), bench.admit(Add(b"a", b"k1")), bench.admit_plain(Add(b"a", b"k2"))]
        assert await bench.outcomes(*sent) == [2, 2, 3]


@on_loop
async def test_a_batch_of_plain_writes_that_waited_behind_other_writes_is_bounded_by_cost() -> None:
    async with on_the_loop(limits=EngineLimits(batch=BatchLimits(writes=1))) as bench:
        await bench.admit(Add(b"a", b"k0"))
        with patch.object(loop_queue, "PLAIN_COST", 2):
            full = [bench.admit(Add(b"a", b"k%d" % number)) for number in range(1, 6)]
            plain = [bench.admit_plain(Add(b"a", b"p%d" % number)) for number in range(6)]
            assert await bench.outcomes(*full, *plain) == list(range(2, 13))
        assert max(bench.commits) == 2


@IN_BOTH
@on_loop
async def test_a_plain_write_of_a_client_that_has_gone_is_dropped(lane: CommitThread | None) -> None:
    async with on_the_loop(lane) as bench:
        await bench.admit(Add(b"a", b"k0"))
        write = PlainAdd(bench.toy, Add(b"a", b"p0"))
        bench.engine.admit_plain(write)
        write.leave()
        assert await bench.outcomes(bench.admit_plain(Add(b"a", b"p1"))) == [2]
        assert (bench.value(b"a"), bench.engine.waiting_writes) == (2, 0)
    assert [report.dropped for report in bench.observer.batches] == [0, 1]


@IN_BOTH
@on_loop
async def test_plain_writes_have_the_limits_of_the_queue(lane: CommitThread | None) -> None:
    async with on_the_loop(lane, limits=EngineLimits(waiting_writes=2)) as bench:
        sent = [bench.admit_plain(Add(b"a", b"p%d" % number)) for number in range(2)]
        with pytest.raises(OverloadedError):
            bench.admit_plain(Add(b"a", b"p2"))
        assert await bench.outcomes(*sent) == [1, 2]


@on_loop
async def test_plain_writes_hold_their_locks_and_wake_readers_of_other_nodes() -> None:
    async with on_the_loop(None) as bench:
        await bench.outcomes(bench.admit(Add(b"a", b"k0")), bench.admit(Add(b"b", b"k0")))
        with patch.object(ThreadedToy, "decide_plain", _with_topic(ThreadedToy.decide_plain)):
            await bench.outcomes(bench.admit_plain(Add(b"b", b"p0")), bench.admit_plain(Add(b"a", b"p0")))
        assert bench.store.locks[-1] == [Lock(b"a"), Lock(b"b")]
        assert bench.store.flushes[-1].topics == [b"topic"]


def _with_topic(decide: Callable[..., PlainResult]) -> Callable[..., PlainResult]:
    return lambda *arguments: decide(*arguments)._replace(topics=[b"topic"])


@on_loop
async def test_plain_and_other_writes_of_a_thread_lane_are_decided_in_their_order() -> None:
    async with on_the_loop(None) as bench:
        sent = []
        for number in range(30):
            admit = bench.admit_plain if number % 3 else bench.admit
            sent.append(admit(Add(b"a", b"k%d" % number)))
        assert await bench.outcomes(*sent) == list(range(1, 31))


@on_loop
async def test_plain_writes_of_a_thread_lane_whose_commit_fails_are_unknown_or_not_stored() -> None:
    async with on_the_loop(None) as bench:
        await bench.admit(Add(b"a", b"k0"))
        bench.store.faults = {"commit": 1}
        told = await bench.outcomes(*(bench.admit_plain(Add(b"a", b"p%d" % one)) for one in range(3)))
        assert told == [OutcomeUnknownError] * 3
        await asyncio.wait_for(bench.engine.failed.wait(), 10)
        with pytest.raises(NotStoredError):
            bench.admit_plain(Add(b"a", b"p3"))
        assert bench.engine.waiting_writes == 0


@on_loop
async def test_a_thread_lane_finishes_its_plain_writes_when_it_stops() -> None:
    bench = LoopBench(None, None)
    await bench.admit(Add(b"a", b"k0"))
    sent = [bench.admit_plain(Add(b"a", b"p%d" % number)) for number in range(3)]
    await bench.engine.stop()
    assert await bench.outcomes(*sent) == [2, 3, 4]


# ---- The end ----


@pytest.mark.parametrize("commits", [CommitThread.NEVER, CommitThread.ALWAYS])
@on_loop
async def test_a_graceful_stop_commits_everything_that_was_admitted(commits: CommitThread) -> None:
    bench = LoopBench(commits, None)
    sent = [bench.admit(Add(b"a", b"k%d" % number)) for number in range(5)]
    sent += [bench.admit(Add(b"a", b"h"), 0, LIGHT_COST + 1), bench.admit_plain(Add(b"a", b"p"))]
    await bench.engine.stop()
    assert sorted(await bench.outcomes(*sent)) == [1, 2, 3, 4, 5, 6, 7]
    assert bench.store.is_closed


@on_loop
async def test_soft_changes_are_stored_within_a_second_and_at_the_end() -> None:
    async with on_the_loop() as bench:
        await bench.admit(Add(b"a", b"k"))
        await bench.admit(Look(b"a"))
        assert await asyncio.to_thread(bench.store.soft_stored.wait, 10)
        bench.store.soft_stored.clear()
        bench.world.pass_ms(10)
        await bench.admit(Look(b"a"))
    assert bench.store.soft_stored.is_set()


@on_loop
async def test_a_backlog_of_soft_changes_is_stored_at_once() -> None:
    async with on_the_loop() as bench:
        names = [b"n%d" % number for number in range(60)]
        await bench.outcomes(*(bench.admit(Add(name, b"k")) for name in names))
        with patch("semel.engine.batch.MAX_TOUCHES", 1):
            bench.engine.touch([Touch(COUNTER, (name,), "seen_at", 5) for name in names])
            until = time.monotonic() + 10  # one at a time would take 30 s
            while len(bench.engine.soft) and time.monotonic() < until:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.05)
            assert len(bench.engine.soft) == 0


@on_loop
async def test_the_oldest_write_is_known_before_its_batch_begins() -> None:
    async with on_the_loop() as bench:
        assert bench.engine.oldest_write_seconds == 0
        sent = [bench.admit(Add(b"a", b"k%d" % number)) for number in range(3)]
        time.sleep(0.01)  # noqa: ASYNC251 - the loop must not run
        sent.append(bench.admit(Add(b"a", b"later")))
        assert bench.engine.oldest_write_seconds >= 0.01
        await bench.outcomes(*sent)
        await asyncio.sleep(0)
        assert bench.engine.oldest_write_seconds == 0
