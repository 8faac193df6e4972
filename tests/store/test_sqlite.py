"""What the SQLite store does when the disk, the library or the file is not as it should be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from semel.store.open import open_store
from semel.store.protocol import CommitUnknownError, Range, StoreBusyError, StoreError, Touch
from semel.store.sqlite.checkpoint import CHECKPOINT_PAGES, LONG_PAGES
from semel.store.sqlite.schema import check_library
from semel.store.sqlite.store import FILE_NAME, SqliteFileStore
from tests.harness.faulty_vfs import FaultyVfs, Operation
from tests.store.conformance import (
    LOCKS,
    MIGRATIONS,
    PARCEL,
    TABLES,
    THING,
    ParcelRow,
    SqlitePlace,
    changes,
    everything,
    find,
    thing,
    transaction,
    write,
)

MEGABYTE = 1024 * 1024


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    """A file system that works until it is told otherwise."""
    with FaultyVfs("faulty") as made:
        yield made


@pytest.fixture
def place(tmp_path: Path, vfs: FaultyVfs) -> Iterator[SqlitePlace]:
    """A folder on that file system."""
    made = SqlitePlace(tmp_path / "data")
    made.vfs = vfs.name
    yield made
    vfs.mend()
    made.close()


# Syncs


def test_a_durable_commit_syncs_and_a_soft_one_does_not(place: SqlitePlace, vfs: FaultyVfs) -> None:
    store = place.open()
    write(store, [(THING, thing(number=0))])
    for number in range(1, 6):
        before = vfs.count_syncs
        write(store, [(THING, thing(number=number))])
        assert vfs.count_syncs > before
        before = vfs.count_syncs
        write(store, touches=[Touch(THING, (b"a", number, 1), "seen_at", 5)], durable=False)
        assert vfs.count_syncs == before


def test_a_durable_commit_syncs_after_a_soft_transaction_was_rolled_back(place: SqlitePlace, vfs: FaultyVfs) -> None:
    store = place.open()
    store.begin((), durable=False).rollback()
    before = vfs.count_syncs
    write(store, [(THING, thing())])
    assert vfs.count_syncs > before


def test_a_transaction_that_changes_nothing_does_not_sync(place: SqlitePlace, vfs: FaultyVfs) -> None:
    store = place.open()
    write(store, [(THING, thing())])
    before = vfs.count_syncs
    find(store, THING, (b"a", 1, 1))
    write(store)
    assert vfs.count_syncs == before


def test_a_log_that_begins_anew_syncs_its_header_before_its_first_frame(place: SqlitePlace, vfs: FaultyVfs) -> None:
    """Or else a power loss may leave the old header before new frames, and old pages are put over newer ones.

    SQLite does so for every commit unless `synchronous` is OFF; https://sqlite.org/src/info/ff5be73dee tells the story.
    """
    store = place.open()
    write(store, [(THING, thing()), (PARCEL, ParcelRow(1, b"o", bytes(CHECKPOINT_PAGES * 8192)))])
    store.tidy()
    vfs.operations.clear()
    write(store, touches=[Touch(THING, (b"a", 1, 1), "seen_at", 5)], durable=False)
    log = [one for one in vfs.operations if one.file.endswith("-wal")]
    assert log[0] == Operation("write", FILE_NAME + "-wal", 0), "the log did not begin anew"
    assert log[1].what == "sync"


def test_a_statement_of_many_rows_writes_to_the_log_and_nowhere_else(place: SqlitePlace, vfs: FaultyVfs) -> None:
    """SQLite would copy each page that it changes, to be able to take it back alone; here that ends the transaction."""
    store = place.open()
    old, new = ([thing(number=number, note=bytes(512)) for number in range(start, 1024, 2)] for start in (0, 1))
    write(store, [(THING, row) for row in old])
    vfs.operations.clear()
    write(store, [(THING, row) for row in new], [(THING, row._replace(note=b"n" * 512)) for row in old])
    assert {one.file for one in vfs.operations} == {FILE_NAME + "-wal"}


def test_a_row_that_is_there_already_ends_the_transaction_with_all_before_it(place: SqlitePlace) -> None:
    store = place.open()
    write(store, [(THING, thing(number=3))])
    with pytest.raises(StoreError):
        write(store, [(PARCEL, ParcelRow(1, b"o", b"x")), *((THING, thing(number=number)) for number in range(6))])
    assert everything(store, PARCEL) == []
    write(store, [(THING, thing(number=4))])
    assert [row.number for row in everything(place.reopen(), THING)] == [3, 4]


# Faults before the commit


def test_a_disk_that_is_full_before_the_commit_stores_nothing_and_may_be_tried_again(
    place: SqlitePlace, vfs: FaultyVfs
) -> None:
    store = place.open()
    write(store, [(THING, thing(number=1))])
    parcels = [(PARCEL, ParcelRow(number, b"o", bytes(8 * MEGABYTE))) for number in range(12)]
    vfs.fail_write = True
    with pytest.raises(StoreError):
        write(store, [(THING, thing(number=2)), *parcels])
    vfs.mend()
    assert [row.number for row in everything(store, THING)] == [1]
    assert everything(store, PARCEL) == []
    write(store, [(THING, thing(number=3)), parcels[0]])
    store = place.reopen()
    assert [row.number for row in everything(store, THING)] == [1, 3]


def test_a_disk_that_cannot_be_read_is_a_store_error(place: SqlitePlace, vfs: FaultyVfs) -> None:
    write(place.open(), [(THING, thing()), (PARCEL, ParcelRow(1, b"", bytes(MEGABYTE)))])
    store = place.reopen()
    vfs.fail_read = True
    with pytest.raises(StoreError), transaction(store) as tx:
        tx.load({PARCEL: [(1,)]}, [])
    vfs.mend()
    write(store, [(THING, thing(number=2))])
    assert len(everything(store, THING)) == 2


def test_a_reader_whose_disk_cannot_be_read_hears_a_store_error(place: SqlitePlace, vfs: FaultyVfs) -> None:
    write(place.open(), [(THING, thing()), (PARCEL, ParcelRow(1, b"", bytes(MEGABYTE)))])
    store = place.reopen()
    vfs.fail_read = True
    with pytest.raises(StoreError), store.read() as snapshot:
        snapshot.get(PARCEL, (1,))
    with pytest.raises(StoreError), store.read() as snapshot:
        snapshot.range(Range(PARCEL, "", (), 9))
    with pytest.raises(StoreError), store.read() as snapshot:
        snapshot.keys(Range(PARCEL, "", (), 9))
    vfs.mend()
    assert len(everything(store, PARCEL)) == 1


# Faults of the commit


@pytest.mark.parametrize("fault", ["fail_sync", "fail_write"])
def test_a_commit_that_fails_is_unknown_and_the_store_refuses_to_go_on(
    place: SqlitePlace, vfs: FaultyVfs, fault: str
) -> None:
    store = place.open()
    write(store, [(THING, thing(number=1))])
    tx = store.begin(LOCKS)
    tx.flush(changes([(THING, thing(number=2)), (THING, thing(number=3))]))
    setattr(vfs, fault, True)
    with pytest.raises(CommitUnknownError):
        tx.commit()
    tx.rollback()
    vfs.mend()
    for durable in (True, False):
        with pytest.raises(StoreError):
            store.begin(LOCKS, durable=durable)
    store.tidy()
    store = place.reopen()
    assert [row.number for row in everything(store, THING)] in ([1], [1, 2, 3])
    write(store, [(THING, thing(number=4))])


def test_a_soft_commit_that_fails_is_unknown_too(place: SqlitePlace, vfs: FaultyVfs) -> None:
    store = place.open()
    write(store, [(THING, thing())])
    vfs.fail_write = True
    with pytest.raises(CommitUnknownError):
        write(store, touches=[Touch(THING, (b"a", 1, 1), "seen_at", 5)], durable=False)
    with pytest.raises(StoreError):
        store.begin(LOCKS)


def test_a_soft_commit_does_not_notice_a_disk_that_cannot_sync(place: SqlitePlace, vfs: FaultyVfs) -> None:
    store = place.open()
    write(store, [(THING, thing())])
    vfs.fail_sync = True
    write(store, touches=[Touch(THING, (b"a", 1, 1), "seen_at", 5)], durable=False)
    assert everything(store, THING) == [thing(seen_at=5)]


@pytest.mark.parametrize("fault", ["fail_sync", "fail_write"])
def test_a_checkpoint_that_fails_stops_the_store_and_loses_nothing(
    place: SqlitePlace, vfs: FaultyVfs, fault: str
) -> None:
    store = place.open()
    parcels = [ParcelRow(number, b"o", bytes([number]) * (CHECKPOINT_PAGES * 1024)) for number in range(9)]
    write(store, [(PARCEL, parcel) for parcel in parcels])
    setattr(vfs, fault, True)
    with pytest.raises(CommitUnknownError):
        store.tidy()
    with pytest.raises(StoreError):
        store.begin(LOCKS)
    vfs.mend()
    assert everything(place.reopen(), PARCEL) == parcels


def test_a_checkpoint_that_cannot_keep_up_is_left_to_the_writer(exclusive: SqlitePlace) -> None:
    store = exclusive.open()
    assert isinstance(store, SqliteFileStore)
    write(store, [(PARCEL, ParcelRow(1, b"o", bytes(LONG_PAGES * 4_096)))])
    assert store.checkpoint_beside() is None
    assert store.is_tidy_long()
    store.tidy()
    assert not store.is_tidy_long()


def test_a_checkpoint_keeps_what_readers_see(place: SqlitePlace) -> None:
    store = place.open()
    write(store, [(THING, thing())])
    with store.read() as snapshot:
        assert snapshot.get(THING, (b"a", 1, 1)) == thing()
        for turn in range(3):
            write(store, [(PARCEL, ParcelRow(turn, b"o", bytes(CHECKPOINT_PAGES * 8192)))], durable=False)
            store.tidy()
            write(store, updates=[(THING, thing(weight=turn + 1))])
        assert snapshot.get(THING, (b"a", 1, 1)) == thing()
        assert snapshot.keys(Range(PARCEL, "", (), 9)) == []
    store.tidy()
    assert everything(store, THING) == [thing(weight=3)]


# The folder


def test_the_folder_is_made(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path / "some" / "where")
    place.open()
    place.close()
    assert (tmp_path / "some" / "where" / FILE_NAME).exists()


def test_a_file_that_is_no_database_is_a_store_error(tmp_path: Path) -> None:
    place = SqlitePlace(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"this is something else\n" * 1_000)
    with pytest.raises(StoreError):
        place.open()
    (tmp_path / FILE_NAME).unlink()
    place.open()
    place.close()


def test_a_folder_that_is_a_file_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        SqlitePlace(tmp_path / "file").open()


def test_closing_twice_lets_go_of_nothing_that_is_somebody_elses(tmp_path: Path) -> None:
    first, second = SqlitePlace(tmp_path / "first"), SqlitePlace(tmp_path / "second")
    closed = first.open()
    first.close()
    second.open()
    closed.close()
    with pytest.raises(StoreBusyError):
        second.open()
    second.close()


# The library


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "2.99.99", "3.9.0"])
def test_a_library_that_loses_pages_is_refused(version: str) -> None:
    with pytest.raises(StoreError, match=version):
        check_library(version)


@pytest.mark.parametrize("version", ["3.51.3", "3.52.0", "3.100.0", "4.0.0", apsw.sqlite_lib_version()])
def test_a_library_without_that_fault_is_taken(version: str) -> None:
    check_library(version)


def test_the_store_asks_for_the_library_it_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match=r"3\.51\.2"):
        SqlitePlace(tmp_path).open()


# Stores by URL


@pytest.mark.parametrize("url", ["", "sqlite:", "sqlite", "mysql:there", "/a/folder"])
def test_an_unknown_url_is_a_store_error(url: str) -> None:
    with pytest.raises(StoreError):
        open_store(url, TABLES, MIGRATIONS, lambda: 0)


def test_a_url_may_have_two_slashes(tmp_path: Path) -> None:
    open_store(f"sqlite://{tmp_path}/data", TABLES, MIGRATIONS, lambda: 0).close()
    assert (tmp_path / "data" / FILE_NAME).exists()


def test_a_connection_that_cannot_roll_back_is_given_up(place: SqlitePlace) -> None:
    """Else every later write would be refused for ever, by a server that says it is well."""

    class Stuck:
        in_transaction = True

        def execute(self, sql: str) -> None:
            raise apsw.IOError("the disk does not answer")

    store = place.open()
    tx: Any = store.begin([])
    writer, tx._writer = tx._writer, Stuck()
    with pytest.raises(CommitUnknownError):
        tx.rollback()
    writer.execute("ROLLBACK")
    with pytest.raises(StoreError):
        store.begin([])


def on_disk(folder: Path, vfs: FaultyVfs) -> SqlitePlace:
    place = SqlitePlace(folder)
    place.vfs = vfs.name
    return place


def test_what_a_crash_left_unsynced_is_on_disk_before_anything_is_answered(tmp_path: Path, vfs: FaultyVfs) -> None:
    """Its writer was never answered, but a retry would be, from the operating system's memory alone."""
    store = on_disk(tmp_path / "first", vfs).open()
    write(store, [(THING, thing())])
    vfs.fail_sync = True
    with pytest.raises(CommitUnknownError):
        write(store, [(THING, thing(number=2))])
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "first", crashed)
    vfs.mend()
    before = vfs.count_syncs
    reopened = on_disk(crashed, vfs).open()
    assert vfs.count_syncs > before
    assert len(everything(reopened, THING)) == 2
    reopened.close()


# Statements


def test_a_statement_with_an_order_is_compiled_once(place: SqlitePlace) -> None:
    store = place.open()
    assert isinstance(store, SqliteFileStore)
    write(store, [(THING, thing(number=number, weight=number)) for number in range(9)])
    made, writer = store._younger(THING, store._current), store._writer
    ranges = [
        Range(THING, "weight", (b"a",), 3),
        Range(THING, "weight", (b"a",), 3, stop=(5,)),
        Range(THING, "weight", (b"a", 4), 3),
        Range(THING, "", (b"a",), 3, (2,), (7,), reverse=True),
        Range(THING, "", (), 3),
    ]
    statements: list[tuple[str, Any]] = [
        made.scan(wanted, keys_only=keys_only) for wanted in ranges for keys_only in (False, True)
    ]
    statements += [made.joined(ranges[2], "label", b","), made.distinct(ranges[0])]
    statements += [made.page(None, 3), made.page((b"a", 1, 1), 3, keys_only=True)]
    compiled: list[Any] = []

    def note(*what: Any) -> int:
        compiled.append(what)
        return apsw.SQLITE_OK

    writer.authorizer = note  # called whenever a statement is compiled
    for sql, values in statements:
        writer.execute(sql, values).fetchall()
    assert compiled
    compiled.clear()
    for sql, values in statements:
        writer.execute(sql, values).fetchall()
    writer.authorizer = None
    assert compiled == []
