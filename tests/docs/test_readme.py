"""The commands of the README, run in their order against a real server that is killed, are answered as it shows."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from tests.docs.terminal import Command, Terminal, commands
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_a_newcomer_sees_the_life_of_a_retried_write_in_four_commands(tmp_path: Path) -> None:
    """Apart from `make run`; the server is killed before the retry, as the text allows."""
    shown = list(commands(README.read_text("utf-8").partition("## As a server")[2]))
    assert [command.line for command in shown[:1]] == ["make run"]
    assert len(shown) == 4
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(tmp_path / "data"))
        terminal = Terminal(servers, tmp_path, server, {})
        for number, command in enumerate(shown[1:]):
            if number == 1:
                terminal.type(Command("kill -9 $(cat data/semel.lock)", ""))
            line = command.line.replace(".venv/bin/", "").replace("examples/", f"{ROOT / 'examples'}/")
            if "find" in line:
                said = INSTANT.sub("INSTANT", terminal.run(line))
                assert all(
                    part in said for part in INSTANT.sub("INSTANT", command.shown).split("  ...")[0].splitlines()
                )
            else:
                terminal.type(Command(line, command.shown))


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 115
