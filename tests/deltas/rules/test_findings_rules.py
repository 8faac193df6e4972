"""Clients under sync rules: rows that leave their view and come back, by their own hand and by others'."""

from __future__ import annotations

import pytest

from semel.surfaces.deltas import reading
from semel.surfaces.deltas.model import DeltaCursor, DeltaOp
from semel.surfaces.deltas.rules.cursors import CursorAlias
from tests.deltas.rules.rig import Plain, Rig, of_org, scene

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE
A, B = of_org("a"), of_org("b")
MANY = 200


async def agree(rig: Rig, *clients: Plain) -> None:
    """Each of them holds what one who comes new, with the same claims, is told."""
    for client in clients:
        newcomer = Plain(rig, f"newcomer beside {client.plain_name}", client.claims)
        await newcomer.pull()
        assert client.held() == newcomer.held(), client.plain_name


@scene
async def test_who_brings_back_a_row_that_is_on_its_way_out_has_it_in_the_end(rig: Rig) -> None:
    await rig.save_rules()
    x, y = Plain(rig, "x", A), Plain(rig, "y", A)
    await y.say(INSERT, "r", org="a", t=1)
    await x.pull()
    await y.pull()
    await y.say(UPDATE, "r", org="b")
    await x.say(UPDATE, "r", org="a")
    for client in (x, y):
        await client.pull()
    assert x.held() == y.held() == {"r": {"org": "a", "t": 1}}
    await agree(rig, x, y)


@scene
async def test_who_puts_its_own_row_out_of_its_view_loses_it(rig: Rig) -> None:
    await rig.save_rules()
    x, y = Plain(rig, "x", A), Plain(rig, "y", B)
    await x.say(INSERT, "r", org="a", t=1)
    await x.say(UPDATE, "r", org="b")
    await x.pull()
    assert not x.held()
    await y.pull()
    await y.say(UPDATE, "r", org="a", t=5)
    await x.pull()
    await y.pull()
    assert x.held() == {"r": {"org": "a", "t": 5}}
    assert not y.held()
    await agree(rig, x, y)


@scene
async def test_a_row_that_its_author_never_saw_can_come_into_its_view(rig: Rig) -> None:
    """The author has a copy all the same, which goes before the row comes."""
    await rig.save_rules()
    x, y = Plain(rig, "x", A), Plain(rig, "y", B)
    await x.say(INSERT, "r", org="b", t=1)
    await y.pull()
    await y.say(UPDATE, "r", org="a")
    assert [entry.op for entry in (await x.pull())[-2:]] == [DELETE, INSERT]
    assert x.held() == {"r": {"org": "a", "t": 1}}
    await agree(rig, x)


@scene
async def test_a_row_that_its_author_does_not_see_is_taken_from_it(rig: Rig) -> None:
    await rig.save_rules()
    x = Plain(rig, "x", A)
    await x.say(INSERT, "r", org="b")
    assert [entry.op for entry in await x.pull()] == [DELETE]
    assert not x.held()


@scene
async def test_so_it_is_when_somebody_has_deleted_it_meanwhile(rig: Rig) -> None:
    """The author is not to see the delete of a row that it does not see; but its copy is to go."""
    await rig.save_rules()
    x, y, z = Plain(rig, "x", A), Plain(rig, "y", B), Plain(rig, "z", A)
    await z.say(INSERT, "theirs", org="a")
    await x.say(INSERT, "r", org="b")
    await x.pull(limit=1)
    await y.pull()
    await y.say(DELETE, "r")
    await x.pull()
    assert sorted(x.held()) == ["theirs"]
    await agree(rig, x)


@scene
async def test_so_it_is_when_its_push_had_to_be_repeated(rig: Rig) -> None:
    await rig.save_rules()
    x = Plain(rig, "x", A)
    x.change(INSERT, "r", org="b")
    await x.push(is_lost=True)
    assert (await x.push()).duplicates == 1
    await x.pull()
    assert not x.held()


@scene
async def test_a_row_comes_back_to_who_gave_it_away_although_others_have_deleted_it_meanwhile(rig: Rig) -> None:
    await rig.save_rules()
    x, y, z = Plain(rig, "x", A), Plain(rig, "y", A), Plain(rig, "z", B)
    await x.say(INSERT, "r", org="a", t=1)
    await y.pull()
    await x.say(UPDATE, "r", org="b")
    await z.pull()
    await y.say(DELETE, "r")
    await z.say(UPDATE, "r", org="a", t=2)
    await x.pull()
    assert x.held() == await rig.rows() == {"r": {"org": "a", "t": 2}}


@scene
async def test_a_row_comes_back_to_who_gave_it_away_although_many_have_written_since(rig: Rig) -> None:
    """A row does not remember all who ever wrote to it."""
    await rig.save_rules()
    x, y, z, last = Plain(rig, "x", A), Plain(rig, "y", A), Plain(rig, "z", B), Plain(rig, "last", B)
    await y.say(INSERT, "r", org="a", t=1)
    await x.pull()
    await x.say(UPDATE, "r", org="b")
    for client in (z, last):
        await client.pull()
    await z.say(UPDATE, "r", org="b", t=2)
    await last.pull()
    await last.say(UPDATE, "r", t=3)
    await z.pull()
    await z.say(UPDATE, "r", org="a")
    await x.pull()
    assert x.held() == await rig.rows() == {"r": {"org": "a", "t": 3}}


@scene
async def test_a_newcomer_is_not_told_what_was_deleted_before_the_rules(rig: Rig) -> None:
    """The ids of rows may say more than their reader is to know."""
    x, y = Plain(rig, "x", A), Plain(rig, "y", B)
    y.change(INSERT, "alice@b.example", org="b")
    y.change(DELETE, "alice@b.example")
    await y.push()
    await rig.save_rules()
    assert not await x.pull()


@scene
async def test_who_has_a_row_is_told_that_it_was_deleted_before_the_rules(rig: Rig) -> None:
    x, y = Plain(rig, "x", A), Plain(rig, "y", A)
    await y.say(INSERT, "r", org="a")
    await x.pull()
    await y.say(DELETE, "r")
    await rig.save_rules()
    assert [entry.op for entry in await x.pull()] == [DELETE]
    assert not x.held()


@scene
async def test_rules_say_who_reads_and_not_who_writes(rig: Rig) -> None:
    """Who knows the id of a row may change the column by which it is seen, and sees it then."""
    await rig.save_rules()
    x, y = Plain(rig, "x", A, "a"), Plain(rig, "y", B, "b")
    await y.say(INSERT, "r", org="b", t=1)
    await x.say(UPDATE, "r", org="a")
    await x.pull()
    await y.pull()
    assert x.held() == await rig.rows() == {"r": {"org": "a", "t": 1}}
    assert not y.held()
    await agree(rig, x, y)


# -- A long log with nothing in it for the reader ----------------------------------------------------------------------


async def fill(rig: Rig, count: int = MANY) -> None:
    """Rows of others, which nobody of `a` sees."""
    y = Plain(rig, "y", B)
    for number in range(count):
        y.change(INSERT, f"r{number} {rig.stamp()}", org="b")
    await y.push()


@scene
async def test_what_is_not_for_a_client_is_passed_over_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SCANNED_ROWS", MANY // 4)
    await rig.save_rules()
    x = Plain(rig, "x", A)
    await x.say(INSERT, "mine", org="a")
    for number in range(3):
        await fill(rig)
        await x.say(UPDATE, "mine", n=number)
        _, looks = await rig.read_page(x.replica, x.cursor, claims=A)
        assert looks == 1 + MANY // (MANY // 4)
        held = x.cursor
        assert not await x.pull()
        assert x.cursor == held
        for _ in range(2):
            _, looks = await rig.read_page(x.replica, x.cursor, claims=A)
            assert looks == 1
            assert not await x.pull()
    await Plain(rig, "z", A).say(INSERT, "theirs", org="a")
    await x.pull()
    assert x.held() == {"mine": {"org": "a", "n": 2}, "theirs": {"org": "a"}}


@scene
async def test_a_client_that_rests_is_told_what_was_pushed_while_it_was_looked_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursor stands for the end of the log as it was looked at, and not for what came behind it."""
    monkeypatch.setattr(reading, "SCANNED_ROWS", MANY // 4)
    await rig.save_rules()
    x = Plain(rig, "x", A)
    await x.say(INSERT, "mine", org="a")
    await fill(rig)
    page, looks = await rig.read_page(x.replica, x.cursor, claims=A)
    assert looks > 1
    assert not page.entries
    await Plain(rig, "z", A).say(INSERT, "theirs", org="a")
    await x.pull()
    assert sorted(x.held()) == ["mine", "theirs"]


@scene
async def test_the_rest_of_a_client_that_has_pushed_meanwhile_counts_for_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SCANNED_ROWS", MANY // 4)
    await rig.save_rules()
    x, z = Plain(rig, "x", A), Plain(rig, "z", A)
    await x.say(INSERT, "mine", org="a")
    await fill(rig)
    held = x.cursor
    late, _ = await rig.read_page(x.replica, held, claims=A)
    await z.say(INSERT, "theirs", org="a")
    await x.say(UPDATE, "mine", n=1)
    before = await rig.progress(x.replica)
    await rig.rest(x.replica, held, late)
    assert await rig.progress(x.replica) == before
    await x.pull()
    assert sorted(x.held()) == ["mine", "theirs"]


@scene
async def test_a_cursor_that_rests_stands_for_the_end_of_the_log(rig: Rig) -> None:
    x = Plain(rig, "x")
    await x.say(INSERT, "mine")
    held = x.cursor
    page = await rig.pull(x.replica, held)
    await rig.rest(x.replica, held, page._replace(cursor=held + 7))
    progress = await rig.progress(x.replica)
    assert (progress.seen, progress.aliases[-1]) == (held + 7, CursorAlias(held, held, held + 7, 0))
    assert progress.meaning(held, is_entry=False) == DeltaCursor(held + 7)


@scene
async def test_nothing_is_kept_of_the_rest_of_a_client_that_is_not_known(rig: Rig) -> None:
    await Plain(rig, "y").say(INSERT, "r")
    stranger = Plain(rig, "stranger")
    page = await rig.pull(stranger.replica, (await rig.gateway()).high_water)
    await rig.rest(stranger.replica, page.cursor, page)
    assert (await rig.gateway()).replicas == 1
