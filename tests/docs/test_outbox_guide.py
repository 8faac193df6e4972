"""The page of the outbox is true: its example runs, its options and names exist, and the device sends each reading."""

from __future__ import annotations

import inspect
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import httpx

from semel import once
from semel.once import Outbox
from semel.once.messages import RETRIED, Delivery, LeasedMessage, OutboxMessage, RetryWaits, judged
from tests.harness.server import RunningServer
from tests.once.counter import counting

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs/once/outbox.md").read_text("utf-8")
EXAMPLE = ROOT / "examples/device_outbox.py"
SECONDS = 60


def test_every_option_has_its_row_with_its_default() -> None:
    table = GUIDE.partition("## Options")[2].partition("\n\n`post(")[0]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    rows = {name: line for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    options = {
        name: one.default for name, one in inspect.signature(Outbox).parameters.items() if one.kind is one.KEYWORD_ONLY
    }
    assert set(rows) == set(options)
    for name, default in options.items():
        if isinstance(default, str | int):
            assert str(default) in rows[name], name


def test_the_rules_of_answers_are_those_of_the_code() -> None:
    table = GUIDE.partition("| answer | message |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:]]
    told = {int(status): row for row in rows for status in re.findall(r"\b\d{3}\b(?! with| whose)", row[0])}
    assert {status for status, row in told.items() if row[1] == "retried" and status < 500} == RETRIED
    leased = LeasedMessage(1, "me", OutboxMessage("k", "POST", "http://x/", {}, b"", b""), 1, 0, 0.0)
    for status, row in told.items():
        fate = judged(Delivery(status), leased, RetryWaits(), random.Random(1))
        assert [fate.refusals == 1, fate.may_have_arrived] == [cell == "yes" for cell in row[2:]], status


def test_the_first_example_runs(tmp_path: Path) -> None:
    [block] = [one for one in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S) if "flush_sync" in one]
    with counting() as service:
        code = block.replace('"outbox.db"', repr(str(tmp_path / "outbox.db"))).replace(
            "https://pay.example", service.url
        )
        names: dict[str, object] = {}
        exec(compile(code, "outbox.md", "exec"), names)
        box = names["box"]
        assert isinstance(box, Outbox)
        assert box.state("charge-7") == "done"
        box.close()
        assert service.keys() == ['"charge-7"']


def test_every_name_of_the_package_that_is_shown_exists() -> None:
    assert not [
        name for name in re.findall(r"`(\w+(?:Mismatch|Full|Missing|Secret))`", GUIDE) if not hasattr(once, name)
    ]
    assert not [name for name in re.findall(r"`(?:await )?box\.(\w+)\(", GUIDE) if not hasattr(Outbox, name)]


def test_a_device_that_was_offline_sends_what_it_recorded_once_and_in_order(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data")

    def device(*words: str) -> str:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
        command = [sys.executable, str(EXAMPLE), *words]
        env = {**own, "SEMEL_URL": server.url}
        return subprocess.check_output(command, cwd=tmp_path, env=env, text=True, timeout=SECONDS).strip()

    assert device("record", "1", "21.5") == "recorded thermometer-7-1"
    assert device("record", "2", "21.7") == "recorded thermometer-7-2"
    assert device("record", "2", "21.7") == "known thermometer-7-2"
    assert device("send") == "waiting: thermometer-7-create, thermometer-7-1, thermometer-7-2"
    with server:
        assert device("send") == "all sent"
        assert device("record", "3", "21.9") == "recorded thermometer-7-3"
        assert device("send") == "all sent"
        found = httpx.get(f"{server.url}/v1/stream/thermometer-7?offset=-1").json()
    assert [(one["number"], one["celsius"]) for one in found] == [(1, 21.5), (2, 21.7), (3, 21.9)]
