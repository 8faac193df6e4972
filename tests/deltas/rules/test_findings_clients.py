"""Clients that are hard to keep right.

They have a new database under an old id, are among many on one row, are told unasked or spoken for by others, are too
many, or come from a time that the store knows nothing of.
"""

from __future__ import annotations

import pytest

from semel.kernel.errors import Refused
from semel.kernel.hashes import json_text
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.limits import KEPT_AIDS, DeltaPolicy
from semel.surfaces.deltas.model import DeltaOp, DeltaReplica
from tests.deltas.rules.rig import GATEWAY, Plain, Rig, change, scene, told

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE
LONG_AGO_MS = 60_000
FEW = 5
CYCLES = 8


def replica_of(name: str, subject: str) -> DeltaReplica:
    return DeltaReplica(GATEWAY, json_text(name), subject)


# -- A new life under an old id ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_others", [False, True], ids=["alone", "among others"])
@pytest.mark.parametrize("limit", [1, 3, 1_000])
@scene
async def test_who_has_lost_its_database_is_told_of_its_former_life(rig: Rig, has_others: bool, limit: int) -> None:
    """Page by page, with a push after each page, as clients do that have something to say."""
    former = Plain(rig, "x")
    for number in range(6):
        former.change(INSERT, f"mine {number}", a=number)
    await former.push()
    if has_others:
        await Plain(rig, "y").say(INSERT, "theirs", a=1)
    now = Plain(rig, "x")
    for number in range(CYCLES):
        await now.pull(limit)
        await now.say(INSERT, f"new {number}", a=1)
    while await now.pull():
        pass
    assert now.held() == await rig.rows()


@scene
async def test_in_a_new_life_a_row_of_the_former_one_can_be_written_before_it_is_told(rig: Rig) -> None:
    """What is on its way to the client comes before what it wrote meanwhile: the row is told anew behind it."""
    former = Plain(rig, "x")
    for row in ("one", "two"):
        await former.say(INSERT, row, a=1)
    now = Plain(rig, "x")
    await now.pull(limit=1)
    await now.say(INSERT, "two", b=2)
    assert now.held() == {"one": {"a": 1}, "two": {"b": 2}}
    entries = await now.pull()
    assert [entry.op for entry in entries[-2:]] == [DELETE, INSERT]
    assert now.held() == await rig.rows() == {"one": {"a": 1}, "two": {"a": 1, "b": 2}}


# -- A row with more authors than are remembered with it ---------------------------------------------------------------


@pytest.mark.parametrize("crowd", [10, KEPT_AIDS, KEPT_AIDS + 1])
@scene
async def test_a_repair_that_its_row_has_forgotten_does_not_undo_a_newer_write(rig: Rig, crowd: int) -> None:
    long_ago = rig.stamp(LONG_AGO_MS)
    await Plain(rig, "y").say(INSERT, "r", v="old", w=0)
    clients = [Plain(rig, name) for name in ("x", *(f"c{number}" for number in range(crowd)))]
    for number, client in enumerate(clients):
        await client.pull()
        await client.say(UPDATE, "r", long_ago + number, v="late")
    first = clients[0]
    await first.say(UPDATE, "r", v="newest")
    await first.pull()
    assert first.held() == await rig.rows() == {"r": {"v": "newest", "w": 0}}
    assert len((await rig.state("r")).aids) == min(crowd + 1, KEPT_AIDS)


@pytest.mark.parametrize("goes_on", [False, True], ids=["and is silent then", "and goes on writing"])
@pytest.mark.parametrize("crowd", [10, KEPT_AIDS])
@scene
async def test_who_has_made_a_row_that_has_forgotten_it_is_not_told_it_twice(
    rig: Rig, crowd: int, goes_on: bool
) -> None:
    long_ago = rig.stamp(LONG_AGO_MS)
    x = Plain(rig, "x")
    await Plain(rig, "y").say(INSERT, "r", v=1)
    await x.say(INSERT, "r", w=1)
    for number in range(crowd):
        client = Plain(rig, f"c{number}")
        await client.pull()
        await client.say(UPDATE, "r", long_ago + number, v="late")
    if goes_on:
        await x.say(UPDATE, "r", w=2)
    await x.pull()
    assert x.held() == await rig.rows()


# -- Told without asking -----------------------------------------------------------------------------------------------


@scene
async def test_g3_whoever_only_pulls_is_not_counted(rig: Rig) -> None:
    """Nothing is kept of it: its cursors mean themselves."""
    await Plain(rig, "y").say(INSERT, "r")
    for number in range(FEW):
        client = Plain(rig, f"t{number}")
        assert len(await client.pull()) == 1
        news = await rig.look(lambda look, x=client: reading.news(look, x.replica, {}, 0, 1_000, 2**20))  # type: ignore[misc]
        assert not news.touches
    assert (await rig.gateway()).replicas == 1


@scene
async def test_what_was_told_unasked_is_not_told_again(rig: Rig) -> None:
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await x.say(INSERT, "mine")
    await y.say(INSERT, "theirs", a=1)
    await x.say(INSERT, "mine too")
    seen = (await rig.progress(x.replica)).seen
    news = await rig.look(lambda look: reading.news(look, x.replica, {}, seen, 1_000, 2**20))
    assert [entry.row for entry in told(news.page.entries)] == ["theirs"]
    rig.touch(news.touches)
    await x.say(INSERT, "mine too, after that")
    assert not await x.pull()


# -- Spoken for by others ----------------------------------------------------------------------------------------------


@scene
async def test_an_author_whose_deltas_are_passed_on_is_repaired_by_its_own_progress(rig: Rig) -> None:
    """It has been told everything, so that there is nothing to repair."""
    x, y = Plain(rig, "x", subject="x"), Plain(rig, "y", subject="y")
    await y.say(INSERT, "r", t=1)
    await x.pull()
    await y.say(DELETE, "r")
    await x.pull()
    await x.say(INSERT, "r", t=2)
    await x.pull()
    await rig.push(replica_of("relay", "root"), x.change(UPDATE, "r", t=3))
    assert [entry.op for entry in await x.pull()] == [UPDATE]
    assert x.held() == await rig.rows() == {"r": {"t": 3}}


@scene
async def test_an_author_whose_losing_delta_was_passed_on_is_repaired(rig: Rig) -> None:
    x, y = Plain(rig, "x", subject="x"), Plain(rig, "y", subject="y")
    late = x.change(UPDATE, "r", t=1)
    x.rows.clear()
    await y.say(INSERT, "r", t=2)
    await x.pull()
    x.rows[late.row]["t"] = "1"
    await rig.push(replica_of("relay", "root"), late)
    await x.pull()
    assert x.held() == await rig.rows() == {"r": {"t": 2}}


# -- Too many of them --------------------------------------------------------------------------------------------------


@scene
async def test_nobody_takes_the_places_of_others_by_pulling_under_made_up_ids(rig: Rig) -> None:
    """Who may not push under an id is a guest under it, of which nothing is kept."""
    y = Plain(rig, "y")
    await y.say(INSERT, "r")
    for number in range(FEW):
        page = await rig.pull(replica_of(f"bogus {number}", "mallory"), 0, is_guest=True)
        assert len(page.entries) == 1
    assert (await rig.gateway()).replicas == 1


@scene
async def test_g3_when_there_are_too_many_clients_those_that_are_known_go_on(rig: Rig) -> None:
    rig.rule(DeltaPolicy(max_clients=FEW))
    known = [Plain(rig, f"c{number}") for number in range(FEW)]
    for client in known:
        await client.say(INSERT, client.plain_name)
    late = Plain(rig, "late")
    assert len(await late.pull()) == FEW, "one that reads takes nobody's place"
    late.change(INSERT, "late")
    with pytest.raises(Refused) as refused:
        await late.push()
    assert refused.value.refusal.name == "RATE_LIMITED"
    assert refused.value.refusal.retry_after_ms
    page = await rig.pull(late.replica, 0, is_guest=True)
    assert len(page.entries) == FEW
    for client in known:
        await client.pull()
        await client.say(UPDATE, client.plain_name, a=1)
    assert len(await rig.rows()) == (await rig.gateway()).replicas == FEW


# -- From another time -------------------------------------------------------------------------------------------------


@scene
async def test_a_cursor_from_beyond_the_end_of_the_log_is_answered_with_nothing(rig: Rig) -> None:
    """As after a store was put back from a backup: such a client starts again from 0."""
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await y.say(INSERT, "before")
    await x.pull()
    beyond = x.cursor = x.cursor + 2**32
    await y.say(INSERT, "after", rig.stamp(LONG_AGO_MS))
    assert (await rig.log())[-1].position < beyond
    assert not await x.pull()
    assert x.cursor == beyond
    again = Plain(rig, "x")
    await again.pull()
    assert again.held() == await rig.rows()


@scene
async def test_an_id_stays_known_when_ids_are_no_longer_checked(rig: Rig) -> None:
    x = Plain(rig, "x")
    known = x.change(INSERT, "r", v=1)
    await x.push()
    rig.believe_ids()
    assert (await rig.push(x.replica, known)).duplicates == 1
    believed = change(UPDATE, "r", "x", rig.stamp(), v=2)
    assert (await rig.push(x.replica, believed)).duplicates == 0
    other = change(UPDATE, "r", "x", rig.stamp(), v=3)._replace(id=believed.id)
    assert (await rig.push(x.replica, other, other)).duplicates == 2
    assert await rig.rows() == {"r": {"v": 2}}
    assert len(await rig.log()) == 2
