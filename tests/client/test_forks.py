"""Forked processes and symbolic links: a file is used by one process, and a connection is read by one."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.client import Client, Cursor, EventDraft, FileCursor
from semel.client.errors import FileInUseError, LocalFileError
from semel.client.ledger.intent_file import IntentFile, NewIntent
from semel.client.ledger.operations import SetKey
from semel.client.ledger.trusted_head import TrustedHead
from semel.client.ledger.values import PlaceName
from tests.client.ledger_place import new_place
from tests.client.names import fresh
from tests.harness.server import RunningServer

SECONDS = 60
HASH = "ab" * 32
PLACE = PlaceName("7001", "9001")


def forked(work: Callable[[], None]) -> None:
    """Do something in a forked process, and wait for it; a failure there is one here."""
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        try:
            work()
        except BaseException:  # noqa: BLE001 - a forked process must not go on with the tests
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def refused(work: Callable[[], object]) -> Callable[[], None]:
    """Something that a forked process must not do."""

    def check() -> None:
        with pytest.raises(FileInUseError, match="forked"):
            work()

    return check


def test_a_forked_process_does_not_read_the_followers_connection(server: RunningServer) -> None:
    room = fresh("room")
    with Client(server.url) as client, client.events.follow(room) as follower:
        client.events.submit_many([EventDraft("n", number, room) for number in range(3)])
        assert next(follower).data == 0

        def read_on() -> None:
            assert [next(follower).data for _ in range(4)] == [1, 2, 3, 4]
            follower.close()
            client.close()

        client.events.submit_many([EventDraft("n", number, room) for number in (3, 4)])
        forked(read_on)
        retried = client.caller.on_retry
        lost: list[object] = []
        client.caller.on_retry = lost.append
        assert [next(follower).data for _ in range(4)] == [1, 2, 3, 4]
        assert lost == [], "the connection of the parent was ended"
        client.caller.on_retry = retried


def test_a_forked_process_does_not_save_the_cursor_of_its_parent(server: RunningServer, tmp_path: Path) -> None:
    room, path = fresh("room"), tmp_path / "cursor"
    with Client(server.url) as client:
        client.events.submit_many([EventDraft("n", number, room) for number in range(3)])
        follower = client.events.follow(room, cursor=FileCursor(path))
        assert next(follower).data == 0
        forked(refused(lambda: next(follower)))
        forked(refused(follower.ack))
        forked(follower.close)
        with pytest.raises(FileInUseError):
            next(client.events.follow(room, cursor=FileCursor(path)))
        assert next(follower).data == 1
        idle = os.fork()
        if not idle:
            signal.pause()
        try:
            follower.close()
            with client.events.follow(room, cursor=FileCursor(path)) as again:  # the child holds no lock
                assert next(again).data == 1
        finally:
            os.kill(idle, signal.SIGKILL)
            os.waitpid(idle, 0)


def test_a_forked_process_does_not_use_the_files_of_the_ledger(server: RunningServer, tmp_path: Path) -> None:
    room = new_place(server.url)
    with Client(server.url) as client, TrustedHead(tmp_path / "heads") as head:
        place = client.ledger.place(room.org, room.vault, head=head)
        with place.writer("w", tmp_path / "w.db") as writer:
            writer.write([SetKey("a", "1")])
            forked(refused(lambda: writer.write([SetKey("a", "2")])))
            forked(refused(lambda: head.trust(PLACE, 1, HASH)))
            forked(writer.close)
            assert writer.write([SetKey("a", "3")]).sequence == 2
        with pytest.raises(LocalFileError, match="closed"):
            writer.write([SetKey("a", "4")])
    assert [sequence for _, sequence, _ in room.transactions()] == [1, 2]


def test_a_forked_process_does_not_use_the_file_of_a_replica(server: RunningServer, tmp_path: Path) -> None:
    with Client(server.url) as client, client.deltas(tmp_path / "app.db", fresh("gw")) as db:
        db.insert("todos", "1", {})
        forked(refused(lambda: db.insert("todos", "2", {})))
        forked(refused(db.push))
        forked(db.close)
        db.insert("todos", "3", {})
        db.push()
        assert sorted(db.rows("todos")) == ["1", "3"]


def test_a_link_to_a_file_is_that_file(server: RunningServer, tmp_path: Path) -> None:
    for name in ("cursor", "heads", "w.db"):
        (tmp_path / "linked").mkdir(exist_ok=True)
        (tmp_path / "linked" / name).symlink_to(tmp_path / name)
    room, link = fresh("room"), tmp_path / "linked" / "cursor"
    with Client(server.url) as client:
        client.events.submit_many([EventDraft("n", number, room) for number in range(3)])
        with client.events.follow(room, cursor=FileCursor(link)) as follower:
            first = next(follower)
            next(follower)
            with pytest.raises(FileInUseError):
                next(client.events.follow(room, cursor=FileCursor(tmp_path / "cursor")))
        assert Cursor.of_text((tmp_path / "cursor").read_text().strip()) == first.cursor
        assert link.is_symlink()
    with TrustedHead(tmp_path / "linked" / "heads") as head:
        head.trust(PLACE, 1, HASH)
        with pytest.raises(FileInUseError):
            TrustedHead(tmp_path / "heads")
    assert HASH in (tmp_path / "heads").read_text()
    file = IntentFile(tmp_path / "linked" / "w.db", "w")
    file.begin(0)
    file.note([NewIntent("key", b"[]", None)], 1)
    with pytest.raises(FileInUseError):
        IntentFile(tmp_path / "w.db", "w")
    file.close()
    again = IntentFile(tmp_path / "w.db", "w")
    assert [one.key for one in again.pending()] == ["key"]
    again.close()
