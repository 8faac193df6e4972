"""What is delivered of a delta, row by row of the table: absent or live before, absent or live after."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from semel.surfaces.deltas.model import Delta, DeltaOp
from semel.surfaces.deltas.rules.last_writer_wins import RowState, apply
from semel.surfaces.deltas.rules.visibility import NO_COLUMNS, DeltaEffect, column_told, effect_of
from tests.deltas.model.replicas import TABLE
from tests.deltas.model.requests import make_column, make_delta
from tests.deltas.rules.rig import cells_of, change

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE


class Case(NamedTuple):
    """A row's deltas before, the delta, and what is told of it; columns are None when they are its own."""

    before: tuple[Delta, ...]
    delta: Delta
    op: DeltaOp | None
    columns: dict[str, Any] | None = None


def by(op: DeltaOp, at: int, **cells: Any) -> Delta:
    return change(op, "r", "a", at, **cells)


def with_columns(op: DeltaOp, at: int, *names: str) -> Delta:
    """Of columns without a value."""
    return make_delta(op, TABLE, '"r"', '"a"', at, [make_column(name) for name in names])


DEAD = (by(INSERT, 10, t=1), by(DELETE, 20))
LIVE = (by(INSERT, 10, t=1, n=1),)
BACK = (*DEAD, by(INSERT, 30, t=3))

CASES = {
    # absent, and absent after it
    "nothing: a delete": Case((), by(DELETE, 10), DELETE),
    "nothing: a delete with columns": Case((), by(DELETE, 10, t=1), DELETE, {}),
    "dead: a later delete": Case(DEAD, by(DELETE, 30), DELETE),
    "dead: an older delete": Case(DEAD, by(DELETE, 15), None),
    "dead: an older insert": Case(DEAD, by(INSERT, 15, t=2), None),
    "dead: an older update": Case(DEAD, by(UPDATE, 15, t=2), None),
    "dead: an older update without columns": Case(DEAD, by(UPDATE, 15), None),
    # absent, and live after it
    "nothing: an insert": Case((), by(INSERT, 10, t=1), INSERT),
    "nothing: an insert without columns": Case((), by(INSERT, 10), INSERT),
    "nothing: an update": Case((), by(UPDATE, 10, t=1), UPDATE),
    "nothing: an update without columns": Case((), by(UPDATE, 10), UPDATE),
    "nothing: an insert of a column without a value": Case((), with_columns(INSERT, 10, "t"), INSERT, {"t": None}),
    "dead: a later insert": Case(DEAD, by(INSERT, 30, n=1), INSERT),
    "dead: a later update": Case(DEAD, by(UPDATE, 30, n=1), INSERT),
    "dead: a later update without columns": Case(DEAD, by(UPDATE, 30), INSERT),
    # live, and live after it
    "live: a later update": Case(LIVE, by(UPDATE, 20, t=2), UPDATE),
    "live: a later insert": Case(LIVE, by(INSERT, 20, t=2), UPDATE),
    "live: an update of a column without a value": Case(LIVE, with_columns(UPDATE, 20, "t"), UPDATE, {"t": None}),
    "live: an older update of another column": Case(LIVE, by(UPDATE, 5, more=1), UPDATE),
    "live: an older update of one column of two": Case(LIVE, by(UPDATE, 5, t=0, more=1), UPDATE, {"more": 1}),
    "live: one that won has no value": Case(LIVE, with_columns(UPDATE, 5, "t", "more"), UPDATE, {"more": None}),
    "live: an older update": Case(LIVE, by(UPDATE, 5, t=0), None),
    "live: an older insert": Case(LIVE, by(INSERT, 5, t=0), None),
    "live: an update without columns": Case(LIVE, by(UPDATE, 20), None),
    "live: an insert without columns": Case(LIVE, by(INSERT, 20), None),
    "live: a delete that is older than all": Case(LIVE, by(DELETE, 5), None),
    "live: a delete that is older than some": Case((*LIVE, by(UPDATE, 30, t=3)), by(DELETE, 20), UPDATE, {"n": None}),
    "live: a delete that leaves no column": Case(
        (*LIVE, by(UPDATE, 30)), by(DELETE, 20), UPDATE, {"t": None, "n": None}
    ),
    "back: a delete that is older than the last": Case(BACK, by(DELETE, 15), None),
    "back: a delete between the last and the row": Case(BACK, by(DELETE, 25), None),
    "back: an update that is older than the delete": Case(BACK, by(UPDATE, 15, t=2, more=1), None),
    # live, and absent after it
    "live: a later delete": Case(LIVE, by(DELETE, 20), DELETE),
    "live: a later delete with columns": Case(LIVE, by(DELETE, 20, t=1), DELETE, {}),
    "back: a later delete": Case(BACK, by(DELETE, 40), DELETE),
}


@pytest.mark.parametrize("name", CASES)
def test_of_a_delta_is_told(name: str) -> None:
    case = CASES[name]
    state = RowState(case.delta.row)
    for delta in case.before:
        apply(state, delta)
    effect = effect_of(case.delta, apply(state, case.delta))
    if case.op is None:
        assert effect is None
        return
    assert effect is not None
    assert effect.op is case.op
    assert (None if effect.columns is None else cells_of(effect.columns)) == case.columns


def test_columns_that_won_are_told_in_the_order_and_as_they_were_sent() -> None:
    """With whatever their author has put beside the value."""
    state = RowState('"r"')
    apply(state, by(INSERT, 10, b=1))
    columns = [make_column("c", 1, unit="kg"), make_column("b", 2), make_column("a", "é")]
    late = make_delta(UPDATE, TABLE, '"r"', '"a"', 5, columns)
    told = '[{"column":"c","unit":"kg","value":1},{"column":"a","value":"é"}]'
    assert effect_of(late, apply(state, late)) == DeltaEffect(UPDATE, told.encode())


def test_the_whole_of_a_row_is_its_deltas_own_when_nothing_else_is_true() -> None:
    state = RowState('"r"')
    delta = make_delta(INSERT, TABLE, '"r"', '"a"', 5, [make_column("c", 1, unit="kg")])
    assert effect_of(delta, apply(state, delta)) == DeltaEffect(INSERT, None)


def test_a_delete_is_told_without_the_columns_it_was_sent_with() -> None:
    delta = by(DELETE, 5, t=1)
    assert effect_of(delta, apply(RowState('"r"'), delta)) == DeltaEffect(DELETE, NO_COLUMNS)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (make_column("a", 1), '{"column":"a","value":1}'),
        (make_column("a", None), '{"column":"a","value":null}'),
        (make_column("a"), '{"column":"a","value":null}'),
        (make_column("a", 1, type="number"), '{"column":"a","type":"number","value":1}'),
        (make_column("a", type="number"), '{"column":"a","value":null}'),
    ],
    ids=["a value", "null", "nothing", "something beside it", "something beside nothing"],
)
def test_a_column_is_told(column: Any, text: str) -> None:
    assert column_told(column) == text.encode()
