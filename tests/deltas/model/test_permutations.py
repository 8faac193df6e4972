"""Whatever order deltas arrive in, and however they are parted into pushes: one state, and it is that of their set.

All orders of small sets are tried. What is delivered on the way, applied as it comes, must end in the same state.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations

import pytest

from semel.kernel.hashes import json_text
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.model import Delta, DeltaOp, DeltaReplica
from semel.surfaces.deltas.rules.last_writer_wins import RowState, apply, dump_state, load_state
from semel.surfaces.deltas.rules.visibility import effect_of
from tests.deltas.model.fold import Folded, fold
from tests.deltas.model.requests import CLIENTS, make_column, make_delta
from tests.deltas.model.rig import Rig

ROW = '"row-1"'
SMALL, LARGE = 4, 6
"""Sets up to the one are parted in every way; those beyond it are put in every order."""


def change(text: str) -> Delta:
    """A delta from a few words: operation, time, author, columns; as in `+ 10 ann a=1 b=2`, and `-` for a delete."""
    sign, hlc, client, *columns = text.split()
    op = {"+": DeltaOp.INSERT, "~": DeltaOp.UPDATE, "-": DeltaOp.DELETE}[sign]
    made = [make_column(name, json.loads(value)) for name, _, value in (one.partition("=") for one in columns)]
    return make_delta(op, "todos", ROW, json_text(client), int(hlc), made)


SETS: dict[str, list[str]] = {
    "columns of their own": ["~ 10 a title=1", "~ 20 c title=2", "~ 30 b note=3"],
    "resurrection": ["+ 10 a title=1 note=1", "- 20 b", "~ 30 c title=2"],
    "a tie of authors": ["~ 10 a x=1", "~ 10 b x=2"],
    "a tie with a delete": ["- 10 a", "~ 10 b x=1"],
    "a tie that the delete wins": ["~ 10 a x=1", "- 10 b"],
    "a tie of contents": ["~ 10 a x=1", "~ 10 a x=2", "~ 10 a x=3"],
    "a late insert": ["- 20 a", "+ 10 b x=1"],
    "empty ones": ["+ 10 a", "~ 20 b", "- 15 c"],
    "deletes alone": ["- 10 a", "- 20 b", "- 20 c"],
    "authors in the order of code units": ["~ 10 b\U0001f389 x=1", "~ 10 b\ue000 x=2", '~ 10 b" x=3', "~ 10 b~ x=4"],
    "two lives": ["+ 10 a x=1 y=1", "- 20 b", "~ 30 c y=2", "- 40 a", "+ 50 b z=3"],
    "everything at once": ["+ 10 a x=1 y=1", "~ 20 b x=2", "- 20 c", "~ 20 d y=3 z=3", "- 15 b", "~ 30 a z=4"],
    "six in one instant": ["+ 10 a x=1", "~ 10 a y=2", "- 10 b", "~ 10 c x=3 y=3", "- 10 c", "~ 10 d z=4"],
    "six writers of one cell": [f"~ {10 + number // 2} {name} x={number}" for number, name in enumerate("fbdace")],
}


def random_set(number: int) -> list[Delta]:
    """Up to five deltas within three instants, by authors whose order is not that of their texts."""
    chance = random.Random(number)
    deltas = []
    for _ in range(chance.randrange(2, 6)):
        op = chance.choice((DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE))
        names = chance.sample("xyz", 0 if op is DeltaOp.DELETE else chance.randrange(3))
        columns = [make_column(name, chance.randrange(9)) for name in names]
        deltas.append(make_delta(op, "todos", ROW, chance.choice(CLIENTS), chance.randrange(3), columns))
    return list({delta.id: delta for delta in deltas}.values())


def seen(state: RowState) -> tuple[dict[str, str] | None, set[str]]:
    return state.values(), {*state.cells, *state.gone}


def expected(state: Folded) -> tuple[dict[str, str] | None, set[str]]:
    return state.values, set(state.known)


def require_one_state(deltas: Sequence[Delta]) -> None:
    """In every order, after every delta, stored and loaded in between; and so for whoever applies what is delivered."""
    folds = {frozenset(delta.id for delta in some): fold(some) for some in _subsets(deltas)}
    for order in permutations(deltas):
        state, arrived, told = RowState(ROW), set[bytes](), Blind()
        for delta in order:
            told.hear(delta, state)
            arrived.add(delta.id)
            state = load_state(ROW, dump_state(state))
            wanted = folds[frozenset(arrived)]
            assert seen(state) == expected(wanted), [*order]
            assert told.row == wanted.values, [*order]


class Blind:
    """Somebody who makes and changes the row just as the entries say, and looks at nothing else."""

    def __init__(self) -> None:
        self.row: dict[str, str] | None = None

    def hear(self, delta: Delta, state: RowState) -> None:
        """Fold a delta into the state, and hear of it."""
        effect = effect_of(delta, apply(state, delta))
        if effect is None:
            return
        if effect.op is DeltaOp.DELETE:
            self.row = None
            return
        assert effect.op is DeltaOp.UPDATE or self.row is None, "a row that is there is not made again"
        columns = json.loads(delta.columns_text if effect.columns is None else effect.columns)
        values = {column["column"]: json_text(column["value"]) for column in columns}
        merged = (self.row or {}) | values
        self.row = {name: value for name, value in merged.items() if value != "null"}


def _subsets(deltas: Sequence[Delta]) -> Iterator[list[Delta]]:
    for bits in range(1 << len(deltas)):
        yield [delta for place, delta in enumerate(deltas) if bits >> place & 1]


@pytest.mark.parametrize("words", SETS.values(), ids=SETS)
def test_every_order_of_a_set_is_one_state(words: list[str]) -> None:
    deltas = [change(text) for text in words]
    assert len(deltas) <= LARGE
    require_one_state(deltas)


def test_every_order_of_random_sets_is_one_state() -> None:
    for number in range(60):
        require_one_state(random_set(number))


def test_a_delta_that_comes_again_changes_nothing() -> None:
    """The fold itself does not mind, whether or not anybody remembers ids."""
    for words in SETS.values():
        deltas = [change(text) for text in words]
        for order in (deltas, deltas[::-1]):
            state = RowState(ROW)
            for delta in order:
                apply(state, delta)
            once = seen(state)
            for delta in order:
                apply(state, delta)
                assert seen(state) == once


@pytest.mark.parametrize(
    "words",
    [some for some in SETS.values() if len(some) <= SMALL],
    ids=[name for name, some in SETS.items() if len(some) <= SMALL],
)
def test_every_order_in_every_parting_is_one_row(words: list[str]) -> None:
    asyncio.run(_push_in_every_way([change(text) for text in words]))


async def _push_in_every_way(deltas: list[Delta]) -> None:
    """Each order in each parting is a gateway of its own."""
    rig, number = Rig(), 0
    wanted = fold(deltas)
    rig.start()
    try:
        for order in permutations(deltas):
            for cuts in range(1 << (len(order) - 1)):
                number += 1
                caller = DeltaReplica(f"gw{number}", '"relay"', "default")
                for batch in _parted(order, cuts):
                    await rig.push(caller, batch, is_named=False)
                (row,), _ = await rig.look(partial(reading.merged_rows, gateway=caller.gateway, after=None, limit=9))
                assert (row.is_live, dict(row.columns)) == (wanted.is_live, wanted.columns), (order, cuts)
    finally:
        await rig.stop()


def _parted(order: Sequence[Delta], cuts: int) -> Iterator[tuple[Delta, ...]]:
    """The pieces of a sequence that is cut behind each place whose bit is set."""
    piece: list[Delta] = []
    for place, delta in enumerate(order):
        piece.append(delta)
        if cuts >> place & 1:
            yield tuple(piece)
            piece = []
    if piece:
        yield tuple(piece)
