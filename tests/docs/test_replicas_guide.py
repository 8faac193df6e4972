"""The guide of replicas is true: it shows the example, what it says comes out does, and what it names exists."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import apsw

from semel import client
from semel.client import DeltasClient
from tests.docs.terminal import commands
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
GUIDE = (ROOT / "docs/guide/replicas.md").read_text("utf-8")
EXAMPLE = ROOT / "examples/replica.py"
SECONDS = 60


def test_the_guide_shows_the_example() -> None:
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```" in GUIDE


def test_what_is_shown_comes_out(tmp_path: Path) -> None:
    shown = list(commands(GUIDE))
    assert len(shown) == 7
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    server = RunningServer(tmp_path / "data")
    is_running = False
    try:
        for command in shown:
            is_wanted = "offline" not in command.shown
            if is_wanted is not is_running:
                (server.start if is_wanted else server.stop)()
                is_running = is_wanted
            words = command.line.removeprefix("python replica.py ").split()
            out = subprocess.check_output(
                [sys.executable, str(EXAMPLE), *words],
                cwd=tmp_path,
                env={**own, "SEMEL_URL": server.url},
                text=True,
                timeout=SECONDS,
            )
            assert out.strip() == command.shown.strip(), command.line
    finally:
        if is_running:
            server.stop()


def test_the_calls_that_are_shown(tmp_path: Path) -> None:
    [block] = [one for one in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S) if one.startswith("async with")]
    body = textwrap.indent(block.replace('"app.db", ', f"{str(tmp_path / 'app.db')!r}, url=url, "), "    ")
    code = f"async def run(url):\n{body}    return rows, one, synced\n"
    names: dict[str, Any] = {"DeltasClient": DeltasClient}
    exec(compile(code, "replicas.md", "exec"), names)
    with RunningServer(tmp_path / "data") as server:
        rows, one, synced = asyncio.run(names["run"](server.url))
    assert (rows, one) == ({"o-2": {"item": "milk"}}, {"item": "milk"})
    assert (synced.pushed.accepted, synced.pulled.changed) == (5, 0)
    [question] = re.findall(r"^```sql\n(.*?)^```$", GUIDE, re.M | re.S)
    reader = apsw.Connection(str(tmp_path / "app.db"), flags=apsw.SQLITE_OPEN_READONLY)
    assert reader.execute(question).fetchall() == [("o-2", "milk")]
    reader.close()


def test_every_call_and_error_that_is_named_exists() -> None:
    calls = {name for name in re.findall(r"`(?:await db\.|async for change in db\.)?(\w+)\(", GUIDE) if name.islower()}
    assert calls >= {"insert", "update", "put", "delete", "push", "pull", "sync", "follow", "restamp", "start_over"}
    assert not [name for name in calls if not hasattr(DeltasClient, name)]
    errors = set(re.findall(r"`(\w+Error)`", GUIDE))
    assert len(errors) >= 8
    assert not [name for name in errors if not hasattr(client, name)]
