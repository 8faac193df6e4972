"""A loaded range under changes equals the range of the changed rows, or says that it does not know."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.engine.contract import MissingRowsError
from semel.engine.view import BatchView, LoadedRange, same_rows
from semel.store.protocol import Range
from semel.store.table import Key
from tests.engine.toy import JOB, READY, TAKEN, JobRow, ready

FORWARD = ready(b"q", 3)
BACKWARD = FORWARD._replace(reverse=True)


def job(number: int, state: int = READY, queue: bytes = b"q") -> JobRow:
    return JobRow(queue, number, state, b"")


def keys(*numbers: int) -> list[tuple[bytes, int]]:
    return [(b"q", number) for number in numbers]


def loaded(wanted: Range, *numbers: int) -> LoadedRange:
    rows = [job(number) for number in numbers]
    edge = JOB.index_key(wanted.by, rows[-1]) if len(rows) >= wanted.limit else None
    return LoadedRange(wanted, rows, edge)


def test_ranges_that_differ_in_nothing_but_their_limit_are_the_same_rows() -> None:
    assert same_rows(ready(b"q", 1)) == same_rows(ready(b"q", 9))
    for other in (ready(b"r"), FORWARD._replace(by=""), FORWARD._replace(start=(1,)), FORWARD._replace(stop=(1,))):
        assert same_rows(other) != same_rows(FORWARD)
    assert same_rows(BACKWARD) != same_rows(FORWARD)


def test_a_complete_range_knows_everything() -> None:
    for wanted, order in ((FORWARD, (1, 5)), (BACKWARD, (5, 1))):
        known = loaded(wanted, *order)
        assert known.first(1) == keys(order[0])
        assert known.first(9) == keys(*order)
        known.change((b"q", 9), None, job(9))
        known.change((b"q", 3), None, job(3))
        assert known.first(9) == keys(*sorted((1, 3, 5, 9), reverse=wanted.reverse))


def test_an_empty_range_that_is_complete_takes_new_rows() -> None:
    known = loaded(FORWARD)
    assert known.first(1) == []
    known.change((b"q", 4), None, job(4))
    assert known.first(1) == keys(4)


@pytest.mark.parametrize(
    ("wanted", "order", "inside", "beyond"), [(FORWARD, (1, 3, 5), 4, 6), (BACKWARD, (9, 7, 5), 6, 4)]
)
def test_an_incomplete_range_knows_nothing_beyond_its_edge(
    wanted: Range, order: tuple[int, int, int], inside: int, beyond: int
) -> None:
    known = loaded(wanted, *order)
    assert known.first(3) == keys(*order)
    assert known.first(4) is None
    known.change((b"q", beyond), None, job(beyond))
    assert known.first(4) is None
    known.change((b"q", inside), None, job(inside))
    assert known.first(4) == keys(order[0], order[1], inside, order[2])
    known.change((b"q", order[2]), job(order[2]), None)
    known.change((b"q", order[0]), job(order[0]), job(order[0], TAKEN))
    assert known.first(2) == keys(order[1], inside)
    assert known.first(3) is None


def test_a_row_that_leaves_the_known_part_is_no_longer_counted() -> None:
    wanted = Range(JOB, "", (), 2)
    known = LoadedRange(wanted, [job(1), job(2)], JOB.index_key(wanted.by, job(2)))
    known.change((b"q", 1), job(1), None)
    known.change((b"z", 1), None, job(1, queue=b"z"))
    assert known.first(1) == keys(2)
    assert known.first(2) is None


def test_a_row_that_comes_from_beyond_the_edge_is_counted() -> None:
    known = loaded(FORWARD, 1, 2, 3)
    known.change((b"q", 0), job(0, TAKEN), job(0))
    assert known.first(2) == keys(0, 1)
    known.change((b"q", 0), job(0), job(0, TAKEN))
    assert known.first(2) == keys(1, 2)


def test_rows_outside_the_range_stay_out() -> None:
    known = loaded(FORWARD, 1)
    known.change((b"r", 0), None, job(0, queue=b"r"))
    known.change((b"q", 0), None, job(0, TAKEN))
    known.change((b"r", 0), job(0, queue=b"r"), None)
    assert known.first(9) == keys(1)


# Against a plain model

QUEUES = st.sampled_from((b"p", b"q", b"r"))
JOBS = st.builds(JobRow, QUEUES, st.integers(0, 6), st.integers(0, 1), st.sampled_from((b"", b"me")))
STORED = st.lists(JOBS, max_size=14, unique_by=JOB.key_of)


@st.composite
def job_ranges(draw: st.DrawFn) -> Range:
    by = draw(st.sampled_from(("", "ready")))
    columns = {"queue": QUEUES, "number": st.integers(0, 6), "state": st.integers(0, 1)}
    order = JOB.ordering(by)
    depth = draw(st.integers(0, 2))

    def bound() -> tuple[object, ...]:
        return tuple(draw(columns[name]) for name in order[depth : depth + draw(st.integers(0, 2))])

    prefix = tuple(draw(columns[name]) for name in order[:depth])
    return Range(JOB, by, prefix, draw(st.integers(1, 5)), bound(), bound(), draw(st.booleans()))


def brute_force(rows: Iterable[JobRow], wanted: Range) -> list[JobRow]:
    inside = [row for row in rows if wanted.holds(JOB.index_key(wanted.by, row))]
    inside.sort(key=lambda row: JOB.index_key(wanted.by, row), reverse=wanted.reverse)
    return inside[: wanted.limit]


STEPS = st.one_of(
    st.tuples(st.just("put"), JOBS),
    st.tuples(st.just("delete"), JOBS),
    st.tuples(st.just("insert"), JOBS),
    st.tuples(st.just("forget"), JOBS),
    st.tuples(st.just("load"), job_ranges()),
    st.tuples(st.just("look"), job_ranges()),
    st.tuples(st.just("mark"), st.none()),
    st.tuples(st.just("undo"), st.none()),
)


class Walk:
    """A view and the rows that it should show, side by side."""

    def __init__(self, stored: list[JobRow]) -> None:
        self.stored = {JOB.key_of(row): row for row in stored}
        self.rows = dict(self.stored)
        self.view = BatchView(lambda order: False, lambda table, row: row)
        self.marks = [(self.view.mark(), dict(self.rows))]
        self.ranges: list[Range] = []
        self.forgotten: set[Key] = set()

    def take(self, what: str, argument: JobRow | Range | None) -> None:
        """One step on both sides."""
        if isinstance(argument, JobRow):
            self._change(what, JOB.key_of(argument), argument)
        elif isinstance(argument, Range):
            if what == "load":
                self.view.add_range(argument, brute_force(self.stored.values(), argument))
            self.ranges.append(argument)
        elif what == "mark":
            self.marks.append((self.view.mark(), dict(self.rows)))
        else:
            mark, rows = self.marks[-1]
            self.view.undo(mark)
            self.rows = dict(rows)

    def _change(self, what: str, key: Key, row: JobRow) -> None:
        """A row that is changed was loaded; one that is forgotten was not, nor one that is new."""
        stored = self.stored.get(key)
        row = stored if stored is not None and stored == row else row  # a row is known again by its identity
        if what == "forget":
            self.view.forget(JOB, key)
            self.forgotten.add(key)
            self.rows.pop(key, None)
        elif what == "insert":
            if key not in self.rows:
                self.view.insert(JOB, row)
                self.rows[key] = row
        else:
            self.view.add_row(JOB, key, self.stored.get(key))
            if what == "put":
                self.view.put(JOB, row)
                self.rows[key] = row
            else:
                self.view.delete(JOB, key)
                self.rows.pop(key, None)

    def check_row(self, key: Key) -> None:
        """A row that the view knows is right."""
        with suppress(MissingRowsError):
            assert self.view.get(JOB, key) == self.rows.get(key)

    def check(self, wanted: Range) -> bool:
        """Whether the view knew the range; what it knows is right."""
        try:
            seen = self.view.range(wanted)
        except MissingRowsError:
            return False
        assert seen == brute_force(self.rows.values(), wanted)
        return True


@settings(max_examples=400, deadline=None)
@given(stored=STORED, steps=st.lists(STEPS, max_size=16))
def test_what_a_view_says_of_ranges_is_right(
    stored: list[JobRow], steps: list[tuple[str, JobRow | Range | None]]
) -> None:
    walk = Walk(stored)
    for what, argument in steps:
        walk.take(what, argument)
        for wanted in walk.ranges:
            for limit in (1, wanted.limit, wanted.limit + 2):
                walk.check(wanted._replace(limit=limit))
        for key in {*walk.stored, *walk.rows}:
            walk.check_row(key)


@settings(max_examples=200, deadline=None)
@given(stored=STORED, wanted=job_ranges(), changes=st.lists(st.tuples(st.booleans(), JOBS), max_size=8))
def test_a_range_that_was_loaded_with_room_to_spare_is_always_known(
    stored: list[JobRow], wanted: Range, changes: list[tuple[bool, JobRow]]
) -> None:
    walk = Walk(stored)
    walk.take("load", wanted._replace(limit=wanted.limit + len(changes)))
    for is_put, row in changes:
        walk.take("put" if is_put else "delete", row)
        assert walk.check(wanted)


@settings(max_examples=400, deadline=None)
@given(stored=STORED, steps=st.lists(STEPS, max_size=12))
def test_changes_that_reach_the_store_leave_what_the_view_showed(
    stored: list[JobRow], steps: list[tuple[str, JobRow | Range | None]]
) -> None:
    """And nothing is written that is stored already; what keeps its place in every index is written as such."""
    walk = Walk(stored)
    for what, argument in steps:
        walk.take(what, argument)
    made = walk.view.changes([])
    after = dict(walk.stored)
    for key in made.deletes.get(JOB, ()):
        after.pop(key, None)  # what was forgotten unseen may never have been there
    for row in made.inserts.get(JOB, ()):
        assert JOB.key_of(row) not in after or JOB.key_of(row) in walk.forgotten
        after[JOB.key_of(row)] = row
    for row in (*made.updates.get(JOB, ()), *made.steady.get(JOB, ())):
        before = walk.stored.get(JOB.key_of(row))
        assert row != before or JOB.key_of(row) in walk.forgotten
        after[JOB.key_of(row)] = row
    for row in made.steady.get(JOB, ()):
        assert JOB.index_key("ready", row) == JOB.index_key("ready", walk.stored[JOB.key_of(row)])
    assert after == walk.rows
    assert walk.view.is_changed() or after == walk.stored
