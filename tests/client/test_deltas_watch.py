"""Live queries: the matching rows first, then each change of the result, whoever made it and however slow one is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from semel.client import RowChanges, SemelError, TransactionError
from semel.client.deltas import observers
from tests.client.deltas_room import Room
from tests.client.replica_kinds import Opened
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_kind")
SECONDS = 30.0
OPEN: Mapping[str, Any] = {"done": False}


async def following(changes: Any) -> RowChanges:
    """The next change set."""
    async with asyncio.timeout(SECONDS):
        found: RowChanges = await anext(changes)
        return found


def is_open(columns: Mapping[str, Any]) -> bool:
    """The condition `OPEN` as a function."""
    return columns.get("done") is False


@pytest.mark.parametrize("where", [OPEN, is_open], ids=["mapping", "function"])
async def test_own_writes_change_the_result(where: Any, server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        db = await Room(server, tmp_path, stack).replica("one")
        db.insert("todos", "1", {"done": False})
        db.insert("todos", "2", {"done": True})
        db.insert("others", "3", {"done": False})
        watch = db.watch("todos", where)
        assert await following(watch) == RowChanges({"1": {"done": False}}, {}, ())
        waiting = asyncio.ensure_future(following(watch))
        db.update("todos", "2", {"title": "milk"})
        db.insert("others", "4", {"done": False})
        db.update("todos", "1", {"title": "tea"})
        assert await waiting == RowChanges({}, {"1": {"done": False, "title": "tea"}}, ())
        with db.transaction():
            db.update("todos", "2", {"done": False})
            db.update("todos", "1", {"done": True})
            db.insert("todos", "5", {"done": False})
        assert await following(watch) == RowChanges(
            {"2": {"done": False, "title": "milk"}, "5": {"done": False}}, {}, ("1",)
        )
        db.delete("todos", "2")
        assert await following(watch) == RowChanges({}, {}, ("2",))


async def test_an_empty_result_is_told_first_and_all_rows_match_without_a_condition(
    server: RunningServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        db = await Room(server, tmp_path, stack).replica("one")
        everything, cleared = db.watch("todos"), db.watch("todos", {"note": None})
        assert await following(everything) == await following(cleared) == RowChanges({}, {}, ())
        db.insert("todos", "1", {"note": "x"})
        assert await following(everything) == RowChanges({"1": {"note": "x"}}, {}, ())
        db.update("todos", "1", {"note": None})
        assert await following(everything) == RowChanges({}, {"1": {}}, ())
        assert await following(cleared) == RowChanges({"1": {}}, {}, ())


async def test_changes_of_others_change_the_result(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        one.insert("todos", "1", {"done": False})
        await one.push()
        pulled, live = two.watch("todos", OPEN), None
        assert await following(pulled) == RowChanges({}, {}, ())
        waiting = asyncio.ensure_future(following(pulled))
        await two.pull()  # the checkpoint
        assert await waiting == RowChanges({"1": {"done": False}}, {}, ())
        one.update("todos", "1", {"done": True})
        await one.push()
        await two.pull()
        assert await following(pulled) == RowChanges({}, {}, ("1",))
        live = one.watch("todos", OPEN, follow=True)
        assert await following(live) == RowChanges({}, {}, ())
        waiting = asyncio.ensure_future(following(live))
        two.insert("todos", "2", {"done": False})
        await two.push()
        assert await waiting == RowChanges({"2": {"done": False}}, {}, ())
        waiting = asyncio.ensure_future(following(live))
        await asyncio.to_thread(one.insert, "todos", "3", {"done": False})
        assert await waiting == RowChanges({"3": {"done": False}}, {}, ())
        await live.aclose()


async def test_a_slow_reader_is_given_the_difference_at_once(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        db = await Room(server, tmp_path, stack).replica("one")
        watch = db.watch("todos")
        await following(watch)
        for number in range(100):
            db.put("todos", "1", {"n": number})
            db.put("todos", "2", {"n": number})
        db.delete("todos", "2")
        assert await following(watch) == RowChanges({"1": {"n": 99}}, {}, ())


def applied(result: dict[str, Any], changes: RowChanges) -> None:
    """Bring a result up to date, which must fit the changes."""
    assert not set(changes.added) & set(result)
    assert set(changes.changed) | set(changes.removed) <= set(result)
    for row in changes.removed:
        del result[row]
    result |= dict(changes.added) | dict(changes.changed)


@pytest.mark.parametrize("seed", range(4))
async def test_the_change_sets_add_up_to_the_rows(
    seed: int, server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(observers, "MOST_NOTED", 2)  # the table is read again
    dice = random.Random(seed)

    def write(db: Opened) -> None:
        row = str(dice.randrange(6))
        if dice.random() < 0.3:
            db.delete("todos", row)
        else:
            db.put("todos", row, {"done": dice.random() < 0.5, "n": dice.randrange(3)})

    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        result: dict[str, Any] = {}
        watch = one.watch("todos", OPEN)
        for _ in range(60):
            for _ in range(dice.randrange(4)):
                write(dice.choice([one, two]))
            if dice.random() < 0.5:
                await two.sync()
                await dice.choice([one.sync, one.pull])()
            if dice.random() < 0.1:
                one.start_over()
            one.put("todos", "mark", {"done": False, "mark": dice.random()})  # so that something has changed
            applied(result, await following(watch))
            assert result == {row: columns for row, columns in one.rows("todos").items() if is_open(columns)}


async def test_a_condition_that_fails_loses_no_change(server: RunningServer, tmp_path: Path) -> None:
    broken = [False]

    def where(columns: Mapping[str, Any]) -> bool:
        if broken[0]:
            raise RuntimeError("a bug in the condition")
        return True

    async with AsyncExitStack() as stack:
        db = await Room(server, tmp_path, stack).replica("one")
        watch = db.watch("todos", where)
        await following(watch)
        db.insert("todos", "1", {})
        broken[0] = True
        with pytest.raises(RuntimeError, match="a bug"):
            await following(watch)
        broken[0] = False
        assert await following(watch) == RowChanges({"1": {}}, {}, ())


async def test_what_cannot_be_watched_is_refused(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        db = await Room(server, tmp_path, stack).replica("one")
        with pytest.raises(ValueError, match="table's name"):
            db.watch("no table")
        with pytest.raises(ValueError, match="no JSON form"):
            db.watch("todos", {"n": float("nan")})


async def test_waiting_inside_a_transaction_is_refused(tmp_path: Path, server: RunningServer) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        opened = await room.replica("one")
        watch = opened.calls.watch("todos")
        with pytest.raises(TransactionError, match="before you wait"), opened.transaction():
            watch.advance().send(None)


@pytest.mark.parametrize("follow", [False, True])
async def test_a_closed_replica_ends_its_watches(server: RunningServer, tmp_path: Path, *, follow: bool) -> None:
    async with AsyncExitStack() as stack:
        db = await Room(server, tmp_path, stack).replica("one")
        watch = db.watch("todos", follow=follow)
        await following(watch)
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0.05)
        await db.close()
        async with asyncio.timeout(SECONDS):
            assert await waiting is None
        with pytest.raises(SemelError, match="closed"):
            db.rows("todos")
