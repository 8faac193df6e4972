"""A full disk: what is stored is read and replayed, nothing new is begun, and it goes on when there is room."""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from semel.engine.commit_placement import CommitThread
from semel.engine.contract import NoWritesError, Write
from semel.engine.engine import Engine
from semel.store.protocol import StoreError, StoreUnfitError, Touch
from semel.store.sqlite import data_folder
from semel.store.sqlite.data_folder import RESERVE_BYTES, RESERVE_NAME, FolderDisk
from semel.store.sqlite.store import FILE_NAME, SqliteFileStore
from tests.engine import toy
from tests.harness.faulty_vfs import FaultyVfs
from tests.store.conformance import MIGRATIONS, TABLES, THING, everything, rotate, thing, write

EVERYTHING = 2**62
"""With so many bytes to be free, every disk is full."""


def fill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "FULL_BYTES", EVERYTHING)


def opened(folder: Path, vfs: str | None = None) -> SqliteFileStore:
    return SqliteFileStore(folder, TABLES, MIGRATIONS, lambda: 1, vfs)


def test_nothing_new_is_stored_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(opened(tmp_path)) as store:
        write(store, [(THING, thing())])
        with monkeypatch.context() as full:
            fill(full)
            write(store, [(THING, thing(number=2))])
            store.health()
            for durable in (True, False):
                with pytest.raises(StoreUnfitError, match=r"^The disk of the database has [0-9,]+ bytes free, and "):
                    write(store, [(THING, thing(number=3))], durable=durable)
            assert everything(store, THING) == [thing(), thing(number=2)]
            assert not store.is_tidy_long()
            assert store.checkpoint_beside() is None
            store.tidy()
        write(store, [(THING, thing(number=3))])
        rotate(store)
    with monkeypatch.context() as full:
        fill(full)
        with closing(opened(tmp_path)) as store:
            assert len(everything(store, THING)) == 3
            with pytest.raises(StoreUnfitError):
                write(store, [(THING, thing(number=4))])
            full.undo()
            write(store, [(THING, thing(number=4))])


def test_a_log_that_the_database_has_no_room_for_is_synced_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(opened(tmp_path / "data")) as store:
        write(store, [(THING, thing())])
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")  # as a crash would leave it
    synced: list[int] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        fsync(handle)
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", note)
    with FaultyVfs("full") as vfs:
        vfs.fail_write = True
        with closing(opened(tmp_path / "crashed", "full")) as store:
            assert everything(store, THING) == [thing()]
            assert (tmp_path / "crashed" / f"{FILE_NAME}-wal").stat().st_ino in synced
            vfs.mend()
    with closing(opened(tmp_path / "crashed")) as store:
        assert everything(store, THING) == [thing()]


def test_the_reserve_is_there_again_after_a_start_has_used_it(tmp_path: Path) -> None:
    reserve = tmp_path / RESERVE_NAME
    disk = FolderDisk(tmp_path)
    assert not disk.give_up_reserve()
    reserve.write_bytes(b"a part of it")
    disk.keep_reserve()
    assert reserve.stat().st_size == RESERVE_BYTES
    assert disk.give_up_reserve()
    assert not reserve.exists()
    with closing(opened(tmp_path)):
        assert reserve.stat().st_size == RESERVE_BYTES
        assert disk.give_up_reserve()
    assert reserve.stat().st_size == RESERVE_BYTES
    assert FolderDisk(tmp_path / "nowhere").flaw() == "", "the folder that is gone is told by others"


def test_a_file_that_cannot_be_opened_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(monkeypatch)
    with FaultyVfs("full") as vfs:
        vfs.fail_write = True
        with pytest.raises(StoreError, match=r"cannot be opened\. SQLite: .* and writes go on when it has "):
            opened(tmp_path, "full")


@pytest.mark.parametrize("on_loop", [None, CommitThread.NEVER, CommitThread.ALWAYS])
def test_callers_get_their_answers_and_the_writes_of_the_start_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_loop: CommitThread | None
) -> None:
    async def run() -> None:
        world, contract = toy.ToyWorld(), toy.Toy()

        def add(key: bytes) -> Write:
            return contract.write(toy.Add(b"a", key, 1), 0, 1)

        with closing(SqliteFileStore(tmp_path, toy.TABLES, toy.MIGRATIONS, world.wall_ms)) as store:
            engine = Engine(store, world, on_loop=on_loop)
            assert await engine.open(add(b"first")) == 1
            assert await engine.submit(add(b"1")) == 2
            fill(monkeypatch)
            store.health()
            opening = add(b"opening")
            with pytest.raises(NoWritesError):
                await engine.open(opening)
            sent = [engine.admit(add(key)) for key in (b"1", b"2", b"first")]
            told = await asyncio.gather(*sent, return_exceptions=True)
            assert [told[0], type(told[1]), told[2]] == [2, NoWritesError, 1], "known ones are answered"
            engine.touch([Touch(toy.COUNTER, (b"a",), "seen_at", 5)])
            monkeypatch.undo()
            sent = [engine.admit(add(key)) for key in (b"2", b"1", b"3")]
            told = await asyncio.gather(*sent, return_exceptions=True)
            assert [type(told[0]), told[1], type(told[2])] == [NoWritesError, 2, NoWritesError], "the start comes first"
            assert await engine.open(opening) == 3
            assert sorted(await asyncio.gather(*(engine.submit(add(key)) for key in (b"2", b"3")))) == [4, 5]
            await engine.stop()
            assert engine.failure is None

    asyncio.run(run())
