"""A server starts on a disk that is full, reads, replays and refuses, and goes on by itself when there is room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.warm_start import ROOT

SECONDS = 240


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_start_on_a_full_disk(end: str, tmp_path: Path) -> None:
    command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.server.full_disk"]
    run = subprocess.run(
        [*command, str(tmp_path), end], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
