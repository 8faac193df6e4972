"""The state of a row is that of the set of its deltas: every order of arrival, every batching, every repetition.

The scenarios A8 and R8. State is read in two ways: from the log, and from a checkpoint, where there is one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.deltas.cast import Cast
from tests.deltas.client import cells_of
from tests.deltas.truth import Rows, folded, without_nulls
from tests.deltas.vectors import Message, columns, delta
from tests.deltas.wire import Deltas, fresh

SEEDS = range(3)
CHANGES, PUSHES = 12, 40


class Change(NamedTuple):
    """A delta of a row that is still to be named."""

    op: str
    at: int
    client: str
    cells: Message

    def of(self, row: str) -> Message:
        return delta(self.op, columns(**self.cells), row=row, client=self.client, hlc=self.at)


CASES: dict[str, tuple[Sequence[Change], Message | None]] = {
    "columns have stamps of their own": (
        [
            Change("UPDATE", 10, "a", {"title": "t1"}),
            Change("UPDATE", 20, "c", {"title": "t2"}),
            Change("UPDATE", 30, "b", {"note": "n"}),
        ],
        {"title": "t2", "note": "n"},
    ),
    "an edit after a delete brings back what it writes": (
        [
            Change("INSERT", 10, "a", {"title": "t", "note": "n"}),
            Change("DELETE", 20, "b", {}),
            Change("UPDATE", 30, "c", {"title": "u"}),
        ],
        {"title": "u"},
    ),
    "at one time the greater author wins": (
        [Change("UPDATE", 10, "a", {"title": "of a"}), Change("UPDATE", 10, "b", {"title": "of b"})],
        {"title": "of b"},
    ),
    "at one time an edit of a greater author outlives a delete": (
        [Change("DELETE", 10, "a", {}), Change("UPDATE", 10, "b", {"title": "of b"})],
        {"title": "of b"},
    ),
    "at one time a delete of a greater author outlives an edit": (
        [Change("DELETE", 10, "b", {}), Change("UPDATE", 10, "a", {"title": "of a"})],
        None,
    ),
    "authors are compared by code units": (
        [Change("UPDATE", 10, "\U0001f389", {"title": "a pair"}), Change("UPDATE", 10, "\uff5e", {"title": "wide"})],
        {"title": "wide"},
    ),
    "a late insert does not undo a delete": (
        [Change("DELETE", 20, "a", {}), Change("INSERT", 10, "b", {"title": "t"})],
        None,
    ),
    "a deleted row may be inserted again": (
        [
            Change("INSERT", 10, "a", {"title": "t1", "note": "n"}),
            Change("DELETE", 20, "a", {}),
            Change("INSERT", 30, "a", {"title": "t2"}),
            Change("DELETE", 15, "b", {}),
        ],
        {"title": "t2"},
    ),
    "a column may be cleared": (
        [Change("INSERT", 10, "a", {"title": "t", "note": "n"}), Change("UPDATE", 20, "b", {"note": None})],
        {"title": "t"},
    ),
    "a row may live without a column": (
        [Change("INSERT", 10, "a", {"title": "t"}), Change("DELETE", 20, "b", {}), Change("INSERT", 30, "c", {})],
        {},
    ),
}
TIED = [Change("UPDATE", 10, "a", {"title": "x"}), Change("UPDATE", 10, "a", {"title": "y"})]
"""One author, one time: the greater id wins, and which that is depends on the row."""


def states(deltas: Deltas, gateway: str) -> Iterator[Rows]:
    """The rows as the log gives them, and as a checkpoint does."""
    yield deltas.rows(gateway)
    with Cast(deltas, gateway) as cast:
        reader = cast.client(fresh("reader"))
        if reader.take_checkpoint(names_itself=True):
            yield reader.rows()


@pytest.mark.parametrize("case", CASES)
def test_a8_every_order_of_arrival_gives_one_state(deltas: Deltas, gateway: str, case: str) -> None:
    changes, state = CASES[case]
    expected: Rows = {}
    for number, order in enumerate(itertools.permutations(changes)):
        alone, together = f"alone {number}", f"together {number}"
        for change in order:
            deltas.push(gateway, [change.of(alone)])
        deltas.push(gateway, [change.of(together) for change in order])
        if state is not None:
            expected |= {("todos", alone): state, ("todos", together): state}
    for found in states(deltas, gateway):
        assert found == expected


def test_a8_of_one_author_at_one_time_the_greater_id_wins(deltas: Deltas, gateway: str) -> None:
    expected: Rows = {}
    for number in range(8):
        for order in (TIED, TIED[::-1]):
            row = f"{order[0].cells['title']} first {number}"
            made = [change.of(row) for change in order]
            for one in made:
                deltas.push(gateway, [one])
            expected["todos", row] = cells_of(max(made, key=lambda one: str(one["deltaId"])))
    assert {row["title"] for row in expected.values()} == {"x", "y"}
    for found in states(deltas, gateway):
        assert found == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_r8_any_multiset_gives_the_state_of_its_set(deltas: Deltas, gateway: str, seed: int) -> None:
    chance = random.Random(seed)
    made = [random_change(chance).of(f"r{chance.randrange(3)}") for _ in range(CHANGES)]
    new = sent = 0
    for _ in range(PUSHES):
        batch = chance.choices(made, k=chance.randint(1, 4))
        answer = deltas.push(gateway, batch)
        new += answer["accepted"] - answer["duplicates"]
        sent += len(batch)
    answer = deltas.push(gateway, made)
    new += answer["accepted"] - answer["duplicates"]
    distinct = len({one["deltaId"] for one in made})
    assert new == distinct < sent
    assert deltas.gauges(gateway)["deltaCount"] == distinct
    for found in states(deltas, gateway):
        assert {key: without_nulls(row) for key, row in found.items()} == folded(made)
    ids = [entry["deltaId"] for entry in deltas.log(gateway)]
    assert len(ids) == len(set(ids))


def random_change(chance: random.Random) -> Change:
    """Few authors and few moments, so that they meet."""
    op = chance.choice(["INSERT", "UPDATE", "UPDATE", "DELETE"])
    names = [] if op == "DELETE" else chance.sample(["title", "note", "done"], chance.randint(1, 3))
    cells = {name: chance.choice([None, 1, "x"]) for name in names}
    return Change(op, chance.randrange(10, 16), chance.choice("abc"), cells)
