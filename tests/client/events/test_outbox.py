"""Events that are written down first: sent in order, once, whatever dies, and set aside if the server rejects them."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from semel import once
from semel.client import Client, EventOutbox, Patience
from semel.client.errors import InvalidArgumentError
from semel.once import KeyMismatch
from semel.once.dispatcher import Flushed
from semel.once.messages import Delivery, OutboxMessage
from tests.client.forging_proxy import ForgingProxy
from tests.client.names import TOKEN, fresh
from tests.harness.guardian import guard
from tests.harness.server import RunningServer, free_port
from tests.once.losing import losing

ROOT = Path(__file__).parent.parent.parent.parent
QUICK: dict[str, Any] = {"timeout": 5, "lease": 6, "longest_wait": 0.05}
DYING = """
import os, signal, sys
from semel.client import Client, EventOutbox
url, room, place, point = sys.argv[1:]
box = EventOutbox(place, Client(url), timeout=0.9, lease=1.0)
for number in range(3):
    box.submit("n", number, partitions=room, id=f"{room}-{number}")
deliver = box._delivered
def dying(message, deadline):
    if point == "leased":
        os.kill(os.getpid(), signal.SIGKILL)
    deliver(message, deadline)
    os.kill(os.getpid(), signal.SIGKILL)
if point == "stored":
    os.kill(os.getpid(), signal.SIGKILL)
box._box._route = box._box._route._replace(transport=dying)
box.flush(30)
"""


def read(server: RunningServer, room: str) -> list[object]:
    """The payloads of a partition."""
    with Client(server.url) as client:
        return [one.data for one in client.events.read(room).events]


def test_events_are_sent_in_order_and_once_although_answers_are_lost(server: RunningServer, tmp_path: Path) -> None:
    room = fresh("room")
    with (
        losing(server.url) as (url, lost),
        Client(url) as client,
        EventOutbox(tmp_path / "box", client, **QUICK) as box,
    ):
        ids = [box.submit("n", number, partitions=room) for number in range(20)]
        assert box.submit("n", 3, partitions=room, id=ids[3]) == ids[3]
        with pytest.raises(KeyMismatch):
            box.submit("n", 4, partitions=room, id=ids[3])
        assert box.flush(30) == Flushed(20, 1, 0, 0)
        assert lost == [200]
        assert {one.state for one in box.events()} == {"done"}
    assert read(server, room) == list(range(20))


def test_a_rejected_event_is_set_aside_and_holds_back_those_behind_it(server: RunningServer, tmp_path: Path) -> None:
    room = fresh("room")
    with Client(server.url) as client, EventOutbox(tmp_path / "box", client, **QUICK) as box:
        bad = box.submit("init", partitions=room)
        box.submit("n", 1, partitions=room)
        assert box.flush(30) == Flushed(0, 0, 1, 0)
        status = box.status(bad)
        assert status is not None
        assert (status.state, status.status) == ("poison", 422)
        assert "event.type" in str(status.error)
        assert box.drop(bad)
        assert box.flush(30).delivered == 1
        with pytest.raises(InvalidArgumentError):
            box.submit("", partitions=room)
    assert read(server, room) == [1]


@pytest.mark.parametrize("status", [301, 302, 308, 400, 401, 403, 404, 413, 422, 500, 520, 524])
def test_the_answer_of_a_proxy_says_nothing_about_an_event(server: RunningServer, tmp_path: Path, status: int) -> None:
    room = fresh("room")
    with (
        ForgingProxy(server.url) as proxy,
        Client(proxy.url) as client,
        EventOutbox(tmp_path / "box", client, **QUICK) as box,
    ):
        for body in (b"", b"<html>", b'{"message": "no"}'):
            proxy.instead.append((status, body))
        box.submit("n", 1, partitions=room)
        assert box.flush(30) == Flushed(1, 3, 0, 0)
    assert read(server, room) == [1]


def test_a_credential_that_is_refused_sets_no_event_aside(strict: RunningServer, tmp_path: Path) -> None:
    with Client(strict.url, token="wrong") as client, EventOutbox(tmp_path / "box", client, **QUICK) as box:
        key = box.submit("n", 1, partitions=fresh("room"))
        assert box.flush(1).poisoned == 0
        status = box.status(key)
        assert status is not None
        assert status.state in ("queued", "sent")
        client.use_token(TOKEN)  # an attempt of the first flush may still be under way, and deliver it
        assert box.flush(30).left == 0
        assert box.status(key).state == "done"  # type: ignore[union-attr]


@pytest.mark.parametrize("answer", [Delivery(error="no answer"), Delivery(error="unauthorized", retry_after=0.0)])
def test_an_event_is_sent_again_however_old_it_is(tmp_path: Path, answer: Delivery) -> None:
    with Client("http://127.0.0.1:1") as client, EventOutbox(tmp_path / "box", client, **QUICK) as box:
        box._box._route = box._box._route._replace(transport=lambda *_: answer)
        key = box.submit("n", 1, partitions="room")
        box.flush(0.1)
        box.close()
    with closing(sqlite3.connect(tmp_path / "box")) as file:
        file.execute("UPDATE semel_event_outbox SET created_at = 1, arrived_at = 1, owner = NULL, next_at = 0")
        file.commit()
    with Client("http://127.0.0.1:1") as client, EventOutbox(tmp_path / "box", client, **QUICK) as box:
        found = box.flush(0.1)
        assert (found.poisoned, found.unknown, found.left) == (0, 0, 1)
        assert box.status(key).state in ("queued", "sent")  # type: ignore[union-attr]


def test_an_event_commits_with_the_applications_transaction(server: RunningServer, tmp_path: Path) -> None:
    room, place = fresh("room"), tmp_path / "app.db"
    base = sqlite3.connect(place)
    for sql in EventOutbox.ddl("sqlite").split(";\n"):
        base.execute(sql)
    base.execute("CREATE TABLE orders (n INTEGER)")
    base.commit()
    with Client(server.url) as client, EventOutbox(place, client, **QUICK) as box:
        for number in range(4):
            base.execute("INSERT INTO orders VALUES (?)", (number,))
            box.submit("order.placed", number, partitions=room, using=base)
            (base.commit if number % 2 else base.rollback)()
        assert box.flush(30).delivered == 2
    base.close()
    assert read(server, room) == [1, 3]


def test_events_and_other_messages_of_one_database_are_not_mixed(server: RunningServer, tmp_path: Path) -> None:
    room, place, sent = fresh("room"), tmp_path / "app.db", list[str]()

    def deliver(message: OutboxMessage, deadline: float) -> Delivery:
        sent.append(message.key)
        return Delivery(200)

    with (
        Client(server.url) as client,
        EventOutbox(place, client, **QUICK) as box,
        closing(once.Outbox(place, transport=deliver)) as other,
    ):
        box.submit("n", 1, partitions=room)
        other.post("https://pay.example/charges", json={"amount": 5}, key="charge")
        assert box.flush(30).delivered == 1
        assert other.flush_sync(30).delivered == 1
        box.submit("n", 2, partitions=room)
        assert other.flush_sync(30) == Flushed(0, 0, 0, 0)
    assert sent == ["charge"]
    assert read(server, room) == [1]


def test_an_event_is_the_same_when_the_server_has_another_address(server: RunningServer, tmp_path: Path) -> None:
    room = fresh("room")
    for url in (f"http://127.0.0.1:{free_port()}", server.url):
        with (
            Client(url, patience=Patience(tries=1)) as client,
            EventOutbox(tmp_path / "box", client, **QUICK) as box,
        ):
            box.submit("n", 1, partitions=room, id=room)
            with pytest.raises(KeyMismatch):
                box.submit("n", 2, partitions=room, id=room)
            box.flush(30 if url == server.url else 0.2)
    assert read(server, room) == [1]


async def test_from_asyncio(server: RunningServer, tmp_path: Path) -> None:
    room = fresh("room")
    with Client(server.url) as client, EventOutbox(tmp_path / "box", client, **QUICK) as box:
        await box.submit_async("n", 1, partitions=room)
        assert (await box.flush_async(30)).delivered == 1
    assert await asyncio.to_thread(read, server, room) == [1]


@pytest.mark.parametrize("point", ["stored", "leased", "delivered"])
def test_events_are_committed_once_and_in_order_wherever_the_sender_dies(
    server: RunningServer, tmp_path: Path, point: str
) -> None:
    guard()
    room, place = fresh("room"), str(tmp_path / "box")
    words = [sys.executable, "-c", DYING, server.url, room, place, point]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(words, cwd=ROOT, env=env, timeout=90, check=False).returncode == -signal.SIGKILL
    assert read(server, room) == ([0] if point == "delivered" else [])
    with Client(server.url) as client, EventOutbox(place, client, **QUICK) as box:
        assert box.flush(30).left == 0
    assert read(server, room) == [0, 1, 2]
