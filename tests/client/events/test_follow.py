"""Following partitions: restarts, filters, and histories that have a gap."""

from __future__ import annotations

import asyncio
import gc
import shutil
from pathlib import Path
from typing import Any

import pytest

from semel.client import (
    AsyncClient,
    Client,
    Cursor,
    EventDraft,
    EventsPrunedError,
    EventsResetError,
    FileCursor,
    HistoryGapError,
    LogBehindError,
    Patience,
)
from semel.client.errors import GoneError, InvalidArgumentError, NoAnswerError
from semel.client.events.values import START
from semel.client.transport.socket_network import BlockingStream
from tests.cli.command import Semel
from tests.client.both import LOOPS
from tests.client.events.both import history, opened, taken
from tests.client.names import fresh
from tests.harness.server import RunningServer

pytestmark = pytest.mark.usefixtures("_quick")


@pytest.fixture(params=LOOPS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which client, and its loop: a follower holds a connection."""
    return str(request.param)


async def submitted(client: Any, room: str, *numbers: int) -> None:
    """Commit events whose payload is a number."""
    await client.events.submit_many([EventDraft("n", number, room) for number in numbers])


async def test_history_and_new_events_are_one_sequence(server: RunningServer, kind: str) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        await submitted(client, room, *range(300))
        follower = client.events.follow([room, fresh("room")])
        found = await taken(follower, 300)
        waiting = asyncio.ensure_future(anext(follower))
        await submitted(client, room, 300)
        found.append(await waiting)
        assert [one.data for one in found] == list(range(301))
        assert follower.cursor == found[-1].cursor == Cursor.of_text(found[-1].cursor.text())
        await follower.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(follower)
        follower = client.events.follow(room, cursor=found[298].cursor)
        assert [one.data for one in await taken(follower, 2)] == [299, 300]
        await follower.aclose()
        follower = client.events.follow(room, cursor=await client.events.end(room))
        await submitted(client, room, 301)
        assert (await anext(follower)).data == 301
        await follower.aclose()


async def test_without_live_a_follower_ends_at_the_end_of_the_log(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        await submitted(client, room, *range(600))
        for first in (0, 600):  # the second run has nothing left to do
            follower = client.events.follow(room, cursor=FileCursor(tmp_path / "cursor", every=100), live=False)
            assert [one.data async for one in follower] == list(range(first, 600))
            await follower.aclose()
        follower = client.events.follow(fresh("room"), live=False)
        assert [one async for one in follower] == []
        follower = client.events.follow(room, types="other", live=False)
        assert [one async for one in follower] == []
        follower = client.events.follow(room, live=False)
        assert len([one async for one in follower]) == 600


async def test_without_live_a_cursor_past_the_end_of_the_log_is_told(kind: str, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        async with opened(kind, server.url) as client:
            await submitted(client, "p", 0, 1, 2)
            for is_live in (True, False):
                follower = client.events.follow("p", cursor=Cursor(0, 5), live=is_live)
                for _ in range(2):
                    with pytest.raises(LogBehindError):
                        await anext(follower)
                await follower.aclose()
            follower = client.events.follow("p", cursor=Cursor(0, 3), live=False)
            assert [one async for one in follower] == []


class _Interrupt(BaseException):
    """What a signal handler raises."""


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, _Interrupt])
@pytest.mark.parametrize("is_live", [True, False])
def test_an_interrupt_skips_no_event(
    server: RunningServer, is_live: bool, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    room, receive = fresh("room"), BlockingStream.receive

    async def interrupted(self: BlockingStream, seconds: float) -> bytes:
        """A signal is handled right after the bytes were received."""
        await receive(self, seconds)
        monkeypatch.setattr(BlockingStream, "receive", receive)
        raise interrupt

    with Client(server.url) as client, Client(server.url) as other:
        other.events.submit_many([EventDraft("n", number, room) for number in range(2)])
        follower = client.events.follow(room, live=is_live)
        found = [next(follower).data] if is_live else []
        if is_live:
            found.append(next(follower).data)
            other.events.submit("n", 2, partitions=room)
        monkeypatch.setattr(BlockingStream, "receive", interrupted)
        with pytest.raises(interrupt):
            next(follower)
        if is_live:
            other.events.submit("n", 3, partitions=room)
        found += [next(follower).data for _ in range(2)]
        follower.close()
        assert found == list(range(len(found)))


def test_an_interrupt_when_an_event_is_about_to_be_handed_over_skips_none(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = fresh("room")
    with Client(server.url) as client:
        client.events.submit_many([EventDraft("n", number, room) for number in range(3)])
        follower = client.events.follow(room)
        assert next(follower).data == 0
        network = client.caller.transport.network

        def interrupted() -> float:
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr(network, "now", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(follower)
        assert [next(follower).data, next(follower).data] == [1, 2]
        follower.close()


@pytest.mark.usefixtures("each_loop")
async def test_a_cancelled_wait_skips_no_event_and_keeps_the_connection(server: RunningServer) -> None:
    room = fresh("room")
    async with AsyncClient(server.url) as client:
        await submitted(client, room, 0)
        follower = client.events.follow(room)
        assert (await anext(follower)).data == 0
        kept = follower._answer
        for number in range(1, 6):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(follower), 0.01)
            await submitted(client, room, number)
            assert (await anext(follower)).data == number
        assert follower._answer is kept
        await follower.aclose()


def test_a_follower_that_was_left_gives_its_connection_back(server: RunningServer, kind: str) -> None:
    async def main() -> None:
        room = fresh("room")
        async with opened(kind, server.url, connections=1) as client:
            await submitted(client, room, 0)
            for _ in range(3):
                async for event in client.events.follow(room):
                    assert event.data == 0
                    break
                gc.collect()
                assert await client.events.end(room) == event.cursor

    asyncio.run(asyncio.wait_for(main(), 60))


async def test_types_select_events(server: RunningServer, kind: str) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        drafts = [EventDraft("even" if n % 2 == 0 else "odd", n, room) for n in range(6)]
        await client.events.submit_many(drafts)
        follower = client.events.follow(room, types=["odd", "other"])
        assert [one.data for one in await taken(follower, 3)] == [1, 3, 5]
        await follower.aclose()


async def test_a_follower_outlives_restarts_of_the_server(kind: str, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        async with opened(kind, server.url) as client:
            follower = client.events.follow("p")
            for number in range(3):
                await submitted(client, "p", 2 * number, 2 * number + 1)
                assert (await anext(follower)).data == 2 * number
                await asyncio.to_thread(server.kill if number else server.stop)
                await asyncio.to_thread(server.start)
                assert (await anext(follower)).data == 2 * number + 1
            await follower.aclose()


async def test_patience_limits_the_wait_for_a_server(kind: str) -> None:
    async with opened(kind, "http://127.0.0.1:1") as client:
        follower = client.events.follow("p", patience=Patience(tries=3))
        with pytest.raises(NoAnswerError):
            await anext(follower)
        await follower.aclose()


@pytest.mark.parametrize("is_live", [True, False])
async def test_deleted_events_are_told_until_they_are_accepted(kind: str, tmp_path: Path, is_live: bool) -> None:
    with RunningServer(tmp_path / "data") as server:
        async with opened(kind, server.url) as client:
            await submitted(client, "p", 0, 1)
            old = await history(client.events, "p")
            follower = client.events.follow("p", cursor=FileCursor(tmp_path / "cursor"))
            assert (await anext(follower)).data == 0
            await follower.ack()
            await follower.aclose()
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start, {"SEMEL_EVENTS_RETENTION_MS": "1", "SEMEL_SWEEP_INTERVAL_MS": "20"})
            for _ in range(1_000):
                try:
                    await client.events.get(old[-1].id)
                except GoneError:
                    break
                await asyncio.sleep(0.02)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await submitted(client, "p", 2)
            for _ in range(2):  # also after a restart of the reader
                follower = client.events.follow("p", cursor=FileCursor(tmp_path / "cursor"))
                for _ in range(2):
                    with pytest.raises(EventsPrunedError) as gap:
                        await anext(follower)
                    assert gap.value.cursor == old[0].cursor
                    assert gap.value.next_cursor.committed_id == old[-1].committed_id
                await follower.aclose()
            follower = client.events.follow("p", cursor=FileCursor(tmp_path / "cursor"), live=is_live)
            with pytest.raises(HistoryGapError) as told:
                await anext(follower)
            with pytest.raises(InvalidArgumentError):
                await follower.accept(told.value, at=0)
            await follower.accept(told.value)
            assert (tmp_path / "cursor").read_text().strip() == told.value.next_cursor.text()
            assert (await anext(follower)).data == 2
            with pytest.raises(InvalidArgumentError):
                await follower.accept(told.value)
            await follower.aclose()
            page = await client.events.read("p")
            assert page.pruned_to == old[-1].committed_id


@pytest.mark.parametrize("is_raised", [True, False])
async def test_a_restored_backup_is_told(kind: str, tmp_path: Path, is_raised: bool) -> None:
    with RunningServer(tmp_path / "data") as server:
        async with opened(kind, server.url) as client:
            await submitted(client, "p", 0, 1)
            await asyncio.to_thread(server.stop)
            shutil.copytree(tmp_path / "data", tmp_path / "backup")
            await asyncio.to_thread(server.start)
            await submitted(client, "p", 2, 3)
            follower = client.events.follow("p")
            events = await taken(follower, 4)
            await asyncio.to_thread(server.stop)
            shutil.rmtree(tmp_path / "data")
            shutil.copytree(tmp_path / "backup", tmp_path / "data")
            if is_raised:
                words = ("epoch", "raise", "--data", str(tmp_path / "data"), "--yes", "--json")
                raised = await asyncio.to_thread(Semel(server.url).here, *words)
                assert raised.facts["raised"] is True
            await asyncio.to_thread(server.start)
            await submitted(client, "p", 4)
            if not is_raised:
                with pytest.raises(LogBehindError) as behind:
                    await anext(follower)
                assert behind.value.cursor == events[-1].cursor
                await follower.aclose()
                return
            with pytest.raises(EventsResetError):
                await anext(follower)
            with pytest.raises(EventsResetError) as gap:
                await anext(follower)
            assert gap.value.next_cursor.committed_id == events[1].committed_id
            with pytest.raises(EventsResetError) as page:
                await client.events.read("p", since=events[-1].cursor)
            assert page.value.next_cursor == gap.value.next_cursor
            await follower.accept(gap.value)
            new = await anext(follower)
            assert (new.data, new.cursor.epoch) == (4, gap.value.next_cursor.epoch)
            assert new.committed_id > events[-1].committed_id
            await follower.aclose()
            follower = client.events.follow("p", cursor=START)
            found = await taken(follower, 3)
            assert [one.data for one in found] == [0, 1, 4]
            assert {one.cursor.epoch for one in found} == {new.cursor.epoch}
            # A position without an epoch is one of the log as it is now.
            later = client.events.follow("p", cursor=events[1].committed_id)
            assert (await taken(later, 1))[0].cursor == later.cursor == new.cursor
            await later.aclose()
            ended = client.events.follow("p", cursor=new.committed_id - 1, live=False)
            assert [one.cursor async for one in ended] == [new.cursor]
            page = await client.events.last("p", before=new.committed_id + 1)
            assert [one.cursor for one in page.events] == [new.cursor]
            await follower.aclose()
            assert (await client.events.get(new.id)).cursor == new.cursor


@pytest.mark.parametrize("text", ["", "57", "a:b", "1:-2", "1:2:3", "99999999999999999:1", "1:9999999999999999"])
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Cursor.of_text(text)
