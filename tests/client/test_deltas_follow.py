"""Following: what others change is told, own writes go out at once, and a server that is away is waited for."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from semel.client import CallError, Change, Patience
from tests.client.deltas_room import Room
from tests.client.names import until
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("each_kind")
SECONDS = 30.0


async def test_following(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        one.insert("todos", "1", {"title": "milk"})
        heard: asyncio.Queue[Change] = asyncio.Queue()

        async def listen() -> None:
            async for change in two.follow(every=0.05):
                heard.put_nowait(change)

        async def hear() -> Change:
            async with asyncio.timeout(SECONDS):
                return await heard.get()

        listening = asyncio.create_task(listen())
        await one.sync()
        assert await hear() == Change("todos", "1", None, {"title": "milk"})
        one.update("todos", "1", {"title": "tea"})
        await one.sync()
        assert await hear() == Change("todos", "1", {"title": "milk"}, {"title": "tea"})
        two.insert("todos", "2", {"title": "mine"})
        async with asyncio.timeout(SECONDS):
            await until(lambda: not two.pending())
        await one.sync()
        assert one.get("todos", "2") == {"title": "mine"}
        one.delete("todos", "1")
        await one.sync()
        assert await hear() == Change("todos", "1", {"title": "tea"}, None)
        assert heard.empty()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_an_own_write_is_sent_without_waiting_for_the_next_look(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        two.insert("todos", "0", {})
        await two.push()
        changes = one.follow(every=3_600.0)
        assert (await anext(changes)).row_id == "0"
        waiting = asyncio.ensure_future(anext(changes))
        async with asyncio.timeout(SECONDS):
            await asyncio.to_thread(one.insert, "todos", "1", {})
            await until(lambda: not one.pending())
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_following_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        async with AsyncExitStack() as stack:
            room = Room(server, tmp_path, stack)
            errors: list[CallError] = []
            options = {"patience": Patience(tries=2), "on_retry": errors.append}
            one, two = await room.replica("one"), await room.replica("two", **options)
            one.insert("todos", "1", {})
            await one.push()
            changes = two.follow(every=0.05)
            assert (await anext(changes)).row_id == "1"
            server.kill()
            waiting = asyncio.ensure_future(anext(changes))
            two.insert("todos", "2", {})
            one.insert("todos", "3", {})
            await until(lambda: len(errors) >= 4)
            assert not waiting.done()
            await asyncio.to_thread(server.start)
            await one.push()
            async with asyncio.timeout(SECONDS):
                assert (await waiting).row_id == "3"
            await changes.aclose()
            assert two.pending() == []
