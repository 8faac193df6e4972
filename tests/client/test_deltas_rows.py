"""A row of a replica: what the server told, own changes over it, and how both are stored."""

from __future__ import annotations

import random
from typing import Any

import pytest

from semel.client.deltas.rows import (
    NOTHING,
    Base,
    Op,
    ReplicaCell,
    ReplicaChange,
    ReplicaStamp,
    dump_base,
    is_later,
    load_base,
    settled,
    shown,
    told,
    whole,
)


def at(op: Op, hlc: int, client: str = "a", **columns: Any) -> ReplicaChange:
    return ReplicaChange(op, ReplicaStamp(hlc, client), columns)


def base_of(*entries: ReplicaChange) -> Base:
    base = NOTHING
    for position, entry in enumerate(entries, 1):
        base = told(base, entry, position)
    return base


TOLD = {
    "nothing": ([], None),
    "insert": ([at("INSERT", 1, x=1)], {"x": 1}),
    "a row without columns": ([at("INSERT", 1)], {}),
    "update makes a row": ([at("UPDATE", 1, x=1)], {"x": 1}),
    "columns side by side": ([at("INSERT", 1, x=1), at("UPDATE", 2, y=2)], {"x": 1, "y": 2}),
    "a late entry counts all the same": ([at("UPDATE", 9, x=1), at("UPDATE", 3, "b", x=2)], {"x": 2}),
    "cleared": ([at("INSERT", 1, x=1, y=1), at("UPDATE", 2, x=None)], {"y": 1}),
    "deleted": ([at("INSERT", 1, x=1), at("DELETE", 2)], None),
    "back with what came after": ([at("INSERT", 1, x=1, y=1), at("DELETE", 2), at("UPDATE", 3, y=2)], {"y": 2}),
    "back by an earlier stamp": ([at("DELETE", 5), at("INSERT", 3, "b", x=1)], {"x": 1}),
    "an insert is the whole row": ([at("INSERT", 1, x=1, y=1), at("INSERT", 2, "b", x=2)], {"x": 2}),
}


@pytest.mark.parametrize(("entries", "row"), TOLD.values(), ids=TOLD)
def test_entries_are_applied_as_they_come(entries: list[ReplicaChange], row: dict[str, Any] | None) -> None:
    assert shown(base_of(*entries), []) == row


OVER = {
    "a later own write": ([at("UPDATE", 1, "b", x=1)], [at("UPDATE", 2, x=2)], {"x": 2}),
    "an earlier own write": ([at("UPDATE", 3, "b", x=1)], [at("UPDATE", 2, x=2, y=2)], {"x": 1, "y": 2}),
    "a tie goes to the greater name": ([at("UPDATE", 2, "b", x=1)], [at("UPDATE", 2, "a", x=2)], {"x": 1}),
    "a tie by UTF-16": ([at("UPDATE", 2, "\uff5e", x=1)], [at("UPDATE", 2, "\U0001f389", x=2)], {"x": 1}),
    "its own entry": ([at("UPDATE", 2, x=2)], [at("UPDATE", 2, x=2)], {"x": 2}),
    "own writes in their order": ([], [at("INSERT", 1, x=1, y=1), at("UPDATE", 2, x=2)], {"x": 2, "y": 1}),
    "own deletion": ([at("UPDATE", 1, "b", x=1)], [at("DELETE", 2)], None),
    "own deletion, edited later": (
        [at("UPDATE", 1, "b", x=1, y=1), at("UPDATE", 3, "b", x=3)],
        [at("DELETE", 2)],
        {"x": 3},
    ),
    "deleted later": ([at("DELETE", 3, "b")], [at("UPDATE", 2, x=2)], None),
    "deleted earlier": ([at("INSERT", 1, "b", x=1), at("DELETE", 2, "b")], [at("UPDATE", 3, y=2)], {"y": 2}),
    "own clearing": ([at("INSERT", 1, "b", x=1, y=1)], [at("UPDATE", 2, x=None)], {"y": 1}),
    "own return": ([at("INSERT", 1, "b", x=1)], [at("DELETE", 2), at("INSERT", 3, y=1)], {"y": 1}),
}


@pytest.mark.parametrize(("entries", "own", "row"), OVER.values(), ids=OVER)
def test_own_changes_are_shown_where_they_are_later(
    entries: list[ReplicaChange], own: list[ReplicaChange], row: dict[str, Any] | None
) -> None:
    assert shown(base_of(*entries), own) == row


def test_a_whole_row_does_not_make_its_columns_older() -> None:
    """A repair has the stamp of the write that lost; what it shows was written later."""
    repaired = base_of(at("UPDATE", 9, "b", x=1), at("UPDATE", 2, "a", x=1, y=None))
    assert repaired.cells == {
        "x": ReplicaCell(1, ReplicaStamp(9, "b"), 2),
        "y": ReplicaCell(None, ReplicaStamp(2, "a"), 2),
    }
    assert shown(repaired, [at("UPDATE", 5, x=5)]) == {"x": 1}


@pytest.mark.parametrize("seed", range(20))
def test_g6_entries_count_by_their_positions_in_whatever_order_they_come(seed: int) -> None:
    """Each says what is so as of its position; told late, twice or before others, the last word is the same."""
    chance = random.Random(seed)
    ops: list[Op] = ["INSERT", "UPDATE", "UPDATE", "DELETE"]
    entries = [
        (position, at(op := chance.choice(ops), position, **({} if op == "DELETE" else any_columns(chance))))
        for position in range(1, 9)
    ]
    in_order = base_of(*(entry for _, entry in entries))
    for _ in range(20):
        mixed = [*entries, chance.choice(entries), chance.choice(entries)]
        chance.shuffle(mixed)
        base = NOTHING
        for position, entry in mixed:
            base = told(base, entry, position)
        assert shown(base, []) == shown(in_order, [])
        assert (base.live_at, base.bare_at) == (in_order.live_at, in_order.bare_at)


def any_columns(chance: random.Random) -> dict[str, Any]:
    return {name: chance.choice([None, chance.randrange(9)]) for name in chance.sample("xyz", chance.randrange(1, 4))}


def test_g6_an_acknowledged_write_stands_against_entries_that_come_late() -> None:
    base = settled(base_of(at("INSERT", 1, "b", x=1, y=1)), [at("UPDATE", 5, x=5)], 9)
    base = told(base, at("UPDATE", 3, "b", x=3, y=3), 4)
    assert shown(base, []) == {"x": 5, "y": 3}
    base = told(base, at("DELETE", 4, "b"), 6)
    assert shown(base, []) == {"x": 5}
    base = settled(base, [at("DELETE", 9)], 20)
    assert shown(told(base, at("UPDATE", 8, "b", x=8), 15), []) is None
    assert shown(told(base, at("UPDATE", 10, "b", x=8), 21), []) == {"x": 8}


def test_g6_a_checkpoint_is_the_whole_row_and_own_changes_are_shown_over_it() -> None:
    base = whole({"x": 1, "y": None}, 7)
    assert shown(base, []) == {"x": 1}
    assert shown(base, [at("UPDATE", 1, y=2)]) == {"x": 1, "y": 2}
    assert shown(base, [at("DELETE", 1)]) is None
    assert shown(told(base, at("UPDATE", 9, "b", z=1), 6), []) == {"x": 1}


STORED = {
    "nothing": NOTHING,
    "deleted": base_of(at("DELETE", 2**64 - 1, "b")),
    "every kind of value": base_of(
        at(
            "INSERT",
            5,
            "клиент-🎉",
            n=None,
            t=True,
            i=123456789012345680000,
            f=1e21,
            s="é🎉\x00",
            o={"z": [1, {}], "": 0},
        )
    ),
    "half a pair": base_of(at("INSERT", 5, "a\ud800", s="\udc00")),
    "deleted and back": base_of(at("DELETE", 1), at("UPDATE", 2, x=[])),
}


@pytest.mark.parametrize("base", STORED.values(), ids=STORED)
def test_stored_and_back(base: Base) -> None:
    assert load_base(dump_base(base)) == base


def test_stamps_compare_as_the_server_compares() -> None:
    ascending = [
        ReplicaStamp(1, "z"),
        ReplicaStamp(2, "a"),
        ReplicaStamp(2, "b"),
        ReplicaStamp(2, "é"),
        ReplicaStamp(2, "🎉"),
        ReplicaStamp(2, "\uff5e"),
    ]
    for index, one in enumerate(ascending):
        assert [is_later(one, other) for other in ascending] == [index > place for place in range(len(ascending))]
