"""The Python of the streams guide is true: its blocks run in their order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from semel.client.streams.calls import BlockingStreams
from semel.client.streams.subscriptions import BlockingSubscriptions
from tests.docs.test_clients_guide import ROOT, run
from tests.harness.server import RunningServer

GUIDE = (ROOT / "docs/guide/streams.md").read_text("utf-8")
PYTHON = GUIDE.partition("## Python\n")[2].partition("\n## ")[0]

WORKER = "orders/7 [{'tea': 2}]\nFalse\n"


def test_every_block_of_python_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PYTHON, re.M | re.S)
    with RunningServer(tmp_path / "data") as server:
        outputs = [run(block.replace("http://127.0.0.1:8788", server.url), tmp_path, server.url) for block in blocks]
    assert outputs == ["True True\n", "2\n", "[3.1, 3.2, 3.3, 3.4, 3.5]\n[] True\n", WORKER]


@pytest.mark.parametrize(
    ("prefix", "part"), [("", BlockingStreams), (r"subscriptions\.", BlockingSubscriptions)], ids=["streams", "subs"]
)
def test_the_table_has_every_call_with_arguments_that_exist(prefix: str, part: type) -> None:
    named = re.findall(rf"`{prefix}(\w+)\(([^)]*)\)`", PYTHON)
    calls = {name for name, _ in inspect.getmembers(part, callable) if not name.startswith("_")}
    assert {name for name, _ in named} == calls - {"resolve"}
    for name, words in named:
        known = inspect.signature(getattr(part, name)).parameters
        assert {word.strip(" =") for word in words.split(",") if word} <= set(known), name
