"""The Python of the events guide is true: its blocks run in their order, and so does the example."""

from __future__ import annotations

import re
from pathlib import Path

import semel.client
from semel.client import errors
from tests.docs.test_clients_guide import ROOT, run
from tests.harness.server import RunningServer

GUIDE = (ROOT / "docs/guide/events.md").read_text("utf-8")
PYTHON = GUIDE.partition("## Python\n")[2].partition("\n## ")[0]
EXAMPLE = ROOT / "examples/events_reader.py"


def test_every_block_of_python_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PYTHON, re.M | re.S)
    with RunningServer(tmp_path / "data") as server:
        outputs = [run(block.replace("http://127.0.0.1:8788", server.url), tmp_path, server.url) for block in blocks]
    assert outputs == [
        "1 order.placed {'sku': 'A7', 'qty': 2}\n",
        "",
        "",
        "1\n",
    ]


def test_the_errors_that_are_named_exist() -> None:
    named = set(re.findall(r"`(\w+Error)`", PYTHON))
    assert len(named) > 5
    for name in named:
        assert issubclass(getattr(errors, name, None) or getattr(semel.client, name), errors.SemelError)


def test_the_example_places_and_bills_an_order_once(tmp_path: Path) -> None:
    code = EXAMPLE.read_text("utf-8")
    with RunningServer(tmp_path / "data") as server:
        outputs = [run(code, tmp_path, server.url, order) for order in ("4711", "4711", "4712")]
    assert outputs == ["placed 4711\nbilled 4711\n", "already placed 4711\n", "placed 4712\nbilled 4712\n"]
