"""The commands of the README, run in their order against a real server that is killed, are answered as it shows."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.docs.terminal import Terminal, commands
from tests.harness.server import RunningServer

README = Path(__file__).parent.parent.parent / "README.md"


def test_a_retry_after_a_kill_gets_the_first_answer(tmp_path: Path) -> None:
    typed = [command._replace(line=command.line.removeprefix(".venv/bin/")) for command in commands(README.read_text())]
    assert len(typed) >= 5
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(tmp_path / "data"))
        terminal = Terminal(servers, tmp_path, server, {})
        for command in typed:
            terminal.type(command)


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 90
