"""A write that is decided in parts: its parts see one another, and are one transaction, all of them or none."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from semel.engine.batch import run
from semel.engine.contract import DecisionResult, LastWord, Write
from semel.engine.group_commit import BatchResult, Commit, QueuedWrite
from semel.store.protocol import CommitUnknownError, StoreError, TryAgainError
from tests.engine.rig import Desk
from tests.engine.toy import COUNTER, JOB, RECEIPT, Add, AskForLocks, Broken, Enqueue, Look, Poison

REFUSED = "refused"
_Parts = Generator[Any, DecisionResult | None, LastWord]


def write_of(desk: Desk, commands: Sequence[Any], *, is_refused: bool = False, seen: list[Any] | None = None) -> Write:
    """A write that is made of these commands, and answers with all of their answers."""

    def parts() -> _Parts:
        answers = []
        for command in commands:
            outcome = yield command
            assert outcome is not None
            answers.append(outcome.answer)
        if seen is not None:
            seen.extend(answers)
        return LastWord(DecisionResult(REFUSED if is_refused else answers), is_refused=is_refused)

    return Write(desk.toy, commands[0], parts=parts, is_large=True)


def carried_out(desk: Desk, write: Write) -> BatchResult:
    """Run it as a batch of its own."""
    return run(desk.around, [QueuedWrite(write)])


def counters(desk: Desk) -> list[tuple[bytes, int]]:
    return [(row.name, row.value) for row in desk.scan(COUNTER)]


def test_parts_see_what_parts_before_them_have_done_and_are_stored_together() -> None:
    desk = Desk()
    write = write_of(desk, [Add(b"a", b"k", 5), Add(b"a", b"l", 2), Add(b"a", b"k", 5), Enqueue(b"q", 1)])
    result = carried_out(desk, write)
    assert result.commit is Commit.DURABLE
    assert [outcome.answer[:3] for _, outcome in result.decided] == [[5, 7, 5]]
    assert counters(desk) == [(b"a", 7)]
    assert [desk.find(RECEIPT, (b"a", key)) is None for key in (b"k", b"l", b"m")] == [False, False, True]
    assert [row.number for row in desk.scan(JOB)] == [1]


def test_a_last_word_that_refuses_leaves_nothing_of_parts_that_were_handed_to_the_store() -> None:
    desk, seen = Desk(), list[Any]()
    result = carried_out(desk, write_of(desk, [Add(b"a", b"k"), Add(b"a", b"l")], is_refused=True, seen=seen))
    assert seen == [1, 2]
    assert (result.commit, [outcome.answer for _, outcome in result.decided]) == (Commit.NOTHING, [REFUSED])
    assert (counters(desk), desk.find(RECEIPT, (b"a", b"k"))) == ([], None)
    assert desk.answers(Add(b"a", b"k")) == [1]


@pytest.mark.parametrize("where", ["decide", "needs"])
def test_a_part_that_is_a_fault_leaves_nothing_of_the_others(where: str) -> None:
    desk = Desk()
    result = carried_out(desk, write_of(desk, [Add(b"a", b"k"), Broken(b"a", where), Add(b"b", b"k")]))
    assert (result.commit, len(result.failed), result.decided) == (Commit.NOTHING, 1, [])
    assert (counters(desk), desk.find(RECEIPT, (b"a", b"k"))) == ([], None)


def test_a_part_that_the_store_does_not_take_leaves_nothing_of_the_others() -> None:
    desk = Desk()
    desk.run(Enqueue(b"q", 1))
    with pytest.raises(StoreError):
        carried_out(desk, write_of(desk, [Add(b"a", b"k"), Poison(b"q", 1)]))
    assert counters(desk) == []


def test_a_part_that_needs_another_lock_puts_the_whole_write_off_with_it() -> None:
    desk = Desk()
    write = write_of(desk, [Add(b"a", b"k"), AskForLocks(b"b")])
    first = QueuedWrite(write)
    result = run(desk.around, [first])
    assert (result.commit, result.deferred, result.decided) == (Commit.NOTHING, [first], [])
    assert counters(desk) == []
    assert len(first.locks) > len(QueuedWrite(write).locks)
    assert run(desk.around, [first]).commit is Commit.DURABLE
    assert (b"a", 1) in counters(desk)


def test_parts_that_change_nothing_commit_nothing() -> None:
    desk = Desk()
    desk.run(Add(b"a", b"k"))
    result = carried_out(desk, write_of(desk, [Add(b"a", b"k"), Look(b"a")]))
    assert (result.commit, [outcome.answer for _, outcome in result.decided]) == (Commit.NOTHING, [[1, 1]])


@pytest.mark.parametrize("is_refused", [False, True])
def test_parts_that_change_nothing_are_not_answered_from_rows_that_may_be_old(is_refused: bool) -> None:
    desk = Desk()
    desk.store.faults["check again"] = 1
    with pytest.raises(TryAgainError):
        carried_out(desk, write_of(desk, [Look(b"a"), Look(b"b")], is_refused=is_refused))


def test_a_commit_of_parts_that_fails_is_passed_on_as_unknown() -> None:
    desk = Desk()
    desk.store.faults = {"commit": 1}
    with pytest.raises(CommitUnknownError):
        carried_out(desk, write_of(desk, [Add(b"a", b"k"), Add(b"a", b"l")]))
    assert counters(desk) in ([], [(b"a", 2)])
