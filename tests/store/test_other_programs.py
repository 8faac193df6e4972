"""Other programs that change the file: VACUUM, `.dump`, Litestream, a person with the `sqlite3` shell."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import apsw
import pytest

from semel.engine.commit_placement import CommitThread
from semel.engine.contract import NotStoredError
from semel.engine.engine import Engine
from semel.store.protocol import Range, StoreChangedError, StoreError
from semel.store.sqlite import write_lock
from semel.store.sqlite.data_folder import create_database
from semel.store.sqlite.store import FILE_NAME, LOCK_NAME, SqliteFileStore
from semel.store.table import Key
from tests.engine import toy
from tests.store import test_recent_rows, test_row_cache
from tests.store.conformance import LOCKS, changes, find, rotate, write
from tests.store.log_tables import ENTRY, STUB, LogModel, entry, open_logs, stub
from tests.store.test_recent_rows import OPEN, TASK, TaskRow
from tests.store.test_row_cache import HEAD, HeadRow

ROWS = 40
GONE = (3, 4, 5, 20)
"""Rows that were deleted: a program that counts the rows anew gives their places to others."""
INDEX_KEYS = 4
"""Most keys have left memory."""
OTHER_TABLE = "CREATE TABLE other (id INTEGER PRIMARY KEY, n INTEGER)"
TAKE_LOCK = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)"
"""Takes the bytes of a database of which each reader locks some."""
ADD_STUB = "INSERT INTO stub_0 (scope, name, used_at, label) VALUES (x'01', x'02', 0, x'')"


def key(number: int) -> Key:
    return STUB.key_of(stub(number))


def opened(folder: Path) -> SqliteFileStore:
    return open_logs(folder, index_keys=INDEX_KEYS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stopped store with both log tables filled, and some rows deleted."""
    with closing(opened(tmp_path)) as store:
        for number in range(ROWS):
            write(store, [(STUB, stub(number)), (ENTRY, entry(number))])
        gone = [(STUB, key(number)) for number in GONE]
        write(store, deletes=[*gone, *((ENTRY, ENTRY.key_of(entry(number))) for number in GONE)])
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[SqliteFileStore]:
    """The same store, open."""
    with closing(opened(folder)) as made:
        yield made


def shell(folder: Path, *statements: str) -> None:
    """What a person runs in the `sqlite3` shell. The locks of a connection are its own, in one process too."""
    with closing(apsw.Connection(str(folder / FILE_NAME))) as connection:
        for statement in statements:
            connection.execute(statement)


def check_rows(store: SqliteFileStore) -> None:
    """Every row is found by its key, and a second row of that key is refused."""
    there = [number for number in range(ROWS) if number not in GONE]
    assert [number for number in range(ROWS) if find(store, STUB, key(number))] == there
    assert [number for number in range(ROWS) if find(store, ENTRY, ENTRY.key_of(entry(number)))] == there
    for number in there:
        with pytest.raises(StoreError, match="existing row"):
            write(store, [(ENTRY, entry(number))])


def check_stopped(store: SqliteFileStore) -> None:
    """The next transaction and all further ones store nothing."""
    with pytest.raises(StoreChangedError, match=r"^Another program has changed .*semel\.db .*: start it again, "):
        write(store, [(STUB, stub(ROWS))])
    with pytest.raises(StoreError, match="restart the server"):
        write(store, [(STUB, stub(ROWS))])
    assert not store._writer.in_transaction


def places(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """The place of each row of the log tables."""
    with closing(apsw.Connection(str(folder / FILE_NAME))) as connection:
        return {
            name: list(connection.execute(f"SELECT rowid, * FROM {name} ORDER BY rowid"))
            for name in ("stub_0", "stub_1", "entry")
        }


# A stopped store


def test_a_vacuum_of_a_stopped_store_moves_no_key(folder: Path) -> None:
    before = places(folder)
    shell(folder, "VACUUM")
    assert places(folder) == before
    with closing(opened(folder)) as store:
        check_rows(store)


def test_a_dump_that_is_read_into_a_new_file_moves_no_key(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with (
        closing(sqlite3.connect(folder / FILE_NAME)) as source,
        closing(sqlite3.connect(copy / FILE_NAME)) as target,
    ):
        target.executescript("\n".join(source.iterdump()))
    with closing(opened(copy)) as store:
        check_rows(store)


# A running store


@pytest.mark.parametrize(
    "change",
    [
        "VACUUM",
        ADD_STUB,
        "DELETE FROM entry WHERE rowid = (SELECT max(rowid) FROM entry)",
        "INSERT INTO semel_generation VALUES (x'73747562', 1)",
        "CREATE INDEX mine ON entry (seen_at)",
        "DROP TABLE stub_1",
        "ALTER TABLE entry ADD COLUMN mine BLOB",
    ],
)
def test_a_change_of_what_memory_knows_stops_the_store(store: SqliteFileStore, folder: Path, change: str) -> None:
    write(store, [(STUB, stub(ROWS))], deletes=[(STUB, key(ROWS))])
    shell(folder, change)
    check_stopped(store)


@pytest.mark.parametrize("change", ["VACUUM", ADD_STUB])
def test_a_start_after_such_a_change_knows_every_key(store: SqliteFileStore, folder: Path, change: str) -> None:
    shell(folder, change)
    check_stopped(store)
    store.close()
    with closing(opened(folder)) as again:
        check_rows(again)
        assert find(again, STUB, (b"\x01", b"\x02")) == (
            None if change == "VACUUM" else stub(0, scope=b"\x01", name=b"\x02")
        )


def test_tables_of_other_programs_and_what_they_write_there_stop_nothing(store: SqliteFileStore, folder: Path) -> None:
    shell(folder, OTHER_TABLE, "CREATE TABLE more (id INTEGER)", "CREATE INDEX by_n ON other (n)")
    check_rows(store)
    for number in range(3):
        shell(folder, f"INSERT INTO other VALUES ({number}, 1)")
        write(store, [(STUB, stub(ROWS + number))])
    check_rows(store)
    shell(folder, "VACUUM", "CREATE TABLE later (id INTEGER)")
    check_stopped(store)


def test_rows_in_memory_are_forgotten_after_a_commit_of_another_program(tmp_path: Path) -> None:
    with closing(test_row_cache.opened(tmp_path / "heads")) as store:
        heard: list[object] = []
        store.follow(heard.append)
        write(store, [(HEAD, HeadRow(b"a", 1))])
        assert find(store, HEAD, (b"a",)) == HeadRow(b"a", 1)
        shell(tmp_path / "heads", "UPDATE head SET value = 2")
        assert find(store, HEAD, (b"a",)) == HeadRow(b"a", 2)
        assert heard == [()], "once, for whoever keeps rows besides"
    with closing(test_recent_rows.opened(tmp_path / "tasks")) as store:
        write(store, [(TASK, TaskRow(b"a", OPEN, 10))])
        write(store, updates=[(TASK, TaskRow(b"a", OPEN, 20))])
        due = Range(TASK, "due", (OPEN,), 9, stop=(15,))
        tx = store.begin(LOCKS)
        assert tx.load({TASK: [(b"a",)]}, [due]) == ({TASK: {(b"a",): TaskRow(b"a", OPEN, 20)}}, [[]])
        tx.rollback()
        shell(tmp_path / "tasks", "UPDATE task SET due_at = 5")
        tx = store.begin(LOCKS)
        row = TaskRow(b"a", OPEN, 5)
        assert tx.load({TASK: [(b"a",)]}, [due]) == ({TASK: {(b"a",): row}}, [[row]])
        tx.rollback()


def test_a_row_in_an_older_generation_is_seen_after_a_commit_of_another_program(tmp_path: Path) -> None:
    with closing(opened(tmp_path)) as store:
        assert store._older_is_empty[STUB]
        shell(tmp_path, OTHER_TABLE)
        rotate(store, STUB)
        shell(tmp_path, "INSERT INTO other VALUES (1, 1)")
        write(store, [(STUB, stub(1))])
        rotate(store, STUB)
        shell(tmp_path, "INSERT INTO other VALUES (2, 1)")
        assert find(store, STUB, key(1)) == stub(1)


def test_a_commit_between_begin_and_the_first_change_is_noticed(store: SqliteFileStore, folder: Path) -> None:
    tx = store.begin(LOCKS, wait=False)
    shell(folder, ADD_STUB)
    with pytest.raises(StoreError):
        tx.flush(changes([(STUB, stub(ROWS))]))
    tx.rollback()
    check_stopped(store)


def test_a_commit_that_a_transaction_has_waited_for_is_noticed(store: SqliteFileStore, folder: Path) -> None:
    with closing(apsw.Connection(str(folder / FILE_NAME))) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute(ADD_STUB)
        with patch.object(write_lock, "sleep", lambda _: other.in_transaction and other.execute("COMMIT")):
            check_stopped(store)


@pytest.mark.parametrize("seed", range(4))
def test_no_change_of_its_own_is_taken_for_one_of_another_program(seed: int, tmp_path: Path) -> None:
    """Appends, deletes of the last rows, rotations and rollbacks, with a harmless commit of somebody else at times."""
    chance, model = random.Random(seed), LogModel(STUB)
    with closing(opened(tmp_path)) as store:
        shell(tmp_path, OTHER_TABLE)
        for turn in range(150):
            if chance.random() < 0.4:
                shell(tmp_path, f"INSERT INTO other VALUES ({turn}, 1)")
            tx, after = store.begin(LOCKS), model.copy()
            tx.flush(changes([(STUB, stub(3 * turn + more)) for more in range(3)]))
            for more in range(3):
                after.put(stub(3 * turn + more))
            gone = [] if chance.random() < 0.5 else [key(3 * turn + more) for more in range(chance.randrange(4))]
            gone += chance.sample(sorted(model.younger), min(2, len(model.younger)))
            tx.flush(changes(deletes=[(STUB, one) for one in gone]))
            for one in gone:
                after.delete(one)
            if chance.random() < 0.1:
                tx.rotate(STUB)
                after.rotate()
            if chance.random() < 0.8:
                tx.commit()
                model = after
            tx.rollback()
            store.tidy()
        for number in range(450):
            assert find(store, STUB, key(number)) == model.get(key(number))


# Files that are removed or replaced


def check_displaced(store: SqliteFileStore) -> None:
    """The next transaction stores nothing."""
    with pytest.raises(
        StoreChangedError, match=r" was removed or replaced while this server ran, .* start .* again\.$"
    ):
        write(store, [(STUB, stub(ROWS))])
    with pytest.raises(StoreError, match="restart the server"):
        write(store, [(STUB, stub(ROWS))])


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("name", [LOCK_NAME, FILE_NAME])
def test_a_file_that_is_removed_or_replaced_stops_the_store(
    store: SqliteFileStore, folder: Path, name: str, is_replaced: bool
) -> None:
    write(store, [(STUB, stub(ROWS + 1))])
    copy = folder / "copy"
    copy.write_bytes((folder / name).read_bytes())
    (folder / name).unlink()
    if is_replaced:
        copy.rename(folder / name)
    check_displaced(store)


def test_a_second_server_beside_a_removed_lock_is_the_only_one_that_writes(
    store: SqliteFileStore, folder: Path
) -> None:
    (folder / LOCK_NAME).unlink()
    with closing(opened(folder)) as second:
        write(second, [(STUB, stub(ROWS))])
        check_displaced(store)
        store.close()
        write(second, [(STUB, stub(ROWS + 1))])
        check_rows(second)
    with closing(opened(folder)) as third:
        assert find(third, STUB, key(ROWS + 1)) == stub(ROWS + 1)


def test_a_store_whose_files_were_removed_leaves_those_of_the_next_one_alone(
    store: SqliteFileStore, folder: Path
) -> None:
    write(store, [(STUB, stub(ROWS))])
    for path in folder.iterdir():
        path.unlink()
    with closing(opened(folder)) as second:
        write(second, [(STUB, stub(1))])
        check_displaced(store)
        store.close()
        assert (folder / f"{FILE_NAME}-wal").exists(), "a crash of the second one would lose what it has acknowledged"
        assert find(second, STUB, key(1)) == stub(1)


def test_a_database_that_exists_is_not_opened_beside_sqlite(folder: Path) -> None:
    """A descriptor that is closed would drop the locks of every connection of this process."""
    with closing(apsw.Connection(str(folder / FILE_NAME))) as reader:
        reader.execute("SELECT * FROM entry").fetchall()
        create_database(folder / FILE_NAME)
        run = subprocess.run(
            [sys.executable, "-c", TAKE_LOCK, str(folder / FILE_NAME)], capture_output=True, check=False
        )
        assert b"BlockingIOError" in run.stderr, "the lock of the reader is gone"


# The engine


@pytest.mark.parametrize("on_loop", [None, CommitThread.NEVER, CommitThread.ALWAYS])
def test_callers_hear_that_nothing_was_stored_and_the_engine_stops(
    tmp_path: Path, on_loop: CommitThread | None
) -> None:
    async def run() -> None:
        world, contract = toy.ToyWorld(), toy.Toy()
        with closing(SqliteFileStore(tmp_path, toy.TABLES, toy.MIGRATIONS, world.wall_ms)) as store:
            engine = Engine(store, world, on_loop=on_loop)
            assert await engine.admit(contract.write(toy.Add(b"a", b"0", 1), 0, 1)) == 1
            shell(tmp_path, "VACUUM")
            sent = [engine.admit(contract.write(toy.Add(b"a", b"%d" % number, 1), 0, 1)) for number in range(1, 4)]
            told = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(one) for one in told] == [NotStoredError] * 3
            await engine.failed.wait()
            assert isinstance(engine.failure, StoreChangedError)
            await engine.stop()
        with closing(SqliteFileStore(tmp_path, toy.TABLES, toy.MIGRATIONS, world.wall_ms)) as store:
            engine = Engine(store, world, on_loop=on_loop)
            sent = [engine.admit(contract.write(toy.Add(b"a", b"%d" % number, 1), 0, 1)) for number in range(4)]
            assert await asyncio.gather(*sent) == [1, 2, 3, 4]
            await engine.stop()

    asyncio.run(run())
