"""A store that was opened before a fork, as servers with several workers do: each process has its own connections."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from semel import once
from semel.once import Once, Outbox, StoreUnavailable, database
from semel.once.forks import PerProcess
from semel.once.messages import Delivery, OutboxMessage
from tests.once.conftest import fresh_schema

SECONDS = 25


def test_a_child_makes_its_locks_when_it_first_uses_them() -> None:
    made: list[int] = []

    def make() -> object:
        made.append(os.getpid())
        return object()

    lock = PerProcess(make)
    of_parent = lock()
    assert lock() is of_parent
    assert forked(lambda: made == [os.getppid()] and lock() is not of_parent and lock() is lock()) == 0
    assert made == [os.getpid()]


def forked(body: Callable[[], object]) -> int:
    """Run a body in a child; its exit status, or minus the signal that ended it. One that hangs is killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if body() else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of store that outlives a process."""
    if request.param == "sqlite":
        return str(tmp_path / "receipts.db")
    url = fresh_schema()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(once.ddl("postgresql").encode())
    return url


def test_a_child_has_connections_of_its_own_and_leaves_those_of_its_parent_alone(place: str) -> None:
    store = Once(place)

    @store.once(key=lambda key: key)
    def charge(key: str) -> int:
        return os.getpid()

    assert charge("a") == os.getpid()

    def child() -> bool:
        return charge("a") != os.getpid() and charge("b") == os.getpid()

    assert forked(child) == 0
    assert charge("b") != os.getpid()
    assert charge("c") == os.getpid()
    store.close()


def test_a_fork_waits_for_the_statement_of_another_thread_and_the_child_is_not_held_up(place: str) -> None:
    store = Once(place)
    is_over = threading.Event()

    @store.once(key=lambda key: key)
    def charge(key: str) -> int:
        return 7

    def work() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            charge(f"parent {number}")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            assert forked(lambda: charge(f"child {number}") == 7) == 0  # noqa: B023 - it is called at once
    finally:
        is_over.set()
        for thread in threads:
            thread.join(25)
    assert charge("child 0") == 7
    store.close()


def test_a_store_in_memory_is_copied_with_its_process() -> None:
    store = Once.memory()
    runs: list[int] = []

    @store.once(key=lambda: "k")
    def charge() -> int:
        runs.append(1)
        return len(runs)

    charge()
    assert forked(lambda: charge() == 1 and len(runs) == 1) == 0
    store.close()


def test_closing_in_a_child_closes_nothing_of_the_parent(place: str) -> None:
    store = Once(place)

    @store.once(key=lambda key: key)
    def charge(key: str) -> str:
        return key

    def child() -> bool:
        store.close()
        return True

    charge("a")
    assert forked(child) == 0
    assert charge("b") == charge("b") == "b"
    store.close()


def test_an_outbox_in_a_child_has_a_store_and_senders_of_its_own(tmp_path: Path) -> None:
    sent: list[str] = []

    def transport(message: OutboxMessage, deadline: float) -> Delivery:
        sent.append(message.key)
        return Delivery(status=200)

    box = Outbox(tmp_path / "outbox.db", transport=transport)
    box.post("http://127.0.0.1:9/x", json=1, key="a")

    def child() -> bool:
        box.post("http://127.0.0.1:9/x", json=2, key="b")
        is_sent = box.flush_sync(20).delivered == 2
        box.close()
        return is_sent

    assert forked(child) == 0
    assert [box.state(key) for key in "ab"] == ["done", "done"]
    assert (box.flush_sync(20).delivered, sent) == (0, [])
    box.close()


def test_a_new_file_that_another_process_is_writing_is_waited_for_and_opened(tmp_path: Path) -> None:
    path = tmp_path / "receipts.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE something (number INTEGER)")
    other.execute("BEGIN IMMEDIATE")  # SQLite fails the switch to WAL at once here, whatever the busy timeout
    release = threading.Timer(0.2, other.execute, ["COMMIT"])
    release.start()
    store = Once(str(path))
    release.join()
    assert store.once(key=lambda key: key, scope="test")(lambda key: 7)("first") == 7
    other.close()
    store.close()


def open_files(path: Path) -> list[str]:
    """The files of a database that this process has open."""
    held = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            held.append(str(one.readlink()))
    return [name for name in held if name.startswith(str(path))]


def test_a_file_that_stays_locked_cannot_be_opened_and_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.1)
    path = tmp_path / "receipts.db"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE something (number INTEGER)")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"receipts.db cannot be opened: database is locked") as error:
        Once(str(path))
    other.close()
    assert not open_files(path), error  # the error still holds the store that failed, which has closed its file
