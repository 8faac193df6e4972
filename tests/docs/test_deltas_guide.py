"""The guide of deltas is true: its commands, run in their order against a real server, are answered as it shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.deltas.vectors import delta_id
from tests.docs.terminal import Command, Terminal, commands
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "docs/guide/deltas.md"
EXAMPLE = ROOT / "examples/deltas_export.py"

CHANGING = {
    "serverHlc": r"1\d{17}",
    "requestId": r"[0-9a-f]{12}-[0-9a-f]+",
}


class DeltasTerminal(Terminal):
    """One that puts in the cursors that were really given, and starts no server for strangers."""

    def type(self, command: Command) -> None:
        """Run one command and look at what it says."""
        words = shlex.split(command.line)
        if words[0] in ("export", "pip") or "0.0.0.0" in words:
            return
        line = command.line
        for shown, real in self.answers.real.items():
            line = line.replace(f"since={shown}", f"since={real}")
        super().type(Command(line, command.shown))


def type_all(text: str, least: int, folder: Path) -> None:
    """Type every command of a text, against a server that knows nothing yet."""
    typed = list(commands(text))
    assert len(typed) >= least
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(folder / "data"))
        shutil.copy(EXAMPLE, folder)
        terminal = DeltasTerminal(servers, folder, server, CHANGING)
        for command in typed:
            terminal.type(command)


def functions(text: str) -> dict[str, Any]:
    """What the blocks of Python define; those that call a server are run by a test of their own."""
    names: dict[str, Any] = {}
    for block in python_of(text):
        if "\ndef " in block:
            exec(compile(block, str(GUIDE), "exec"), names)
    return names


def python_of(text: str) -> list[str]:
    """The blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_guide_shows_the_example() -> None:
    assert f"```python\n{EXAMPLE.read_text('utf-8')}```" in GUIDE.read_text("utf-8")


def test_the_guide(tmp_path: Path) -> None:
    type_all(GUIDE.read_text("utf-8"), 20, tmp_path)


def test_what_it_says_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    names = functions(GUIDE.read_text("utf-8"))
    for value in ("naïve 🎉", None, True, 42, {"b": [1, None], "a": "x"}):
        delta = {"clientId": "client-a", "columns": [{"column": "a", "value": value}], "hlc": "7", "rowId": "r"}
        delta["table"] = "t"
        assert names["delta_id"](delta) == delta_id(delta)
    monkeypatch.setitem(os.environ, "SEMEL_DELTAS_JWT_SECRET", "s" * 32)
    made = names["token"]("client-a", "gw1", org="acme")
    claims = jwt.decode(made, "s" * 32, ["HS256"])
    assert {name: claims[name] for name in ("sub", "gw", "org")} == {"sub": "client-a", "gw": "gw1", "org": "acme"}
    assert jwt.get_unverified_header(made) == {"alg": "HS256", "typ": "JWT"}


def test_the_python_that_is_shown_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = [block for block in python_of(GUIDE.read_text("utf-8")) if "Client(" in block and "argv" not in block]
    assert len(blocks) == 2
    monkeypatch.chdir(tmp_path)
    with RunningServer(tmp_path / "data") as server:
        monkeypatch.setenv("SEMEL_URL", server.url)
        exec("\n".join(blocks), {})
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, second) == ("{'row-1': {'title': 'Buy milk'}}", "1 rows in ['gw1']")
    assert third.startswith("1 entries, continue at ")
