"""The merged state of a row: what one more delta does to it, who wins, and what is remembered."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any, NamedTuple

import pytest

from semel.surfaces.deltas.limits import MAX_COLUMNS
from semel.surfaces.deltas.model import Delta, DeltaOp
from semel.surfaces.deltas.rules.last_writer_wins import (
    AuthorMark,
    DeltaStamp,
    RepairHint,
    RowChange,
    RowState,
    VisibilityBasis,
    apply,
    dump_state,
    is_after,
    last_of_others,
    load_state,
    marked,
)
from tests.deltas.rules.rig import change

Written = dict[str, Any]
"""The values of some columns."""


class Did(NamedTuple):
    """What the last delta of a case did, in words."""

    was_live: bool
    is_live: bool
    won: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    was_deleted: bool = False
    raised: bool = False
    is_lost: bool = False


class Case(NamedTuple):
    """Deltas in the order of their arrival; what the last of them did, and what the row is then."""

    deltas: tuple[Delta, ...]
    did: Did
    values: Written | None
    gone: tuple[str, ...] = ()


def insert(at: int, author: str = "a", **cells: Any) -> Delta:
    return change(DeltaOp.INSERT, "r", author, at, **cells)


def update(at: int, author: str = "a", **cells: Any) -> Delta:
    return change(DeltaOp.UPDATE, "r", author, at, **cells)


def delete(at: int, author: str = "a") -> Delta:
    return change(DeltaOp.DELETE, "r", author, at)


CASES = {
    "the first": Case((insert(10, t=1),), Did(False, True, ("t",)), {"t": 1}),
    "an update of nothing": Case((update(10, t=1),), Did(False, True, ("t",)), {"t": 1}),
    "a row without columns": Case((insert(10),), Did(False, True), {}),
    "a null is a value": Case((insert(10, t=None),), Did(False, True, ("t",)), {"t": None}),
    "a later value": Case((insert(10, t=1), update(20, t=2)), Did(True, True, ("t",)), {"t": 2}),
    "an older value": Case((insert(20, t=1), update(10, t=2)), Did(True, True, is_lost=True), {"t": 1}),
    "another column, however old": Case((insert(20, t=1), update(10, n=2)), Did(True, True, ("n",)), {"t": 1, "n": 2}),
    "one column of two": Case(
        (insert(10, t=1), update(30, n=1), update(20, n=2, t=2)),
        Did(True, True, ("t",), is_lost=True),
        {"t": 2, "n": 1},
    ),
    "nothing, later": Case((insert(10, t=1), update(20)), Did(True, True), {"t": 1}),
    "a delete": Case((insert(10, t=1), delete(20)), Did(True, False, raised=True), None, ("t",)),
    "a delete of nothing": Case((delete(10),), Did(False, False, raised=True), None),
    "a later delete": Case((delete(10), delete(20)), Did(False, False, was_deleted=True, raised=True), None),
    "an older delete": Case((delete(20), delete(10)), Did(False, False, was_deleted=True), None),
    "a delete that is older than everything": Case(
        (insert(20, t=1), delete(10)), Did(True, True, raised=True, is_lost=True), {"t": 1}
    ),
    "a delete between a column and the other": Case(
        (insert(10, t=1, n=1), update(30, n=2), delete(20)),
        Did(True, True, removed=("t",), raised=True, is_lost=True),
        {"n": 2},
        ("t",),
    ),
    "a delete that is older than the last one, of a row that came back": Case(
        (delete(20), insert(30, t=1), delete(10)),
        Did(True, True, was_deleted=True, is_lost=True),
        {"t": 1},
    ),
    "a delete before a write without columns": Case(
        (insert(10, t=1), update(30), delete(20)),
        Did(True, True, removed=("t",), raised=True, is_lost=True),
        {},
        ("t",),
    ),
    "a row comes back without what it had": Case(
        (insert(10, t=1, n=1), delete(20), update(30, n=2)),
        Did(False, True, ("n",), was_deleted=True),
        {"n": 2},
        ("t",),
    ),
    "a write that is older than the delete": Case(
        (delete(20), insert(10, t=1)), Did(False, False, was_deleted=True, is_lost=True), None, ("t",)
    ),
    "a write that is older than the delete of a row that came back": Case(
        (delete(20), insert(30, t=1), update(10, t=2, n=2)),
        Did(True, True, was_deleted=True, is_lost=True),
        {"t": 1},
        ("n",),
    ),
    "a write without columns that is older than the delete": Case(
        (delete(20), update(10)), Did(False, False, was_deleted=True, is_lost=True), None
    ),
    "a tie of writes: the greater author": Case(
        (insert(10, "b", t=1), update(10, "c", t=2)), Did(True, True, ("t",)), {"t": 2}
    ),
    "a tie of writes: the smaller author": Case(
        (insert(10, "b", t=1), update(10, "a", t=2)), Did(True, True, is_lost=True), {"t": 1}
    ),
    "a tie with a delete: the greater author writes": Case(
        (delete(10, "a"), update(10, "b", t=1)), Did(False, True, ("t",), was_deleted=True), {"t": 1}
    ),
    "a tie with a delete: the smaller author writes": Case(
        (delete(10, "b"), update(10, "a", t=1)), Did(False, False, was_deleted=True, is_lost=True), None, ("t",)
    ),
    "a tie with a write: the greater author deletes": Case(
        (insert(10, "a", t=1), delete(10, "b")), Did(True, False, raised=True), None, ("t",)
    ),
    "a tie with a write: the smaller author deletes": Case(
        (insert(10, "b", t=1), delete(10, "a")), Did(True, True, raised=True, is_lost=True), {"t": 1}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_delta_does_to_its_row(name: str) -> None:
    case = CASES[name]
    state, done = folded(*case.deltas)
    won = tuple(column.name for column in done.won)
    found = Did(done.was_live, done.is_live, won, done.removed, done.was_deleted, done.raised, done.is_lost)
    assert found == case.did
    assert values_of(state) == case.values
    assert tuple(state.gone) == case.gone


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_arrival_does_not_matter(name: str) -> None:
    case = CASES[name]
    for deltas in permutations(case.deltas):
        state, _ = folded(*deltas)
        assert values_of(state) == case.values
        assert set(state.gone) == set(case.gone)


@pytest.mark.parametrize("name", CASES)
def test_what_is_applied_again_changes_nothing(name: str) -> None:
    case = CASES[name]
    once, _ = folded(*case.deltas)
    twice, done = folded(*case.deltas, *case.deltas)
    assert values_of(twice) == values_of(once)
    assert not done.won
    assert not done.raised


@pytest.mark.parametrize("name", CASES)
def test_a_state_is_stored_as_it_is(name: str) -> None:
    state, _ = folded(*CASES[name].deltas)
    assert load_state(state.row, dump_state(state)) == state


def test_everything_that_is_remembered_of_a_row_is_stored() -> None:
    state, _ = folded(*CASES["a row comes back without what it had"].deltas)
    state.entries = (AuthorMark('"a"', 2**63, 1), AuthorMark('"b\\ud800"', 7, 2))
    state.turns = (AuthorMark('"a"', 5, 3),)
    state.aids = (RepairHint('"a"', 9, 8, 3, 7), RepairHint('"b"'))
    for basis in (VisibilityBasis(2, {"t": "1"}), VisibilityBasis(3, None), None):
        state.basis = basis
        assert load_state(state.row, dump_state(state)) == state


# -- Who wins, and who had the last word -------------------------------------------------------------------------------

RISING = [
    DeltaStamp(1, '"z"', "ff"),
    DeltaStamp(2, '""', "ff"),
    DeltaStamp(2, '"B"', "00"),
    DeltaStamp(2, '"B"', "01"),
    DeltaStamp(2, '"a"', "00"),
    DeltaStamp(2, '"a\\n"', "00"),
    DeltaStamp(2, '"aa"', "00"),
    DeltaStamp(2, '"\U0001f389"', "00"),
    DeltaStamp(2, '"\ue000"', "00"),
    DeltaStamp(3, '""', "00"),
]
"""The last but one: a pair of surrogates is before U+E000, though its code point is not."""


def test_stamps_are_in_one_order() -> None:
    for place, one in enumerate(RISING):
        assert is_after(one, None)
        for other_place, other in enumerate(RISING):
            assert is_after(one, other) is (place > other_place)


@pytest.mark.parametrize(
    ("pushed", "last"),
    [
        ((insert(10, t=1),), 0),
        ((insert(10, t=1), update(20, t=2)), 1),
        ((insert(20, t=1), update(10, n=2)), 0),
        ((insert(10, t=1), delete(20)), 1),
        ((insert(20, t=1), delete(10)), 0),
        ((delete(10),), 0),
        ((insert(10, "b", t=1), delete(10, "a")), 0),
        ((insert(10, "a", t=1), delete(10, "b")), 1),
        ((delete(20), insert(10, t=1)), 0),
    ],
)
def test_the_last_word_is_the_greatest_stamp(pushed: tuple[Delta, ...], last: int) -> None:
    state, _ = folded(*pushed)
    assert state.last.id == pushed[last].id.hex()


# -- What is remembered ------------------------------------------------------------------------------------------------


def test_of_columns_that_are_gone_the_last_are_remembered() -> None:
    state = RowState('"r"')
    state.bury(f"c{number}" for number in range(MAX_COLUMNS))
    state.bury(["c0", "more"])
    assert len(state.gone) == MAX_COLUMNS
    assert list(state.gone)[:1] == ["c2"]
    assert list(state.gone)[-2:] == ["c0", "more"]


def test_two_authors_tell_what_anybody_else_did_last() -> None:
    marks: tuple[AuthorMark, ...] = ()
    for position, author in enumerate("abcbb", 1):
        marks = marked(marks, AuthorMark(author, position))
    assert marks == (AuthorMark("b", 5), AuthorMark("c", 3))
    assert last_of_others(marks, "a", 0) == AuthorMark("b", 5)
    assert last_of_others(marks, "b", 0) == AuthorMark("c", 3)
    assert last_of_others(marks, "b", 2) == AuthorMark("c", 3)
    assert last_of_others(marks, "b", 3) is None
    assert last_of_others(marks, "c", 4) == AuthorMark("b", 5)
    assert last_of_others((AuthorMark("b", 5),), "b", 0) is None
    assert last_of_others((), "b", 0) is None


AID = RepairHint('"x"', position=30, turn=20, op=3, inserted_at=25)


@pytest.mark.parametrize(
    ("above", "known"),
    [
        (19, AID),
        (20, AID._replace(turn=0, op=0)),
        (25, AID._replace(turn=0, op=0, inserted_at=0)),
        (30, RepairHint('"x"')),
    ],
)
def test_of_an_author_counts_what_it_has_yet_to_be_told(above: int, known: RepairHint) -> None:
    state = RowState('"r"', aids=(RepairHint('"y"', 40), AID))
    assert state.aid_of('"x"').above(above) == known
    assert state.aid_of('"z"').above(above) == RepairHint('"z"')


def folded(*deltas: Delta) -> tuple[RowState, RowChange]:
    """The state after some deltas, and what the last of them did."""
    state = RowState('"r"')
    done = [apply(state, delta) for delta in deltas]
    return state, done[-1]


def values_of(state: RowState) -> Written | None:
    """As they were written."""
    values = state.values()
    return None if values is None else {name: json.loads(text) for name, text in values.items()}
