"""The deltas client against a real server: replicas that push and pull, and what the server will not take."""

from __future__ import annotations

import math
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from semel.client import AccessError, ClockSkewError, DeadLetter
from semel.kernel.hlc import wall_of
from tests.client.deltas_room import Room, ruled, token
from tests.client.names import fresh
from tests.client.replica_kinds import open_replica
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_kind")
SECONDS = 30.0
HOUR_MS = 3_600_000


class Steps:
    """A clock of the recent past that goes on by a millisecond whenever it is read, for all who share it."""

    def __init__(self) -> None:
        self._ms = time.time_ns() // 1_000_000 - 60_000

    def __call__(self) -> int:
        self._ms += 1
        return self._ms


async def test_what_one_writes_the_others_read(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        one.insert("todos", "é/1", {"title": "milk", "tags": ["a", {"b": None}], "big": 1e300})
        one.insert("todos", "2", {"title": "tea"})
        first = await one.sync()
        assert (first.pushed.accepted, first.pushed.duplicates, first.pushed.dead) == (2, 0, ())
        assert (first.pulled.entries, first.pulled.changed) == (0, 0)
        assert (await two.sync()).pulled.changed == 2
        assert one.rows("todos") == two.rows("todos")
        two.update("todos", "é/1", {"title": "oat milk", "tags": None})
        two.delete("todos", "2")
        one.update("todos", "é/1", {"done": True})
        await two.sync()
        await one.sync()
        await two.sync()
        wanted = {"é/1": {"title": "oat milk", "big": 1e300, "done": True}}
        assert one.rows("todos") == two.rows("todos") == await room.fresh_rows() == wanted
        again = await one.sync()
        assert (again.pushed.accepted, again.pulled.entries) == (0, 0)


async def test_g7_what_is_acknowledged_and_not_told_back_yet_is_still_read(
    server: RunningServer, tmp_path: Path
) -> None:
    """Between a push and the next pull nobody but the replica itself remembers what it has written."""
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        one.insert("todos", "1", {"a": 1, "b": 1})
        assert (await one.push()).accepted == 1
        assert one.get("todos", "1") == {"a": 1, "b": 1}
        one.update("todos", "1", {"b": 2})
        assert one.get("todos", "1") == {"a": 1, "b": 2}
        one.insert("todos", "2", {"c": 1})
        assert one.rows("todos") == {"1": {"a": 1, "b": 2}, "2": {"c": 1}}
        await one.sync()
        assert one.rows("todos") == await room.fresh_rows() == {"1": {"a": 1, "b": 2}, "2": {"c": 1}}


async def test_names_that_a_url_must_escape(server: RunningServer, tmp_path: Path) -> None:
    gateway, client = fresh("a/b ?#%41é+"), "me & you=é+%"
    async with (
        open_replica(tmp_path / "a.db", gateway=gateway, url=server.url, client_id=client) as one,
        open_replica(tmp_path / "b.db", gateway=gateway, url=server.url) as two,
    ):
        one.insert("todos", "1", {"n": 1})
        assert (await one.sync()).pulled.entries == 0
        await two.sync()
        assert two.rows("todos") == {"1": {"n": 1}}


async def test_pages(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        with one.transaction():
            for number in range(2_100):
                one.insert("todos", str(number), {"n": number})
        assert (await one.push()).accepted == 2_100
        pulled = await two.pull()
        assert (pulled.entries, pulled.changed) == (2_100, 2_100)
        assert two.rows("todos") == one.rows("todos")


async def test_pending_writes_stand_against_older_ones_and_fall_to_newer(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room, clock = Room(server, tmp_path, stack), Steps()
        one, two = await room.replica("one", wall_ms=clock), await room.replica("two", wall_ms=clock)
        one.insert("todos", "1", {"a": 0, "b": 0})
        one.insert("todos", "2", {"a": 0})
        await one.sync()
        await two.sync()
        two.update("todos", "1", {"a": "two", "b": "two"})
        two.delete("todos", "2")
        one.update("todos", "1", {"a": "one"})
        one.update("todos", "2", {"b": "one"})
        two.update("todos", "1", {"b": "later"})
        await two.push()
        await one.pull()
        assert one.rows("todos") == {"1": {"a": "one", "b": "later"}, "2": {"b": "one"}}
        assert len(one.pending()) == 2
        await one.sync()
        await two.sync()
        assert one.rows("todos") == two.rows("todos") == await room.fresh_rows()
        assert one.get("todos", "1") == {"a": "one", "b": "later"}


async def test_a_write_that_lost_is_taken_back(server: RunningServer, tmp_path: Path) -> None:
    """The clock of one is behind, so its write is older although it was made later."""
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one", wall_ms=lambda: time.time_ns() // 1_000_000 - HOUR_MS)
        two = await room.replica("two")
        began = time.monotonic()
        two.insert("todos", "1", {"a": "two"})
        await two.push()
        one.insert("todos", "1", {"a": "one", "b": "one"})
        one.insert("todos", "2", {"a": "one"})
        await one.push()
        two.delete("todos", "2")
        assert one.get("todos", "1") == {"a": "two", "b": "one"}
        pulled = await one.pull()
        # As old as it is by now, it is so much less ahead.
        oldest_ms = (time.monotonic() - began) * 1_000
        assert HOUR_MS - 5_000 - oldest_ms <= pulled.ahead_ms <= HOUR_MS + SECONDS * 1_000
        assert one.get("todos", "1") == {"a": "two", "b": "one"}
        one.insert("todos", "3", {})
        believed = wall_of(one.pending()[-1].hlc)
        assert believed < time.time_ns() // 1_000_000 - HOUR_MS // 2, "a clock that is far ahead was believed"
        await one.sync()
        await two.sync()
        assert one.rows("todos") == two.rows("todos") == await room.fresh_rows()


async def test_a_write_after_a_pull_is_later_than_what_was_pulled(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        two = await room.replica("two", wall_ms=lambda: time.time_ns() // 1_000_000 + 3_000)
        two.insert("todos", "1", {"a": "two"})
        [ahead] = two.pending()
        await two.push()
        assert (await one.pull()).ahead_ms == 0
        one.update("todos", "1", {"a": "one"})
        assert one.pending()[0].hlc > ahead.hlc
        await one.sync()
        assert await room.fresh_rows() == {"1": {"a": "one"}}


async def test_a_clock_that_is_ahead_is_reported_and_mended(server: RunningServer, tmp_path: Path) -> None:
    ahead = [0]
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one", wall_ms=lambda: time.time_ns() // 1_000_000 + ahead[0])
        two = await room.replica("two")
        two.insert("todos", "0", {})
        await two.push()
        one.insert("todos", "1", {"n": 1})
        ahead[0] = HOUR_MS
        one.insert("todos", "2", {"n": 2})
        one.update("todos", "1", {"n": 3})
        with pytest.raises(ClockSkewError) as raised:
            await one.sync()
        skew = raised.value.skew_ms
        assert skew is not None
        assert HOUR_MS - 10_000 <= skew <= HOUR_MS + SECONDS * 1_000
        assert [delta.row_id for delta in one.pending()] == ["2", "1"]
        assert one.rows("todos") == {"0": {}, "1": {"n": 3}, "2": {"n": 2}}
        assert await room.fresh_rows() == {"0": {}, "1": {"n": 1}}
        ahead[0] = 0
        with pytest.raises(ClockSkewError):
            await one.push()
        assert one.restamp() == 2
        await one.sync()
        assert one.rows("todos") == await room.fresh_rows() == {"0": {}, "1": {"n": 3}, "2": {"n": 2}}
        one.update("todos", "2", {"n": 4})
        assert (await one.push()).accepted == 1


async def test_a_schema_refuses_a_column_until_it_is_known(server: RunningServer, tmp_path: Path) -> None:
    told: list[DeadLetter] = []
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one", on_dead=told.append)
        columns = [{"name": "title", "type": "string"}]
        await room.save_schema(columns)
        one.insert("todos", "1", {"title": "milk"})
        bad = one.insert("todos", "2", {"title": "tea", "price": 3})
        one.insert("lists", "x", {"anything": 1})
        synced = await one.sync()
        assert synced.pushed.accepted == 2
        [letter] = synced.pushed.dead
        assert [letter] == told == one.dead()
        assert (letter.delta_id, letter.status, letter.code) == (bad, 422, "SCHEMA_ERROR")
        assert letter.columns == {"title": "tea", "price": 3}
        assert one.rows("todos") == await room.fresh_rows() == {"1": {"title": "milk"}}
        columns.append({"name": "price", "type": "number"})
        await room.save_schema(columns)
        one.retry_dead(bad)
        assert (await one.sync()).pushed.accepted == 1
        assert (one.dead(), one.rows("todos")) == ([], await room.fresh_rows())
        assert one.get("todos", "2") == {"title": "tea", "price": 3}


async def test_one_delta_that_is_too_large_does_not_hold_up_the_rest(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        for number, size in enumerate([10, 300_000, 2_000_000, 300_000, 10]):
            one.insert("todos", str(number), {"text": "x" * size})
        pushed = await one.push()
        assert (pushed.accepted, [(letter.row_id, letter.status) for letter in pushed.dead]) == (4, [("2", 413)])
        assert sorted(await room.fresh_rows()) == ["0", "1", "3", "4"]


async def test_tokens(guarded: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(guarded, tmp_path, stack)
        one = await room.replica("one", client_id=None, token=token("till-1", room.gateway))
        assert one.client_id == "till-1"
        one.insert("todos", "1", {"title": "milk"})
        assert (await one.sync()).pushed.accepted == 1
        one.update("todos", "1", {"title": "tea"})
        for wrong in (
            token("till-1", room.gateway, -10.0),
            token("till-1", "elsewhere"),
            token("till-2", room.gateway),
            "nonsense",
        ):
            one.use_token(wrong)
            with pytest.raises(AccessError) as raised:
                await one.push()
            assert wrong not in str(raised.value)
            assert len(one.pending()) == 1
        one.use_token(token("till-1", room.gateway))
        assert (await one.sync()).pushed.accepted == 1


async def test_rows_that_come_into_sight_and_leave_it(guarded: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(guarded, tmp_path, stack)
        await ruled(guarded, room.gateway)
        tea = await room.replica("tea", token=token("tea", room.gateway, org="tea"))
        milk = await room.replica("milk", token=token("milk", room.gateway, org="milk"))
        tea.insert("todos", "1", {"org": "tea", "n": 1, "m": 1})
        tea.insert("todos", "2", {"org": "tea", "n": 2})
        await tea.sync()
        await milk.sync()
        assert milk.rows("todos") == {}
        tea.update("todos", "1", {"org": "milk", "m": None})
        tea.update("todos", "2", {"n": 3})
        await tea.sync()
        await milk.sync()
        assert tea.rows("todos") == {"2": {"org": "tea", "n": 3}}
        assert milk.rows("todos") == {"1": {"org": "milk", "n": 1}}
        milk.update("todos", "1", {"org": "tea", "n": 4})
        await milk.sync()
        await tea.sync()
        assert milk.rows("todos") == {}
        assert tea.rows("todos") == {"1": {"org": "tea", "n": 4}, "2": {"org": "tea", "n": 3}}


async def test_values_that_are_hard_to_print_have_the_id_that_the_server_finds(
    server: RunningServer, tmp_path: Path
) -> None:
    hard = [1e21, 5e-324, -0.0, 1.7976931348623157e308, 2**53, 1e-7, "a\ud800", {"\U0001f389": 1, "\uff5e": [None]}]
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        for number, value in enumerate(hard):
            one.insert("todos", str(number), {"v": value, "nested": {"v": [value]}})
            with pytest.raises(ValueError, match="no JSON form"):
                one.update("todos", str(number), {"v": {"nested": [math.nan, value]}})
        pushed = await one.push()
        assert (pushed.accepted, pushed.duplicates, pushed.dead) == (len(hard), 0, ())
        assert await room.fresh_rows() == one.rows("todos")


async def test_starting_over_ends_where_it_was(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        for db in (one, two):
            for number in range(6):
                db.put("todos", str(number), {db.client_id: number})
            db.delete("todos", db.client_id[:1])
            await db.sync()
        await one.sync()
        before = one.rows("todos")
        one.update("todos", "3", {"one": "unsent"})
        one.start_over()
        assert one.rows("todos") == {"3": {"one": "unsent"}}
        await one.pull()
        assert one.rows("todos") == {**before, "3": {"one": "unsent", "two": 3}}
        assert len(one.pending()) == 1
