"""A replica's file on a disk that fails: a write is wholly there or not at all, and nobody is told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from semel.client import LocalFileError
from semel.client.deltas.file import LocalFile
from semel.client.deltas.replica import LocalReplica
from semel.client.deltas.state import FileClock
from tests.harness.faulty_vfs import FaultyVfs, Operation


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    with FaultyVfs("faulty-replica") as faulty:
        yield faulty


def opened(folder: Path) -> LocalReplica:
    file = LocalFile(folder / "app.db", "faulty-replica")
    return LocalReplica(file, FileClock(file, lambda: 1_770_000_000_000), "me")


def state(replica: LocalReplica) -> tuple[list[str], list[str]]:
    """The rows that are shown, and the rows that are queued."""
    return sorted(replica.rows("todos")), [one.row_id for one in replica.outbox.pending()]


def test_a_write_is_synced_before_it_returns(vfs: FaultyVfs, tmp_path: Path) -> None:
    replica = opened(tmp_path)
    for number in range(3):
        before = vfs.count_syncs
        replica.insert("todos", str(number), {})
        assert vfs.count_syncs > before
    replica.file.close()


def test_what_a_crash_has_left_is_synced_before_it_is_used(vfs: FaultyVfs, tmp_path: Path) -> None:
    """Beside somebody who reads an older state, too, and when there is nothing else to write."""
    replica = opened(tmp_path)
    replica.insert("todos", "1", {})
    reader = apsw.Connection(str(replica.file.path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT * FROM semel_rows").fetchall()
    for number in range(2, 5):
        replica.insert("todos", str(number), {})
        replica.file.close()
        vfs.operations.clear()
        replica = opened(tmp_path)
        assert Operation("sync", "app.db-wal") in vfs.operations
    reader.close()
    replica.file.close()


def test_after_a_full_disk_it_goes_on(vfs: FaultyVfs, tmp_path: Path) -> None:
    replica = opened(tmp_path)
    replica.insert("todos", "1", {})
    vfs.fail_write = True
    with pytest.raises(LocalFileError, match="full"):
        replica.insert("todos", "2", {})
    vfs.mend()
    assert state(replica) == (["1"], ["1"])
    replica.insert("todos", "3", {})
    assert state(replica) == (["1", "3"], ["1", "3"])
    replica.file.close()


def test_after_a_failed_sync_only_the_disk_knows(vfs: FaultyVfs, tmp_path: Path) -> None:
    replica = opened(tmp_path)
    replica.insert("todos", "1", {})
    vfs.fail_sync = True
    with pytest.raises(LocalFileError):
        replica.insert("todos", "2", {})
    vfs.mend()
    for use in (lambda: replica.insert("todos", "3", {}), lambda: replica.rows("todos"), replica.restamp):
        with pytest.raises(LocalFileError, match="open it again"):
            use()
    replica.file.close()
    replica = opened(tmp_path)
    rows, queued = state(replica)
    assert rows == queued
    assert rows in (["1"], ["1", "2"])
    replica.insert("todos", "3", {})
    hlcs = [one.hlc for one in replica.outbox.pending()]
    assert hlcs == sorted(set(hlcs))
    replica.file.close()
