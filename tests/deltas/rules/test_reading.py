"""Reading a gateway: pages and where they end, in one look or in several; guests, news, and what else can be asked."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from semel.kernel.hashes import json_text
from semel.surfaces.deltas import reading
from semel.surfaces.deltas.limits import PAGE_BYTES
from semel.surfaces.deltas.model import DeltaCursor, DeltaOp, DeltaReplica
from tests.deltas.pushed_log import delta_log
from tests.deltas.rules.rig import GATEWAY, NOBODY, Plain, Rig, change, note_of, of_org, scene, told

INSERT, UPDATE, DELETE = DeltaOp.INSERT, DeltaOp.UPDATE, DeltaOp.DELETE
READER = DeltaReplica(GATEWAY, json_text("reader"), "default")
ROWS = 10
A = of_org("a")


async def fill(rig: Rig, author: str = "y", rows: int = ROWS, **cells: Any) -> list[int]:
    """Some rows of one author; their positions."""
    client = Plain(rig, author)
    for number in range(rows):
        client.change(INSERT, f"{author} {number}", **(cells or {"t": "x"}))
    return [entry.position for entry in (await client.push()).entries]


def rows_of(page: reading.DeltaPage) -> list[str]:
    return [entry.row for entry in told(page.entries)]


async def look(
    rig: Rig, since: int = 0, limit: int = 1_000, budget: int = PAGE_BYTES, begun: reading.PartialPage | None = None
) -> reading.DeltaPage | reading.PartialPage:
    return await rig.look(lambda one: reading.pull(one, READER, NOBODY, since, limit, budget, begun))


# -- Where a page ends -------------------------------------------------------------------------------------------------


@scene
async def test_a_gateway_that_nothing_has_happened_in_has_an_empty_page(rig: Rig) -> None:
    assert await look(rig) == reading.DeltaPage((), 0, False, is_known=False)
    assert await look(rig, since=7) == reading.DeltaPage((), 0, False, is_known=False)


@scene
async def test_a_page_ends_at_its_last_entry_or_with_the_log(rig: Rig) -> None:
    positions = await fill(rig)
    end = (await rig.gateway()).high_water
    assert end > positions[-1]
    for limit, has_more in ((1, True), (ROWS - 1, True), (ROWS, False), (ROWS + 1, False)):
        page = await look(rig, limit=limit)
        assert isinstance(page, reading.DeltaPage)
        assert len(page.entries) == min(limit, ROWS)
        assert (page.has_more, page.cursor) == (has_more, positions[limit - 1] if has_more else end)
        assert not page.must_note, "of a client that only reads nothing is kept"


@scene
async def test_an_empty_page_ends_with_the_log_and_needs_no_note(rig: Rig) -> None:
    await fill(rig)
    end = (await rig.gateway()).high_water
    for since in (end, end + 5):
        page = await look(rig, since)
        assert isinstance(page, reading.DeltaPage)
        assert (page.entries, page.cursor, page.has_more, page.must_note) == ([], end, False, False)


@scene
async def test_a_page_holds_so_many_bytes_and_one_entry_in_any_case(rig: Rig) -> None:
    await fill(rig, t="v" * 1_000)
    sizes = [reading.entry_size(entry) for entry in (await rig.pull(READER, 0)).entries]
    assert all(1_000 < size < 1_500 for size in sizes)
    for budget, count in ((1, 1), (sum(sizes[:3]) - 1, 2), (sum(sizes[:3]), 3), (sum(sizes), ROWS)):
        page = await look(rig, budget=budget)
        assert isinstance(page, reading.DeltaPage)
        assert len(page.entries) == count
        assert page.has_more is (count < ROWS)


@scene
async def test_a_page_from_the_beginning_has_no_repairs_and_says_so_to_the_next(rig: Rig) -> None:
    late = rig.stamp(60_000)
    x, y = Plain(rig, "x"), Plain(rig, "y")
    await y.say(INSERT, "one", t=1)
    await x.pull()
    await x.say(UPDATE, "one", late, t=0)
    await y.say(INSERT, "two", t=1)
    end = (await rig.gateway()).high_water
    page, _ = await rig.read_page(x.replica, 0, limit=1)
    assert (rows_of(page), page.has_more, page.rest) == (["one"], True, DeltaCursor(page.cursor, mute=end))
    assert page.must_note
    again = Plain(rig, "x")
    assert [entry.row for _ in range(3) for entry in await again.pull(limit=1)] == ["one", "two"]


@scene
async def test_a_page_does_not_end_with_a_number_that_stands_for_something_else(rig: Rig) -> None:
    """The log ends behind such a number, so that nothing has to be written for it."""
    x = Plain(rig, "x")
    await fill(rig)
    await x.say(INSERT, "mine")
    page, _ = await rig.read_page(x.replica, x.cursor)
    assert not page.must_note
    assert page.cursor == x.cursor + 1 == (await rig.gateway()).high_water


@scene
async def test_a_page_that_was_overtaken_does_not_leave(rig: Rig) -> None:
    x = Plain(rig, "x")
    await x.say(INSERT, "mine")
    await fill(rig)
    first, _ = await rig.read_page(x.replica, 0, limit=3)
    second, _ = await rig.read_page(x.replica, 0, limit=5)
    assert first.must_note
    assert (await rig.send(note_of(x.replica, second))).cursor == second.cursor
    assert (await rig.send(note_of(x.replica, first))).cursor is None
    progress = await rig.progress(x.replica)
    assert progress.meaning(second.cursor, is_entry=True) == second.rest


# -- Several looks -----------------------------------------------------------------------------------------------------


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> int:
    """A look passes over so many rows of the log."""
    rows = 4
    monkeypatch.setattr(reading, "SCANNED_ROWS", rows)
    monkeypatch.setattr(reading, "AT_ONCE", 3)
    return rows


@scene
async def test_a_look_ends_after_so_many_rows_and_the_next_goes_on_there(rig: Rig, short_looks: int) -> None:
    positions = await fill(rig)
    begun = await look(rig)
    assert isinstance(begun, reading.PartialPage)
    assert begun.start == DeltaCursor(positions[short_looks - 1], mute=(await rig.gateway()).high_water)
    assert [entry.position for entry in begun.entries] == positions[:short_looks]
    spent = sum(map(reading.entry_size, begun.entries))
    assert begun.budget == PAGE_BYTES - spent
    then = await look(rig, begun=begun)
    assert isinstance(then, reading.PartialPage)
    page = await look(rig, begun=then)
    assert isinstance(page, reading.DeltaPage)
    assert [entry.position for entry in page.entries] == positions
    assert not page.has_more


@pytest.mark.parametrize("limit", [1, 3, 4, 5, ROWS, ROWS + 1])
@scene
async def test_a_page_is_the_same_in_several_looks(rig: Rig, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    await fill(rig)
    whole, looks = await rig.read_page(READER, 0, limit)
    assert looks == 1
    for rows in (1, 2, 4, ROWS - 1, ROWS):
        monkeypatch.setattr(reading, "SCANNED_ROWS", rows)
        page, _ = await rig.read_page(READER, 0, limit)
        assert page == whole


@scene
async def test_a_page_in_several_looks_holds_so_many_bytes(rig: Rig, short_looks: int) -> None:
    await fill(rig, t="v" * 1_000)
    size = reading.entry_size((await rig.pull(READER, 0, limit=1)).entries[0])
    begun = await look(rig, budget=6 * size)
    assert isinstance(begun, reading.PartialPage)
    page = await look(rig, begun=begun)
    assert isinstance(page, reading.DeltaPage)
    assert len(page.entries) == 6
    assert page.has_more


@scene
async def test_what_a_number_leaves_out_is_left_out_in_every_look(rig: Rig, short_looks: int) -> None:
    x = Plain(rig, "x")
    await fill(rig, rows=short_looks + 1)
    for number in range(short_looks + 1):
        await x.say(INSERT, f"x {number}")
    page, looks = await rig.read_page(x.replica, x.cursor)
    assert looks > 2
    assert rows_of(page) == [f"y {number}" for number in range(short_looks + 1) for _ in (DELETE, INSERT)]


@scene
async def test_what_is_committed_between_two_looks_is_in_the_page(rig: Rig, short_looks: int) -> None:
    """The page ends where the log ends at the last look, so what came meanwhile must not be missing."""
    await fill(rig)
    begun = await look(rig)
    assert isinstance(begun, reading.PartialPage)
    await fill(rig, "z", rows=1)
    found: reading.DeltaPage | reading.PartialPage = begun
    while isinstance(found, reading.PartialPage):
        found = await look(rig, begun=found)
    assert rows_of(found)[-1] == "z 0"
    assert found.cursor == (await rig.gateway()).high_water


@scene
async def test_a_page_that_was_overtaken_between_two_looks_does_not_leave(rig: Rig, short_looks: int) -> None:
    """The last look knows the newer progress, the first did not."""
    x = Plain(rig, "x")
    await x.say(INSERT, "mine")
    await fill(rig, rows=2 * short_looks)
    found = await rig.look(lambda one: reading.pull(one, x.replica, NOBODY, 0, short_looks, PAGE_BYTES))
    assert isinstance(found, reading.PartialPage)
    begun = found
    await x.say(INSERT, "mine too")
    late = await rig.look(lambda one: reading.pull(one, x.replica, NOBODY, 0, short_looks, PAGE_BYTES, begun))
    assert isinstance(late, reading.DeltaPage)
    assert (await rig.send(note_of(x.replica, late))).cursor is None


# -- Guests ------------------------------------------------------------------------------------------------------------


@scene
async def test_for_a_guest_cursors_mean_themselves_and_nothing_is_kept(rig: Rig) -> None:
    late = rig.stamp(60_000)
    x = Plain(rig, "x")
    await fill(rig, rows=2)
    await x.pull()
    await fill(rig, "z", rows=1)
    await x.say(UPDATE, "y 0", late, t=0)
    before, gateway = await rig.progress(x.replica), await rig.gateway()
    assert not (await rig.pull(x.replica, x.cursor, is_guest=True)).entries
    page = await rig.pull(x.replica, before.seen, is_guest=True)
    assert rows_of(page)[-1:] == ["z 0"], "and no repair, which is the client's own"
    pages = [await rig.pull(x.replica, 0, limit=1, is_guest=True)]
    while pages[-1].has_more:
        pages.append(await rig.pull(x.replica, pages[-1].cursor, limit=1, is_guest=True))
    assert [row for page in pages for row in rows_of(page)] == ["y 0", "y 1", "z 0"]
    assert (await rig.progress(x.replica), await rig.gateway()) == (before, gateway)
    news = [(entry.op, entry.row) for entry in await x.pull()]
    assert news == [(DELETE, "z 0"), (INSERT, "z 0"), (UPDATE, "y 0")]


@scene
async def test_a_guest_is_told_what_the_client_itself_has_done(rig: Rig) -> None:
    await fill(rig, "x", rows=2)
    page = await rig.pull(DeltaReplica(GATEWAY, json_text("x"), "somebody else"), 0, is_guest=True)
    assert rows_of(page) == ["x 0", "x 1"]


@scene
async def test_a_guest_does_not_rest(rig: Rig, short_looks: int) -> None:
    await rig.save_rules()
    await fill(rig, org="b")
    page, looks = await rig.read_page(READER, 1, claims=A, is_guest=True)
    assert looks > 1
    assert not page.entries
    await rig.pull(READER, 1, claims=A, is_guest=True)
    assert (await rig.gateway()).replicas == 1


# -- News --------------------------------------------------------------------------------------------------------------


@scene
async def test_news_are_of_others(rig: Rig) -> None:
    x = Plain(rig, "x")
    positions = await fill(rig, rows=2)
    await x.say(INSERT, "mine")
    found = await rig.look(lambda one: reading.news(one, x.replica, NOBODY, positions[0], 1_000, PAGE_BYTES))
    assert rows_of(found.page) == ["y 1"]
    assert [(touch.column, touch.value) for touch in found.touches] == [("seen", found.page.cursor)]
    guest = await rig.look(
        lambda one: reading.news(one, x.replica, NOBODY, positions[0], 1_000, PAGE_BYTES, is_guest=True)
    )
    assert rows_of(guest.page) == ["y 1", "mine"]


@scene
async def test_news_are_told_look_by_look(rig: Rig, short_looks: int) -> None:
    positions = await fill(rig)
    after, found = 0, []
    while True:
        ask = partial(reading.news, replica=READER, claims=NOBODY, after=after, limit=1_000, budget=PAGE_BYTES)
        news = await rig.look(ask)
        found.append([entry.position for entry in news.page.entries])
        after = news.page.cursor
        if not news.page.has_more:
            break
    assert [position for page in found for position in page] == positions
    assert max(map(len, found)) == short_looks


@scene
async def test_there_are_no_news_where_nothing_has_happened(rig: Rig) -> None:
    found = await rig.look(lambda one: reading.news(one, READER, NOBODY, 0, 10, PAGE_BYTES))
    assert found == reading.DeltaBroadcast(reading.DeltaPage((), 0, False))


# -- What else can be asked --------------------------------------------------------------------------------------------


@scene
async def test_a_gateway_is_measured(rig: Rig) -> None:
    assert await rig.look(lambda one: reading.gauges(one, GATEWAY)) == reading.DeltaGauges()
    assert await rig.look(lambda one: reading.high_water(one, GATEWAY)) == 0
    late = rig.stamp(60_000)
    x = Plain(rig, "x")
    await x.say(INSERT, "r", t=1)
    await x.say(INSERT, "s", t=1)
    await x.say(UPDATE, "r", late, t=0)
    pushed = [row for row in await rig.log() if row.pushed]
    size = sum(len(row.body) + len(row.row_id) + len(row.client) for row in await rig.log())
    found = await rig.look(lambda one: reading.gauges(one, GATEWAY))
    assert found == reading.DeltaGauges(log_size=3, index_size=2, byte_size=size, delta_count=len(pushed))
    assert await rig.look(lambda one: reading.high_water(one, GATEWAY)) == x.cursor + 1, "a repair is outstanding"


@scene
async def test_gateways_are_named_page_by_page(rig: Rig) -> None:
    names = ["a", "a/b", "b", "ü"]
    for name in reversed(names):
        await rig.push(DeltaReplica(name, json_text("x"), "default"), change(INSERT, "r", "x", rig.stamp()))
    assert await rig.look(lambda one: reading.gateways(one, None, 10)) == names
    assert await rig.look(lambda one: reading.gateways(one, None, 2)) == names[:2]
    assert await rig.look(lambda one: reading.gateways(one, "a/b", 2)) == names[2:]
    assert await rig.look(lambda one: reading.gateways(one, "ü", 2)) == []


@scene
async def test_merged_rows_and_what_was_pushed_are_read_page_by_page(rig: Rig) -> None:
    positions = await fill(rig)
    await Plain(rig, "y").say(DELETE, "y 3")
    rows, after = await rig.look(lambda one: reading.merged_rows(one, GATEWAY, None, 7))
    assert after is not None
    others, end = await rig.look(lambda one: reading.merged_rows(one, GATEWAY, after, 7))
    assert end is None
    assert [row.row for row in (*rows, *others)] == [json_text(f"y {number}") for number in range(ROWS)]
    assert [row.row for row in (*rows, *others) if not row.is_live] == [json_text("y 3")]
    log = await rig.look(lambda one: delta_log(one, GATEWAY, positions[1], 3))
    assert [delta.position for delta in log] == positions[2:5]
    assert {(delta.op, delta.entry_op) for delta in log} == {(INSERT, INSERT)}
