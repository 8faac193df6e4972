"""Clients and servers are killed (-9) at every named point: no event is lost or doubled, and each is handled as its
cursor promises."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from semel.client import Client, EventDraft, FileCursor, Patience
from semel.engine.engine import POINTS as SERVER_POINTS
from tests.client.events import reader, writer
from tests.client.events.both import history, opened
from tests.client.names import fresh
from tests.harness.guardian import guard
from tests.harness.serve_with_faults import ORDER
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent.parent
COUNT, DIES_AT = 6, 3
TWICE = {("value", "handled"), ("file", "handled")}
"""Where the event in work is handled a second time: its effect is there, and its cursor is not."""
SERVER_DEATHS = 60


def run(module: str, *words: str) -> int:
    """The exit code of a program."""
    guard()
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, cwd=ROOT, timeout=90, check=False).returncode


@pytest.mark.parametrize("point", reader.POINTS)
@pytest.mark.parametrize("cursor", reader.CURSORS)
def test_events_are_handled_as_the_cursor_promises_wherever_the_reader_dies(
    server: RunningServer, kind: str, cursor: str, point: str, tmp_path: Path
) -> None:
    room = fresh("room")
    with Client(server.url) as client:
        drafts = [EventDraft("n", number, room) for number in range(COUNT)]
        client.events.submit_many([*drafts, EventDraft("last", None, room)])
    words = ("tests.client.events.reader", server.url, room, str(tmp_path), cursor, kind)
    assert run(*words, point, str(DIES_AT)) == -signal.SIGKILL
    assert run(*words, "never", "0") == 0
    with sqlite3.connect(tmp_path / "app.db") as base:
        found = [number for (number,) in base.execute("SELECT n FROM effects ORDER BY rowid")]
    base.close()
    expected = list(range(COUNT))
    if (cursor, point) in TWICE:
        expected.insert(DIES_AT, DIES_AT)
    assert found == expected


@pytest.mark.parametrize("point", writer.POINTS)
def test_an_event_is_committed_once_wherever_its_writer_dies(
    server: RunningServer, kind: str, point: str, tmp_path: Path
) -> None:
    room = fresh("room")
    words = ("tests.client.events.writer", server.url, room, str(tmp_path), kind)
    assert run(*words, point) == -signal.SIGKILL
    with Client(server.url) as client:
        assert len(client.events.read(room).events) == (writer.LAST if point == "written" else writer.COUNT)
        assert run(*words, "never") == 0
        assert [one.data for one in client.events.read(room).events] == list(range(writer.COUNT))


@pytest.mark.usefixtures("_quick")
async def test_nothing_is_lost_or_doubled_when_the_server_dies_at_every_point(kind: str, tmp_path: Path) -> None:
    order = tmp_path / "order"
    with RunningServer(tmp_path / "data", env={ORDER: str(order)}) as server:
        async with opened(kind, server.url, patience=Patience(tries=None)) as client:
            follower = client.events.follow("p", cursor=FileCursor(tmp_path / "cursor"))
            found: list[str] = []
            committed: list[str] = []

            async def read() -> None:
                async for event in follower:
                    found.append(event.id)
                    if event.type == "last":
                        return

            async def write() -> None:
                number = 0
                while not is_over.is_set():
                    done = await client.events.submit("n", number, partitions="p", id=f"e{number}")
                    committed.append(done.id)
                    number += 1
                committed.append((await client.events.submit("last", partitions="p")).id)

            is_over = asyncio.Event()
            tasks = [asyncio.create_task(read()), asyncio.create_task(write())]
            for point in SERVER_POINTS:
                order.write_text(point)
                assert await asyncio.to_thread(server.wait_for_death, SERVER_DEATHS) == -signal.SIGKILL, point
                order.with_suffix(".taken").unlink()
                await asyncio.to_thread(server.start)
            is_over.set()
            await asyncio.wait_for(asyncio.gather(*tasks), 90)
            await follower.aclose()
            assert found == committed
            assert [one.id for one in await history(client.events, "p")] == committed
