"""What the SQLite store promises of a log table: a miss asks nobody, a hit is compared, memory follows the commit."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from semel.store.open import open_read_only, open_store
from semel.store.protocol import AnyTable, CommitUnknownError, Range, Row, StoreError
from semel.store.sqlite.key_index import BYTES_PER_KEY, KeyIndex
from semel.store.sqlite.log_changes import MOVED_BESIDE
from semel.store.sqlite.moved_keys import MovedKeys
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Key
from tests.harness.faulty_vfs import FaultyVfs
from tests.store.conformance import LOCKS, changes, find, rotate, transaction, write
from tests.store.log_tables import (
    ENTRY,
    LOG_MIGRATIONS,
    LOG_TABLES,
    NEVER,
    STUB,
    StubRow,
    entry,
    open_logs,
    statements,
    stub,
)
from tests.store.test_backup_rows import contents, copy


def key(number: int) -> Key:
    return STUB.key_of(stub(number))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteFileStore]:
    """A store with log tables."""
    with closing(open_logs(tmp_path / "data")) as made:
        yield made


# Look-ups


def test_a_key_without_a_row_is_known_absent_without_a_statement(store: SqliteFileStore) -> None:
    write(store, [(STUB, stub(number)) for number in range(100)])
    tx = store.begin(LOCKS)
    with statements(store) as ran:
        assert tx.load({STUB: [key(number) for number in range(100, 200)]}, []).rows[STUB] == {}
    assert ran == []
    tx.rollback()


def test_a_batch_of_known_keys_is_one_read(store: SqliteFileStore) -> None:
    write(store, [(STUB, stub(number)) for number in range(100)])
    tx = store.begin(LOCKS)
    with statements(store) as ran:
        found = tx.load({STUB: [key(number) for number in range(36, 164)]}, []).rows[STUB]
    assert sorted(found) == sorted(key(number) for number in range(36, 100))
    assert len(ran) == 1
    tx.rollback()


def test_appended_rows_are_one_statement_without_a_read(store: SqliteFileStore) -> None:
    tx = store.begin(LOCKS)
    tx.load({STUB: [key(number) for number in range(64)]}, [])
    with statements(store) as ran:
        tx.flush(changes([(STUB, stub(number)) for number in range(64)]))
    assert len(ran) == 1
    tx.commit()


def test_keys_with_one_hash_keep_their_own_rows(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, hash_key=lambda key: 7)) as store:
        rows = [stub(number, used_at=number) for number in range(20)]
        write(store, [(STUB, row) for row in rows[:10]])
        assert [find(store, STUB, key(number)) for number in range(20)] == [*rows[:10], *[None] * 10]
        write(store, [(STUB, row) for row in rows[10:]], [(STUB, rows[3]._replace(used_at=99))], [(STUB, key(4))])
        assert find(store, STUB, key(3)) == rows[3]._replace(used_at=99)
        assert find(store, STUB, key(4)) is None
        assert find(store, STUB, key(15)) == rows[15]


@pytest.mark.parametrize("is_loaded", [True, False])
@pytest.mark.parametrize("is_moved", [True, False])
def test_an_insert_that_finds_a_row_ends_the_transaction(tmp_path: Path, is_loaded: bool, is_moved: bool) -> None:
    with closing(open_logs(tmp_path, index_keys=1 if is_moved else 100)) as store:
        write(store, [(STUB, stub(number)) for number in range(5)])
        assert store._logs.keys_held == (1 if is_moved else 5)
        tx = store.begin(LOCKS)
        if is_loaded:
            tx.load({STUB: [key(3)]}, [])
        tx.flush(changes([(STUB, stub(7))]))
        with pytest.raises(StoreError, match="existing row"):
            tx.flush(changes([(STUB, stub(8)), (STUB, stub(3))]))
        tx.rollback()
        assert [find(store, STUB, key(number)) for number in (7, 8)] == [None, None]


def test_one_key_twice_in_a_transaction_is_an_error(store: SqliteFileStore) -> None:
    with pytest.raises(StoreError, match="existing row"):
        write(store, [(STUB, stub(1)), (STUB, stub(1, used_at=2))])
    tx = store.begin(LOCKS)
    tx.flush(changes([(STUB, stub(1))]))
    with pytest.raises(StoreError, match="existing row"):
        tx.flush(changes([(STUB, stub(1))]))
    tx.rollback()
    assert find(store, STUB, key(1)) is None


def test_there_is_no_range_by_key_and_there_is_one_by_index(store: SqliteFileStore) -> None:
    rows = [entry(number, expires_at=100 - number // 2) for number in range(20)]
    write(store, [(ENTRY, row) for row in rows])
    with store.read() as snapshot:
        with pytest.raises(StoreError, match="by key only"):
            snapshot.range(Range(ENTRY, "", (), 10))
        found = snapshot.range(Range(ENTRY, "expires", (), 5, stop=(NEVER,)))
    assert list(found) == sorted(rows, key=lambda row: (row.expires_at, *row[:3]))[:5]


# Commit and rollback


def test_memory_changes_after_the_commit_alone(store: SqliteFileStore) -> None:
    write(store, [(STUB, stub(1))])
    tx = store.begin(LOCKS)
    tx.flush(changes([(STUB, stub(2))], deletes=[(STUB, key(1))]))
    assert store._logs.keys_held == 1
    assert tx.load({STUB: [key(1), key(2)]}, []).rows[STUB] == {key(2): stub(2)}
    tx.commit()
    assert store._logs.keys_held == 1
    assert [find(store, STUB, key(number)) for number in (1, 2)] == [None, stub(2)]


def test_a_rollback_leaves_no_entry(store: SqliteFileStore) -> None:
    write(store, [(STUB, stub(1))])
    for number in range(2, 5):
        tx = store.begin(LOCKS)
        tx.flush(changes([(STUB, stub(number))], deletes=[(STUB, key(1))]))
        tx.rotate(STUB)
        tx.rollback()
    assert store._logs.keys_held == 1
    tx = store.begin(LOCKS)
    with statements(store) as ran:
        assert tx.load({STUB: [key(2), key(3)]}, []).rows[STUB] == {}
    assert ran == []
    tx.rollback()
    assert find(store, STUB, key(1)) == stub(1)


def test_a_commit_that_fails_stops_the_store_and_adds_no_entry(tmp_path: Path) -> None:
    with FaultyVfs("faulty") as vfs:
        url = f"sqlite:{tmp_path}?vfs={vfs.name}"
        store = open_store(url, LOG_TABLES, LOG_MIGRATIONS, lambda: 1)
        assert isinstance(store, SqliteFileStore)
        write(store, [(STUB, stub(1))])
        vfs.fail_sync = True
        with pytest.raises(CommitUnknownError):
            write(store, [(STUB, stub(2))])
        assert store._logs.keys_held == 1
        with pytest.raises(StoreError):
            store.begin(LOCKS)
        vfs.mend()
        store.close()


def test_an_index_that_cannot_follow_a_commit_stops_the_store(
    store: SqliteFileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(KeyIndex, "extend", fail)
    with pytest.raises(CommitUnknownError):
        write(store, [(STUB, stub(1))])
    with pytest.raises(StoreError):
        store.begin(LOCKS)


def test_a_large_transaction_finds_its_own_rows_and_keeps_them(store: SqliteFileStore, tmp_path: Path) -> None:
    numbers = range(60_000)
    with transaction(store) as tx:
        for at in range(0, len(numbers), 5_000):
            tx.flush(changes([(STUB, stub(number)) for number in numbers[at : at + 5_000]]))
        assert tx.load({STUB: [key(0), key(59_999), key(60_000)]}, []).rows[STUB].keys() == {key(0), key(59_999)}
    store.close()
    with closing(open_logs(tmp_path / "data")) as again:
        assert again._logs.keys_held == len(numbers)
        assert find(again, STUB, key(30_000)) == stub(30_000)


# Snapshots


def test_a_snapshot_finds_a_commit_that_the_index_does_not_have_yet(store: SqliteFileStore) -> None:
    seen: list[object] = []

    def look(connection: apsw.Connection, name: str, pages: int) -> int:
        with store.read() as snapshot:
            seen.append(snapshot.get(STUB, key(1)))
        return apsw.SQLITE_OK

    store._writer.set_wal_hook(look)
    write(store, [(STUB, stub(1))])
    assert seen == [stub(1)]


def test_a_snapshot_keeps_deleted_moved_and_dropped_rows(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=2)) as store:
        with store.read() as empty:
            write(store, [(STUB, stub(number)) for number in range(6)])
            assert empty.get(STUB, key(1)) is None
        with store.read() as before:
            write(store, [(STUB, stub(9))], deletes=[(STUB, key(1))])
            rotate(store, STUB)
            rotate(store, STUB)
            assert [before.get(STUB, key(number)) for number in range(6)] == [stub(number) for number in range(6)]
            assert before.get(STUB, key(9)) is None
        store.tidy()
        assert find(store, STUB, key(2)) is None
        assert store._logs.keys_held == 0
        assert store._logs._replaced == ()


def test_a_page_goes_on_behind_the_last_row_in_order_of_arrival(store: SqliteFileStore) -> None:
    rows = [stub(number) for number in (5, 3, 9, 1, 7)]
    write(store, [(STUB, row) for row in rows])
    with store.read() as snapshot:
        assert list(snapshot.page(STUB, 0, None, 2, 2**40)) == rows[:2]
        assert list(snapshot.page(STUB, 0, key(3), 2, 2**40)) == rows[2:4]
        assert list(snapshot.page_keys(STUB, 0, key(9), 9)) == [key(1), key(7)]  # another page than the next
        assert list(snapshot.page(STUB, 0, key(7), 2, 2**40)) == []
        with pytest.raises(StoreError, match="no row behind"):
            snapshot.page(STUB, 0, key(2), 2, 2**40)


def test_another_process_finds_rows_without_an_index(store: SqliteFileStore, tmp_path: Path) -> None:
    write(store, [(STUB, stub(number)) for number in range(9)])
    rotate(store, STUB)
    write(store, updates=[(STUB, stub(4, used_at=2))])
    with open_read_only(f"sqlite:{tmp_path / 'data'}", LOG_TABLES, LOG_MIGRATIONS, lambda: 1) as snapshot:
        assert snapshot.get(STUB, key(4)) == stub(4, used_at=2)
        assert snapshot.find(STUB, [key(3), key(10)]) == {key(3): stub(3)}


def test_a_restored_backup_has_every_row(store: SqliteFileStore, tmp_path: Path) -> None:
    write(store, [(STUB, stub(number)) for number in range(9)] + [(ENTRY, entry(number)) for number in range(9)])
    rotate(store, STUB)
    write(store, [(STUB, stub(number)) for number in (12, 11)])
    with closing(open_logs(tmp_path / "copied")) as target:
        copy(store, target, LOG_TABLES, lambda rows: None)
        assert contents(target, LOG_TABLES) == contents(store, LOG_TABLES)
        assert find(target, STUB, key(5)) == stub(5)


# Memory


def test_an_entry_takes_less_than_forty_bytes() -> None:
    hashes = [hash((b"scope", b"%d" % number)) for number in range(200_000)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index = KeyIndex()
    index.extend(hashes, 1)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert held / len(hashes) < min(40, BYTES_PER_KEY + 4)
    assert all(index.places(hashed) == [place] for place, hashed in enumerate(hashes[:1_000], start=1))


def test_keys_beyond_the_limit_leave_memory_and_are_still_found(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=100)) as store:
        for start in range(0, 1_000, 50):
            write(store, [(STUB, stub(number)) for number in range(start, start + 50)])
            assert store._logs.keys_held <= 100
        assert [find(store, STUB, key(number)) for number in (0, 500, 999)] == [stub(0), stub(500), stub(999)]
        assert find(store, STUB, key(1_000)) is None
        write(store, updates=[(STUB, stub(3, used_at=5))], deletes=[(STUB, key(2))])
        assert [find(store, STUB, key(number)) for number in (2, 3)] == [None, stub(3, used_at=5)]
    with closing(open_logs(tmp_path, index_keys=100)) as store:
        assert store._logs.keys_held <= 100
        assert [find(store, STUB, key(number)) for number in (2, 3)] == [None, stub(3, used_at=5)]


def test_a_lower_limit_is_reached_in_the_course_of_many_writes(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path)) as store:
        write(store, [(STUB, stub(number)) for number in range(1_000)])
    with closing(open_logs(tmp_path, index_keys=100)) as store:
        assert store._logs.keys_held == 1_000
        for number in range(1_000, 1_010):
            before = store._logs.keys_held
            write(store, [(STUB, stub(number))])
            assert before - store._logs.keys_held == MOVED_BESIDE + 1, "two for the new one, which came in"
        for number in range(1_010, 1_040):
            write(store, [(STUB, stub(number))])
        assert store._logs.keys_held == 100
        assert all(find(store, STUB, key(number)) == stub(number) for number in range(1_040))
    with closing(open_logs(tmp_path)) as store:
        write(store, [(STUB, stub(1_040))])
        assert store._logs.size[:2] == (101, 940), "a higher limit takes nothing back"


def test_the_oldest_keys_move_first(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=100)) as store:
        write(store, [(STUB, stub(number)) for number in range(40)])
        rotate(store, STUB)
        write(store, [(STUB, stub(number)) for number in range(40, 120)])
        assert [len(store._logs.log(name).index) for name in ("stub_0", "stub_1")] == [20, 80]
        tx = store.begin(LOCKS)
        with statements(store) as ran:
            found = tx.load({STUB: [key(number) for number in range(20, 120)]}, []).rows[STUB]
        assert len(found) == 100
        assert not any("_moved" in sql for sql in ran)
        tx.rollback()
        rotate(store, STUB)
        assert store._logs.size[:2] == (80, 0), "a generation takes its moved keys along"
        assert store._writer.execute("SELECT count(*) FROM stub_0_moved").fetchall() == [(0,)]


def test_a_rollback_leaves_all_keys_in_memory(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=10)) as store:
        write(store, [(STUB, stub(number)) for number in range(10)])
        tx = store.begin(LOCKS)
        tx.flush(changes([(STUB, stub(number)) for number in range(10, 20)]))
        tx.rollback()
        assert store._logs.size[:2] == (10, 0)
        assert store._logs.excess == 0
        assert all(find(store, STUB, key(number)) == stub(number) for number in range(10))


def test_a_transaction_changes_the_keys_that_it_has_moved(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=5)) as store:
        write(store, [(STUB, stub(number)) for number in range(5)])
        tx = store.begin(LOCKS)
        tx.flush(changes([(STUB, stub(number)) for number in range(5, 20)]))
        with pytest.raises(StoreError, match="existing row"):
            tx.flush(changes([(STUB, stub(4))]))
        tx.rollback()
        with transaction(store) as moving:
            moving.flush(changes([(STUB, stub(number)) for number in range(5, 20)]))
            moving.flush(changes(updates=[(STUB, stub(3, used_at=5))], deletes=[(STUB, key(2)), (STUB, key(12))]))
        assert [find(store, STUB, key(number)) for number in (2, 3, 12)] == [None, stub(3, used_at=5), None]
        assert store._logs.size[:2] == (5, 13)
        assert store._writer.execute("SELECT count(*) FROM stub_0_moved").fetchall() == [(13,)]


def test_a_snapshot_finds_deleted_rows_whose_keys_had_moved(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=10)) as store:
        write(store, [(STUB, stub(number)) for number in range(100)])
        with store.read() as snapshot:
            write(store, deletes=[(STUB, key(number)) for number in range(50)])
            write(store, [(STUB, stub(number)) for number in range(100, 200)])
            for _ in range(200):
                store.tidy()
            assert snapshot.find(STUB, [key(number) for number in range(60)]) == {
                key(number): stub(number) for number in range(60)
            }
        assert find_as_writer(store, STUB, key(3)) is None


def test_keys_that_a_snapshot_has_kept_in_memory_leave_it_little_by_little(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=10)) as store:
        with store.read() as snapshot:
            write(store, [(STUB, stub(number)) for number in range(5_000)])
            assert snapshot.get(STUB, key(1)) is None
            assert store._logs.size[:2] == (5_000, 4_990)
        held = []
        while store._logs.keys_held > 10:
            store.tidy()
            held.append(store._logs.keys_held)
        assert held == [4_000, 3_000, 2_000, 1_000, 10]


def test_the_size_of_the_index_counts_keys_in_memory_and_on_disk(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=10)) as store:
        write(store, [(STUB, stub(number)) for number in range(100)])
        assert store._logs.size == (10, 90, 10 * BYTES_PER_KEY)
        write(store, deletes=[(STUB, key(0))])
        assert store._logs.size[:2] == (10, 89)
        assert store._logs.rows["stub"] == 99
    with closing(open_logs(tmp_path, index_keys=10)) as store:
        assert store._logs.size[:2] == (10, 89)
        assert store._logs.rows["stub"] == 99


def find_as_writer(store: SqliteFileStore, table: AnyTable, wanted: Key) -> Row | None:
    """A row as a transaction finds it."""
    tx = store.begin(LOCKS)
    try:
        return tx.load({table: [wanted]}, []).rows[table].get(wanted)
    finally:
        tx.rollback()


def test_moved_keys_are_deleted_with_their_rows(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=8)) as store:
        for start in range(0, 1_000, 100):
            write(store, [(ENTRY, entry(number)) for number in range(start, start + 100)])
            write(store, deletes=[(ENTRY, ENTRY.key_of(entry(number))) for number in range(start, start + 100)])
        assert store._writer.execute("SELECT count(*) FROM entry_moved").fetchall() == [(0,)]
        assert store._logs.size[:2] == (0, 0)


def test_a_new_row_is_placed_above_the_moved_keys_of_deleted_ones(tmp_path: Path) -> None:
    with closing(open_logs(tmp_path, index_keys=1)) as store:
        write(store, [(ENTRY, entry(number)) for number in range(20)])
        write(store, deletes=[(ENTRY, ENTRY.key_of(entry(number))) for number in range(20)])
    with closing(open_logs(tmp_path, index_keys=1)) as store:
        write(store, [(ENTRY, entry(30))])
    with closing(open_logs(tmp_path, index_keys=1)) as store:
        assert find(store, ENTRY, ENTRY.key_of(entry(30))) == entry(30)


def test_a_move_that_finds_the_disk_full_stores_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_logs(tmp_path, index_keys=5)) as store:
        write(store, [(STUB, stub(number)) for number in range(5)])
        with monkeypatch.context() as full:
            full.setattr(MovedKeys, "add", _no_room)
            with pytest.raises(StoreError, match="the disk is full"):
                write(store, [(STUB, stub(5))])
        assert store._logs.size[:2] == (5, 0)
        assert [find(store, STUB, key(number)) for number in (4, 5)] == [stub(4), None]
        write(store, [(STUB, stub(5))])
        assert store._logs.size[:2] == (5, 1)
        assert all(find(store, STUB, key(number)) == stub(number) for number in range(6))


def _no_room(*_: object) -> None:
    raise apsw.FullError("the disk is full")


# Crashes


def test_a_crash_after_any_commit_loses_no_key(tmp_path: Path) -> None:
    """The files are copied as each commit leaves them, and each copy is opened with the limits that there may be."""
    store = open_logs(tmp_path / "data", index_keys=10)
    copies: list[Path] = []

    def keep(connection: apsw.Connection, name: str, pages: int) -> int:
        copies.append(tmp_path / f"crash{len(copies)}")
        shutil.copytree(tmp_path / "data", copies[-1])
        return apsw.SQLITE_OK

    store._writer.set_wal_hook(keep)
    for number in range(0, 48, 4):
        write(store, [(STUB, stub(number + more)) for more in range(4)])
    store.close()
    for done, folder in enumerate(copies, start=1):
        rows = [stub(number) for number in range(4 * done)]
        for index_keys in (10, 3, 1_000):
            with closing(open_logs(folder, index_keys=index_keys)) as crashed:
                assert_all(crashed, rows)
                more = stub(100 + index_keys)
                write(crashed, [(STUB, more)])
                rows.append(more)
                assert_all(crashed, rows)


def assert_all(store: SqliteFileStore, rows: list[StubRow]) -> None:
    tx = store.begin(LOCKS)
    found = tx.load({STUB: [STUB.key_of(row) for row in rows]}, []).rows[STUB]
    tx.rollback()
    assert found == {STUB.key_of(row): row for row in rows}
