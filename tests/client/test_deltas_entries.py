"""Entries that a replica must take as they come: the server has resolved them, and their dates decide nothing."""

from __future__ import annotations

import random
import re
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from semel.client import Change
from tests.client.deltas_room import Room, ruled, token
from tests.client.deltas_script import Scripted, entry, log_of, play, taken
from tests.client.replica_kinds import Opened
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_kind")


def blindly(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The rows after these entries, each applied without a look at its date."""
    rows: dict[str, dict[str, Any]] = {}
    for one in entries:
        told = {column["column"]: column["value"] for column in one["columns"]}
        if one["op"] == "DELETE":
            rows.pop(one["rowId"], None)
        elif one["op"] == "INSERT":
            rows[one["rowId"]] = told
        else:
            rows.setdefault(one["rowId"], {}).update(told)
    return {row: {name: value for name, value in columns.items() if value is not None} for row, columns in rows.items()}


def any_entry(dice: random.Random) -> dict[str, Any]:
    """A change, a repair or a row that comes into sight: their dates say nothing about the order of columns."""
    op = dice.choice(["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE"])
    names = [] if op == "DELETE" else dice.sample("abc", dice.randint(0, 3))
    columns = {name: dice.choice([None, dice.randrange(100)]) for name in names}
    told = entry(str(dice.randrange(3)), dice.randrange(1, 50), op, dice.choice(["me", "y", "z"]), **columns)
    return told | ({"resolved": True} if dice.random() < 0.5 else {})


@pytest.mark.parametrize("seed", range(8))
def test_dates_of_entries_decide_nothing(seed: int, tmp_path: Path) -> None:
    """Own changes count as of the position at which they were acknowledged, and so do the entries."""
    dice = random.Random(seed)
    entries = [any_entry(dice) for _ in range(60)]

    async def scene(db: Opened, server: Scripted) -> None:
        told, place = log_of(entries), dice.randrange(1, 60)
        server.script = lambda request: taken(request, place) if request.is_push else told(request)
        for _ in range(10):
            db.put("todos", str(dice.randrange(3)), {dice.choice("abc"): dice.randrange(100)})
        await db.push()
        own = [{**one, "op": "UPDATE"} for one in server.pushes[0].deltas]
        await db.pull()
        assert db.rows("todos") == blindly([*entries[: place - 1], *own, *entries[place - 1 :]])

    play(tmp_path, taken, scene, wall_ms=lambda: dice.choice([0, 1]))


def test_own_changes_lie_over_entries_by_their_dates(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        db.insert("todos", "1", {"a": "own", "b": "own"})
        [own] = db.pending()
        entries = [entry("1", own.hlc - 1, a="before", b="before", c="before")]
        entries += [entry("1", own.hlc + 1, "UPDATE", b="after")]
        won = entry("1", own.hlc + 1, "UPDATE", b="after")
        server.script = lambda request: taken(request, 3, won) if request.is_push else log_of(entries)(request)
        await db.pull()
        assert db.get("todos", "1") == {"a": "own", "b": "after", "c": "before"}
        await db.push()
        assert db.get("todos", "1") == {"a": "own", "b": "after", "c": "before"}
        entries += [entry("1", own.hlc, "UPDATE", "me", a="as the server says")]
        await db.pull()
        assert db.get("todos", "1") == {"a": "as the server says", "b": "after", "c": "before"}

    play(tmp_path, taken, scene)


def test_a_row_that_is_told_anew_under_one_date(tmp_path: Path) -> None:
    """A deletion and an insertion of one date are both applied, in their order, in one page or in two."""

    async def scene(db: Opened, server: Scripted) -> None:
        pair = [entry("1", 7, "DELETE"), entry("1", 7, "INSERT", b=2)]
        entries = [entry("1", 5, a=1, b=1), *pair, entry("1", 6, "UPDATE", c=3), *pair]
        server.script = log_of(entries[:3])
        await db.pull()
        assert db.rows("todos") == {"1": {"b": 2}}
        told = log_of(entries)
        server.script = lambda request: told(request._replace(target=re.sub(r"limit=\d+", "limit=1", request.target)))
        following = db.follow(every=3_600.0)
        changes = [await anext(following) for _ in range(3)]
        assert changes == [
            Change("todos", "1", {"b": 2}, {"b": 2, "c": 3}),
            Change("todos", "1", {"b": 2, "c": 3}, None),
            Change("todos", "1", None, {"b": 2}),
        ]

    play(tmp_path, taken, scene)


def test_a_row_that_is_told_anew_under_an_own_change(tmp_path: Path) -> None:
    async def scene(db: Opened, server: Scripted) -> None:
        db.insert("todos", "1", {"a": "own"})
        [own] = db.pending()
        entries = [entry("1", own.hlc, "DELETE", "me"), entry("1", own.hlc, "INSERT", "me", a="own", b="theirs")]
        server.script = lambda request: taken(request, 2) if request.is_push else log_of(entries)(request)
        await db.pull()
        assert db.get("todos", "1") == {"a": "own", "b": "theirs"}
        await db.sync()
        assert db.get("todos", "1") == {"a": "own", "b": "theirs"}
        assert db.pending() == []

    play(tmp_path, taken, scene)


# The same with a real server


class Dated:
    """Replicas that date what they write as the test says, in milliseconds after a recent instant."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._start = time.time_ns() // 1_000_000 - 60_000
        self._ms = 0

    async def replica(self, name: str, **options: str) -> Opened:
        return await self._room.replica(name, wall_ms=lambda: self._start + self._ms, **options)

    def at(self, ms: int) -> None:
        self._ms = ms


async def test_an_entry_that_is_older_than_an_own_change_counts_for_its_columns(
    server: RunningServer, tmp_path: Path
) -> None:
    """It is newer than what was known of its column, however late it comes."""
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        dated = Dated(room)
        x, y, z = [await dated.replica(name) for name in "xyz"]
        dated.at(3)
        y.insert("todos", "1", {"c": "y"})
        await y.push()
        for db in (x, y, z):
            await db.pull()
        dated.at(5)
        z.update("todos", "1", {"c": "z"})
        await z.push()
        dated.at(10)
        x.update("todos", "1", {"d": "x"})
        await x.push()
        assert (await x.pull()).entries == 1, "what z has done"
        assert x.get("todos", "1") == {"c": "z", "d": "x"}
        dated.at(7)
        y.update("todos", "1", {"c": "y again"})
        await y.push()
        await x.pull()
        assert x.rows("todos") == await room.fresh_rows() == {"1": {"c": "y again", "d": "x"}}


async def test_a_row_that_comes_into_sight_has_the_date_of_one_change(guarded: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(guarded, tmp_path, stack)
        await ruled(guarded, room.gateway)
        dated = Dated(room)
        one, two = [await dated.replica(name, token=token(name, room.gateway, org="tea")) for name in "ab"]
        milk = await dated.replica("m", token=token("m", room.gateway, org="milk"))
        dated.at(3)
        one.insert("todos", "1", {"org": "tea", "n": 3})
        await one.push()
        await two.pull()
        dated.at(20)
        one.update("todos", "1", {"org": "milk"})
        await one.push()
        await milk.pull()
        assert milk.rows("todos") == {"1": {"org": "milk", "n": 3}}
        dated.at(15)
        two.update("todos", "1", {"n": 15})
        await two.push()
        await milk.pull()
        assert milk.rows("todos") == {"1": {"org": "milk", "n": 15}}


async def test_two_insert_the_same_row(server: RunningServer, tmp_path: Path) -> None:
    """What comes first is told to the other, which has made the row itself, and overwrites nothing there."""
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        dated = Dated(room)
        x, y = [await dated.replica(name) for name in "xy"]
        y.insert("todos", "0", {})
        await y.push()
        await x.pull()
        for ms, db in ((1, y), (2, x)):
            dated.at(ms)
            db.insert("todos", "1", {"c": db.client_id, db.client_id: 1})
            await db.push()
        assert (await x.pull()).entries == 1, "what y has done"
        await y.pull()
        rows = {"0": {}, "1": {"c": "x", "x": 1, "y": 1}}
        assert x.rows("todos") == y.rows("todos") == await room.fresh_rows() == rows
