"""Another process that holds the write lock of the file, or a snapshot that keeps checkpoints from their end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import apsw
import pytest

from semel.engine.commit_placement import CommitThread
from semel.engine.contract import NotStoredError
from semel.engine.engine import Engine
from semel.store.protocol import StoreAwayError, StoreError
from semel.store.sqlite import write_lock
from semel.store.sqlite.checkpoint import CHECKPOINT_PAGES, LONG_PAGES, RETRY_PAGES
from semel.store.sqlite.store import FILE_NAME, SqliteFileStore
from tests.engine import toy
from tests.store.conformance import LOCKS, PARCEL, THING, ParcelRow, SqlitePlace, changes, everything, thing, write

KEY = thing()[:3]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteFileStore]:
    place = SqlitePlace(tmp_path)
    store = place.open()
    assert isinstance(store, SqliteFileStore)
    yield store
    place.close()


def other_process(folder: Path) -> apsw.Connection:
    """What another process has open: the locks of a connection are its own, in one process too."""
    connection = apsw.Connection(str(folder / FILE_NAME))
    connection.execute("CREATE TABLE IF NOT EXISTS other (n INTEGER)")
    return connection


@pytest.fixture
def other(tmp_path: Path, store: SqliteFileStore) -> Iterator[apsw.Connection]:
    with closing(other_process(tmp_path)) as connection:
        yield connection


# The lock


def test_a_transaction_that_may_not_wait_fails_at_once_and_stores_nothing(
    store: SqliteFileStore, other: apsw.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    tx = store.begin(LOCKS, wait=False)
    with pytest.raises(StoreError):
        tx.flush(changes([(THING, thing())]))
    tx.rollback()
    other.execute("ROLLBACK")
    assert everything(store, THING) == []
    write(store, [(THING, thing())])
    assert everything(store, THING) == [thing()]


def test_a_transaction_that_reads_only_needs_no_lock(store: SqliteFileStore, other: apsw.Connection) -> None:
    write(store, [(THING, thing())])
    other.execute("BEGIN IMMEDIATE")
    tx = store.begin(LOCKS, wait=False)
    assert tx.load({THING: [KEY]}, []).rows[THING] == {KEY: thing()}
    tx.rollback()


def test_a_commit_of_another_process_after_the_first_read_fails_the_transaction_that_may_not_wait(
    store: SqliteFileStore, other: apsw.Connection
) -> None:
    tx = store.begin(LOCKS, wait=False)
    tx.load({THING: [KEY]}, [])
    other.execute("INSERT INTO other VALUES (1)")
    with pytest.raises(StoreError):
        tx.flush(changes([(THING, thing())]))
    tx.rollback()
    write(store, [(THING, thing())])
    assert everything(store, THING) == [thing()]


@pytest.mark.parametrize("durable", [True, False])
def test_a_transaction_that_waits_gets_the_lock_when_it_is_free(
    store: SqliteFileStore, tmp_path: Path, durable: bool
) -> None:
    held, asked = threading.Event(), threading.Event()

    def hold() -> None:
        with closing(other_process(tmp_path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            asked.wait(30)
            connection.execute("COMMIT")

    def sleep(_: float) -> None:
        asked.set()
        time.sleep(0.001)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    with patch.object(write_lock, "sleep", sleep):
        write(store, [(THING, thing())], durable=durable)
    holder.join(30)
    assert asked.is_set(), "it has waited"
    assert everything(store, THING) == [thing()]


@pytest.mark.parametrize("durable", [True, False])
def test_a_lock_that_is_held_for_too_long_is_a_definite_no(
    store: SqliteFileStore, other: apsw.Connection, durable: bool
) -> None:
    other.execute("BEGIN IMMEDIATE")
    with patch.object(write_lock, "WAIT_SECONDS", 0.02), pytest.raises(StoreAwayError, match="Another process held"):
        store.begin(LOCKS, durable=durable)
    other.execute("ROLLBACK")
    assert next(store._writer.execute("PRAGMA synchronous"))[0] == 2, "the next commit is synced"
    write(store, [(THING, thing())])
    assert everything(store, THING) == [thing()]


def test_a_start_waits_for_the_lock(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    write(place.open(), [(THING, thing())])
    place.close()
    with closing(other_process(tmp_path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM other").fetchall()  # the log cannot be truncated
        with closing(other_process(tmp_path)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            with patch.object(write_lock, "sleep", lambda _: holder.in_transaction and holder.execute("COMMIT")):
                store = place.open()
        assert everything(store, THING) == [thing()]
    place.close()


# The event loop


def on_loop(folder: Path, run: Callable[[Engine, toy.Toy, apsw.Connection], object]) -> None:
    """An engine whose loop writes, with another process beside it."""

    async def inner() -> None:
        world = toy.ToyWorld()
        with closing(SqliteFileStore(folder, toy.TABLES, toy.MIGRATIONS, world.wall_ms)) as store:
            engine = Engine(store, world, on_loop=CommitThread.NEVER)
            with closing(other_process(folder)) as other:
                await run(engine, toy.Toy(), other)  # type: ignore[misc]
            await engine.stop()
            assert engine.failure is None

    asyncio.run(inner())


def test_the_loop_goes_on_while_a_write_waits_for_another_process(tmp_path: Path) -> None:
    async def run(engine: Engine, contract: toy.Toy, other: apsw.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        sent = [engine.admit(contract.write(toy.Add(b"a", b"%d" % number, 1), 0, 1)) for number in range(3)]
        await asyncio.sleep(0.05)  # a loop that waited for the lock would not come back before the lock is given up
        assert not any(one.done() for one in sent)
        other.execute("COMMIT")
        assert sorted(await asyncio.gather(*sent)) == [1, 2, 3]

    on_loop(tmp_path, run)


def test_writes_behind_a_lock_that_stays_are_not_stored_and_can_be_sent_again(tmp_path: Path) -> None:
    async def run(engine: Engine, contract: toy.Toy, other: apsw.Connection) -> None:
        other.execute("BEGIN IMMEDIATE")
        with patch.object(write_lock, "WAIT_SECONDS", 0.02):
            sent = [engine.admit(contract.write(toy.Add(b"a", b"%d" % number, 1), 0, 1)) for number in range(3)]
            told = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(one) for one in told] == [NotStoredError] * 3
        other.execute("ROLLBACK")
        assert await engine.admit(contract.write(toy.Add(b"a", b"0", 1), 0, 1)) == 1

    on_loop(tmp_path, run)


# Housekeeping


def test_a_checkpoint_that_a_reader_keeps_from_its_end_is_tried_again_after_some_pages(
    store: SqliteFileStore, other: apsw.Connection
) -> None:
    def grow(pages: int) -> None:
        write(store, [(PARCEL, ParcelRow(store._checkpoints.pages, b"o", bytes(4_096 * pages)))], durable=False)

    other.execute("BEGIN")
    other.execute("SELECT * FROM other").fetchall()
    grow(LONG_PAGES)
    assert store.is_tidy_long()
    store.tidy()
    assert not store.is_tidy_long(), "the writer does not try again after each batch"
    assert store.checkpoint_beside() is None
    assert store._checkpoints.pages >= LONG_PAGES
    grow(RETRY_PAGES)
    assert store.is_tidy_long()
    other.execute("COMMIT")
    store.tidy()
    grow(1)
    assert store._checkpoints.pages < CHECKPOINT_PAGES, "the log has started anew"
