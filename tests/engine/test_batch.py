"""One batch, one transaction: order, stages, reruns, deferrals, and faults that stay with their own write."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.engine.batch import MAX_RERUNS, run
from semel.engine.batch_order import in_order
from semel.engine.contract import DecisionResult, MissingRowsError, Order, Stage, View, Write
from semel.engine.group_commit import BatchResult, Commit, QueuedWrite
from semel.kernel.clock import Now
from semel.store.protocol import Lock, StoreError, TryAgainError
from tests.engine.rig import Desk
from tests.engine.toy import (
    COUNTER,
    JOB,
    READY,
    TAKEN,
    Add,
    AskForLocks,
    Broken,
    BrokenError,
    Claim,
    Enqueue,
    Forget,
    JobRow,
    Look,
    Nothing,
    Step,
    Toy,
)


def deferred(result: BatchResult) -> list[Any]:
    return [submission.write.command for submission in result.deferred]


def failed(result: BatchResult) -> list[Any]:
    return [submission.write.command for submission, _ in result.failed]


# Verdict, effect and receipt


@pytest.mark.parametrize(
    ("softness", "commit"),
    [((True, True), Commit.SOFT), ((True, False), Commit.DURABLE), ((False, True), Commit.DURABLE)],
)
def test_a_batch_is_soft_only_if_each_of_its_writes_is(softness: tuple[bool, ...], commit: Commit) -> None:
    desk = Desk()
    commands = [Add(b"a", b"%d" % number) for number in range(len(softness))]
    writes = [Write(desk.toy, command, is_soft=soft) for command, soft in zip(commands, softness, strict=True)]
    result = run(desk.around, [QueuedWrite(write, write.command) for write in writes])
    assert result.commit is commit
    assert desk.store.soft_commits == (commit is Commit.SOFT)


@pytest.mark.parametrize("commands", [(Nothing(),), (Look(b"a"),), (Add(b"a", b"k"), Add(b"a", b"k", 9))])
def test_a_batch_of_hits_and_refusals_commits_nothing(commands: tuple[Any, ...]) -> None:
    desk = Desk()
    assert desk.run(Add(b"a", b"k")).commit is Commit.DURABLE
    desk.store.flushes.clear()
    assert desk.run(*commands).commit is Commit.NOTHING
    assert desk.store.flushes == []


@pytest.mark.parametrize("command", [Nothing(), Look(b"a"), Add(b"a", b"k")])
def test_rows_that_may_be_old_answer_nobody(command: Any) -> None:
    desk = Desk()
    desk.run(Add(b"a", b"k"))
    desk.store.faults["check again"] = 1
    with pytest.raises(TryAgainError):
        desk.run(command)
    assert desk.run(command).commit is Commit.NOTHING


def test_a_batch_that_commits_has_proved_its_rows() -> None:
    desk = Desk()
    desk.store.faults["check again"] = 1
    assert desk.answers(Add(b"a", b"k", 5), Add(b"a", b"k", 5)) == [5, 5]
    assert desk.store.faults["check again"] == 1


def test_the_time_of_a_decision_is_the_stores_clock() -> None:
    desk = Desk()
    desk.world.pass_ms(77)
    desk.run(Look(b"a"))
    assert [touch.value for touch in desk.soft.waiting(9)] == [desk.world.wall]


# Locks


def test_locks_are_sorted_and_merged() -> None:
    desk = Desk()
    desk.run(Add(b"c", b"k"), Add(b"a", b"k"), Nothing(), Add(b"c", b"l"), Add(b"b", b"k"))
    assert desk.store.locks == [[Lock(b"a"), Lock(b"b"), Lock(b"c")]]


def test_a_lock_is_shared_only_when_everyone_shares_it() -> None:
    desk = Desk()
    submissions = [QueuedWrite(desk.toy.write(Nothing())) for _ in range(3)]
    for submission, locks in zip(
        submissions,
        [(Lock(b"x", True), Lock(b"y", True)), (Lock(b"y"),), (Lock(b"x", True), Lock(b"y", True))],
        strict=True,
    ):
        submission.locks = locks
    run(desk.around, submissions)
    assert desk.store.locks == [[Lock(b"x", True), Lock(b"y", False)]]


def test_a_write_that_needs_another_lock_goes_to_the_next_batch_with_it() -> None:
    desk = Desk()
    result = desk.run(AskForLocks(b"a"), Add(b"b", b"k"))
    assert deferred(result) == [AskForLocks(b"a")]
    assert desk.find(COUNTER, (b"b",)) is not None
    again = run(desk.around, result.deferred)
    assert desk.store.locks[-1] == [Lock(b"a"), Lock(b"extra")]
    assert [outcome.answer for _, outcome in again.decided] == [None]


def test_changes_made_before_asking_for_locks_are_taken_back() -> None:
    desk = Desk()

    class Impatient(Toy):
        def decide(self, view: View, command: Any, now: Now) -> DecisionResult:
            if isinstance(command, AskForLocks):
                view.insert(JOB, JobRow(b"q", 1, READY, b""))
            return super().decide(view, command, now)

    result = desk.run(AskForLocks(b"a"), Enqueue(b"q", 2), contract=Impatient())
    assert deferred(result) == [AskForLocks(b"a")]
    assert [row.number for row in desk.scan(JOB)] == [2]


# Stages and ranges


def test_claims_that_name_their_range_in_different_stages_need_no_rerun_either() -> None:
    desk = Desk()
    desk.run(*(Enqueue(b"q", number) for number in range(9)))
    result = desk.run(Claim(b"q", b"x"), Claim(b"q", b"y", late=1), Claim(b"q", b"z", late=2), Claim(b"q", b"w"))
    assert [outcome.answer for _, outcome in result.decided] == [0, 1, 2, 3]
    assert result.reruns == 0


def test_a_claim_sees_jobs_that_its_own_batch_has_made() -> None:
    desk = Desk()
    assert desk.answers(Claim(b"q", b"x"), Enqueue(b"q", 7), Claim(b"q", b"y"), Claim(b"q", b"z")) == [None, 7, 7, None]
    assert desk.scan(JOB) == [JobRow(b"q", 7, TAKEN, b"y")]


def test_a_decision_that_looks_further_is_given_the_rows_and_run_again() -> None:
    desk = Desk()
    desk.run(*(Enqueue(b"q", number) for number in range(20)))
    result = desk.run(*(Claim(b"q", b"x", declared=False) for _ in range(10)))
    assert [outcome.answer for _, outcome in result.decided] == list(range(10))
    assert 0 < result.reruns <= 10


def test_a_claim_after_a_job_was_forgotten_unseen() -> None:
    desk = Desk()
    desk.run(*(Enqueue(b"q", number) for number in range(3)))
    result = desk.run(Forget(b"q", 0), Claim(b"q", b"x", declared=False))
    assert failed(result) == []
    assert [outcome.answer for _, outcome in result.decided] == [None, 1]


def test_a_claim_after_a_job_was_forgotten_by_a_write_that_failed() -> None:
    desk = Desk()
    desk.run(*(Enqueue(b"q", number) for number in range(3)))
    result = desk.run(Forget(b"q", 0, is_broken=True), Claim(b"q", b"x", declared=False))
    assert failed(result) == [Forget(b"q", 0, is_broken=True)]
    assert [outcome.answer for _, outcome in result.decided] == [0]


class Insatiable(Toy):
    """Asks for another row each time, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def needs(self, command: Any) -> Generator[Stage, View, None]:
        yield from ()

    def decide(self, view: View, command: Any, now: Now) -> DecisionResult:
        self.asked += 1
        view.insert(JOB, JobRow(b"q", 1, READY, b""))
        raise MissingRowsError(Stage(keys=[(COUNTER, (str(self.asked).encode(),))]))


def test_a_decision_that_asks_for_rows_without_end_is_a_fault() -> None:
    desk = Desk()
    contract = Insatiable()
    result = desk.run(Nothing(), contract=contract)
    assert failed(result) == [Nothing()]
    assert contract.asked == result.reruns == MAX_RERUNS
    assert result.commit is Commit.NOTHING


def test_a_store_that_fails_under_a_rerun_breaks_the_batch_and_not_the_decision() -> None:
    desk = Desk()
    desk.run(Enqueue(b"q", 1))
    desk.store.loads.clear()
    desk.store.faults = {"load 1": 1}
    with pytest.raises(StoreError):
        desk.run(Claim(b"q", b"x", declared=False))
    assert desk.observer.faults == []


# Sequences


def test_other_writes_keep_their_places_around_a_sequence() -> None:
    desk = Desk()
    arrival = [Nothing(), Step(b"s", 3), Add(b"a", b"k"), Step(b"t", 2), Step(b"s", 1), Step(b"t", 1), Step(b"s", 2)]
    desk.run(*arrival)
    assert desk.toy.decided == [
        Nothing(),
        Step(b"s", 1),
        Add(b"a", b"k"),
        Step(b"t", 1),
        Step(b"s", 2),
        Step(b"t", 2),
        Step(b"s", 3),
    ]


@given(st.lists(st.one_of(st.builds(Step, st.sampled_from((b"s", b"t")), st.integers(1, 5)), st.just(Nothing()))))
def test_putting_in_order_loses_nothing_and_moves_only_members(arrival: list[Any]) -> None:
    toy = Toy()
    submissions = [QueuedWrite(toy.write(command), place) for place, command in enumerate(arrival)]
    ordered = in_order(submissions)
    assert sorted(one.sender for one in ordered) == list(range(len(arrival)))
    for before, after in zip(submissions, ordered, strict=True):
        assert (before.order is None) == (after.order is None)
        assert before.order is None or after.order is None or before.order.sequence == after.order.sequence
        assert before.order is not None or before is after
    for client in (b"s", b"t"):
        placed = [one.write.command for one in ordered]
        numbers = [step.number for step in placed if isinstance(step, Step) and step.client == client]
        assert numbers == sorted(numbers)
        for number in numbers:
            senders = [one.sender for one in ordered if one.write.command == Step(client, number)]
            assert senders == sorted(senders)


def test_a_gap_waits_only_while_its_predecessor_is_on_its_way() -> None:
    desk = Desk()
    assert desk.answers(Step(b"s", 2)) == ["gap"]
    desk.admitted.add(Order(b"s", 1))
    result = desk.run(Step(b"s", 2), Add(b"a", b"k"))
    assert deferred(result) == [Step(b"s", 2)]
    assert [submission.write.command for submission, _ in result.decided] == [Add(b"a", b"k")]
    desk.admitted.clear()
    after = run(desk.around, [QueuedWrite(desk.toy.write(Step(b"s", 1))), *result.deferred])
    assert [outcome.answer for _, outcome in after.decided] == ["stored", "stored"]


def test_a_predecessor_that_failed_in_the_same_batch_is_not_waited_for() -> None:
    desk = Desk()

    class Stumbling(Toy):
        def decide(self, view: View, command: Any, now: Now) -> DecisionResult:
            if command == Step(b"s", 1):
                raise BrokenError
            return super().decide(view, command, now)

    desk.admitted |= {Order(b"s", 1), Order(b"s", 2)}
    result = desk.run(Step(b"s", 1), Step(b"s", 2), contract=Stumbling())
    assert failed(result) == [Step(b"s", 1)]
    assert [outcome.answer for _, outcome in result.decided] == ["gap"]


def test_nobody_waits_without_end() -> None:
    desk = Desk()
    desk.admitted.add(Order(b"s", 1))
    waiting = [QueuedWrite(desk.toy.write(Step(b"s", 2)))]
    result = run(desk.around, waiting)
    while not result.decided and waiting[0].deferrals < 1_000:
        result = run(desk.around, waiting)
    assert [outcome.answer for _, outcome in result.decided] == ["gap"]


# Faults


def test_a_batch_of_faults_commits_nothing() -> None:
    desk = Desk()
    result = desk.run(Broken(b"a"), Broken(b"b"))
    assert result.commit is Commit.NOTHING
    assert len({error_id for error_id, _ in desk.observer.faults}) == 2
    assert desk.scan(COUNTER) == desk.scan(JOB) == []


def test_an_insert_that_meets_a_row_which_the_batch_knows_is_a_fault_of_its_own() -> None:
    desk = Desk()
    result = desk.run(Enqueue(b"q", 1), Enqueue(b"q", 1), Enqueue(b"q", 2))
    assert failed(result) == [Enqueue(b"q", 1)]
    assert [row.number for row in desk.scan(JOB)] == [1, 2]


def test_a_decision_is_told_nothing_by_a_decision_that_was_taken_back() -> None:
    desk = Desk()
    desk.run(Enqueue(b"q", 1), Enqueue(b"q", 2))

    class Greedy(Toy):
        def decide(self, view: View, command: Any, now: Now) -> DecisionResult:
            outcome = super().decide(view, command, now)
            if command == Claim(b"q", b"broken"):
                raise BrokenError
            return outcome

    result = desk.run(Claim(b"q", b"broken"), Claim(b"q", b"x"), Claim(b"q", b"y"), contract=Greedy())
    assert [outcome.answer for _, outcome in result.decided] == [1, 2]
    assert result.reruns == 0
