"""Repairs: the author of a write that lost, or that met others' writes, is told how the row really is.

A repair is addressed to one client, carries the columns that may differ for it or the whole row, and has the operation
that fits the client's copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from tests.deltas.cast import Cast
from tests.deltas.client import cells_of
from tests.deltas.peers import Peer, Peers, once, rows_in
from tests.deltas.vectors import Message, now_ms, stamp
from tests.deltas.wire import Deltas

ROW = "r"


class Step(NamedTuple):
    """What somebody writes, in order of arrival; the author of `mine` is the one who is repaired."""

    who: str
    op: str
    at: int
    cells: dict[str, Any]


class Case(NamedTuple):
    """The row is there, with title and note, and everyone has it; then these steps. What the author pulls after it."""

    others: Sequence[Step]
    mine: Sequence[Step]
    pulled: Sequence[tuple[str, dict[str, Any]]]
    """Operation and columns of each entry; the last is the repair, if there is one."""
    is_repaired: bool = True
    are_given: bool = False
    """Whether the author has pulled what the others wrote before it pushes."""


def other(op: str, at: int, **cells: Any) -> Step:
    return Step("other", op, at, cells)


def mine(op: str, at: int, **cells: Any) -> Step:
    return Step("author", op, at, cells)


CASES = {
    "an edit that lost": Case(
        [other("UPDATE", 20, title="new")],
        [mine("UPDATE", 10, title="old")],
        [("UPDATE", {"title": "new"})],
        are_given=True,
    ),
    "an edit that lost one column of two": Case(
        [other("UPDATE", 20, title="new")],
        [mine("UPDATE", 10, title="old", note="n1")],
        [("UPDATE", {"title": "new", "note": "n1"})],
        are_given=True,
    ),
    "an edit that won, of a row with news": Case(
        [other("UPDATE", 10, note="n1")],
        [mine("UPDATE", 20, title="new")],
        [("UPDATE", {"note": "n1"}), ("UPDATE", {"title": "new"})],
    ),
    "an edit that lost, of a row with news": Case(
        [other("UPDATE", 20, title="new")],
        [mine("UPDATE", 10, title="old")],
        [("UPDATE", {"title": "new"}), ("UPDATE", {"title": "new"})],
    ),
    "a delete that lost": Case(
        [other("UPDATE", 20, title="new")],
        [mine("DELETE", 10)],
        [("INSERT", {"title": "new", "note": None})],
        are_given=True,
    ),
    "a delete that lost, of a row with news": Case(
        [other("UPDATE", 20, title="new")],
        [mine("DELETE", 10)],
        [("UPDATE", {"title": "new"}), ("INSERT", {"title": "new", "note": None})],
    ),
    "a delete that won, of a row with news": Case(
        [other("UPDATE", 10, title="new")], [mine("DELETE", 20)], [("UPDATE", {"title": "new"})], is_repaired=False
    ),
    "two deletes": Case([other("DELETE", 10)], [mine("DELETE", 20)], [("DELETE", {})], is_repaired=False),
    "an edit that lost to a delete": Case(
        [other("DELETE", 20)], [mine("UPDATE", 10, title="old")], [("DELETE", {})], is_repaired=False
    ),
    "an edit that brings the row back": Case(
        [other("DELETE", 10)],
        [mine("UPDATE", 20, title="new")],
        [("DELETE", {}), ("INSERT", {"title": "new", "note": None})],
    ),
    "a delete of a row that was deleted and made again": Case(
        [other("DELETE", 10), other("INSERT", 11, title="again")],
        [mine("DELETE", 20)],
        [("DELETE", {}), ("INSERT", {"title": "again"}), ("DELETE", {})],
    ),
    "a delete that lost to a row that was deleted and made again": Case(
        [other("DELETE", 10), other("INSERT", 20, title="again")],
        [mine("DELETE", 15)],
        [("DELETE", {}), ("INSERT", {"title": "again"}), ("UPDATE", {"title": "again", "note": None})],
    ),
    "an insert that lost to a delete that is known": Case(
        [other("DELETE", 20)], [mine("INSERT", 10, title="old")], [("DELETE", {})], are_given=True
    ),
    "several edits of one row, of which some lost": Case(
        [other("UPDATE", 20, title="new")],
        [mine("UPDATE", 10, title="a"), mine("UPDATE", 11, title="b"), mine("UPDATE", 30, note="n1")],
        [("UPDATE", {"title": "new", "note": "n1"})],
        are_given=True,
    ),
    "a delete and a new row, both older than an edit": Case(
        [other("UPDATE", 20, title="new")],
        [mine("DELETE", 10), mine("INSERT", 11, title="mine", note="mine")],
        [("UPDATE", {"title": "new", "note": "mine"})],
        are_given=True,
    ),
    "nothing lost and no news": Case([], [mine("UPDATE", 10, title="new")], [], is_repaired=False),
    "news that are known": Case(
        [other("UPDATE", 10, title="new")], [mine("UPDATE", 20, note="n1")], [], is_repaired=False, are_given=True
    ),
}


class Stage(NamedTuple):
    """Those who take part; everyone has the row."""

    author: Peer
    other: Peer
    witness: Peer
    base: int

    def changes(self, steps: Sequence[Step]) -> Iterator[Message]:
        for step in steps:
            peer = self.author if step.who == "author" else self.other
            yield peer.change(step.op, ROW, self.base + step.at, **step.cells)


def staged(deltas: Deltas, gateway: str) -> Stage:
    author, someone, witness = Peers(deltas, gateway).some(3)
    base = stamp(now_ms() - 60_000)
    someone.push(someone.change("INSERT", ROW, base, title="t0", note="n0"))
    for peer in (author, witness):
        assert rows_in(peer.pull()) == [ROW]
    author.settle()
    return Stage(author, someone, witness, base)


@pytest.mark.parametrize("name", CASES)
def test_the_author_is_told_how_the_row_is(deltas: Deltas, gateway: str, name: str) -> None:
    case, stage = CASES[name], staged(deltas, gateway)
    for change in stage.changes(case.others):
        stage.other.push(change)
    if case.are_given:
        stage.author.settle()
    stage.author.push(*stage.changes(case.mine))
    for _ in range(2):  # an answer may be lost
        entries = once(stage.author.look()["deltas"])
        assert [(entry["op"], cells_of(entry)) for entry in entries] == list(case.pulled)
        if case.is_repaired:
            assert entries[-1]["resolved"] is True
    check_invisible(stage, case)


def check_invisible(stage: Stage, case: Case) -> None:
    """Nobody else is shown a repair, and neither is the author from the start."""
    everything = stage.other.look(0)["deltas"]
    assert stage.author.look(0)["deltas"] == everything
    assert stage.witness.look(0)["deltas"] == everything
    assert stage.witness.look()["deltas"] == everything[1:]
    assert len({entry["deltaId"] for entry in everything}) == len(everything)
    assert len(everything) <= 1 + len(case.others) + len(case.mine)


def test_a_repair_is_given_once(deltas: Deltas, gateway: str) -> None:
    stage = staged(deltas, gateway)
    stage.other.push(stage.other.change("UPDATE", ROW, stage.base + 20, title="new"))
    stage.author.settle()
    stage.author.push(stage.author.change("UPDATE", ROW, stage.base + 10, title="old"))
    assert rows_in(stage.author.pull()) == [ROW]
    stage.author.settle()
    stage.author.insert("s")
    assert stage.author.pull() == []


OVER_A_REPAIR = {
    "an edit": (
        [other("UPDATE", 20, title="new")],
        [mine("UPDATE", 10, title="old"), mine("UPDATE", 30, title="newest")],
        [("UPDATE", {"title": "newest"})],
    ),
    "an edit that brings the row back": (
        [other("DELETE", 20)],
        [mine("INSERT", 10, title="old"), mine("UPDATE", 30, title="newest")],
        [("DELETE", {}), ("INSERT", {"title": "newest", "note": None})],
    ),
    "a delete": (
        [other("UPDATE", 20, title="new")],
        [mine("UPDATE", 10, title="old"), mine("DELETE", 30)],
        [("DELETE", {})],
    ),
    "a delete of a row that is to come back": (
        [other("UPDATE", 20, title="new")],
        [mine("DELETE", 10), mine("DELETE", 30)],
        [("DELETE", {})],
    ),
}


@pytest.mark.parametrize("name", OVER_A_REPAIR)
def test_g2_a_repair_that_is_still_to_come_is_replaced_by_the_next_one(deltas: Deltas, gateway: str, name: str) -> None:
    others, own, pulled = OVER_A_REPAIR[name]
    stage = staged(deltas, gateway)
    stage.other.push(*stage.changes(others))
    stage.author.settle()
    for change in stage.changes(own):
        stage.author.push(change)
    for _ in range(2):
        assert [(entry["op"], cells_of(entry)) for entry in once(stage.author.look()["deltas"])] == pulled


def test_a_duplicate_that_lost_brings_no_second_repair(deltas: Deltas, gateway: str) -> None:
    stage = staged(deltas, gateway)
    stage.other.push(stage.other.change("UPDATE", ROW, stage.base + 20, title="new"))
    stage.author.settle()
    lost = stage.author.change("UPDATE", ROW, stage.base + 10, title="old")
    for _ in range(3):
        stage.author.push(lost)
    assert rows_in(stage.author.pull()) == [ROW]
    stage.author.settle()
    stage.author.push(lost)
    assert stage.author.pull() == []


def test_each_row_of_a_push_has_its_own_repair(deltas: Deltas, gateway: str) -> None:
    author, someone = Peers(deltas, gateway).some(2)
    base = stamp(now_ms() - 60_000)
    rows = [f"r{number}" for number in range(3)]
    someone.push(*(someone.change("INSERT", row, base + 10, title="new") for row in rows))
    author.settle()
    lost = [author.change("UPDATE", row, base + at, title=str(at)) for at in (1, 2) for row in rows]
    author.push(*lost)
    pulled = author.pull()
    assert sorted(rows_in(pulled)) == rows
    assert [cells_of(entry) for entry in pulled] == [{"title": "new"}] * 3


def test_repairs_in_small_pages_are_each_given_once(deltas: Deltas, gateway: str) -> None:
    author, someone = Peers(deltas, gateway).some(2)
    base = stamp(now_ms() - 60_000)
    rows = [f"r{number}" for number in range(4)]
    someone.push(*(someone.change("INSERT", row, base + 10, title="new") for row in rows))
    author.settle()
    for row in rows:
        author.push(author.change("UPDATE", row, base + 1, title="old"))
    found = []
    while entries := author.pull(limit=1):
        assert len(once(entries)) == 1
        found += entries
    assert rows_in(found) == rows


@pytest.mark.each_store
def test_repairs_outlive_a_crash(deltas: Deltas, gateway: str) -> None:
    stage = staged(deltas, gateway)
    stage.other.push(stage.other.change("UPDATE", ROW, stage.base + 20, title="new"))
    stage.author.settle()
    stage.author.push(stage.author.change("UPDATE", ROW, stage.base + 10, title="old"))
    deltas.crash()
    for _ in range(2):  # each node in turn
        [repair] = stage.author.look()["deltas"]
        assert cells_of(repair) == {"title": "new"}
        assert stage.witness.look(0)["deltas"] == stage.other.look(0)["deltas"]


@pytest.mark.parametrize("name", CASES)
def test_a_client_that_applies_what_it_is_told_has_the_row(anywhere: Deltas, gateway: str, name: str) -> None:
    """The same once more with databases: the author's ends as everybody's."""
    case = CASES[name]
    with Cast(anywhere, gateway) as cast:
        now = [now_ms() - 60_000]
        author, someone = (cast.client(who) for who in ("author", "other"))
        for client in (author, someone):
            client.physical = lambda: now[0]
        someone.insert(ROW, title="t0", note="n0")
        for client in (someone, author):
            client.cycle()
        begin = now[0] + 1_000
        for steps, client in ((case.others, someone), (case.mine, author)):
            for step in steps:
                now[0] = begin + 100 * step.at
                client.write(step.op, ROW, **step.cells)
            client.push()
            if case.are_given:
                author.pull()
        cast.settle()
        cast.check_untroubled()
        cast.agree()
