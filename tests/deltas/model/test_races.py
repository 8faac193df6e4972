"""Single scenes: what comes late, what is repeated, and what stands for something else. Clients apply pages blindly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from semel.kernel.errors import Refusal
from semel.kernel.hashes import json_text
from semel.kernel.hlc import join
from semel.surfaces.deltas.commands import DeltasPushed
from semel.surfaces.deltas.limits import KEPT_ALIASES
from semel.surfaces.deltas.model import Delta, DeltaOp, DeltaReplica
from tests.deltas.model.fold import fold
from tests.deltas.model.replicas import TABLE, PlainReplica
from tests.deltas.model.requests import make_column, make_delta
from tests.deltas.model.rig import BEGIN_MS, Pulled, Rig, note_of


class Scene:
    """A rig, and what was pushed to it; times are milliseconds after the beginning."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.pushed: list[Delta] = []

    async def push(self, client: PlainReplica, op: DeltaOp, row: str, at: int, **columns: int) -> int:
        """A change that the client makes and pushes; the answer is its cursor, which is returned."""
        made = [make_column(name, value) for name, value in columns.items()]
        delta = make_delta(op, TABLE, json_text(row), client.name, join(BEGIN_MS + at, 0), made)
        if op is DeltaOp.DELETE:
            client.rows.pop(delta.row, None)
        else:
            client.rows.setdefault(delta.row, {}).update({column.name: column.value for column in made})
        self.pushed.append(delta)
        return await self.push_again(client, delta)

    async def push_again(self, client: PlainReplica, *deltas: Delta) -> int:
        """What was pushed before, or nothing."""
        answer = await self.rig.push(caller(client), deltas)
        assert isinstance(answer, DeltasPushed)
        client.pushed((), answer.server_hlc)
        return answer.server_hlc

    async def pull(self, client: PlainReplica, limit: int = 100) -> Pulled:
        """A page that arrives."""
        page = await self.lose_page(client, limit)
        client.apply(page, BEGIN_MS)
        return page

    async def pull_all(self, client: PlainReplica) -> Pulled:
        """A page that arrives and is shown to have arrived."""
        page = await self.pull(client)
        assert not (await self.pull(client)).entries
        return page

    async def lose_page(self, client: PlainReplica, limit: int = 100) -> Pulled:
        """A page that leaves, and does not arrive."""
        page = await self.rig.pull(caller(client), client.cursor, limit)
        assert isinstance(page, Pulled)
        return page

    async def read_page(self, client: PlainReplica) -> Callable[[], Awaitable[object]]:
        """A page that is read and does not leave before the function is called that is returned."""
        since = client.cursor
        page = await self.rig.read_page(caller(client), since, 100)
        note = note_of(caller(client), page)
        return lambda: self.rig.send(note)

    def require_equal(self, *clients: PlainReplica) -> None:
        """Every client holds what all deltas together make."""
        rows = {delta.row for delta in self.pushed}
        folded = {row: fold(delta for delta in self.pushed if delta.row == row) for row in rows}
        expected = {row: state.columns for row, state in folded.items() if state.is_live}
        for client in clients:
            held = {
                row: {name: value for name, value in columns.items() if value != "null"}
                for row, columns in client.rows.items()
            }
            assert held == expected, client.name


def caller(client: PlainReplica) -> DeltaReplica:
    return DeltaReplica("gw", client.name, "default")


def play(scene: Callable[[Scene, PlainReplica, PlainReplica], Awaitable[None]]) -> None:
    """One scene with two clients, from an empty store."""

    async def whole() -> None:
        on = Scene()
        on.rig.start()
        try:
            await scene(on, PlainReplica("x", hears=False), PlainReplica("y", hears=False))
        finally:
            await on.rig.stop()

    asyncio.run(whole())


def test_a_page_that_leaves_late_does_not_take_back_what_another_has_told() -> None:
    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "one", 1, a=1)
        leave_late = await on.read_page(x)
        await on.push(y, DeltaOp.INSERT, "two", 2, a=2)
        await on.pull(x)
        await leave_late()
        await on.push(x, DeltaOp.INSERT, "three", 3, a=3)
        await on.pull(x)
        await on.pull(y)
        on.require_equal(x, y)

    play(scene)


def test_a_page_that_leaves_after_a_push_does_not_count_as_told() -> None:
    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "one", 1, a=1)
        leave_late = await on.read_page(x)
        await on.push(x, DeltaOp.INSERT, "two", 2, a=2)
        await leave_late()
        await on.push(x, DeltaOp.INSERT, "three", 3, a=3)
        await on.pull(x)
        await on.pull(y)
        on.require_equal(x, y)

    play(scene)


def test_a_lost_page_is_told_again_also_by_the_number_of_a_push() -> None:
    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "one", 1, a=1)
        await on.push(x, DeltaOp.INSERT, "two", 2, a=2)
        first = await on.lose_page(x)
        again = await on.lose_page(x)
        assert first.entries == again.entries
        await on.pull(x)
        await on.pull(y)
        on.require_equal(x, y)
        assert not (await on.pull(x)).entries

    play(scene)


def test_a_page_after_a_push_does_not_end_with_the_number_of_the_push() -> None:
    """Which stands for everything before it: whoever shows it has lost the page."""

    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "one", 1, a=1)
        number = await on.push(x, DeltaOp.INSERT, "two", 2, a=2)
        assert (await on.pull(x)).cursor != number
        assert not (await on.pull(x)).entries

    play(scene)


def test_a_repair_on_its_way_is_followed_by_another_when_its_reader_goes_on_writing() -> None:
    """Else the first, which tells the row as it was, would overwrite what was written after it."""

    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "r", 100, a=1)
        await on.pull(x)
        await on.push(x, DeltaOp.UPDATE, "r", 50, a=2)
        await on.push(x, DeltaOp.UPDATE, "r", 200, a=3)
        await on.pull(x)
        await on.pull(y)
        on.require_equal(x, y)

    play(scene)


def test_a_delete_on_its_way_makes_room_for_the_row_as_it_is() -> None:
    """A repair that takes the row away is replaced by one that tells it, whether or not the former one still comes."""

    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "r", 90, a=1)
        await on.push(y, DeltaOp.DELETE, "r", 100)
        await on.pull_all(x)
        await on.push(x, DeltaOp.INSERT, "r", 50, a=2)
        await on.push(x, DeltaOp.UPDATE, "r", 200, a=3)
        page = await on.pull(x)
        assert [entry.op for entry in page.entries] == [DeltaOp.DELETE, DeltaOp.DELETE, DeltaOp.INSERT]
        await on.pull(y)
        on.require_equal(x, y)

    play(scene)


def test_a_row_that_its_reader_has_deleted_in_vain_is_inserted_again() -> None:
    """Although a repair is on its way: one that only changes columns makes no row."""

    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "r", 100, a=1)
        await on.push(y, DeltaOp.UPDATE, "r", 300, b=2)
        await on.pull_all(x)
        await on.push(x, DeltaOp.UPDATE, "r", 50, a=9)
        await on.push(x, DeltaOp.DELETE, "r", 200)
        page = await on.pull(x)
        assert [entry.op for entry in page.entries] == [DeltaOp.DELETE, DeltaOp.INSERT]
        await on.pull(y)
        on.require_equal(x, y)

    play(scene)


def test_a_loser_that_is_pushed_again_gets_no_second_repair() -> None:
    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "r", 100, a=1)
        await on.pull_all(x)
        await on.push(x, DeltaOp.UPDATE, "r", 50, a=2)
        for _ in range(5):
            await on.push_again(x, on.pushed[-1])
        assert len((await on.pull(x)).entries) == 1
        on.require_equal(x, y)

    play(scene)


@pytest.mark.parametrize("lost", [1, KEPT_ALIASES])
def test_a_number_is_good_however_many_later_ones_got_lost(lost: int) -> None:
    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "one", 1, a=1)
        held = await on.push(x, DeltaOp.INSERT, "two", 2, a=2)
        for number in range(lost):
            await on.push(x, DeltaOp.UPDATE, "two", 3 + number, a=number)
        x.cursor = held
        page = await on.pull(x)
        assert page.entries[0].row == json_text("one")

    play(scene)


def test_the_end_of_a_page_means_itself_whatever_is_asked_and_pushed_around_it() -> None:
    """A client that has gone back and pushed again from there still knows where that page ended."""

    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        for number, row in enumerate(("one", "two", "three")):
            await on.push(y, DeltaOp.INSERT, row, number, a=1)
        ends = []
        for row in ("four", "five"):
            x.cursor = 1
            await on.lose_page(x, limit=1)
            await on.push(x, DeltaOp.INSERT, row, 10, a=1)
            ends.append((await on.lose_page(x)).cursor)
        x.cursor = ends[0]
        page = await on.lose_page(x)
        assert [entry.row for entry in page.entries] == [json_text("five")]

    play(scene)


def test_who_comes_back_from_the_beginning_is_not_repaired_on_top() -> None:
    """Page by page, with a row that it had brought back from the dead: the row is told once."""

    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        await on.push(y, DeltaOp.INSERT, "r", 10, a=1)
        await on.pull(x)
        await on.push(y, DeltaOp.DELETE, "r", 20)
        await on.push(x, DeltaOp.UPDATE, "r", 30, a=2)
        new = PlainReplica("x", hears=False)
        while (await on.pull(new, limit=1)).has_more:
            pass
        await on.pull(y)
        on.require_equal(new, y)

    play(scene)


def test_a_refusal_for_the_clock_tells_a_time_that_moves_nothing() -> None:
    async def scene(on: Scene, x: PlainReplica, y: PlainReplica) -> None:
        cursor = await on.push(x, DeltaOp.INSERT, "one", 1, a=1)
        far = make_delta(DeltaOp.INSERT, TABLE, '"far"', x.name, join(BEGIN_MS + 5_001, 0))
        refused = await on.rig.push(caller(x), (far,))
        assert isinstance(refused, Refusal)
        assert refused.facts["server_hlc"] is not None
        assert refused.facts["server_hlc"] >= cursor
        assert await on.push_again(x) == cursor
        assert await on.push(x, DeltaOp.INSERT, "two", 2, a=1) > cursor

    play(scene)
