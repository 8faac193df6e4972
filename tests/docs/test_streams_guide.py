"""The Python of the streams guide is true: its blocks run in their order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from semel.client.streams.calls import BlockingStreams
from tests.docs.test_clients_guide import ROOT, run
from tests.harness.server import RunningServer

GUIDE = (ROOT / "docs/guide/streams.md").read_text("utf-8")
PYTHON = GUIDE.partition("## Python\n")[2].partition("\n## ")[0]


def test_every_block_of_python_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PYTHON, re.M | re.S)
    with RunningServer(tmp_path / "data") as server:
        outputs = [run(block.replace("http://127.0.0.1:8788", server.url), tmp_path, server.url) for block in blocks]
    assert outputs == ["True True\n", "2\n", "[3.1, 3.2, 3.3, 3.4, 3.5]\n[] True\n"]


def test_the_table_has_every_call_with_arguments_that_exist() -> None:
    named = re.findall(r"`(\w+)\(([^)]*)\)`", PYTHON)
    calls = {name for name, _ in inspect.getmembers(BlockingStreams, callable) if not name.startswith("_")}
    assert {name for name, _ in named} == calls - {"resolve"}
    for name, words in named:
        known = inspect.signature(getattr(BlockingStreams, name)).parameters
        assert {word.strip(" =") for word in words.split(",")} <= set(known), name
