"""The guide of the clients is true: its Python runs, and the errors that it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from semel.client import errors
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs/guide/clients.md").read_text("utf-8")
EXAMPLE = ROOT / "examples/orders_stream.py"
SECONDS = 60


def run(code: str, folder: Path, url: str, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    env = {**own, "SEMEL_URL": url}
    return subprocess.check_output(
        [sys.executable, "-c", code, *words], cwd=folder, env=env, text=True, timeout=SECONDS
    )


def test_every_block_of_python_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)
    assert len(blocks) == 3
    with RunningServer(tmp_path / "data") as server:
        outputs = [run(block.replace("http://127.0.0.1:8788", server.url), tmp_path, server.url) for block in blocks]
    assert outputs == ["", "[{'id': 4711}, {'id': 4712}]\n", ""]


def test_the_errors_that_are_named_exist() -> None:
    named = set(re.findall(r"`(\w+(?:Error|Unknown))`", GUIDE))
    assert len(named) > 10
    assert all(issubclass(getattr(errors, name), errors.SemelError) for name in named)


def test_the_example_stores_an_order_once_and_handles_it_once(tmp_path: Path) -> None:
    code = EXAMPLE.read_text("utf-8")
    with RunningServer(tmp_path / "data") as server:
        outputs = [run(code, tmp_path, server.url, order) for order in ("4711", "4711", "4712")]
    assert outputs == ["stored 4711\nhandling 4711\n", "already stored 4711\n", "stored 4712\nhandling 4712\n"]
