"""Repairs: whether a push adds one for its author, with which operation, and with which columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from semel.kernel.hashes import json_text
from semel.surfaces.deltas.limits import KEPT_AIDS, REPAIRED_COLUMNS
from semel.surfaces.deltas.model import DeltaOp, DeltaReplica
from tests.deltas.rules.rig import GATEWAY, Plain, Rig, cells_of, change, of_org, scene

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE
Repair = tuple[DeltaOp, dict[str, Any]]


class Step(NamedTuple):
    """What somebody pushes."""

    who: str
    op: DeltaOp
    at: int
    cells: dict[str, Any]


def mine(op: DeltaOp, at: int, **cells: Any) -> Step:
    return Step("x", op, at, cells)


def theirs(op: DeltaOp, at: int, **cells: Any) -> Step:
    return Step("y", op, at, cells)


def of_third(op: DeltaOp, at: int, **cells: Any) -> Step:
    return Step("z", op, at, cells)


PULL = Step("x", UPDATE, 0, {})
"""The author pulls."""

MADE = (theirs(INSERT, 100, t=1, n=1), PULL)
"""A row that the author has."""
GONE = (*MADE, theirs(DELETE, 200), PULL)
"""One that it had."""


class Case(NamedTuple):
    """What happened before, what the author pushes then, and the repairs of that push."""

    before: tuple[Step, ...]
    pushed: tuple[Step, ...]
    repairs: list[Repair]


CASES = {
    # the author has been told everything
    "told all: it wins": Case(MADE, (mine(UPDATE, 300, t=2),), []),
    "told all: nothing but its own": Case((mine(INSERT, 100, t=1),), (mine(UPDATE, 300, t=2),), []),
    "told all: it loses": Case(MADE, (mine(UPDATE, 50, t=2),), [(UPDATE, {"t": 1})]),
    "told all: it loses in part": Case(MADE, (mine(UPDATE, 50, t=2, m=2),), [(UPDATE, {"t": 1, "m": 2})]),
    "told all: its delete loses": Case(MADE, (mine(DELETE, 50),), [(INSERT, {"t": 1, "n": 1})]),
    "told all: its delete wins": Case(MADE, (mine(DELETE, 300),), []),
    "told all: its delete takes some columns": Case(
        (*MADE, theirs(UPDATE, 300, t=3), PULL), (mine(DELETE, 200),), [(INSERT, {"t": 3, "n": None})]
    ),
    "told all: its write to a dead row loses": Case(GONE, (mine(UPDATE, 150, t=2),), [(DELETE, {})]),
    "told all: its new row loses to a delete": Case(GONE, (mine(INSERT, 150, t=2),), [(DELETE, {})]),
    "told all: its delete of a dead row is the older one": Case(GONE, (mine(DELETE, 150),), []),
    "told all: it brings the row back": Case(GONE, (mine(INSERT, 300, t=2),), []),
    "told all: it loses to itself": Case((mine(INSERT, 100, t=1),), (mine(UPDATE, 50, t=2),), [(UPDATE, {"t": 1})]),
    "told all: of several the last decides": Case(
        MADE, (mine(DELETE, 40), mine(INSERT, 50, t=2)), [(UPDATE, {"t": 1, "n": 1})]
    ),
    "told all: of several the last decides, a delete": Case(
        MADE, (mine(UPDATE, 40, t=2), mine(DELETE, 50)), [(INSERT, {"t": 1, "n": 1})]
    ),
    "told all: columns it once had are null": Case(
        (*GONE, theirs(INSERT, 300, m=3), PULL),
        (mine(UPDATE, 150, m=2, t=2),),
        [(UPDATE, {"m": 3, "t": None})],
    ),
    # something of others is still to come
    "an update to come: it wins": Case(
        (*MADE, theirs(UPDATE, 200, n=2)), (mine(UPDATE, 300, t=3),), [(UPDATE, {"t": 3})]
    ),
    "an update to come: its delete wins": Case((*MADE, theirs(UPDATE, 200, n=2)), (mine(DELETE, 300),), []),
    "an update to come: its delete loses": Case(
        (*MADE, theirs(UPDATE, 200, n=2)), (mine(DELETE, 150),), [(INSERT, {"n": 2, "t": None})]
    ),
    "a delete to come: it loses": Case((*MADE, theirs(DELETE, 200)), (mine(UPDATE, 150, t=2),), []),
    "a delete to come: it deletes too": Case((*MADE, theirs(DELETE, 200)), (mine(DELETE, 300),), []),
    "a delete to come: it brings the row back": Case(
        (*MADE, theirs(DELETE, 200)), (mine(UPDATE, 300, t=3),), [(INSERT, {"t": 3, "n": None})]
    ),
    "an insert to come: it has made the row too": Case(
        (theirs(INSERT, 100, t=1),), (mine(INSERT, 200, n=2),), [(UPDATE, {"t": 1, "n": 2})]
    ),
    "an insert to come: it deletes the row that it made": Case(
        (theirs(INSERT, 100, t=1),), (mine(INSERT, 150, n=2), mine(DELETE, 200)), [(DELETE, {})]
    ),
    "a delete and an insert to come: it wins": Case(
        (*MADE, theirs(DELETE, 200), theirs(INSERT, 210, t=2)),
        (mine(UPDATE, 300, n=3),),
        [(UPDATE, {"n": 3})],
    ),
    "a delete and an insert to come: it deletes": Case(
        (*MADE, theirs(DELETE, 200), theirs(INSERT, 210, t=2)), (mine(DELETE, 300),), [(DELETE, {})]
    ),
    "a delete of one and an update of another to come": Case(
        (*MADE, theirs(DELETE, 200), of_third(UPDATE, 150, t=2)), (mine(UPDATE, 160, t=3),), []
    ),
    "of another row: no concern": Case((*MADE, theirs(UPDATE, 200, t=2), PULL), (mine(UPDATE, 300, t=3),), []),
    # a repair is still to come, or has been sent and comes behind what is pushed now
    "an update that repairs to come: it wins now": Case(
        (*MADE, mine(UPDATE, 50, t=2)), (mine(UPDATE, 300, n=3),), [(UPDATE, {"t": 1, "n": 3})]
    ),
    "an update that repairs to come: it deletes": Case(
        (*MADE, mine(UPDATE, 50, t=2)), (mine(DELETE, 300),), [(DELETE, {})]
    ),
    "an update that repairs to come: its delete loses": Case(
        (*MADE, theirs(UPDATE, 300, n=3), PULL, mine(UPDATE, 50, t=9)),
        (mine(DELETE, 200),),
        [(INSERT, {"n": 3, "t": None})],
    ),
    "an insert that repairs to come: it deletes": Case((*MADE, mine(DELETE, 50)), (mine(DELETE, 300),), [(DELETE, {})]),
    "an insert that repairs to come: it writes": Case(
        (*MADE, mine(DELETE, 50)), (mine(INSERT, 300, t=3),), [(DELETE, {}), (INSERT, {"t": 3, "n": 1})]
    ),
    "a delete that repairs to come: it writes": Case(
        (*GONE, mine(INSERT, 150, t=2)), (mine(UPDATE, 300, t=3),), [(DELETE, {}), (INSERT, {"t": 3, "n": None})]
    ),
    "a delete that repairs to come: it loses again": Case(
        (*GONE, mine(INSERT, 150, t=2)), (mine(UPDATE, 160, t=3),), [(DELETE, {})]
    ),
    "a repair that has been told": Case((*MADE, mine(UPDATE, 50, t=2), PULL), (mine(UPDATE, 300, t=3),), []),
    "a repair, and then a delete of others": Case(
        (*MADE, mine(DELETE, 50), theirs(DELETE, 200)),
        (mine(INSERT, 300, t=3),),
        [(DELETE, {}), (INSERT, {"t": 3, "n": None})],
    ),
}


@pytest.mark.parametrize("name", CASES)
@scene
async def test_the_author_of_a_push_is_repaired(rig: Rig, name: str) -> None:
    case = CASES[name]
    clients = {who: Plain(rig, who) for who in "xyz"}
    base = rig.stamp(60_000)
    for step in case.before:
        client = clients[step.who]
        if step is PULL:
            await client.pull()
        else:
            await rig.push(client.replica, change(step.op, "r", step.who, base + step.at, **step.cells))
    end = (await rig.gateway()).high_water
    pushed = [change(step.op, "r", step.who, base + step.at, **step.cells) for step in case.pushed]
    await rig.push(clients["x"].replica, *pushed)
    assert await rig.repairs(end) == case.repairs
    left = [row for row in await rig.log((await rig.progress(clients["x"].replica)).seen) if row.addressee]
    assert len(left) == len(case.repairs), "one that was still to come makes room for it"
    assert (await rig.gateway()).entries == sum(row.op > 0 for row in await rig.log())


@scene
async def test_every_row_and_every_author_of_a_push_has_its_own(rig: Rig) -> None:
    """A push may bring deltas of several authors."""
    base = rig.stamp(60_000)
    y = Plain(rig, "y")
    for row in ("one", "two"):
        await y.say(INSERT, row, t=row)
    end = (await rig.gateway()).high_water
    relay = DeltaReplica(GATEWAY, json_text("relay"), "root")
    late = [change(UPDATE, row, who, base, t="late") for who in ("a", "b") for row in ("one", "two")]
    await rig.push(relay, *late)
    repairs = [row for row in await rig.log(end) if row.addressee]
    expected = [(json_text(who), json_text(row)) for who in ("a", "b") for row in ("one", "two")]
    assert [(row.addressee.decode(), row.row_id.decode()) for row in repairs] == expected


# -- Where nobody knows what the author has: away with it, and the row anew ------------------------------------------


@scene
async def test_in_a_new_life_a_row_is_repaired_by_a_pair(rig: Rig) -> None:
    former = Plain(rig, "x")
    for row in ("one", "two"):
        await former.say(INSERT, row, t=1)
    now = Plain(rig, "x")
    await now.pull(limit=1)
    end = (await rig.gateway()).high_water
    await now.say(UPDATE, "one", t=2)
    assert await rig.repairs(end) == [(DELETE, {}), (INSERT, {"t": 2})]
    end = (await rig.gateway()).high_water
    await now.say(DELETE, "one")
    assert await rig.repairs() == [(DELETE, {})], "in the place of both"


@scene
async def test_so_it_is_when_the_row_has_forgotten_a_repair(rig: Rig) -> None:
    base = rig.stamp(60_000)
    await Plain(rig, "y").say(INSERT, "r", t=1)
    for number in range(KEPT_AIDS + 1):
        client = Plain(rig, f"c{number}")
        await client.pull()
        await client.say(UPDATE, "r", base + number, t="late")
    end = (await rig.gateway()).high_water
    x = Plain(rig, "c0")
    x.change(UPDATE, "r", t=2)
    await x.push()
    assert await rig.repairs(end) == [(DELETE, {}), (INSERT, {"t": 2})]


@scene
async def test_so_it_is_under_rules(rig: Rig) -> None:
    """Which of the others' entries the author will be shown depends on who it is when it asks."""
    await rig.save_rules()
    x, y = Plain(rig, "x", of_org("a")), Plain(rig, "y", of_org("a"))
    base = rig.stamp(60_000)
    await y.say(INSERT, "r", org="a", t=1)
    await x.pull()
    end = (await rig.gateway()).high_water
    await x.say(UPDATE, "r", base, t=2)
    assert await rig.repairs(end) == [(DELETE, {}), (INSERT, {"org": "a", "t": 1})]


BIG = "b" * 900_000


@scene
async def test_g2_repairs_of_a_client_that_does_not_pull_take_the_room_of_one(rig: Rig) -> None:
    """Forty changes of one column of a large row."""
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await y.say(INSERT, "r", big=BIG, n=0)
    await x.pull()
    await y.say(UPDATE, "r", m=1)
    for number in range(40):
        await x.say(UPDATE, "r", n=number)
    log = await rig.log()
    size = sum(len(row.body) + len(row.columns or b"") for row in log)
    assert size < len(BIG) + 40 * 200
    assert [cells_of(row.columns or b"") for row in log if row.addressee] == [{"n": 39}]
    await x.pull()
    assert x.held() == await rig.rows()


@scene
async def test_g2_a_repair_of_many_columns_tells_the_whole_row(rig: Rig) -> None:
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await y.say(INSERT, "r", t=1)
    await x.pull()
    await y.say(UPDATE, "r", t=2)
    for number in range(REPAIRED_COLUMNS + 1):
        await x.say(UPDATE, "r", **{f"c{number}": number})
        [(_, cells)] = await rig.repairs()
        assert ("t" in cells) is (number >= REPAIRED_COLUMNS)
    await x.pull()
    assert x.held() == await rig.rows()
