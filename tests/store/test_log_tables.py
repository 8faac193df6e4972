"""What the SQLite store promises of a log table: every key is found, in memory or beyond its limit, whatever happens.

Random transactions, rollbacks, rotations, restarts, crashes and open snapshots beside a dictionary; then single scenes.
"""

from __future__ import annotations

import random
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from semel.store.open import open_read_only
from semel.store.protocol import AnyTable, Changes, CommitUnknownError, Range, Row, Snapshot, StoreError, Touch, Tx
from semel.store.sqlite.key_index import BYTES_PER_KEY, KeyIndex
from semel.store.sqlite.log_changes import MOVED_BESIDE
from semel.store.sqlite.moved_keys import MovedKeys, moved_flaws
from semel.store.sqlite.store import SqliteFileStore
from semel.store.table import Key
from tests.store.conformance import LOCKS, changes, find, rotate, transaction, write
from tests.store.log_tables import (
    ENTRY,
    LOG_MIGRATIONS,
    LOG_TABLES,
    NEVER,
    STUB,
    LogModel,
    StubRow,
    entry,
    open_logs,
    statements,
    stub,
)
from tests.store.test_backup_rows import contents, copy

STEPS = 250
NUMBERS = 60
INDEX_KEYS = (4, 30, 1_000_000)

HASHES: dict[str, Callable[[Key], int]] = {
    "spread": hash,
    "seven values": lambda key: hash(key) % 7 - 3,
    "one value": lambda key: 5,
}

Models = dict[AnyTable, LogModel]


def made(table: AnyTable, number: int, value: int) -> Row:
    if table is STUB:
        return stub(number, used_at=value, label=b"x" * (value % 9))
    return entry(number, expires_at=value if value % 2 else NEVER, note=b"%d" % value if value % 3 else None)


def key_of(table: AnyTable, number: int) -> Key:
    return table.key_of(made(table, number, 0))


class Walk:
    """One random walk over a store and its model."""

    def __init__(self, folder: Path, seed: int, hash_key: Callable[[Key], int]) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.lives = 0
        self.hash_key = hash_key
        self.store = self.opened()
        self.models: Models = {table: LogModel(table) for table in LOG_TABLES}
        self.snapshots: list[tuple[Snapshot, Models]] = []

    def opened(self) -> SqliteFileStore:
        """The store, with a limit on the keys in memory that may be another one each time."""
        folder, index_keys = self.folder / str(self.lives), self.random.choice(INDEX_KEYS)
        return open_logs(folder, index_keys=index_keys, hash_key=self.hash_key)

    def some_keys(self, table: AnyTable) -> list[Key]:
        return [key_of(table, number) for number in self.random.sample(range(NUMBERS), self.random.randint(1, 8))]

    def transact(self) -> None:
        tx = self.store.begin(LOCKS, durable=self.random.random() < 0.2)
        models = {table: model.copy() for table, model in self.models.items()}
        for _ in range(self.random.randint(1, 3)):
            table = self.random.choice(LOG_TABLES)
            keys = self.some_keys(table)
            assert tx.load({table: keys}, []).rows[table] == models[table].find(keys)
            tx.flush(self.change(table, models[table]))
            if table is STUB and self.random.random() < 0.1:
                tx.rotate(STUB)
                models[STUB].rotate()
            self.check(tx, models)
        if self.random.random() < 0.25:
            tx.rollback()
        else:
            tx.commit()
            self.models = models

    def change(self, table: AnyTable, model: LogModel) -> Changes:
        """Random changes of rows; the model is changed alike."""
        rows: dict[str, list[tuple[AnyTable, Row]]] = {"inserts": [], "updates": [], "steady": []}
        deletes: list[tuple[AnyTable, Key]] = []
        touches: list[Touch] = []
        for key in self.some_keys(table):
            number = int(key[1].decode()) if table is STUB else -key[1]
            row, old = made(table, number, self.random.randint(1, 999)), model.get(key)
            what = self.random.choice(["put", "put", "steady", "delete", "touch"])
            if old is None and what != "delete":
                rows["inserts"].append((table, row))
                model.put(row)
            elif what == "delete":
                deletes.append((table, key))
                model.delete(key)
            elif old is not None and what == "steady":
                row = row if table is STUB else row._replace(expires_at=old.expires_at)
                rows["steady"].append((table, row))
                model.put(row)
            elif what == "touch" and table is ENTRY:
                touches.append(Touch(ENTRY, key, "seen_at", self.random.randint(1, 999)))
                model.put(touches[-1].raised(old))
            else:
                rows["updates"].append((table, row))
                model.put(row)
        return changes(rows["inserts"], rows["updates"], deletes, touches, rows["steady"])

    def check(self, tx: Tx, models: Models) -> None:
        keys = {table: [key_of(table, number) for number in range(NUMBERS)] for table in LOG_TABLES}
        found = tx.load(keys, [])
        for table, model in models.items():
            assert found.rows[table] == model.find(keys[table])

    def check_all(self) -> None:
        tx = self.store.begin(LOCKS)
        self.check(tx, self.models)
        [expiring] = tx.load({}, [Range(ENTRY, "expires", (), 1_000, stop=(NEVER,))]).ranges
        tx.rollback()
        rows = [row for row in self.models[ENTRY].younger.values() if row.expires_at < NEVER]
        assert list(expiring) == sorted(rows, key=lambda row: (row.expires_at, *row[:3]))
        for snapshot, models in self.snapshots:
            for table, model in models.items():
                keys = [key_of(table, number) for number in range(NUMBERS)]
                assert snapshot.find(table, keys) == model.find(keys)
                assert snapshot.get(table, keys[0]) == model.get(keys[0])

    def take_snapshot(self) -> None:
        if len(self.snapshots) < 3:
            snapshot: Snapshot = self.store.read()
            snapshot.__enter__()
            self.snapshots.append((snapshot, {table: model.copy() for table, model in self.models.items()}))

    def end_snapshot(self) -> None:
        if self.snapshots:
            snapshot, models = self.snapshots.pop(self.random.randrange(len(self.snapshots)))
            for table, model in models.items():
                for age, rows in enumerate((model.younger, model.older)):
                    page = snapshot.page(table, age, None, 1_000, 2**40)
                    # The older generation may still have rows that the younger one has replaced.
                    assert {table.key_of(row): row for row in page} == rows
            snapshot.__exit__(None, None, None)

    def restart(self) -> None:
        while self.snapshots:
            self.end_snapshot()
        self.store.close()
        self.store = self.opened()

    def crash(self) -> None:
        """Go on with the files as they are in the midst of a transaction."""
        tx = self.store.begin(LOCKS)
        tx.flush(self.change(STUB, self.models[STUB].copy()))
        self.lives += 1
        shutil.copytree(self.folder / str(self.lives - 1), self.folder / str(self.lives))
        tx.rollback()
        while self.snapshots:
            self.end_snapshot()
        self.store.close()
        self.store = self.opened()

    def check_moved(self) -> None:
        """Each row is in memory or among the moved keys as its place says, and nothing else is among them."""
        assert list(moved_flaws(self.store._writer, LOG_TABLES)) == []
        for log in self.store._logs.logs():
            name, state = log.made.name, log.moved.state
            counted = f"SELECT count(*), max(place) FROM {name}_moved"
            [(keys, highest)] = self.store._writer.execute(counted)
            assert (keys, log.rows) == (state.keys, self.count(name))
            assert (highest or 0) <= state.boundary

    def count(self, name: str) -> int:
        return int(self.store._writer.execute(f"SELECT count(*) FROM {name}").get)

    def run(self) -> None:
        steps = [self.transact] * 10 + [self.store_tidy] * 4
        steps += [self.take_snapshot, self.end_snapshot, self.restart, self.crash]
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check_all()
            self.check_moved()
        self.restart()
        self.check_all()
        self.store.close()

    def store_tidy(self) -> None:
        self.store.tidy()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("hash_key", HASHES)
def test_a_log_table_agrees_with_a_dictionary(tmp_path: Path, seed: int, hash_key: str) -> None:
    Walk(tmp_path, seed, HASHES[hash_key]).run()


# Single scenes


def key(number: int) -> Key:
    return STUB.key_of(stub(number))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteFileStore]:
    """A store with log tables."""
    with closing(open_logs(tmp_path / "data")) as made:
        yield made


# Look-ups


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
