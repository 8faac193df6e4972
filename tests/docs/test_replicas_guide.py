"""The guide of replicas is true: it shows the example, what it says comes out does, and what it names exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from semel import client
from semel.client import Client, Replica
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
    [block] = [
        one for one in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S) if one.startswith("with Client")
    ]
    code = block.replace('"app.db", ', f"{str(tmp_path / 'app.db')!r}, ").replace("Client()", "Client(url)")
    with RunningServer(tmp_path / "data") as server:
        names: dict[str, Any] = {"Client": Client, "url": server.url}
        exec(compile(code, "replicas.md", "exec"), names)
    rows, one, synced = names["rows"], names["one"], names["synced"]
    assert (rows, one) == ({"o-2": {"item": "milk"}}, {"item": "milk"})
    assert (synced.pushed.accepted, synced.pulled.changed) == (5, 0)
    [question] = re.findall(r"^```sql\n(.*?)^```$", GUIDE, re.M | re.S)
    reader = apsw.Connection(str(tmp_path / "app.db"), flags=apsw.SQLITE_OPEN_READONLY)
    assert reader.execute(question).fetchall() == [("o-2", "milk")]
    reader.close()


def test_the_iterators_that_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S)
    watch, lost = ([one for one in blocks if one.startswith(f"for {name} in db.")] for name in ("changes", "lost"))
    with RunningServer(tmp_path / "data") as server, Client(server.url) as client:
        db, other = client.deltas(tmp_path / "one.db", "home", "one"), client.deltas(tmp_path / "two.db", "home", "two")
        db.insert("todos", "1", {"title": "milk", "done": False})
        db.sync()
        other.sync()
        loops = [threading.Thread(target=exec, args=(code, {"db": db}), daemon=True) for code in (*watch, *lost)]
        for loop in loops:
            loop.start()
        other.update("todos", "1", {"title": "tea"})
        other.sync()
        out, deadline = "", time.monotonic() + SECONDS
        while "todos 1" not in out and time.monotonic() < deadline:
            out += capsys.readouterr().out
            time.sleep(0.05)
        out += capsys.readouterr().out
        db.close()
        other.close()
        for loop in loops:
            loop.join(SECONDS)
            assert not loop.is_alive()
    assert out.startswith("['1'] [] ()\n")
    assert "todos 1: title was milk, two set tea\n" in out


def test_every_call_and_error_that_is_named_exists() -> None:
    calls = {name for name in re.findall(r"`(?:db\.)?(\w+)\(", GUIDE) if name.islower()}
    assert calls >= {"insert", "update", "put", "delete", "push", "pull", "sync", "follow", "restamp", "start_over"}
    assert calls >= {"watch", "lost_writes", "take_lost"}
    assert not [name for name in calls if not hasattr(Replica, name)]
    errors = set(re.findall(r"`(\w+Error)`", GUIDE))
    assert len(errors) >= 8
    assert not [name for name in errors if not hasattr(client, name)]
