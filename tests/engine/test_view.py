"""The rows of one batch: what is asked for, and soft changes; what changes come to: `test_ranges.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from semel.engine.contract import MissingRowsError, Stage
from semel.engine.view import BatchView, InsertMetRowError
from semel.store.protocol import AnyTable, Changes, Range, Row, Touch
from tests.engine.toy import COUNTER, READY, RECEIPT, CounterRow, JobRow, ready

ONE, TWO = (CounterRow(name, 1, 0) for name in (b"one", b"two"))
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


def test_a_rotation_is_a_change() -> None:
    view = view_of(ONE)
    mark = view.mark()
    view.rotate(RECEIPT)
    assert view.is_changed()
    assert view.rotations == [RECEIPT]
    view.undo(mark)
    assert (view.is_changed(), view.rotations) == (False, [])


# Ranges


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
