"""Own writes that lose to other replicas: each is told once, with both values and the winner, also after a crash."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from semel.client import LostWrite
from semel.client.deltas import lost as lost_module
from tests.client.deltas_room import Room
from tests.client.deltas_script import Says, Scripted, entry, log_of, page, play, taken
from tests.client.names import until
from tests.client.replica_kinds import Opened
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_kind")
SECONDS = 30.0
FAR = (time.time_ns() // 1_000_000 + 1_000) << 16
"""A stamp that is later than every own write of these tests, and not too far ahead."""


class Steps:
    """A clock of the recent past that all replicas of a test share: later writes have later stamps."""

    def __init__(self) -> None:
        self._ms = time.time_ns() // 1_000_000 - 60_000

    def __call__(self) -> int:
        self._ms += 1
        return self._ms


def lost(row: str, column: str | None, own: Any, winning: Any, **more: Any) -> LostWrite:
    """A loss of the table `todos` to the replica `two`, acknowledged before."""
    fixed: dict[str, Any] = {"winner": "two", "is_row_deleted": False, "was_pending": False}
    return LostWrite("todos", row, column, own, winning, **fixed | more)


async def pair(room: Room, clock: Steps | None = None) -> tuple[Opened, Opened]:
    """Two replicas with one clock, which both have a row."""
    clock = clock or Steps()
    one, two = await room.replica("one", wall_ms=clock), await room.replica("two", wall_ms=clock)
    one.insert("todos", "1", {"a": 0, "b": 0})
    await one.sync()
    await two.sync()
    return one, two


async def test_an_acknowledged_write_is_told_when_another_replaces_it(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = await pair(Room(server, tmp_path, stack))
        two.update("todos", "1", {"a": "two", "b": 0, "c": 1})
        await two.sync()
        await one.sync()
        assert one.take_lost() == [lost("1", "a", 0, "two")], "the other columns have not changed, or are not ours"
        two.update("todos", "1", {"a": "again"})
        two.delete("todos", "1")
        await two.sync()
        await one.sync()
        assert one.take_lost() == [lost("1", "b", 0, None, is_row_deleted=True)], "what is lost once is not ours"
        assert (one.take_lost(), two.take_lost()) == ([], [])


async def test_a_pending_write_is_told_when_a_later_one_is_pulled_and_not_again(
    server: RunningServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        one, two = await pair(Room(server, tmp_path, stack))
        one.update("todos", "1", {"a": "one", "b": "one", "c": "both"})
        two.update("todos", "1", {"a": "two", "c": "both"})
        one.update("todos", "1", {"b": "later"})
        await two.push()
        await one.pull()
        assert one.take_lost() == [lost("1", "a", "one", "two", was_pending=True)]
        await one.sync()
        assert (one.take_lost(), two.take_lost()) == ([], [])
        await two.sync()
        assert one.rows("todos") == two.rows("todos")


async def test_a_push_that_is_answered_with_a_winner_is_told(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = await pair(Room(server, tmp_path, stack))
        one.update("todos", "1", {"a": "one", "b": "both"})
        two.update("todos", "1", {"a": "two", "b": "both"})
        await two.push()
        await one.push()
        assert one.take_lost() == [lost("1", "a", "one", "two", was_pending=True)]
        await one.pull()
        assert one.take_lost() == []


async def test_a_deletion_that_loses_to_a_later_edit_is_told(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = await pair(Room(server, tmp_path, stack))
        one.delete("todos", "1")
        two.update("todos", "1", {"a": "two"})
        await two.push()
        await one.sync()
        assert one.get("todos", "1") == {"a": "two"}
        assert one.take_lost() == [lost("1", None, None, None, was_pending=True)]


async def test_an_own_later_write_is_no_loss(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = await pair(Room(server, tmp_path, stack))
        two.update("todos", "1", {"a": "two"})
        one.update("todos", "1", {"a": "one"})
        one.update("todos", "1", {"a": "one more", "b": None})
        await two.push()
        await one.sync()
        await one.close()
        assert (await two.sync()).pulled.changed == 1
        assert two.take_lost() == [LostWrite("todos", "1", "a", "two", "one more", "one", False, False)]


def test_the_checkpoint_tells_what_is_lost_but_not_to_whom(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        for row in ("kept", "changed", "gone"):
            db.insert("todos", row, {"n": 1, "m": 1})
        await db.push()
        db.update("todos", "changed", {"m": 2})
        rows = [entry("kept", FAR, n=1, m=1), entry("changed", FAR, n=7, m=7)]
        server.has_checkpoint = True
        checkpoint = Says(200, orjson.dumps(page(2_000, *rows).body) + b"\n")
        server.script = lambda request: checkpoint if request.is_checkpoint else page(2_000)
        db._local.lose_place()
        await db.pull()
        assert db.get("todos", "changed") == {"n": 7, "m": 2}
        found = {(one.row_id, one.column, one.winning, one.winner) for one in db.take_lost()}
        assert found == {("changed", "n", 7, None), ("gone", "n", None, None), ("gone", "m", None, None)}

    play(tmp_path, taken, scene)


async def test_a_loss_stays_in_the_file_until_the_next_is_asked_for(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room, clock = Room(server, tmp_path, stack), Steps()
        one, two = await pair(room, clock)
        two.update("todos", "1", {"a": "two", "b": "two"})
        await two.push()
        await one.pull()
        await one.close()
        for _ in range(2):  # whoever handles the first one dies
            one = await room.replica("one", wall_ms=clock)
            assert (await anext(one.lost_writes())).column == "a"
            await one.close()
        one = await room.replica("one", wall_ms=clock)
        losses = one.lost_writes()
        assert [(await anext(losses)).column for _ in range(2)] == ["a", "b"]
        waiting = asyncio.ensure_future(anext(losses))
        one.update("todos", "1", {"c": 1})
        await one.sync()
        two.update("todos", "1", {"c": 2})
        await two.sync()
        await one.pull()
        async with asyncio.timeout(SECONDS):
            assert (await waiting).column == "c"
        assert one.take_lost() == [lost("1", "c", 1, 2)]
        await losses.aclose()


async def test_taking_losses_is_part_of_the_transaction(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = await pair(Room(server, tmp_path, stack))
        two.update("todos", "1", {"a": "two"})
        await two.push()
        await one.pull()

        def handle(fault: Exception | None) -> None:
            with one.transaction():
                [loss] = one.take_lost()
                one.insert("notes", "1", {"text": f"{loss.winner} has won"})
                if fault is not None:
                    raise fault

        with pytest.raises(RuntimeError, match="died"):
            handle(RuntimeError("died"))
        assert one.tables() == ["todos"]
        handle(None)
        assert (one.take_lost(), one.rows("notes")) == ([], {"1": {"text": "two has won"}})


def test_the_latest_losses_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_module, "MOST_LOST", 3)

    async def scene(db: Opened, server: Scripted) -> None:
        for number in range(5):
            db.insert("todos", str(number), {"n": number})
        await db.push()
        server.script = log_of([entry(str(number), FAR, "UPDATE", n=9) for number in range(5)])
        await db.pull()
        assert [one.row_id for one in db.take_lost(2)] == ["2", "3"]
        assert [one.row_id for one in db.take_lost(2)] == ["4"]

    play(tmp_path, lambda request: taken(request, 0), scene)


async def test_a_closed_replica_ends_who_waits_for_losses(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one = await Room(server, tmp_path, stack).replica("one")
        waiting = asyncio.ensure_future(anext(one.lost_writes(), None))
        await asyncio.sleep(0.05)
        await one.close()
        await until(waiting.done)
        assert await waiting is None
