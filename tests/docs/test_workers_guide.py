"""The guide of workers is true: the file that it shows is the example, and what it says comes out of it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs/guide/workers.md").read_text("utf-8")
EXAMPLE = ROOT / "examples/worker.py"
SECONDS = 60


def test_the_guide_shows_the_example() -> None:
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```" in GUIDE


def test_what_is_shown_comes_out(tmp_path: Path) -> None:
    shown = re.findall(r"^\$ python worker\.py (\S+)\n(.+)$", GUIDE, re.MULTILINE)
    assert len(shown) == 3
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    with RunningServer(tmp_path / "data") as server:
        env = {**own, "SEMEL_URL": server.url}
        command = [sys.executable, "-m", "semel", "worker", "worker:worker"]
        with subprocess.Popen(command, cwd=EXAMPLE.parent, env=env, stderr=subprocess.DEVNULL) as worker:
            try:
                for order, answer in shown:
                    asked = [sys.executable, EXAMPLE.name, order]
                    out = subprocess.check_output(asked, cwd=EXAMPLE.parent, env=env, text=True, timeout=SECONDS)
                    assert out == answer + "\n"
            finally:
                worker.terminate()
    assert worker.returncode == 0
