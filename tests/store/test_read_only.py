"""A store is read beside those who use it: one instant, no lock, nothing written, and nobody is kept from anything."""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from semel.store.open import open_read_only
from semel.store.protocol import Range, Snapshot, StoreError
from semel.store.sqlite.store import FILE_NAME
from tests.harness.faulty_vfs import FaultyVfs, Operation
from tests.store.conformance import (
    MIGRATIONS,
    PARCEL,
    TABLES,
    THING,
    TICKET,
    TICKET_KEY,
    TICKET_ROW,
    Clock,
    ParcelRow,
    PersistentPlace,
    SqlitePlace,
    everything,
    rotate,
    thing,
    write,
)


def opened(url: str) -> AbstractContextManager[Snapshot]:
    """A snapshot of the place, with the suite's tables."""
    return open_read_only(url, TABLES, MIGRATIONS, Clock())


def numbers(snapshot: Snapshot) -> list[int]:
    return [row.number for row in snapshot.range(Range(THING, "", (), 1_000))]


def test_one_instant_while_others_write(lasting: PersistentPlace) -> None:
    store = lasting.open()
    write(store, [(THING, thing(number=1)), (TICKET, TICKET_ROW), (PARCEL, ParcelRow(1, b"o", b"content"))])
    rotate(store)
    with opened(lasting.url) as snapshot:
        assert snapshot.now_ms > 0
        for number in range(2, 5):
            write(store, [(THING, thing(number=number))], deletes=[(THING, (b"a", number - 1, 1))])
            assert numbers(snapshot) == [1]
        assert snapshot.get(TICKET, TICKET_KEY) == TICKET_ROW
        assert snapshot.find(PARCEL, [(1,), (2,)]) == {(1,): ParcelRow(1, b"o", b"content")}
        assert snapshot.keys(Range(THING, "", (b"a",), 9)) == [(b"a", 1, 1)]
        assert snapshot.page(PARCEL, 0, None, 9, 1) == [ParcelRow(1, b"o", b"content")]
        with pytest.raises(StoreError, match="can be read by key only"):
            snapshot.range(Range(TICKET, "", (), 1))
    with opened(lasting.url) as snapshot:
        assert numbers(snapshot) == [4]
    assert [row.number for row in everything(store, THING)] == [4]


def test_without_anybody_else(lasting: PersistentPlace) -> None:
    write(lasting.open(), [(THING, thing())])
    lasting.close()
    with opened(lasting.url) as snapshot:
        assert numbers(snapshot) == [1]
    assert [row.number for row in everything(lasting.open(), THING)] == [1]


def test_whoever_uses_it_may_go_and_come_back(lasting: PersistentPlace) -> None:
    write(lasting.open(), [(THING, thing(number=1))])
    with opened(lasting.url) as snapshot:
        write(lasting.reopen(), [(THING, thing(number=2))])
        assert numbers(snapshot) == [1]
        store = lasting.reopen()
        write(store, [(THING, thing(number=3))])
        assert numbers(snapshot) == [1]
    assert [row.number for row in everything(lasting.reopen(), THING)] == [1, 2, 3]


def test_the_log_is_folded_in_afterwards(exclusive: PersistentPlace) -> None:
    write(exclusive.open(), [(THING, thing())])
    with opened(exclusive.url):
        exclusive.reopen()
    exclusive.close()
    assert {path.name for path in exclusive.folder.iterdir()} == {"semel.db", "semel.lock", "semel.reserve"}


def test_a_start_beside_a_reader_syncs_the_log_all_the_same(tmp_path: Path) -> None:
    """It cannot be emptied then; what a crash left in it would be answered from the system's memory alone."""
    with FaultyVfs("beside") as vfs:
        place = SqlitePlace(tmp_path / "data")
        write(place.open(), [(THING, thing())])
        with opened(place.url):
            write(place.reopen(), [(THING, thing(number=2))])  # the reader keeps this in the log
            place.close()
            place.vfs = vfs.name
            place.open()
            assert Operation("sync", f"{FILE_NAME}-wal") in vfs.operations
        place.close()


def test_what_a_crash_left_in_the_log_is_seen(exclusive: PersistentPlace) -> None:
    command = [sys.executable, "-m", "tests.store.committer", exclusive.url, "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        child.kill()
    with opened(exclusive.url) as snapshot:
        assert 1 in numbers(snapshot)


def test_what_is_not_there_is_refused_and_not_made(lasting: PersistentPlace, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no data in"), opened(lasting.url):
        pass
    assert list(tmp_path.iterdir()) == []


def test_memory_has_nothing_to_read() -> None:
    with pytest.raises(StoreError, match="There is no data in memory:"), opened("memory:"):
        pass


def test_another_version_is_refused(lasting: PersistentPlace) -> None:
    lasting.open()
    lasting.close()
    newer = (*MIGRATIONS, MIGRATIONS[0]._replace(number=2))
    with (
        pytest.raises(StoreError, match="older schema version 1: run `semel migrate`"),
        open_read_only(lasting.url, TABLES, newer, Clock()),
    ):
        pass
    with (
        pytest.raises(StoreError, match="this Semel supports versions up to 0"),
        open_read_only(lasting.url, TABLES, (), Clock()),
    ):
        pass


def test_what_is_no_database_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(StoreError, match="cannot be read"), opened(f"sqlite:{tmp_path}"):
        pass
