"""A replica without a server: rows, queue and clock in one file, which is one client's at a time."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from semel.client import (
    Client,
    ConfigurationError,
    FileInUseError,
    LocalFileError,
    RowExistsError,
    RowMissingError,
    TransactionError,
)
from semel.client.deltas.file import LocalFile
from tests.client.replica_kinds import Opened, open_replica

URL = "http://127.0.0.1:1"
SECONDS = 60


class Clock:
    """A wall clock that a test moves."""

    def __init__(self, ms: int = 1_770_000_000_000) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def opened(path: Path, **options: Any) -> Opened:
    return open_replica(path, **{"gateway": "shop", "url": URL} | options)


def closed(db: Opened) -> None:
    asyncio.run(db.close())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


def test_rows_are_written_and_read(path: Path) -> None:
    db = opened(path)
    assert db.get("todos", "1") is None
    name = db.insert("todos", "1", {"title": "milk", "done": False, "note": None})
    assert db.get("todos", "1") == {"title": "milk", "done": False}
    changed = db.update("todos", "1", {"title": "milk", "done": True, "note": "two"})
    assert db.update("todos", "1", {"title": "milk", "done": True}) is None
    assert db.update("todos", "1", {"missing": None}) is None
    cleared = db.put("todos", "1", {"note": None})
    other = db.put("lists", "é\ud800", {})
    assert db.delete("todos", "none") is None
    assert db.rows("todos") == {"1": {"title": "milk", "done": True}}
    assert db.rows("lists") == {"é\ud800": {}}
    assert db.tables() == ["lists", "todos"]
    gone = db.delete("todos", "1")
    assert (db.get("todos", "1"), db.rows("todos"), db.tables()) == (None, {}, ["lists"])
    again = db.insert("todos", "1", {"title": "tea"})
    assert db.get("todos", "1") == {"title": "tea"}
    pending = db.pending()
    assert [one.delta_id for one in pending] == [name, changed, cleared, other, gone, again]
    assert [one.op for one in pending] == ["INSERT", "UPDATE", "UPDATE", "INSERT", "DELETE", "INSERT"]
    assert pending[0].columns == {"title": "milk", "done": False, "note": None}
    assert pending[1].columns == {"done": True, "note": "two"}
    assert [one.hlc for one in pending] == sorted({one.hlc for one in pending})
    assert not any(one.is_sent or one.tries or one.error for one in pending)
    closed(db)


def test_an_insert_needs_room_and_an_update_a_row(path: Path) -> None:
    db = opened(path)
    db.insert("todos", "1", {"title": "milk"})
    with pytest.raises(RowExistsError):
        db.insert("todos", "1", {"title": "tea"})
    with pytest.raises(RowMissingError):
        db.update("todos", "2", {"title": "tea"})
    with pytest.raises(ValueError, match="does not fit into a double"):
        db.update("todos", "1", {"title": 2**53 + 1})
    assert (db.get("todos", "1"), len(db.pending())) == ({"title": "milk"}, 1)
    closed(db)


def test_it_is_all_there_after_opening_again(path: Path) -> None:
    clock = Clock()
    db = opened(path, wall_ms=clock)
    db.insert("todos", "1", {"title": "milk"})
    before = (db.client_id, db.rows("todos"), db.pending())
    closed(db)
    clock.ms -= 3_600_000
    db = opened(path, wall_ms=clock)
    assert (db.client_id, db.rows("todos"), db.pending()) == before
    db.update("todos", "1", {"title": "tea"})
    first, second = db.pending()
    assert second.hlc == first.hlc + 1, "the clock has fallen with the machine's"
    closed(db)


def test_a_transaction_is_whole_or_not_at_all(path: Path) -> None:
    db = opened(path)
    with db.transaction():
        db.insert("todos", "1", {"title": "milk"})
        db.insert("todos", "2", {"title": "tea"})

    def fails() -> None:
        with db.transaction():
            db.update("todos", "1", {"title": "lost"})
            db.delete("todos", "2")
            assert db.get("todos", "2") is None
            db.insert("todos", "1", {})

    with pytest.raises(RowExistsError):
        fails()
    assert db.rows("todos") == {"1": {"title": "milk"}, "2": {"title": "tea"}}
    with db.transaction():
        db.update("todos", "1", {"title": "coffee"})
        with pytest.raises(RowExistsError):
            fails()
    assert db.rows("todos") == {"1": {"title": "coffee"}, "2": {"title": "tea"}}
    assert [one.row_id for one in db.pending()] == ["1", "2", "1"]
    closed(db)


async def test_nothing_is_sent_from_within_a_transaction(path: Path) -> None:
    async with opened(path) as db:
        with db.transaction():
            db.insert("todos", "1", {})
            with pytest.raises(TransactionError):
                await db.push()
        assert [one.tries for one in db.pending()] == [0]


def test_threads_take_turns(path: Path) -> None:
    db = opened(path)

    def write(name: str) -> None:
        for number in range(20):
            with db.transaction():
                db.insert("todos", f"{name}-{number}", {"n": number})
                db.update("todos", f"{name}-{number}", {"n": -1})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    pending = db.pending()
    assert (len(db.rows("todos")), len(pending)) == (60, 120)
    assert [one.hlc for one in pending] == sorted({one.hlc for one in pending})
    assert all(one.row_id == other.row_id for one, other in zip(pending[::2], pending[1::2], strict=True))
    closed(db)


def test_one_client_at_a_time(path: Path) -> None:
    db = opened(path)
    with pytest.raises(FileInUseError, match="in use"):
        opened(path)
    command = f"from semel.client import Client; Client({URL!r}).deltas({str(path)!r}, 'shop')"
    other = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert "FileInUseError" in other.stderr
    closed(db)
    closed(db)
    closed(opened(path))
    with pytest.raises(LocalFileError, match="closed"):
        db.rows("todos")


def test_what_returns_is_on_disk(path: Path) -> None:
    file = LocalFile(path)
    assert [file.execute(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous")] == ["wal", 2]
    file.close()


def test_others_may_read_the_file(path: Path) -> None:
    db = opened(path)
    db.insert("todos", "1", {"title": "milk"})
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    assert reader.execute("SELECT shown ->> 'title' FROM semel_rows").fetchall() == [("milk",)]
    reader.close()
    closed(db)


def test_a_file_is_opened_beside_whoever_reads_it(path: Path) -> None:
    db = opened(path)
    db.insert("todos", "1", {})
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    count = "SELECT count(*) FROM semel_rows"
    assert reader.execute(count).fetchall() == [(1,)]
    db.insert("todos", "2", {})
    for number in range(3, 6):
        closed(db)
        db = opened(path)
        db.insert("todos", str(number), {})
    assert reader.execute(count).fetchall() == [(1,)], "its snapshot was changed"
    reader.execute("COMMIT")
    assert reader.execute(count).fetchall() == [(5,)]
    reader.close()
    assert sorted(db.rows("todos")) == ["1", "2", "3", "4", "5"]
    closed(db)


TRY_TO_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000000 + 2)
"""


def test_opening_it_takes_no_lock_away_from_a_reader_of_this_process(path: Path) -> None:
    """The system drops all locks of a process on a file when the process closes it anywhere."""
    closed(opened(path))
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("SELECT count(*) FROM semel_rows").fetchall()
    db = opened(path)
    other = [sys.executable, "-c", TRY_TO_LOCK, str(path)]
    run = subprocess.run(other, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "BlockingIOError" in run.stderr, "another process could take SQLite's exclusive lock"
    closed(db)
    reader.close()


def test_a_short_write_of_somebody_else_is_waited_for(path: Path) -> None:
    db = opened(path)
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE mine (x); BEGIN IMMEDIATE; INSERT INTO mine VALUES (7)")
    writing = threading.Thread(target=db.insert, args=("todos", "1", {}))
    writing.start()
    writing.join(0.2)
    assert writing.is_alive()
    other.execute("COMMIT")
    writing.join(SECONDS)
    assert db.rows("todos") == {"1": {}}
    other.close()
    closed(db)


def test_a_file_belongs_to_one_gateway_client_and_server(path: Path) -> None:
    closed(opened(path, client_id="till-1"))
    closed(opened(path))
    with pytest.raises(ConfigurationError, match=r"the gateway 'shop', not to 'other'"):
        opened(path, gateway="other")
    with pytest.raises(ConfigurationError, match=r"the client 'till-1', not to 'till-2'"):
        opened(path, client_id="till-2")
    with pytest.raises(ConfigurationError, match="moved=True"):
        opened(path, url="http://127.0.0.1:2")
    closed(opened(path, url="http://127.0.0.1:2", moved=True))
    db = opened(path, url="http://127.0.0.1:2")
    assert db.client_id == "till-1"
    closed(db)


def spoil_format(path: Path) -> None:
    closed(opened(path))
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE semel_meta SET value = '99' WHERE name = 'format'")
    connection.close()


def make_folder(path: Path) -> None:
    path.mkdir()


def make_text(path: Path) -> None:
    path.write_text("This is no database. " * 100, "utf-8")


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (spoil_format, ConfigurationError, "format 99"),
        (make_folder, LocalFileError, "cannot be opened"),
        (make_text, LocalFileError, "cannot be opened"),
    ],
)
def test_files_that_are_none_of_ours(
    spoil: Callable[[Path], None], kind: type[Exception], words: str, path: Path
) -> None:
    spoil(path)
    for _ in range(2):  # the lock is let go of each time
        with pytest.raises(kind, match=words):
            opened(path)


def test_other_tables_of_the_file_are_left_alone(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE mine (x)")
    connection.execute("INSERT INTO mine VALUES (7)")
    connection.close()
    closed(opened(path))
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT x FROM mine").fetchall() == [(7,)]
    connection.close()


@pytest.mark.parametrize(
    "options",
    [
        {"gateway": ""},
        {"gateway": ".."},
        {"gateway": "g" * 257},
        {"client_id": ""},
        {"client_id": "\ud800"},
        {"url": "nowhere"},
    ],
    ids=lambda options: ascii(options)[:30],
)
def test_names_that_no_server_takes(options: dict[str, str], path: Path) -> None:
    with pytest.raises(ConfigurationError):
        opened(path, **options)
    assert not path.exists()


TOKEN = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
    "eyJzdWIiOiJjbGllbnQtYSIsImd3IjoiZ3cxIiwicm9sZSI6ImNsaWVudCIsImV4cCI6NDEwMjQ0NDgwMCwib3JnIjoiYWNtZSJ9."
    "g1GLVlfCrk6a_PCFwnc35aMUL_Vlqcu-CbCkxrnvr5Q"
)


@pytest.mark.parametrize(
    ("token", "name"),
    [(TOKEN, "client-a"), ("opaque", "replica-"), ("a.b.c", "replica-"), ("a.W10.c", "replica-"), (None, "replica-")],
    ids=["jwt", "opaque", "broken", "no-object", "none"],
)
def test_a_new_replica_is_named_by_its_token(token: str | None, name: str, path: Path) -> None:
    db = opened(path, token=token)
    assert db.client_id.startswith(name)
    assert (len(db.client_id) == 40) is (name == "replica-")
    closed(db)


WRITER = """
import sys
from semel.client import Client
db = Client(sys.argv[2]).deltas(sys.argv[1], "shop")
for number in range(1_000_000):
    with db.transaction():
        db.insert("todos", f"{number}-a", {"n": number})
        db.insert("todos", f"{number}-b", {"n": number})
    print(number, flush=True)
"""


def test_a_killed_process_leaves_whole_transactions(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), URL], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "20\n":
                process.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL
    db = opened(path)
    rows, pending = db.rows("todos"), db.pending()
    assert len(rows) >= 42
    assert {f"{row.removesuffix('-a').removesuffix('-b')}-{half}" for row in rows for half in "ab"} == set(rows)
    assert [one.row_id for one in pending] == [f"{number}-{half}" for number in range(len(rows) // 2) for half in "ab"]
    closed(db)


def test_the_gateway_is_that_of_the_client_unless_it_is_named(path: Path) -> None:
    with Client(URL) as client, pytest.raises(ConfigurationError, match="SEMEL_TENANT"):
        client.deltas(path)
    assert not path.exists()
    with Client(URL, tenant="shop") as client:
        with client.deltas(path) as db:
            assert db.gateway == "shop"
        with pytest.raises(ConfigurationError, match="belongs to the gateway 'shop'"):
            client.deltas(path, "elsewhere")
        client.deltas(path, "shop").close()
