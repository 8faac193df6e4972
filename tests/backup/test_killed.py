"""A backup and a restore that are killed in the middle: no half file under the name, no half store."""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from semel.engine.clock import SystemWorld
from semel.store.backup import count_rows
from semel.store.open import inspect_store, open_store
from semel.store.protocol import Changes, Store
from semel.surfaces.epoch import epoch_of
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import CHUNK, ChunkRow
from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url

PIECES, PIECE_BYTES = 100, 500_000
SECONDS = 60


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


def opened(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """50 MB that cannot be compressed, so that both commands take a while."""
    folder, noise = tmp_path / "source", random.Random(7)
    with closing(opened(f"sqlite:{folder}")) as store:
        tx = store.begin(())
        for end in range(PIECES):
            tx.flush(Changes({CHUNK: [ChunkRow(b"id", end, noise.randbytes(PIECE_BYTES), 1, 1)]}, {}, {}))
        tx.commit()
    return folder


def kill_when(run: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> None:
    """Send SIGKILL to the command in the middle of its work."""
    deadline = time.monotonic() + SECONDS
    while not is_time():
        assert run.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    run.kill()
    run.communicate(timeout=SECONDS)
    assert run.returncode == -9


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("old", [b"", b"the backup of yesterday"], ids=["new", "existing"])
def test_a_killed_backup_leaves_no_half_file_under_its_name(
    semel: Semel, source: Path, tmp_path: Path, old: bytes
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    path, more = folder / "file", ["--force"] if old else []
    if old:
        path.write_bytes(old)

    def is_half() -> bool:
        return any(PIECES * PIECE_BYTES > size_of(one) > 3_000_000 for one in folder.glob(".file.*.part"))

    kill_when(semel.start("backup", str(path), "--data", str(source), *more), is_half)
    assert (path.read_bytes() if old else b"") == old
    assert path.exists() == bool(old)
    assert semel("backup", str(path), "--data", str(source), *more).code == 0
    assert semel("backup", "verify", str(path)).code == 0


def test_a_killed_restore_leaves_an_empty_store_that_can_be_restored_into(
    semel: Semel, source: Path, tmp_path: Path
) -> None:
    file, target = tmp_path / "file", tmp_path / "target"
    assert semel("backup", str(file), "--data", str(source)).code == 0
    run = semel.start("restore", str(file), "--data", str(target))
    kill_when(run, lambda: size_of(target / "semel.db-wal") > 5_000_000)
    assert inspect_store(f"sqlite:{target}", TABLES).occupied is None
    assert semel("restore", str(file), "--data", str(target)).code == 0
    with closing(opened(f"sqlite:{target}")) as store, store.read() as snapshot:
        assert sum(count_rows(snapshot, TABLES).values()) > PIECES


@pytest.mark.parametrize("delay", [0.2, 0.5, 0.8])
def test_a_restore_into_postgresql_that_is_killed_leaves_all_or_nothing(
    semel: Semel, source: Path, tmp_path: Path, delay: float
) -> None:
    file, target = tmp_path / "file", fresh_url()
    assert semel("backup", str(file), "--data", str(source)).code == 0
    run = semel.start("restore", str(file), "--store", target)
    assert run.stderr is not None
    os.read(run.stderr.fileno(), 100)  # the line that says that it begins
    time.sleep(delay)
    run.kill()
    run.communicate(timeout=SECONDS)
    if inspect_store(target, TABLES).occupied is None:
        assert semel("restore", str(file), "--store", target).code == 0
    with closing(opened(target)) as store, store.read() as snapshot:
        assert len(snapshot.page_keys(CHUNK, 0, None, 1_000)) == PIECES
        assert epoch_of(snapshot) > 0
