"""A backup that passes through other programs, as on its way to and from an object store."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from semel.engine.clock import SystemWorld
from semel.store.open import inspect_store, open_store
from semel.store.protocol import Changes
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.tables import CHUNK, ChunkRow
from tests.cli.command import Semel

SEMEL = f"{shlex.quote(sys.executable)} -m semel"
ROWS, ROW_BYTES, SECONDS = 40, 50_000, 60


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """2 MB that cannot be compressed, so that a pipe does not hold all of the backup."""
    folder = tmp_path / "data"
    with closing(open_store(f"sqlite:{folder}", TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store:
        tx = store.begin(())
        tx.flush(Changes({CHUNK: [ChunkRow(b"id", end, os.urandom(ROW_BYTES), 1, 1) for end in range(ROWS)]}, {}, {}))
        tx.commit()
    return folder


def shell(semel: Semel, line: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    return subprocess.run(command, env=semel.env, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_a_backup_passes_through_another_program_and_back(semel: Semel, data: Path, tmp_path: Path) -> None:
    stored, target = tmp_path / "stored", tmp_path / "target"
    sent = shell(semel, f"{SEMEL} backup - --data {data} --json | cat > {stored}")
    assert (sent.returncode, sent.stdout) == (0, "")
    facts = json.loads(sent.stderr.splitlines()[-1])
    assert (facts["file"], facts["bytes"]) == ("standard output", stored.stat().st_size)
    assert shell(semel, f"cat {stored} | {SEMEL} backup verify -").returncode == 0
    assert shell(semel, f"cat {stored} | {SEMEL} restore - --data {target}").returncode == 0
    assert inspect_store(f"sqlite:{target}", TABLES).occupied is not None


def test_a_backup_that_was_cut_off_on_its_way_is_refused(semel: Semel, data: Path, tmp_path: Path) -> None:
    stored, target = tmp_path / "stored", tmp_path / "target"
    sent = shell(semel, f"{SEMEL} backup - --data {data} | head -c 300000 > {stored}")
    assert sent.returncode == 1
    assert "Standard output cannot be written, so the backup is not complete: Broken pipe." in sent.stderr
    assert "Traceback" not in sent.stderr
    assert not (data / "last-backup").exists()
    for line in (f"cat {stored} | {SEMEL} backup verify -", f"cat {stored} | {SEMEL} restore - --data {target}"):
        refused = shell(semel, line)
        assert (refused.returncode, "The backup is not complete" in refused.stderr) == (1, True)
    assert inspect_store(f"sqlite:{target}", TABLES).occupied is None


def test_a_backup_is_not_shown_at_a_terminal(semel: Semel, data: Path) -> None:
    run = semel.on_terminal("backup", "-", "--data", str(data))
    assert run.code == 1
    assert "A backup is not text for a terminal" in run.out


def test_a_pipe_is_no_folder_and_a_dry_run_writes_nothing_to_it(semel: Semel, data: Path) -> None:
    assert "--keep needs a folder" in semel.here("backup", "-", "--data", str(data), "--keep", "2").err
    run = semel.here("backup", "-", "--data", str(data), "--dry-run")
    assert (run.code, run.raw) == (0, b"")
    assert f"Would write {ROWS:,} rows" in run.err
