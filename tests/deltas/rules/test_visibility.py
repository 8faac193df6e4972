"""What one caller is told of an entry under sync rules: seen before or not, seen after or not."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from semel.surfaces.deltas.model import DeltaEntry, DeltaOp
from tests.deltas.rules.rig import BY_ORG, Plain, Rig, Told, change, of_org, scene, told

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE
A, B = of_org("a"), of_org("b")
EVERYTHING = json.dumps({"version": 1, "buckets": []}).encode()
BY_TEAM = BY_ORG.replace(b"org", b"team")


class Step(NamedTuple):
    """What somebody of `b`, who is never asked what it sees, does to the row; the caller pulls where it is told to."""

    op: DeltaOp
    cells: dict[str, Any]


def step(op: DeltaOp, **cells: Any) -> Step:
    return Step(op, cells)


def row(op: DeltaOp, **cells: Any) -> Told:
    return Told(op, "r", cells)


class Case(NamedTuple):
    """What was done before the caller pulled, what was done then, and what it is told of that."""

    before: tuple[Step, ...]
    after: tuple[Step, ...]
    told: list[Told]


SEEN = (step(INSERT, org="a", t=1),)
UNSEEN = (step(INSERT, org="b", t=1),)

CASES = {
    # seen before, seen after
    "a change of what is seen": Case(SEEN, (step(UPDATE, t=2),), [row(UPDATE, t=2)]),
    "a change of the column that decides, to the same": Case(SEEN, (step(UPDATE, org="a"),), [row(UPDATE, org="a")]),
    # not seen before, seen after
    "a new row": Case((), SEEN, [row(INSERT, org="a", t=1)]),
    "an update of nothing": Case((), (step(UPDATE, org="a"),), [row(UPDATE, org="a")]),
    "a row that comes into view": Case(UNSEEN, (step(UPDATE, org="a"),), [row(INSERT, org="a", t=1)]),
    "a row that comes into view is told as it is now": Case(
        UNSEEN, (step(UPDATE, org="a"), step(UPDATE, t=2)), [row(INSERT, org="a", t=2), row(UPDATE, t=2)]
    ),
    "a row that comes into view and leaves again": Case(
        UNSEEN, (step(UPDATE, org="a"), step(UPDATE, org="b")), [row(DELETE)]
    ),
    "a row that comes into view and is deleted": Case(UNSEEN, (step(UPDATE, org="a"), step(DELETE)), [row(DELETE)]),
    "a row that comes back to life": Case(
        (*SEEN, step(DELETE)), (step(INSERT, org="a", n=1),), [row(INSERT, org="a", n=1)]
    ),
    "a row that was not seen and comes back to life in view": Case(
        (*UNSEEN, step(DELETE)), (step(UPDATE, org="a"),), [row(INSERT, org="a")]
    ),
    # seen before, not seen after
    "a row that leaves": Case(SEEN, (step(UPDATE, org="b", t=2),), [row(DELETE)]),
    "a row that loses the column that decides": Case(SEEN, (step(UPDATE, org=None),), [row(DELETE)]),
    "a delete of what is seen": Case(SEEN, (step(DELETE),), [row(DELETE)]),
    # seen neither before nor after
    "a new row of others": Case((), UNSEEN, []),
    "a row without the column that decides": Case((), (step(INSERT, t=1),), []),
    "a change of what is not seen": Case(UNSEEN, (step(UPDATE, t=2),), []),
    "from one that is not seen to another": Case(UNSEEN, (step(UPDATE, org="c"),), []),
    "a delete of what is not seen": Case(UNSEEN, (step(DELETE),), []),
    "a delete of nothing": Case((), (step(DELETE),), []),
}


@pytest.mark.parametrize("name", CASES)
@scene
async def test_a_caller_is_told(rig: Rig, name: str) -> None:
    case = CASES[name]
    await rig.save_rules()
    await Plain(rig, "other").say(INSERT, "elsewhere", org="a")
    caller, writer = Plain(rig, "caller", A), Plain(rig, "writer", B)
    for one in case.before:
        await writer.say(one.op, "r", **one.cells)
    await caller.pull()
    for one in case.after:
        await writer.say(one.op, "r", **one.cells)
    assert once(await caller.pull()) == case.told


def once(entries: list[Told]) -> list[Told]:
    """Without a DELETE that goes before an INSERT of the same row: it takes away what a caller may still have."""
    kept: list[Told] = []
    for entry in entries:
        if kept and entry.op is INSERT and (kept[-1].op, kept[-1].row) == (DELETE, entry.row):
            kept.pop()
        kept.append(entry)
    return kept


@scene
async def test_what_is_not_told_as_it_was_pushed_says_so(rig: Rig) -> None:
    await rig.save_rules()
    caller, writer = Plain(rig, "caller", A), Plain(rig, "writer", B)
    found: list[DeltaEntry] = []
    for one in (*UNSEEN, step(UPDATE, org="a"), step(UPDATE, t=3), step(UPDATE, org="b")):
        await writer.say(one.op, "r", **one.cells)
        page = await rig.pull(caller.replica, caller.cursor, claims=A)
        caller.cursor = page.cursor
        found += page.entries[-1:]
    assert [(entry.op, entry.is_resolved) for entry in found] == [(INSERT, True), (UPDATE, False), (DELETE, True)]
    pushed = [row for row in await rig.log() if row.pushed]
    assert [(entry.position, entry.hlc, entry.id) for entry in found] == [
        (row.position, row.hlc, row.id) for row in pushed[1:]
    ]


# -- Entries from before the rules -------------------------------------------------------------------------------------

BEFORE_RULES: dict[str, tuple[tuple[Step, ...], tuple[Step, ...], list[Told]]] = {
    # name: what was done before the rules were saved, and after; what a newcomer is told
    "seen when they were saved": (SEEN, (), [row(INSERT, org="a", t=1)]),
    "not seen when they were saved": (UNSEEN, (), []),
    "moved into view before": (
        (*UNSEEN, step(UPDATE, org="a")),
        (),
        [row(INSERT, org="b", t=1), row(UPDATE, org="a")],
    ),
    "moved out of view before": ((*SEEN, step(UPDATE, org="b")), (), []),
    "seen then, and moved out of view": (SEEN, (step(UPDATE, org="b"),), [row(INSERT, org="a", t=1), row(DELETE)]),
    "not seen then, and moved into view": (UNSEEN, (step(UPDATE, org="a"),), [row(INSERT, org="a", t=1)]),
    "seen then, and changed": (SEEN, (step(UPDATE, t=2),), [row(INSERT, org="a", t=1), row(UPDATE, t=2)]),
    "seen then, and deleted": (SEEN, (step(DELETE),), [row(INSERT, org="a", t=1), row(DELETE)]),
    "deleted before": ((*SEEN, step(DELETE)), (), []),
    "deleted before, and made anew": ((*SEEN, step(DELETE)), SEEN, [row(INSERT, org="a", t=1)]),
}


@pytest.mark.parametrize("name", BEFORE_RULES)
@scene
async def test_older_entries_are_judged_by_the_row_as_it_stood_when_the_rules_were_saved(rig: Rig, name: str) -> None:
    before, after, expected = BEFORE_RULES[name]
    writer, newcomer = Plain(rig, "writer", B), Plain(rig, "newcomer", A)
    await writer.say(INSERT, "elsewhere")
    for one in before:
        await writer.say(one.op, "r", **one.cells)
    await rig.save_rules()
    for one in after:
        await writer.say(one.op, "r", **one.cells)
    assert once(await newcomer.pull()) == expected


@scene
async def test_other_rules_judge_anew_what_was_judged_by_the_former(rig: Rig) -> None:
    await rig.save_rules()
    writer = Plain(rig, "writer", B)
    await writer.say(INSERT, "r", org="a", team="blue")
    await rig.save_rules(BY_TEAM)
    assert not await Plain(rig, "of a", A).pull()
    assert await Plain(rig, "of blue", {"team": ("blue",)}).pull() == [row(INSERT, org="a", team="blue")]


@scene
async def test_without_buckets_everybody_sees_everything(rig: Rig) -> None:
    await rig.save_rules()
    await Plain(rig, "writer", B).say(INSERT, "r", org="b")
    await rig.save_rules(EVERYTHING)
    assert await Plain(rig, "anybody").pull() == [row(INSERT, org="b")]


# -- The caller's own --------------------------------------------------------------------------------------------------

OWN: dict[str, tuple[tuple[Step, ...], list[Told]]] = {
    # name: what the caller, of `a`, has pushed since its last pull; what it is told
    "in view": ((step(INSERT, org="a"), step(UPDATE, t=1)), []),
    "out of its view": ((step(INSERT, org="b"),), [row(DELETE)]),
    "given away": ((step(INSERT, org="a"), step(UPDATE, org="b")), [row(DELETE), row(DELETE)]),
    "given away and taken back": ((step(INSERT, org="a"), step(UPDATE, org="b"), step(UPDATE, org="a")), []),
}


@pytest.mark.parametrize("name", OWN)
@scene
async def test_a_caller_is_told_of_what_it_put_out_of_its_own_view(rig: Rig, name: str) -> None:
    pushed, expected = OWN[name]
    await rig.save_rules()
    caller = Plain(rig, "caller", A)
    await Plain(rig, "other").say(INSERT, "elsewhere", org="a")
    await caller.pull()
    for one in pushed:
        await caller.say(one.op, "r", **one.cells)
    assert await caller.pull() == expected


@pytest.mark.parametrize(
    ("org", "expected"), [("a", [row(INSERT, org="a", t=1)]), ("b", [row(DELETE)])], ids=["in view", "out of view"]
)
@scene
async def test_a_repair_is_the_row_as_its_author_may_see_it_and_nobody_elses(
    rig: Rig, org: str, expected: list[Told]
) -> None:
    await rig.save_rules()
    caller, writer, witness = Plain(rig, "caller", A), Plain(rig, "writer", B), Plain(rig, "witness", A)
    late = rig.stamp(60_000)
    await writer.say(INSERT, "r", org="a", t=1)
    await caller.pull()
    await writer.say(UPDATE, "r", org=org)
    await witness.pull()
    await rig.push(caller.replica, change(UPDATE, "r", "caller", late, t="late"))
    page = await rig.pull(caller.replica, caller.cursor, claims=A)
    assert once(told(page.entries))[-1:] == expected
    assert not await witness.pull()
