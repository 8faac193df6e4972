"""The benchmark of deltas runs: a small one, whose figures mean nothing and are not looked at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PATIENCE_SECONDS = 240

pytestmark = pytest.mark.timeout(PATIENCE_SECONDS + 60)


def test_growth(tmp_path: Path) -> None:
    options = ("--rounds", "1", "--sizes", "100", "200", "--scale", "0.02", "--sample", "50", "--keep", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "bench.deltas", "--shape", "known deltas", *options],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    # The exit code says whether the targets were met, which is not asked here; what is stored is known either way.
    assert "Of 200 stored deltas 50 were pushed once more" in done.stdout, done.stderr
    assert done.stdout.count("(target: ") == 4, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"100-deltas", "200-deltas"}
