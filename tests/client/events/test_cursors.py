"""Cursors in files and in the application's own transactions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest
from django.db import transaction

from semel.client import AsyncClient, Client, Cursor, CursorMovedError, EventDraft, FileCursor, TransactionCursor
from semel.client.errors import FileInUseError, InvalidArgumentError, LocalFileError
from semel.client.events import cursors
from semel.client.events.values import START
from semel.once import InvalidKey, NotInTransaction, TableMissing, UnsupportedConnection
from tests.client.events.both import opened, taken
from tests.client.events.databases import ASYNC, SYNC, Database, database
from tests.client.names import fresh
from tests.harness.server import RunningServer
from tests.once.houses_django import opened as django_connection

pytestmark = pytest.mark.usefixtures("_quick")


async def submitted(client: Any, room: str, count: int) -> None:
    """Commit events whose payload is their number."""
    await client.events.submit_many([EventDraft("n", number, room) for number in range(count)])


async def test_a_cancelled_save_breaks_no_follower(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sync, go_on = tmp_path / "cursor", os.fsync, threading.Event()

    def slow(handle: int) -> None:
        """A disk that waits for the test."""
        assert go_on.wait(30)
        sync(handle)

    room = fresh("room")
    async with AsyncClient(server.url) as client:
        await submitted(client, room, 5)
        follower = client.events.follow(room, cursor=FileCursor(path))
        first = await anext(follower)
        monkeypatch.setattr(os, "fsync", slow)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(follower), 0.05)
        go_on.set()
        assert [one.data for one in await taken(follower, 2)] == [1, 2]
        go_on.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(follower.ack(), 0.05)
        closing = asyncio.ensure_future(follower.aclose())
        await asyncio.sleep(0)
        with pytest.raises(FileInUseError):  # the lock is held as long as the file may change
            await anext(client.events.follow(room, cursor=FileCursor(path)))
        go_on.set()
        await closing
        follower = client.events.follow(room, cursor=FileCursor(path))
        assert (await anext(follower)).data == 3
        assert first.data == 0
        await follower.aclose()


def test_a_late_save_does_not_move_a_cursor_back(tmp_path: Path) -> None:
    store = FileCursor(tmp_path / "cursor")
    store._load()
    store._save(2, [START], Cursor(0, 7))
    store._save(1, [START, Cursor(0, 7)], Cursor(0, 5))  # its caller was cancelled, and its thread comes late
    assert (tmp_path / "cursor").read_text() == "0:7\n"
    store.close()


def test_an_interrupted_save_breaks_no_follower(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = fresh("room")

    def interrupted(folder: Path) -> None:
        """A signal is handled when the file has been replaced."""
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Client(server.url) as client:
        client.events.submit_many([EventDraft("n", number, room) for number in range(3)])
        follower = client.events.follow(room, cursor=FileCursor(tmp_path / "cursor"))
        assert next(follower).data == 0
        monkeypatch.setattr(cursors, "_sync_folder", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(follower)
        assert [next(follower).data, next(follower).data] == [1, 2]
        follower.close()


async def test_a_file_is_saved_when_the_next_event_is_asked_for(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "cursor"
    room = fresh("room")
    async with opened(kind, server.url) as client:
        await submitted(client, room, 5)
        follower = client.events.follow(room, cursor=FileCursor(path))
        events = await taken(follower, 3)
        assert path.read_text().strip() == events[1].cursor.text()
        with pytest.raises(FileInUseError):
            await anext(client.events.follow(room, cursor=FileCursor(path)))
        await follower.aclose()
        follower = client.events.follow(room, cursor=FileCursor(path))
        assert (await anext(follower)).data == 2  # its handling was not finished
        await follower.ack()
        assert path.read_text().strip() == events[2].cursor.text()
        await follower.aclose()
        follower = client.events.follow(room, cursor=FileCursor(path, every=0))
        assert [one.data for one in await taken(follower, 2)] == [3, 4]
        assert path.read_text().strip() == events[2].cursor.text()
        with pytest.raises(InvalidArgumentError):
            await follower.ack(using=object())
        await follower.aclose()
        follower = client.events.follow(room, cursor=FileCursor(tmp_path / "rare", every=3))
        await taken(follower, 3)
        assert not (tmp_path / "rare").exists()
        await anext(follower)
        assert (tmp_path / "rare").read_text().strip() == events[2].cursor.text()
        await follower.aclose()
        follower = client.events.follow(room, cursor=FileCursor(tmp_path / "new", start=events[2].cursor))
        assert (await anext(follower)).data == 3
        await follower.aclose()


async def test_files_that_are_no_cursors_or_move_are_told(server: RunningServer, kind: str, tmp_path: Path) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client:
        await submitted(client, room, 3)
        (tmp_path / "other").write_text("not a cursor")
        for path in (tmp_path / "other", tmp_path / "no folder" / "cursor", tmp_path):
            with pytest.raises(LocalFileError):
                await anext(client.events.follow(room, cursor=FileCursor(path)))
        assert (tmp_path / "other").read_text() == "not a cursor"
        shared = FileCursor(tmp_path / "shared")
        first, second = (client.events.follow(room, cursor=shared) for _ in range(2))
        await taken(first, 1)
        await taken(second, 2)
        with pytest.raises(CursorMovedError):
            await anext(first)
        await first.aclose()
        await second.aclose()


def test_effect_and_cursor_commit_together_in_django(server: RunningServer, tmp_path: Path) -> None:
    room, facts = fresh("room"), {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "app.db")}
    with Client(server.url) as client, django_connection(facts) as connection:
        client.events.submit_many([EventDraft("n", number, room) for number in range(3)])
        TransactionCursor.migrate(connection)
        run(connection, "CREATE TABLE effects (number integer)")
        follower = client.events.follow(room, cursor=TransactionCursor(connection, room))
        for event in islice(follower, 2):
            with transaction.atomic(using=connection.alias):
                run(connection, f"INSERT INTO effects VALUES ({event.data})")
                follower.ack()
        event = next(follower)
        with pytest.raises(NotInTransaction):
            follower.ack()
        with transaction.atomic(using=connection.alias):
            run(connection, f"INSERT INTO effects VALUES ({event.data})")
            follower.ack()
            transaction.set_rollback(True, using=connection.alias)
        follower.close()
        follower = client.events.follow(room, cursor=TransactionCursor(connection, room))
        assert next(follower).data == 2
        follower.close()
        assert run(connection, "SELECT number FROM effects") == [(0,), (1,)]


def run(connection: Any, sql: str) -> list[Any]:
    """Run a statement by Django."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


@pytest.mark.parametrize("name", [*SYNC, *ASYNC])
def test_effect_and_cursor_commit_together(server: RunningServer, name: str, tmp_path: Path) -> None:
    kinds = ("async", "blocking") if name in SYNC else ("async",)

    async def main(kind: str, base: Database) -> None:
        room = fresh("room")
        async with opened(kind, server.url) as client, base:
            await submitted(client, room, 5)
            cursor = TransactionCursor(base.connection, room)
            follower = client.events.follow(room, cursor=cursor)
            events = await taken(follower, 2)
            assert await base.is_idle()  # reading the cursor has left no transaction open
            for event in events:
                await base.handle(follower, event)
            event = await anext(follower)
            await base.handle(follower, event, is_kept=False)  # neither effect nor cursor remains
            event = await anext(follower)
            with pytest.raises(CursorMovedError):
                await base.handle(follower, event)
            await follower.aclose()
            assert await base.effects() == [0, 1]
            follower = client.events.follow(room, cursor=TransactionCursor(base.connection, room))
            late = client.events.follow(room, cursor=TransactionCursor(base.connection, room))
            behind = await anext(late)
            for event in await taken(follower, 3):
                await base.handle(follower, event)
            with pytest.raises(CursorMovedError):  # a second reader of the same name is refused
                await base.handle(late, behind)
            assert await base.effects() == [0, 1, 2, 3, 4]
            await follower.aclose()
            await late.aclose()

    for kind in kinds:
        asyncio.run(main(kind, database(name, tmp_path / kind)))


@pytest.mark.parametrize("name", ["sqlite3", "psycopg", "asyncpg"])
def test_an_event_that_is_handled_again_after_a_rollback_takes_effect_once(
    server: RunningServer, name: str, tmp_path: Path
) -> None:
    async def main(base: Database) -> None:
        room = fresh("room")
        async with AsyncClient(server.url) as client, base:
            await submitted(client, room, 5)
            follower = client.events.follow(room, cursor=TransactionCursor(base.connection, room))
            for _ in range(3):
                event = await anext(follower)
                await base.handle(follower, event, is_kept=False)
                await base.handle(follower, event)  # a deadlock, say: the application tries the same event again
                with pytest.raises(CursorMovedError):  # the commit was made, and only its answer was lost
                    await base.handle(follower, event)
            await follower.aclose()
            assert await base.effects() == [0, 1, 2]
            follower = client.events.follow(room, cursor=TransactionCursor(base.connection, room))
            assert [one.data for one in await taken(follower, 2)] == [3, 4]
            await follower.aclose()

    asyncio.run(main(database(name, tmp_path)))


async def test_an_ack_of_an_earlier_event_does_not_move_the_cursor_back(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room, path = fresh("room"), tmp_path / "cursor"
    connection = sqlite3.connect(tmp_path / "app.db", check_same_thread=False)
    TransactionCursor.migrate(connection)
    connection.commit()
    async with opened(kind, server.url) as client:
        await submitted(client, room, 4)
        follower = client.events.follow(room, cursor=FileCursor(path, every=0))
        await follower.ack()
        assert not path.exists()
        events = await taken(follower, 3)
        await follower.ack(events[2])
        await follower.ack(events[0])
        assert path.read_text().strip() == events[2].cursor.text()
        await follower.aclose()
        follower = client.events.follow(room, cursor=TransactionCursor(connection, "reader"))
        await follower.ack()  # nothing was handed over yet
        events = await taken(follower, 3)
        await follower.ack(events[2])
        connection.commit()
        for event in events[:2]:  # its effect would be there twice
            with pytest.raises(CursorMovedError):
                await follower.ack(event)
            connection.rollback()
        await follower.ack(await anext(follower))
        connection.rollback()
        await follower.aclose()
        follower = client.events.follow(room, cursor=TransactionCursor(connection, "reader"))
        [event] = await taken(follower, 1)
        assert event.data == 3
        with pytest.raises(CursorMovedError):
            await follower.ack(events[2])
        await follower.ack(event)
        connection.commit()
        await follower.aclose()
    connection.close()


async def test_events_of_a_transaction_that_was_rolled_back_are_handled_one_by_one(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room = fresh("room")
    async with opened(kind, server.url) as client, database("sqlite3", tmp_path) as base:
        await submitted(client, room, 3)
        follower = client.events.follow(room, cursor=TransactionCursor(base.connection, "reader"))
        events = await taken(follower, 3)
        with pytest.raises(NotInTransaction):
            await follower.ack(using=apsw.Connection(":memory:"))
        await follower.ack()
        base.connection.rollback()
        for event in events:
            await base.handle(follower, event)
        await follower.aclose()
        assert await base.effects() == [0, 1, 2]


async def test_several_events_of_one_transaction_and_another_connection(
    server: RunningServer, kind: str, tmp_path: Path
) -> None:
    room, place = fresh("room"), tmp_path / "app.db"
    connection, other = (sqlite3.connect(place, check_same_thread=False) for _ in range(2))
    TransactionCursor.migrate(connection)
    connection.commit()
    async with opened(kind, server.url) as client:
        await submitted(client, room, 4)
        follower = client.events.follow(room, cursor=TransactionCursor(connection, "reader"))
        events = await taken(follower, 3)
        await follower.ack(events[1])
        connection.commit()
        await follower.ack(using=other)
        other.commit()
        await follower.aclose()
        follower = client.events.follow(room, cursor=TransactionCursor(connection, "reader"))
        assert (await anext(follower)).data == 3
        await follower.aclose()
    connection.close()
    other.close()


async def test_wrong_connections_tables_and_names_are_told(server: RunningServer, kind: str, tmp_path: Path) -> None:
    room = fresh("room")
    connection = sqlite3.connect(tmp_path / "app.db", check_same_thread=False, isolation_level=None)
    async with opened(kind, server.url) as client:
        await submitted(client, room, 1)
        with pytest.raises(TableMissing):
            await anext(client.events.follow(room, cursor=TransactionCursor(connection, "reader")))
        TransactionCursor.migrate(connection)
        follower = client.events.follow(room, cursor=TransactionCursor(connection, "reader"))
        await anext(follower)
        with pytest.raises(NotInTransaction):  # autocommit: effect and cursor would be two commits
            await follower.ack()
        await follower.aclose()
    connection.close()
    with pytest.raises(UnsupportedConnection):
        TransactionCursor(object(), "reader")
    for name in ("", "x" * 300, "a\nb"):
        with pytest.raises(InvalidKey):
            TransactionCursor(connection, name)
    with pytest.raises(InvalidKey):
        TransactionCursor(connection, "reader", table="x; DROP TABLE y")


async def test_an_asynchronous_connection_needs_the_asynchronous_client(server: RunningServer, tmp_path: Path) -> None:
    async with opened("blocking", server.url) as client, database("sqlalchemy-async-session", tmp_path) as base:
        with pytest.raises(InvalidArgumentError):
            client.events.follow("p", cursor=TransactionCursor(base.connection, "reader"))
