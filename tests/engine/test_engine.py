"""The engine from a caller's side: who hears what, and what is stored when they hear it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from semel.engine.batch_runner import MAX_TRIES, BatchLimits
from semel.engine.caller import WaitingCaller
from semel.engine.contract import FaultError, NotStoredError, OutcomeUnknownError, OverloadedError, UnavailableError
from semel.engine.engine import EngineLimits
from semel.engine.group_commit import Commit
from semel.engine.reading import Reading
from semel.engine.sweep import Sweeper
from semel.store.open import open_store
from semel.store.protocol import Lock, Store
from tests.engine.rig import PATIENCE_SECONDS, Bench, Gate, on_loop, running, slow_call
from tests.engine.toy import (
    COUNTER,
    JOB,
    MIGRATIONS,
    READY,
    TABLES,
    TAKEN,
    Add,
    AskForLocks,
    Broken,
    BrokenError,
    Chain,
    Claim,
    CounterRow,
    Enqueue,
    JobRow,
    Look,
    Nothing,
    Poison,
    Step,
    Toy,
    ToyWorld,
)
from tests.harness.faulty_vfs import FaultyVfs
from tests.harness.postgres.shared import fresh_url

KINDS = ("memory", "sqlite", "postgres")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A fresh store; the engine closes it."""
    kind: str = request.param
    url = fresh_url() if kind == "postgres" else {"memory": "memory:", "sqlite": f"sqlite:{tmp_path}"}[kind]
    return open_store(url, TABLES, MIGRATIONS, ToyWorld().wall_ms)


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    with FaultyVfs("engine") as made:
        yield made


def on_disk(folder: Path, vfs: FaultyVfs | None = None) -> Store:
    url = f"sqlite:{folder}" + (f"?vfs={vfs.name}" if vfs else "")
    return open_store(url, TABLES, MIGRATIONS, ToyWorld().wall_ms)


def kinds(outcomes: list[Any]) -> list[Any]:
    """Answers as they are, errors by their class."""
    return [type(one) if isinstance(one, Exception) else one for one in outcomes]


def value(bench: Bench, name: bytes) -> int | None:
    row = bench.find(COUNTER, (name,))
    return None if row is None else CounterRow(*row).value


# Answers


@on_loop
async def test_an_answer_comes_after_its_commit(store: Store) -> None:
    async with running(store) as bench:
        assert await bench.submit(Add(b"a", b"k", 5)) == 5
        assert value(bench, b"a") == 5
        assert await bench.submit(Add(b"a", b"k", 5)) == 5
        assert value(bench, b"a") == 5


@on_loop
async def test_nothing_is_answered_before_the_commit() -> None:
    async with running() as bench:
        bench.gate.close("flushed")
        sent = asyncio.create_task(bench.submit(Add(b"a", b"k", 5)))
        await bench.gate.reached()
        assert not sent.done()
        assert value(bench, b"a") is None
        bench.gate.open()
        assert await sent == 5


@on_loop
async def test_writes_that_wait_together_are_one_commit(store: Store) -> None:
    async with running(store) as bench:
        outcomes = await bench.together(*(Add(b"a", str(number % 50).encode()) for number in range(100)))
        assert outcomes == [*range(1, 51), *range(1, 51)]
        assert [(report.commit, report.writes) for report in await bench.reports()] == [
            (Commit.NOTHING, 1),
            (Commit.DURABLE, 100),
        ]


@on_loop
async def test_claims_that_wait_together_take_different_jobs(store: Store) -> None:
    async with running(store) as bench:
        await bench.together(*(Enqueue(b"q", number) for number in range(30)))
        outcomes = await bench.together(*(Claim(b"q", str(number).encode()) for number in range(40)))
        assert outcomes == [*range(30), *[None] * 10]
        assert (await bench.reports())[-1].reruns == 0


@on_loop
async def test_a_hit_causes_no_commit_and_no_sync(tmp_path: Path, vfs: FaultyVfs) -> None:
    async with running(on_disk(tmp_path, vfs)) as bench:
        assert await bench.together(Add(b"a", b"k", 5), Enqueue(b"q", 1)) == [5, 1]
        syncs, writes = vfs.count_syncs, vfs.count_writes
        assert await bench.together(Add(b"a", b"k", 5), Add(b"a", b"k", 6), Nothing()) == [5, None, None]
        assert (vfs.count_syncs, vfs.count_writes) == (syncs, writes)
        assert (await bench.reports())[-1].commit is Commit.NOTHING
        assert await bench.together(Add(b"a", b"l", 1), Add(b"b", b"k", 1)) == [6, 1]
        assert vfs.count_syncs == syncs + 1


@on_loop
async def test_follow_ups_are_writes_of_their_own() -> None:
    async with running() as bench:
        watch = bench.engine.signals.watch(b"a")
        assert await bench.submit(Chain(b"a", 3)) == 1
        while value(bench, b"a") != 4:
            watch.arm()
            if value(bench, b"a") != 4:
                assert await watch.wait(PATIENCE_SECONDS)


@on_loop
async def test_readers_look_at_one_instant(store: Store) -> None:
    async with running(store) as bench:
        await bench.submit(Add(b"a", b"k", 5))
        assert await bench.engine.read(lambda reading: reading.get(COUNTER, (b"a",))) == CounterRow(b"a", 5, 0)
        at = await bench.engine.read(lambda reading: reading.now.ms)
        with store.read() as snapshot:
            assert bench.world.wall <= at <= snapshot.now_ms


# Overload


@on_loop
async def test_a_full_queue_refuses_at_once_and_stores_nothing() -> None:
    async with running(limits=EngineLimits(waiting_writes=3)) as bench:
        async with bench.held():
            admitted = [asyncio.create_task(bench.outcome(Add(b"a", key))) for key in (b"k", b"l")]
            await asyncio.sleep(0)
            assert bench.engine.waiting_writes == 3
            with pytest.raises(OverloadedError):
                await bench.submit(Add(b"a", b"refused", 100))
        assert await asyncio.gather(*admitted) == [1, 2]
        assert bench.engine.waiting_writes == 0
        assert await bench.submit(Add(b"a", b"refused", 100)) == 102
        assert value(bench, b"a") == 102


@on_loop
async def test_a_queue_is_full_of_bytes_too() -> None:
    async with running(limits=EngineLimits(waiting_bytes=100)) as bench:
        async with bench.held():
            first = asyncio.create_task(bench.submit(Add(b"a", b"k"), size=60))
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError):
                await bench.submit(Add(b"a", b"l"), size=41)
            second = asyncio.create_task(bench.submit(Add(b"a", b"m"), size=40))
            await asyncio.sleep(0)
            assert bench.engine.waiting_bytes == 100
        assert [await first, await second] == [1, 2]
        assert bench.engine.waiting_bytes == 0


@on_loop
async def test_a_write_larger_than_the_queue_is_taken_when_it_is_empty() -> None:
    async with running(limits=EngineLimits(waiting_bytes=100)) as bench:
        assert await bench.submit(Add(b"a", b"k"), size=1_000) == 1


@on_loop
async def test_refused_sequences_are_not_waited_for() -> None:
    async with running(limits=EngineLimits(waiting_writes=2)) as bench:
        async with bench.held():
            second = asyncio.create_task(bench.outcome(Step(b"s", 2)))
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError):
                await bench.submit(Step(b"s", 1))
        assert await second == "gap"


# Batches are bounded


@pytest.mark.parametrize(
    "limits", [BatchLimits(writes=3), BatchLimits(bytes=30), BatchLimits(cost=30)], ids=["writes", "bytes", "cost"]
)
@on_loop
async def test_a_batch_holds_so_much_and_the_rest_comes_next(limits: BatchLimits) -> None:
    async with running(limits=EngineLimits(batch=limits)) as bench:
        async with bench.held():
            sent = [
                asyncio.create_task(bench.submit(Add(b"a", str(number).encode()), size=10, cost=10))
                for number in range(8)
            ]
            await asyncio.sleep(0)
        assert await asyncio.gather(*sent) == list(range(1, 9))
        assert [report.writes for report in await bench.reports()] == [1, 3, 3, 2]


@on_loop
async def test_a_write_larger_than_a_batch_goes_alone() -> None:
    async with running(limits=EngineLimits(batch=BatchLimits(bytes=30))) as bench:
        async with bench.held():
            sizes = (10, 500, 10, 10)
            sent = [
                asyncio.create_task(bench.submit(Add(b"a", str(number).encode()), size=size))
                for number, size in enumerate(sizes)
            ]
            await asyncio.sleep(0)
        assert await asyncio.gather(*sent) == [1, 2, 3, 4]
        assert [report.writes for report in await bench.reports()] == [1, 1, 1, 2]


# Callers that go away


@on_loop
async def test_a_write_whose_caller_has_gone_is_dropped_undecided() -> None:
    async with running() as bench:
        gone, cancelled = WaitingCaller(), WaitingCaller()
        async with bench.held():
            sent = [
                asyncio.create_task(bench.outcome(Add(b"a", b"gone", 100), gone)),
                asyncio.create_task(bench.outcome(Add(b"a", b"cancelled", 100), cancelled)),
                asyncio.create_task(bench.outcome(Add(b"a", b"k"))),
            ]
            await asyncio.sleep(0)
            gone.leave()
            sent[1].cancel()
        assert await sent[2] == 1
        assert kinds([await sent[0]]) == [NotStoredError]
        assert value(bench, b"a") == 1
        assert [one.key for one in bench.toy.decided if isinstance(one, Add)] == [b"k"]
        assert (await bench.reports())[-1].dropped == 2
        assert bench.engine.waiting_writes == 0


@on_loop
async def test_a_caller_that_goes_away_during_the_commit_harms_nobody() -> None:
    async with running() as bench:
        bench.gate.also = flushed = Gate()
        flushed.close("flushed")
        async with bench.held():
            sent = [asyncio.create_task(bench.submit(Add(b"a", key))) for key in (b"j", b"k", b"l")]
            await asyncio.sleep(0)
        await flushed.reached()
        sent[0].cancel()
        flushed.open()
        assert [await one for one in sent[1:]] == [2, 3]
        assert await bench.submit(Add(b"a", b"j")) == 1


@on_loop
async def test_a_successor_does_not_wait_for_a_step_that_was_dropped() -> None:
    async with running() as bench:
        gone = WaitingCaller()
        async with bench.held():
            first = asyncio.create_task(bench.outcome(Step(b"s", 1), gone))
            second = asyncio.create_task(bench.outcome(Step(b"s", 2)))
            await asyncio.sleep(0)
            gone.leave()
        assert await second == "gap"
        assert kinds([await first]) == [NotStoredError]
        assert sum(report.deferred for report in await bench.reports()) == 0


# Sequences


@on_loop
async def test_steps_that_arrive_in_any_order_are_all_stored() -> None:
    async with running() as bench:
        order = (4, 2, 5, 1, 3)
        assert await bench.together(*(Step(b"s", number) for number in order)) == ["stored"] * 5


@on_loop
async def test_a_step_waits_over_batches_for_its_predecessor() -> None:
    async with running(limits=EngineLimits(batch=BatchLimits(writes=3))) as bench:
        sent = (Step(b"s", 3), Add(b"a", b"k"), Step(b"s", 2), Add(b"a", b"l"), Step(b"s", 1))
        assert await bench.together(*sent) == ["stored", 1, "stored", 2, "stored"]
        assert sum(report.deferred for report in await bench.reports()) > 0


@on_loop
async def test_steps_that_fill_a_batch_do_not_keep_their_predecessor_out() -> None:
    async with running(limits=EngineLimits(batch=BatchLimits(writes=2))) as bench:
        assert await bench.together(Step(b"s", 3), Step(b"s", 2), Step(b"s", 1)) == ["stored"] * 3


@on_loop
async def test_a_step_waits_for_a_predecessor_that_is_larger_than_a_batch() -> None:
    async with running(limits=EngineLimits(batch=BatchLimits(bytes=30))) as bench:
        async with bench.held():
            second = asyncio.create_task(bench.submit(Step(b"s", 2), size=1))
            first = asyncio.create_task(bench.submit(Step(b"s", 1), size=500))
            await asyncio.sleep(0)
        assert [await first, await second] == ["stored", "stored"]


@on_loop
async def test_a_step_whose_predecessor_is_not_on_its_way_is_told_at_once() -> None:
    async with running() as bench:
        assert await bench.submit(Step(b"s", 2)) == "gap"
        assert await bench.submit(Step(b"s", 3)) == "gap"
        assert sum(report.deferred for report in await bench.reports()) == 0
        assert await bench.submit(Step(b"s", 1)) == "stored"
        assert await bench.submit(Step(b"s", 1)) == "again"


@on_loop
async def test_a_write_that_asks_for_another_lock_gets_it() -> None:
    async with running() as bench:
        assert await bench.together(AskForLocks(b"a"), Add(b"b", b"k")) == [None, 1]
        assert [Lock(b"a"), Lock(b"extra")] in [list(locks) for locks in bench.store.locks]


@on_loop
async def test_a_write_that_asks_for_locks_without_end_is_a_fault() -> None:
    async with running() as bench:
        outcome = await bench.outcome(AskForLocks(b"a", times=5_000))
        assert kinds([outcome]) == [FaultError]


# Faults


@pytest.mark.parametrize("where", ["decide", "needs", "second stage"])
@on_loop
async def test_a_fault_stays_with_its_own_write(where: str) -> None:
    async with running() as bench:
        outcomes = await bench.together(Add(b"a", b"k"), Broken(b"a", where), Add(b"a", b"l"))
        assert kinds(outcomes) == [1, FaultError, 2]
        assert [type(error) for _, error in bench.observer.faults] == [BrokenError]
        assert bench.engine.failure is None
        assert await bench.submit(Add(b"a", b"m")) == 3


@on_loop
async def test_a_fault_before_admission_admits_nothing() -> None:
    async with running() as bench:
        with pytest.raises(BrokenError):
            await bench.submit(Broken(b"a", "locks"))
        assert bench.engine.waiting_writes == 0
        assert await bench.submit(Add(b"a", b"k")) == 1


@on_loop
async def test_one_poisonous_write_fails_alone(store: Store) -> None:
    async with running(store) as bench:
        await bench.submit(Enqueue(b"q", 1))
        outcomes = await bench.together(Add(b"a", b"k"), Poison(b"q", 1), Add(b"a", b"l"), Enqueue(b"q", 2))
        assert kinds(outcomes) == [1, NotStoredError, 2, 2]
        assert value(bench, b"a") == 2
        assert bench.find(JOB, (b"q", 1)) == JobRow(b"q", 1, READY, b"")
        assert bench.engine.failure is None
        assert Commit.ROLLED_BACK in [report.commit for report in await bench.reports()]
        assert await bench.together(Add(b"a", b"k"), Add(b"a", b"m")) == [1, 3]


@on_loop
async def test_a_row_that_no_store_can_hold_fails_alone(store: Store) -> None:
    async with running(store) as bench:
        await bench.submit(Add(b"a", b"k"))
        outcomes = await bench.together(Add(b"a", b"l"), Add(b"b", b"k", 2**63), Add(b"a", b"m"))
        assert kinds(outcomes) == [2, NotStoredError, 3]
        assert bench.engine.failure is None
        assert await bench.submit(Add(b"a", b"n")) == 4


@on_loop
async def test_a_batch_that_broke_is_tried_again_in_the_order_of_its_sequences() -> None:
    async with running() as bench:
        await bench.submit(Enqueue(b"q", 1))
        steps = (Step(b"s", 2, patient=False), Step(b"s", 1, patient=False))
        assert kinds(await bench.together(*steps, Poison(b"q", 1))) == ["stored", "stored", NotStoredError]


@on_loop
async def test_a_store_that_fails_before_the_commit_is_definite_and_passes() -> None:
    async with running() as bench:
        bench.store.faults = {"flush": 2}
        assert kinds([await bench.outcome(Add(b"a", b"k"))]) == [NotStoredError]
        assert len(bench.observer.failures) == 2
        assert await bench.submit(Add(b"a", b"k")) == 1
        bench.store.faults = {"begin": 1}
        assert await bench.submit(Add(b"a", b"l")) == 2


# A commit that fails


@on_loop
async def test_after_a_failed_commit_its_callers_hear_unknown_and_the_queue_not_stored(
    tmp_path: Path, vfs: FaultyVfs
) -> None:
    async with running(on_disk(tmp_path, vfs), EngineLimits(batch=BatchLimits(writes=2))) as bench:
        assert await bench.submit(Add(b"a", b"before")) == 1
        vfs.fail_sync = True
        outcomes = await bench.together(*(Add(b"a", key) for key in (b"k", b"l", b"m", b"n", b"o")))
        assert kinds(outcomes) == [OutcomeUnknownError] * 2 + [NotStoredError] * 3
        await asyncio.wait_for(bench.engine.failed.wait(), PATIENCE_SECONDS)
        assert bench.engine.failure is not None
        assert bench.observer.batches[-1].commit is Commit.UNKNOWN
        with pytest.raises(NotStoredError):
            await bench.submit(Add(b"a", b"after"))
        assert bench.engine.waiting_writes == 0
        vfs.mend()
    async with running(on_disk(tmp_path, vfs)) as bench:
        assert value(bench, b"a") in (1, 3)
        answers = await bench.together(Add(b"a", b"k"), Add(b"a", b"l"), Add(b"a", b"m"))
        assert answers == [2, 3, 4]


@on_loop
async def test_when_the_second_try_cannot_commit_everyone_of_the_batch_is_told() -> None:
    async with running() as bench:
        bench.store.faults = {"flush": 1, "commit": 1}
        async with bench.held():
            sent = [asyncio.create_task(bench.outcome(Add(b"a", key))) for key in (b"k", b"l", b"m")]
            await asyncio.sleep(0)
        told, waiting = await asyncio.wait(sent, timeout=PATIENCE_SECONDS)
        assert not waiting
        outcomes = kinds([one.result() for one in sent if one in told])
        assert outcomes == [OutcomeUnknownError, NotStoredError, NotStoredError]


@on_loop
async def test_a_batch_that_the_store_broke_off_is_tried_again_whole() -> None:
    async with running() as bench:
        bench.store.faults = {"commit again": MAX_TRIES - 1}
        assert await bench.together(Add(b"a", b"k"), Add(b"a", b"l")) == [1, 2]
        assert value(bench, b"a") == 2
        assert len(bench.observer.failures) == MAX_TRIES - 1
        bench.store.faults = {"begin again": MAX_TRIES}
        assert kinds([await bench.outcome(Add(b"a", b"m"))]) == [NotStoredError]
        assert value(bench, b"a") == 2
        assert await bench.submit(Add(b"a", b"m")) == 3


@on_loop
async def test_a_store_that_stays_away_is_told_at_once_and_the_engine_goes_on() -> None:
    async with running() as bench:
        bench.store.faults = {"begin away": 1}
        assert kinds([await bench.outcome(Add(b"a", b"k"))]) == [NotStoredError]
        assert bench.engine.failure is None
        bench.store.faults = {"flush away": 1}
        assert kinds(await bench.together(Add(b"a", b"k"), Add(b"a", b"l"))) == [NotStoredError] * 2
        bench.store.faults = {"flush": 1, "flush away": 1}
        assert kinds(await bench.together(Add(b"a", b"k"), Add(b"a", b"l"), Add(b"a", b"m"))) == [NotStoredError] * 3
        assert await bench.submit(Add(b"a", b"k")) == 1
        assert bench.engine.waiting_writes == 0


@on_loop
async def test_writes_under_other_locks_do_not_wait_with_those_that_are_held() -> None:
    async with running() as bench:
        bench.store.faults = {"flush held": 2}
        outcomes = await bench.together(Add(b"a", b"k"), Add(b"b", b"k"), Add(b"a", b"l"), Add(b"c", b"k"))
        assert kinds(outcomes[::2]) == [NotStoredError] * 2
        assert [outcomes[1], outcomes[3]] == [1, 1]
        bench.store.faults = {"flush held": 1}
        assert kinds(await bench.together(Add(b"a", b"k"), Add(b"a", b"l"))) == [NotStoredError] * 2
        bench.store.faults = {"flush held": 1, "commit": 1}
        outcomes = kinds(await bench.together(Add(b"a", b"k"), Add(b"b", b"l"), Add(b"c", b"l")))
        assert outcomes == [OutcomeUnknownError, NotStoredError, NotStoredError]


@on_loop
async def test_an_outcome_that_stays_unknown_is_told_and_the_engine_goes_on() -> None:
    async with running() as bench:
        bench.store.faults = {"commit unknown": 1}
        assert kinds(await bench.together(Add(b"a", b"k"), Add(b"a", b"l"))) == [OutcomeUnknownError] * 2
        assert bench.engine.failure is None
        assert bench.observer.batches[-1].commit is Commit.UNKNOWN
        bench.store.faults = {"flush": 1, "commit unknown": 1}
        outcomes = await bench.together(Add(b"a", b"k"), Add(b"a", b"l"), Add(b"a", b"m"))
        assert kinds(outcomes[:1]) == [OutcomeUnknownError]
        assert outcomes[1:] == [1, 2]
        assert await bench.submit(Add(b"a", b"k")) == 3


@on_loop
async def test_a_look_that_was_broken_off_is_taken_again_and_one_that_cannot_be_taken_is_told() -> None:
    async with running() as bench:
        await bench.submit(Add(b"a", b"k"))
        bench.store.faults = {"read again": 2}
        assert await bench.engine.read(lambda reading: reading.get(COUNTER, (b"a",))) is not None
        for faults in ({"read again": MAX_TRIES}, {"read away": 1}, {"read": 1}):
            bench.store.faults = faults
            with pytest.raises(UnavailableError):
                await bench.engine.read(lambda reading: reading.get(COUNTER, (b"a",)))
        bench.store.faults = {}


@on_loop
async def test_a_node_that_does_not_lead_does_no_chores() -> None:
    async with running() as bench:
        answers, done = iter([False, False, False, True]), asyncio.Event()
        asked: list[bool] = []

        def leads() -> bool:
            asked.append(next(answers, True))
            return asked[-1]

        class Chores(Toy):
            def chores(self, reading: Reading) -> Sequence[Any]:
                bench.engine._loop.call_soon_threadsafe(done.set)
                return ()

        bench.store.leads = leads  # type: ignore[method-assign]
        sweeping = asyncio.create_task(Sweeper(bench.engine, [Chores()], 0.01).run())
        await done.wait()
        sweeping.cancel()
        assert asked[:4] == [False, False, False, True]


@on_loop
async def test_what_others_commit_wakes_the_readers_of_its_topics() -> None:
    async with running() as bench:
        assert bench.store.hear is not None
        told, other = bench.engine.signals.watch(b"told"), bench.engine.signals.watch(b"other")
        bench.store.hear([b"told", b"nobody's"])
        assert await told.wait(PATIENCE_SECONDS)
        assert not await other.wait(0.05)
        bench.store.hear(None)
        assert await other.wait(PATIENCE_SECONDS)


@on_loop
async def test_a_commit_carries_its_topics() -> None:
    async with running() as bench:
        await bench.together(Add(b"a", b"k"), Add(b"b", b"k"), Add(b"a", b"l"))
        assert sorted(topic for flushed in bench.store.flushes for topic in flushed.topics) == [b"a", b"b"]


@on_loop
async def test_a_checkpoint_that_fails_stops_the_engine() -> None:
    async with running() as bench:
        # Not before there is something to tidy up: a lane that has nothing to do tidies up now and then.
        bench.gate.also = lambda point: bench.store.faults.update(tidy=1) if point == "committed" else None
        assert await bench.submit(Add(b"a", b"k")) == 1
        await asyncio.wait_for(bench.engine.failed.wait(), PATIENCE_SECONDS)
        assert kinds([await bench.outcome(Add(b"a", b"l"))]) == [NotStoredError]


class EndOfLaneError(BaseException):
    """Something that nobody foresaw."""


@pytest.mark.parametrize("point", ["gathered", "locked", "decided", "committed"])
@on_loop
async def test_whatever_ends_the_lane_its_callers_are_told(point: str) -> None:
    async with running() as bench:

        def burst(passed: str) -> None:
            if passed == point and bench.engine.waiting_writes:
                raise EndOfLaneError

        bench.gate.also = burst
        sent = asyncio.create_task(bench.outcome(Add(b"a", b"k")))
        await asyncio.wait_for(bench.engine.failed.wait(), PATIENCE_SECONDS)
        told, _ = await asyncio.wait([sent], timeout=PATIENCE_SECONDS)
        assert told
        stored = value(bench, b"a") is not None
        assert kinds([sent.result()]) in (
            [[OutcomeUnknownError]] if stored else [[NotStoredError], [OutcomeUnknownError]]
        )


@on_loop
async def test_a_write_that_comes_while_the_lane_ends_is_told_too() -> None:
    async with running() as bench:
        bench.store.faults = {"commit": 1}
        with slow_call(asyncio.get_running_loop(), "_stop_for_good") as (reached, go_on):
            assert kinds([await bench.outcome(Add(b"a", b"k"))]) == [OutcomeUnknownError]
            assert await asyncio.to_thread(reached.wait, PATIENCE_SECONDS)
            late = asyncio.create_task(bench.outcome(Add(b"a", b"l")))
            await asyncio.sleep(0)
            go_on.set()
            told, _ = await asyncio.wait([late], timeout=PATIENCE_SECONDS)
        assert told
        assert kinds([late.result()]) == [NotStoredError]


# Stopping


@on_loop
async def test_a_graceful_stop_commits_everything_that_was_admitted(tmp_path: Path) -> None:
    bench = Bench(on_disk(tmp_path), EngineLimits(batch=BatchLimits(writes=3)), None)
    async with bench.held():
        commands = [*(Add(b"a", str(number).encode()) for number in range(10)), Step(b"s", 2), Step(b"s", 1)]
        sent = [asyncio.create_task(bench.outcome(command)) for command in commands]
        await asyncio.sleep(0)
        stopping = asyncio.create_task(bench.engine.stop())
        await asyncio.sleep(0)
        with pytest.raises(NotStoredError):
            await bench.submit(Add(b"a", b"too late"))
    await stopping
    assert await asyncio.gather(*sent) == [*range(1, 11), "stored", "stored"]
    assert bench.store.is_closed
    async with running(on_disk(tmp_path)) as reopened:
        assert value(reopened, b"a") == 10


@on_loop
async def test_a_stop_of_an_idle_engine_is_quick_and_final() -> None:
    async with running() as bench:
        await bench.engine.stop()
        assert kinds([await bench.outcome(Nothing())]) == [NotStoredError]


@on_loop
async def test_a_stop_after_a_failure_lets_go_of_the_store() -> None:
    async with running() as bench:
        bench.store.faults = {"commit": 1}
        await bench.outcome(Add(b"a", b"k"))
    assert bench.store.is_closed


@on_loop
async def test_many_writers_at_once(store: Store) -> None:
    async with running(store, EngineLimits(batch=BatchLimits(writes=7))) as bench:
        commands: list[Any] = []
        for number in range(60):
            key = str(number % 30).encode()
            commands += [Add(b"a", key), Enqueue(b"q", number), Claim(b"q", key), Look(b"a"), Step(b"s", number + 1)]
        outcomes = await asyncio.gather(*(bench.outcome(command) for command in commands))
        assert not [one for one in outcomes if isinstance(one, Exception)]
        assert value(bench, b"a") == 30
        claimed = [one for one, command in zip(outcomes, commands, strict=True) if isinstance(command, Claim)]
        assert sorted(number for number in claimed if number is not None) == sorted(
            number for number in range(60) if JobRow(*(bench.find(JOB, (b"q", number)) or ())).state == TAKEN
        )
        adds = [one for one, command in zip(outcomes, commands, strict=True) if isinstance(command, Add)]
        assert adds[:30] == adds[30:]


@on_loop
async def test_the_oldest_write_ages_while_its_batch_or_the_queue_waits() -> None:
    async with running() as bench:
        assert bench.engine.oldest_write_seconds == 0
        async with bench.held():
            first = bench.engine.oldest_write_seconds
            sent = asyncio.create_task(bench.submit(Add(b"a", b"k")))
            await asyncio.sleep(0.02)
            assert bench.engine.oldest_write_seconds >= first + 0.02  # that of the batch, not of the later write
        await sent
        async with bench.held():
            await asyncio.sleep(0)
        await bench.reports()
        assert bench.engine.waiting_writes == 0
        assert bench.engine.oldest_write_seconds == 0


@on_loop
async def test_a_batch_reports_the_time_of_its_commit_apart() -> None:
    async with running() as bench:
        await bench.submit(Add(b"a", b"k"))
        await bench.submit(Nothing())
        reports = [one for one in await bench.reports() if one.writes]
        assert [bool(one.commit_seconds) for one in reports] == [one.commit is Commit.DURABLE for one in reports]
        assert 0 < reports[0].commit_seconds <= reports[0].seconds
