"""The guide of the ledger is true: its commands, run in their order against a real server, are answered as it shows."""

from __future__ import annotations

import re
import shlex
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from semel.client.proofs import ProofError
from tests.docs.grpcurl import called, taken_apart
from tests.docs.terminal import Answers, Command, Terminal, commands
from tests.harness.server import HOST, RunningServer

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "docs/guide/ledger.md"
EXAMPLE = ROOT / "examples/ledger_transfer.py"
GRPC = "127.0.0.1:50051"

HASH = r"[A-Za-z0-9+/]{43}="
CHANGING = {
    "slug": r"\d{16}",
    "id": r"[A-Za-z0-9+/]{22}==",
    "value": HASH,
    "hash": r"[0-9a-f]{64}",
    "transaction": r"[0-9a-f]{32}",
    "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z",
    "lastSeen": r"1[0-9]{9}",
    "nextPageToken": r"[A-Za-z0-9_-]{20,}",
}


class LedgerTerminal(Terminal):
    """One that has grpcurl, too."""

    grpc = ""

    def type(self, command: Command) -> None:
        """Run one command and look at what it says."""
        words = shlex.split(command.line)
        if words[0] == "pip":
            return
        if command.shown.startswith("Error: "):
            command = Command(f"! {command.line} 2>&1", command.shown)
        if words[0] != "grpcurl":
            super().type(command)
            return
        real = self.run(f"printf '%s\\0' {command.line}").rstrip("\0").split("\0")
        said = called(taken_apart([word.replace(GRPC, self.grpc) for word in real[1:]]))
        assert self.answers.are_alike(command.shown, said), (command.line, said)


def type_all(text: str, least: int, folder: Path) -> None:
    """Type every command of a text, against a server that knows nothing yet."""
    typed = list(commands(text))
    assert len(typed) >= least
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(folder / "data", grpc=True))
        terminal = LedgerTerminal(servers, folder, server, CHANGING)
        terminal.grpc = f"{HOST}:{server.grpc_port}"
        for command in typed:
            terminal.type(command)


def test_the_guide_and_what_it_says_in_python(tmp_path: Path) -> None:
    """The function in the guide is given the files that its commands have made, and no server."""
    text = GUIDE.read_text("utf-8")
    shutil.copy(EXAMPLE, tmp_path)
    type_all(text, 44, tmp_path)
    shown, block = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert shown == EXAMPLE.read_text("utf-8")
    names: dict[str, Any] = {}
    exec(compile(block, str(GUIDE), "exec"), names)
    height, digest = (tmp_path / "trusted.txt").read_text().split()[1].split(":")

    def balance(file: str, name: str) -> object:
        return names["balance"](str(tmp_path / file), name, int(height), digest)

    assert balance("ada.json", "ada") == b"80"
    assert balance("eve.json", "eve") is None
    with pytest.raises(ProofError):
        balance("forged.json", "ada")


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [
        ("height 3, org 1111111111111111, vault 2222222222222222", True),
        ("height 3, org 1111111111111111, vault 1111111111111111", False),
        ("height 4, org 1111111111111111, vault 2222222222222222", False),
        ("", False),
    ],
    ids=["right", "one slug for two", "another height", "nothing"],
)
def test_wrong_words_are_noticed(shown: str, *, is_right: bool) -> None:
    said = "height 3, org 7777777777777777, vault 8888888888888888"
    assert Answers(CHANGING).are_alike(shown, said) is is_right
