"""A replica over the wire: what it is sent when it begins, what it is not sent, and how it hears of others."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from semel.client import Change, Patience
from semel.client.access import find_access
from semel.client.deltas.live_connection import FIRST_SECONDS, LONGEST_SECONDS, STEADY_SECONDS, LiveConnection
from semel.client.transport.asyncio_network import AsyncioNetwork
from semel.client.transport.http_transport import Transport
from tests.client.both import LOOPS
from tests.client.deltas_room import Room
from tests.client.names import until
from tests.client.replica_kinds import Opened, open_async
from tests.client.wiretap import Wiretap
from tests.harness.server import RunningServer

pytestmark = [
    pytest.mark.usefixtures("each_kind"),
    pytest.mark.parametrize("each_kind", LOOPS, indirect=True),
]
SECONDS = 30.0
ROWS, UPDATES = 20, 1_000
CHECKPOINT_BYTES = 20_000
LOG_BYTES = 200_000
NEVER = 3_600.0


def log_bytes(server: RunningServer, gateway: str) -> int:
    """How many bytes the whole log is."""
    query = "since=0&clientId=somebody&limit=10000"
    return len(httpx.get(f"{server.url}/v1/sync/{gateway}/pull?{query}", timeout=SECONDS).content)


async def test_g6_a_fresh_client_is_sent_the_checkpoint_and_not_the_log(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        with one.transaction():
            for number in range(ROWS):
                one.insert("todos", str(number), {"n": -1, "title": f"row {number}"})
        for start in range(0, UPDATES, 500):
            with one.transaction():
                for number in range(start, start + 500):
                    one.update("todos", str(number % ROWS), {"n": number})
        assert (await one.push()).accepted == ROWS + UPDATES
        tap = await stack.enter_async_context(Wiretap(server.port))
        two = await room.replica("two", url=tap.url)
        pulled = await two.pull()
        assert two.rows("todos") == one.rows("todos")
        assert (pulled.entries, pulled.changed) == (ROWS, ROWS)
        assert tap.received < CHECKPOINT_BYTES
        assert log_bytes(server, room.gateway) > LOG_BYTES


async def test_g6_own_entries_are_not_sent_back(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        tap = await stack.enter_async_context(Wiretap(server.port))
        one, two = await room.replica("one", url=tap.url), await room.replica("two")
        two.insert("todos", "0", {})
        await two.push()
        await one.sync()
        before = tap.received
        for round_number in range(5):
            for number in range(20):
                one.put("todos", f"{number}", {"text": "x" * 1_000, "n": round_number})
            synced = await one.sync()
            assert (synced.pushed.accepted, synced.pulled.entries) == (20, 0)
        assert tap.received - before < 20_000, "a hundred writes of a kilobyte have come back"
        two.update("todos", "0", {"n": 1})
        await two.push()
        assert (await one.sync()).pulled.entries == 1
        await two.sync()
        assert one.rows("todos") == two.rows("todos") == await room.fresh_rows()


def remembered(server: RunningServer, gateway: str) -> list[Any]:
    """The clients of which something is stored."""
    clients: list[Any] = httpx.get(f"{server.url}/v1/admin/clients/{gateway}").json()["clients"]
    return clients


async def test_g6_nothing_is_remembered_of_clients_that_pull_and_push(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one, two = await room.replica("one"), await room.replica("two")
        for db in (one, two, one, two):
            db.put("todos", "1", {db.client_id: 1})
            await db.sync()
        assert remembered(server, room.gateway) == []


class Ear:
    """Somebody who follows, in a task."""

    def __init__(self, db: Opened, **options: Any) -> None:
        self.heard: list[Change] = []
        self.task = asyncio.create_task(self._listen(db, options))

    async def _listen(self, db: Opened, options: dict[str, Any]) -> None:
        async for change in db.follow(**options):
            self.heard.append(change)

    async def rows(self, *rows: str) -> None:
        """Wait until these rows have been told of, in this order."""
        await until(lambda: len(self.heard) >= len(rows) or self.task.done())
        assert [change.row_id for change in self.heard] == list(rows)

    async def end(self) -> None:
        """Do not listen any more."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_g6_changes_arrive_by_websocket_and_nothing_is_asked_for(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        tap = await stack.enter_async_context(Wiretap(server.port))
        one, two = await room.replica("one"), await room.replica("two", url=tap.url)
        one.insert("todos", "0", {"n": 0})
        await one.push()
        ear = Ear(two, every=0.05)
        await ear.rows("0")
        await until(lambda: tap.count("GET ws") == 1)
        one.insert("todos", "1", {"n": 1})
        await one.push()
        await ear.rows("0", "1")
        asked = [request for request in tap.requests if request != "POST push"]
        for number in range(2, 8):
            one.insert("todos", str(number), {"n": number})
            await one.push()
            two.insert("todos", f"own {number}", {"n": number})
            await ear.rows(*map(str, range(number + 1)))
            await asyncio.sleep(0.1)
        await until(lambda: not two.pending())
        one.delete("todos", "0")
        await one.push()
        await until(lambda: two.get("todos", "0") is None)
        assert [request for request in tap.requests if request != "POST push"] == asked, "something was asked for"
        await until(lambda: ear.heard[-1] == Change("todos", "0", {"n": 0}, None))
        await one.sync()
        assert one.rows("todos") == two.rows("todos")
        await ear.end()


async def test_g6_a_websocket_that_is_cut_is_opened_again_and_nothing_is_missed(
    server: RunningServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        tap = await stack.enter_async_context(Wiretap(server.port))
        one, two = await room.replica("one"), await room.replica("two", url=tap.url)
        one.insert("todos", "first", {})
        await one.push()
        ear, told = Ear(two, every=0.05), ["first"]
        for number in range(3):
            await until(partial(lambda count: tap.count("GET ws") > count, number))
            for half in ("before", "after"):
                one.insert("todos", f"{number} {half}", {})
                await one.push()
                told.append(f"{number} {half}")
                if half == "before":
                    await tap.cut()
            await ear.rows(*told)
        assert two.rows("todos") == one.rows("todos")
        await ear.end()


async def test_g6_without_websockets_it_asks_now_and_then(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        tap = await stack.enter_async_context(Wiretap(server.port, has_websockets=False))
        one, two = await room.replica("one"), await room.replica("two", url=tap.url)
        ear = Ear(two, every=0.05)
        for number in range(3):
            one.insert("todos", str(number), {})
            await one.push()
            await ear.rows(*map(str, range(number + 1)))
        await until(lambda: tap.count("GET pull") > 10)
        assert 1 <= tap.count("GET ws") <= 4, "it was tried again without a pause"
        await ear.end()


async def test_g6_following_without_a_websocket_if_told_so(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        tap = await stack.enter_async_context(Wiretap(server.port))
        one, two = await room.replica("one"), await room.replica("two", url=tap.url)
        ear = Ear(two, every=0.05, live=False)
        one.insert("todos", "0", {})
        await one.push()
        await ear.rows("0")
        await until(lambda: tap.count("GET pull") > 5)
        assert tap.count("GET ws") == 0
        await ear.end()


def sockets(server: RunningServer) -> int:
    """How many WebSockets of deltas are open."""
    found: int = httpx.get(f"{server.url}/metrics").json()["semel_deltas_sockets"]
    return found


@pytest.mark.parametrize("is_live", [True, False])
async def test_g6_a_client_that_is_closed_leaves_no_socket_and_no_task(tmp_path: Path, *, is_live: bool) -> None:
    with RunningServer(tmp_path / "data") as server:
        async with AsyncExitStack() as stack:
            room = Room(server, tmp_path, stack)
            one, two = await room.replica("one"), await room.replica("two")
            one.insert("todos", "0", {})
            await one.push()
            before = asyncio.all_tasks()
            ear = Ear(two, every=NEVER, live=is_live)
            await ear.rows("0")
            await until(lambda: sockets(server) == is_live)
            await two.close()
            async with asyncio.timeout(SECONDS):
                await ear.task
            assert asyncio.all_tasks() == before
            await until(lambda: sockets(server) == 0)


async def test_g6_following_ends_when_it_is_closed_or_dropped(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        async with AsyncExitStack() as stack:
            room = Room(server, tmp_path, stack)
            one, two = await room.replica("one"), await room.replica("two")
            one.insert("todos", "0", {})
            one.insert("todos", "1", {})
            await one.push()
            for end in ("closed", "dropped", "replica"):
                two.start_over()
                changes = two.follow(every=NEVER)
                assert [(await anext(changes)).row_id for _ in range(2)] == ["0", "1"]
                one.put("todos", "2", {"end": end})
                waiting = asyncio.ensure_future(anext(changes))
                await one.push()
                assert (await waiting).row_id == "2"
                one.delete("todos", "2")
                one.insert("todos", "3", {"end": end})
                await one.push()
                assert (await anext(changes)).row_id == "2"
                await until(lambda: sockets(server) == 1)
                one.delete("todos", "3")
                await one.push()
                if end == "closed":
                    await changes.aclose()
                elif end == "replica":
                    await two.close()
                del waiting, changes
                await until(lambda: sockets(server) == 0)


async def test_g6_a_wait_that_is_given_up_loses_no_change(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        two = await stack.enter_async_context(
            open_async(tmp_path / "two.db", url=server.url, gateway=room.gateway, client_id="two")
        )
        heard: list[str] = []
        changes = two.follow(every=0.05)
        for number in range(10):
            one.insert("todos", str(number), {})
            await one.push()
            while len(heard) <= number:
                try:
                    async with asyncio.timeout(0.003 * (number + 1)):
                        heard.append((await anext(changes)).row_id)
                except TimeoutError:
                    continue
        assert heard == list(map(str, range(10)))


async def test_g6_a_page_that_waits_for_a_push_is_kept_when_the_wait_is_given_up(
    server: RunningServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        tap = await stack.enter_async_context(Wiretap(server.port))
        one = await room.replica("one")
        two = await stack.enter_async_context(
            open_async(tmp_path / "two.db", url=tap.url, gateway=room.gateway, client_id="two")
        )
        one.insert("todos", "0", {})
        await one.push()
        changes = two.follow(every=0.05)
        assert (await anext(changes)).row_id == "0"
        waiting = asyncio.ensure_future(anext(changes))
        await until(lambda: tap.count("GET ws") == 1)
        await asyncio.sleep(0.2)
        async with two.calls._exchange._turn:  # as a push does that has no answer yet
            before = tap.received
            one.insert("todos", "1", {})
            await one.push()
            await until(lambda: tap.received > before)
            await asyncio.sleep(0.2)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        one.insert("todos", "2", {})
        await one.push()
        async with asyncio.timeout(SECONDS):
            assert [(await anext(changes)).row_id for _ in range(2)] == ["1", "2"]
        assert two.rows("todos") == one.rows("todos")
        assert tap.count("GET ws") == 1


class Standing:
    """A network of which only the time counts."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now(self) -> float:
        """The time that the test has set."""
        return self.seconds


def test_g6_pauses_between_websockets_grow_and_differ() -> None:
    network, chance = Standing(), [0.0]
    access = find_access({})
    replica: Any = None
    transport: Any = Transport(access, cast("Any", AsyncioNetwork(lambda: cast("Any", None))), 1)
    transport.network = network
    line = LiveConnection(replica, transport, "", "", 0, lambda: chance[0])

    def pause() -> float:
        line._put_off()
        return line._due - network.seconds

    line._began = network.seconds
    assert [pause() for _ in range(4)] == [FIRST_SECONDS * half for half in (0.5, 1.0, 2.0, 4.0)]
    chance[0] = 1.0
    assert [pause() for _ in range(8)][-1] == LONGEST_SECONDS
    network.seconds += STEADY_SECONDS
    assert pause() == 0.0, "one that has lasted is opened again at once"


# Places that the server does not keep


def cursor_of(path: Path) -> int:
    """How far a replica was told, from its file."""
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("SELECT value FROM semel_meta WHERE name = 'cursor'").fetchone()[0])


def expired(url: str, gateway: str, cursor: int) -> Callable[[], bool]:
    """Whether the log behind a cursor is gone."""
    path = f"{url}/v1/sync/{gateway}/pull?dialect=plain&since={cursor}&clientId=x"
    return lambda: httpx.get(path).status_code == 410


async def test_g6_a_replica_whose_place_is_gone_takes_the_checkpoint_by_itself(tmp_path: Path) -> None:
    env = {"SEMEL_DELTAS_KEEP_LOG_SEC": "1", "SEMEL_SWEEP_INTERVAL_MS": "50"}
    with RunningServer(tmp_path / "data", env=env) as server:
        async with AsyncExitStack() as stack:
            room = Room(server, tmp_path, stack)
            one, two = await room.replica("one"), await room.replica("two")
            for row in ("kept", "gone", "both"):
                one.insert("todos", row, {"n": 1, "m": 1})
            await one.push()
            await two.pull()
            two.insert("todos", "mine", {"n": 2})
            two.update("todos", "both", {"n": 2})
            one.delete("todos", "gone")
            one.update("todos", "both", {"m": 3})
            await one.push()
            await until(expired(server.url, room.gateway, cursor_of(tmp_path / "two.db")))
            await two.pull()
            assert two.rows("todos") == {"kept": {"n": 1, "m": 1}, "both": {"n": 2, "m": 3}, "mine": {"n": 2}}
            assert [delta.row_id for delta in two.pending()] == ["mine", "both"]
            await two.sync()
            await one.sync()
            assert one.rows("todos") == two.rows("todos") == await room.fresh_rows()
            # And so does one that follows.
            one.delete("todos", "kept")
            await one.push()
            await until(expired(server.url, room.gateway, cursor_of(tmp_path / "two.db")))
            ear = Ear(two, every=0.05)
            await ear.rows("kept")
            await ear.end()


async def test_g6_an_older_copy_of_the_file_is_told_what_its_later_life_wrote(
    server: RunningServer, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        one.insert("todos", "1", {})
        await one.sync()
        await one.close()
        copy = (tmp_path / "one.db").read_bytes()
        one = await room.replica("one")
        one.insert("todos", "2", {})
        await one.sync()
        await one.close()
        (tmp_path / "one.db").write_bytes(copy)
        one = await room.replica("one")
        one.insert("todos", "3", {})
        await one.push()
        assert (await one.pull()).entries == 1
        assert sorted(one.rows("todos")) == ["1", "2", "3"]
        assert one.rows("todos") == await room.fresh_rows()


async def test_g6_a_checkpoint_that_breaks_off_is_taken_again(server: RunningServer, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        room = Room(server, tmp_path, stack)
        one = await room.replica("one")
        for number in range(8):
            one.insert("todos", str(number), {"text": "x" * 400_000})
        await one.push()
        tap = await stack.enter_async_context(Wiretap(server.port))
        two = await room.replica("two", url=tap.url, patience=Patience(tries=20))
        pulling = asyncio.create_task(two.pull())
        await until(lambda: tap.received > 500_000)
        await tap.cut()
        await pulling
        assert two.rows("todos") == one.rows("todos")
