"""The rows of one batch: changes, what they come to, and taking them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from semel.engine.contract import MissingRowsError, Stage
from semel.engine.view import BatchView, InsertMetRowError
from semel.store.protocol import AnyTable, Changes, Range, Row, Touch
from tests.engine.toy import COUNTER, JOB, READY, RECEIPT, TAKEN, CounterRow, JobRow, ready

ONE, TWO, THREE = (CounterRow(name, 1, 0) for name in (b"one", b"two", b"three"))
NOTHING = Changes({}, {}, {}, [])


def job(number: int, state: int = READY) -> JobRow:
    return JobRow(b"q", number, state, b"")


def view_of(*rows: CounterRow, soften: Callable[[AnyTable, Row], Row] = lambda table, row: row) -> BatchView:
    """A view that has loaded these counters and knows that there is no "three"."""
    view = BatchView(lambda order: False, soften)
    for row in rows:
        view.add_row(COUNTER, (row.name,), row)
    view.add_row(COUNTER, (b"three",), None)
    return view


def with_jobs(*rows: JobRow, limit: int = 10) -> BatchView:
    """A view that has loaded the ready jobs of one queue."""
    view = BatchView(lambda order: False, lambda table, row: row)
    view.add_range(ready(b"q", limit), rows)
    return view


def numbers(view: BatchView, limit: int = 10) -> list[int]:
    return [row.number for row in view.range(ready(b"q", limit))]


# Looking


def test_loaded_rows_and_known_absences_are_seen() -> None:
    view = view_of(ONE)
    assert view.get(COUNTER, (b"one",)) == ONE
    assert view.get(COUNTER, (b"three",)) is None


def test_a_row_that_was_not_loaded_is_asked_for() -> None:
    with pytest.raises(MissingRowsError) as missing:
        view_of(ONE).get(COUNTER, (b"two",))
    assert missing.value.stage == Stage(keys=((COUNTER, (b"two",)),))


def test_a_range_that_was_not_loaded_is_asked_for() -> None:
    view = with_jobs(job(1), job(2), limit=2)
    others: list[Range] = [ready(b"other"), ready(b"q")._replace(reverse=True), ready(b"q")._replace(start=(1,))]
    for wanted in (*others, ready(b"q", 3)):
        with pytest.raises(MissingRowsError) as missing:
            view.range(wanted)
        assert missing.value.stage == Stage(ranges=(wanted,))
    assert numbers(view, 2) == [1, 2]


def test_what_is_loaded_again_does_not_hide_a_change() -> None:
    view = view_of(ONE)
    view.put(COUNTER, ONE._replace(value=7))
    view.add_row(COUNTER, (b"one",), ONE)
    assert view.get(COUNTER, (b"one",)) == ONE._replace(value=7)


# Changing


def test_an_insert_that_meets_a_row_is_a_fault() -> None:
    view = view_of(ONE)
    with pytest.raises(InsertMetRowError):
        view.insert(COUNTER, ONE)
    view.insert(COUNTER, TWO)
    with pytest.raises(InsertMetRowError):
        view.insert(COUNTER, TWO)
    assert view.changes([]) == NOTHING._replace(inserts={COUNTER: [TWO]})


@pytest.mark.parametrize("change", [lambda view: view.put(COUNTER, TWO), lambda view: view.delete(COUNTER, (b"two",))])
def test_a_row_is_changed_only_when_it_was_loaded(change: Callable[[BatchView], None]) -> None:
    view = view_of(ONE)
    with pytest.raises(MissingRowsError):
        change(view)
    assert not view.is_changed()


CHANGED = ONE._replace(value=2)
Steps = tuple[Callable[[BatchView], None], ...]
PUT: Callable[[BatchView], None] = lambda view: view.put(COUNTER, CHANGED)  # noqa: E731 - a row of the table below
DELETE: Callable[[BatchView], None] = lambda view: view.delete(COUNTER, (b"one",))  # noqa: E731
RESTORE: Callable[[BatchView], None] = lambda view: view.put(COUNTER, ONE)  # noqa: E731
INSERT: Callable[[BatchView], None] = lambda view: view.insert(COUNTER, TWO)  # noqa: E731
FORGET: Callable[[BatchView], None] = lambda view: view.forget(COUNTER, (b"unseen",))  # noqa: E731

OUTCOMES: dict[str, tuple[Steps, Changes]] = {
    "nothing": ((), NOTHING),
    "a new row": ((INSERT,), NOTHING._replace(inserts={COUNTER: [TWO]})),
    "a new row, changed": (
        (INSERT, lambda view: view.put(COUNTER, TWO._replace(value=5))),
        NOTHING._replace(inserts={COUNTER: [TWO._replace(value=5)]}),
    ),
    "a new row, deleted": ((INSERT, lambda view: view.delete(COUNTER, (b"two",))), NOTHING),
    "a row put where there was none": (
        (lambda view: view.put(COUNTER, THREE),),
        NOTHING._replace(inserts={COUNTER: [THREE]}),
    ),
    "a changed row": ((PUT,), NOTHING._replace(steady={COUNTER: [CHANGED]})),
    "a row changed twice": (
        (lambda view: view.put(COUNTER, ONE._replace(value=9)), PUT),
        NOTHING._replace(steady={COUNTER: [CHANGED]}),
    ),
    "a row changed where it is indexed": (
        (lambda view: view.put(COUNTER, ONE._replace(seen_at=9)),),
        NOTHING._replace(updates={COUNTER: [ONE._replace(seen_at=9)]}),
    ),
    "a row changed and changed back": ((PUT, RESTORE), NOTHING),
    "a row put as it is": ((RESTORE,), NOTHING),
    "a deleted row": ((DELETE,), NOTHING._replace(deletes={COUNTER: [(b"one",)]})),
    "a row changed and deleted": ((PUT, DELETE), NOTHING._replace(deletes={COUNTER: [(b"one",)]})),
    "a row deleted and made anew": (
        (DELETE, lambda view: view.insert(COUNTER, CHANGED)),
        NOTHING._replace(steady={COUNTER: [CHANGED]}),
    ),
    "a row deleted and made as it was": ((DELETE, lambda view: view.insert(COUNTER, ONE)), NOTHING),
    "a row deleted twice": ((DELETE, DELETE), NOTHING._replace(deletes={COUNTER: [(b"one",)]})),
    "an absent row deleted": ((lambda view: view.delete(COUNTER, (b"three",)),), NOTHING),
    "a row forgotten unseen": ((FORGET,), NOTHING._replace(deletes={COUNTER: [(b"unseen",)]})),
    "a row forgotten twice": ((FORGET, FORGET), NOTHING._replace(deletes={COUNTER: [(b"unseen",)]})),
    "a loaded row forgotten": (
        (lambda view: view.forget(COUNTER, (b"one",)),),
        NOTHING._replace(deletes={COUNTER: [(b"one",)]}),
    ),
    "an absent row forgotten": ((lambda view: view.forget(COUNTER, (b"three",)),), NOTHING),
}


@pytest.mark.parametrize(("steps", "changes"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_changes_come_to(steps: Steps, changes: Changes) -> None:
    view = view_of(ONE)
    for step in steps:
        step(view)
    assert view.is_changed() == bool(steps)
    assert view.changes([]) == changes


@pytest.mark.parametrize("steps", [steps for steps, _ in OUTCOMES.values()], ids=OUTCOMES)
@pytest.mark.parametrize("earlier", [(), (PUT, INSERT, FORGET)], ids=["alone", "after others"])
def test_changes_are_taken_back_one_decision_at_a_time(steps: Steps, earlier: Steps) -> None:
    view, keys = view_of(ONE), ((b"one",), (b"two",), (b"three",), (b"unseen",))
    for step in earlier:
        step(view)
    mark, before = view.mark(), view.changes([])
    seen = [look(view, key) for key in keys]
    for step in steps:
        try:
            step(view)
        except (InsertMetRowError, MissingRowsError):
            break
    view.rotate(RECEIPT)
    view.undo(mark)
    assert view.changes([]) == before
    assert view.rotations == []
    assert view.is_changed() == bool(earlier)
    assert [look(view, key) for key in keys] == seen


def look(view: BatchView, key: tuple[bytes]) -> Any:
    """A row; no row and an unknown row look alike, because a row that is new by construction is not there."""
    try:
        return view.get(COUNTER, key)
    except MissingRowsError:
        return None


def test_a_row_forgotten_unseen_is_gone_for_the_batch_and_can_come_back() -> None:
    view = view_of()
    view.forget(COUNTER, (b"two",))
    assert view.get(COUNTER, (b"two",)) is None
    view.insert(COUNTER, TWO)
    assert view.get(COUNTER, (b"two",)) == TWO
    changes = view.changes([])
    assert [*changes.inserts.get(COUNTER, []), *changes.updates.get(COUNTER, [])] == [TWO]


def test_taking_back_a_forgotten_row_leaves_it_unknown() -> None:
    view = view_of()
    mark = view.mark()
    view.forget(COUNTER, (b"two",))
    view.undo(mark)
    with pytest.raises(MissingRowsError):
        view.get(COUNTER, (b"two",))
    view.add_row(COUNTER, (b"two",), TWO)
    assert view.get(COUNTER, (b"two",)) == TWO


def test_a_rotation_is_a_change() -> None:
    view = view_of(ONE)
    view.rotate(RECEIPT)
    assert view.is_changed()
    assert view.rotations == [RECEIPT]


# Ranges


def test_a_range_may_be_empty_and_all_that_is_known_of_its_table() -> None:
    assert numbers(with_jobs()) == []


def test_a_range_follows_the_changes_of_the_batch() -> None:
    view = with_jobs(job(1), job(2), job(3))
    mark = view.mark()
    view.put(JOB, job(1, TAKEN))
    assert numbers(view) == [2, 3]
    view.insert(JOB, job(0))
    view.delete(JOB, (b"q", 2))
    assert numbers(view) == [0, 3]
    assert numbers(view, 1) == [0]
    view.put(JOB, job(1))
    assert numbers(view) == [0, 1, 3]
    view.undo(mark)
    assert numbers(view) == [1, 2, 3]


def test_a_range_shows_rows_as_they_are_now() -> None:
    view = with_jobs(job(1))
    view.put(JOB, job(1)._replace(owner=b"me"))
    assert view.range(ready(b"q")) == [job(1)._replace(owner=b"me")]


def test_a_range_loaded_late_knows_what_the_batch_has_done() -> None:
    view = BatchView(lambda order: False, lambda table, row: row)
    for number in (1, 2):
        view.add_row(JOB, (b"q", number), job(number))
    view.insert(JOB, job(5))
    view.put(JOB, job(1, TAKEN))
    view.delete(JOB, (b"q", 2))
    view.add_range(ready(b"q", 10), [job(1), job(2), job(4)])
    assert numbers(view) == [4, 5]


def test_a_range_loaded_after_a_row_was_forgotten_unseen() -> None:
    view = BatchView(lambda order: False, lambda table, row: row)
    view.forget(JOB, (b"q", 2))
    view.forget(JOB, (b"elsewhere", 9))
    view.add_range(ready(b"q", 10), [job(1), job(2), job(3)])
    assert numbers(view) == [1, 3]


def test_the_rows_of_a_range_are_known_by_key() -> None:
    view = with_jobs(job(1))
    assert view.get(JOB, (b"q", 1)) == job(1)
    view.put(JOB, job(1, TAKEN))
    assert view.changes([]) == NOTHING._replace(updates={JOB: [job(1, TAKEN)]})


# Soft changes


def seen_at(value: int) -> Callable[[AnyTable, Row], Row]:
    return lambda table, row: row._replace(seen_at=value) if table is COUNTER else row


def touch(name: bytes, value: int) -> Touch:
    return Touch(COUNTER, (name,), "seen_at", value)


def _written(changes: Changes) -> list[CounterRow]:
    return [row for kind in (changes.inserts, changes.updates, changes.steady) for row in kind.get(COUNTER, ())]


def in_the_end(changes: Changes, stored: Iterable[CounterRow]) -> list[CounterRow]:
    """What stored counters become."""
    rows = {row.name: row for row in stored}
    rows |= {row.name: row for row in _written(changes)}
    for key in changes.deletes.get(COUNTER, ()):
        rows.pop(key[0], None)
    for one in changes.touches:
        if one.key[0] in rows and rows[one.key[0]].seen_at < one.value:
            rows[one.key[0]] = rows[one.key[0]]._replace(seen_at=one.value)
    return list(rows.values())


def test_loaded_rows_are_seen_under_their_soft_changes() -> None:
    assert view_of(ONE, soften=seen_at(5)).get(COUNTER, (b"one",)) == ONE._replace(seen_at=5)


@pytest.mark.parametrize("value", [5, 8], ids=["known when loaded", "come since"])
def test_a_soft_change_goes_with_the_row_that_is_written_anyway(value: int) -> None:
    view = view_of(ONE, TWO, soften=seen_at(5))
    view.put(COUNTER, ONE._replace(value=9, seen_at=5))
    changes = view.changes([touch(b"one", value), touch(b"two", value)])
    assert in_the_end(changes, [ONE, TWO]) == [ONE._replace(value=9, seen_at=value), TWO._replace(seen_at=value)]


@pytest.mark.parametrize("value", [5, 8], ids=["known when loaded", "come since"])
def test_a_soft_change_is_kept_when_its_row_is_put_as_it_is(value: int) -> None:
    view = view_of(ONE, soften=seen_at(5))
    row = view.get(COUNTER, (b"one",))
    assert row is not None
    view.put(COUNTER, row)
    assert in_the_end(view.changes([touch(b"one", value)]), [ONE]) == [ONE._replace(seen_at=value)]


def test_a_soft_change_of_a_row_that_the_batch_deletes_is_dropped() -> None:
    view = view_of(ONE, soften=seen_at(5))
    view.delete(COUNTER, (b"one",))
    assert in_the_end(view.changes([touch(b"one", 5)]), [ONE]) == []


def test_a_range_over_a_softened_column_is_in_order() -> None:
    first, second, third = (CounterRow(name, 0, at) for name, at in ((b"a", 10), (b"b", 20), (b"c", 30)))
    view = BatchView(lambda order: False, lambda table, row: row._replace(seen_at=100) if row.name == b"b" else row)
    wanted = Range(COUNTER, "seen", (), 2)
    view.add_range(wanted, [first, second])
    with pytest.raises(MissingRowsError):
        view.range(wanted)
    view.add_range(wanted._replace(limit=4), [first, second, third])
    assert [row.name for row in view.range(wanted._replace(limit=3))] == [b"a", b"c", b"b"]
