"""The guide of jobs is true: its commands are run in their order against real servers, and the answers are those shown.

What differs from run to run (ids, tokens, hashes, instants) is remembered by what the page shows for it: where the page
shows one value twice, the server must have given one value twice. `...` stands for members that are not shown.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.running import RunningServer

ROOT = Path(__file__).parent.parent.parent
GUIDE = ROOT / "docs/guide/jobs.md"
README = ROOT / "README.md"
SHOWN_URL = "http://127.0.0.1:{}"
LEFT_OUT = "..."
PATIENCE_SECONDS = 60.0

INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
CHANGING = {
    "job_id": r"job_[0-9a-f]{32}",
    "request_id": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "lease_token": r"[0-9a-f]{32}",
    "result_sha256": r"[0-9a-f]{64}",
    "sha256": r"[0-9a-f]{64}",
    "result_url": r"/v1/jobs/job_[0-9a-f]{32}/result",
    "created_utc": INSTANT,
    "run_at_utc": INSTANT,
    "finished_utc": INSTANT,
    "expires_utc": INSTANT,
    "lease_until_utc": INSTANT,
    "next_run_utc": INSTANT,
    "next_instant": INSTANT,
}


class Command(NamedTuple):
    """One line of a console block, and what is shown below it."""

    line: str
    shown: str


def commands(text: str) -> Iterator[Command]:
    """The commands of a text, in their order."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            yield Command(line, shown)


def parsed(text: str) -> Any:
    """JSON in which `,...}` stands for members that are not shown."""
    return json.loads(text.replace(",...}", f',"{LEFT_OUT}":0}}'))


class Answers:
    """What a page shows, held against what a server says."""

    def __init__(self) -> None:
        self.real: dict[str, str] = {}
        """What the server really gave, by what the page shows for it."""

    def are_alike(self, shown: str, said: str) -> bool:
        """Whether an answer is the one that is shown; with a head, whether its shown lines are there."""
        shown, said = shown.strip(), said.strip()
        if shown.startswith("HTTP/"):
            shown_head, _, shown = shown.partition("\n\n")
            head, _, said = said.partition("\n\n")
            if not set(shown_head.split("\n")) - {LEFT_OUT} <= set(head.split("\n")):
                return False
        return shown == said or bool(shown and said and self._is_alike(parsed(shown), json.loads(said)))

    def _is_alike(self, shown: Any, real: Any, name: str = "") -> bool:
        if isinstance(shown, dict) and isinstance(real, dict):
            names = shown.keys() - {LEFT_OUT}
            are_all = names < real.keys() if LEFT_OUT in shown else names == real.keys()
            return are_all and all(self._is_alike(shown[one], real[one], one) for one in names)
        if isinstance(shown, list) and isinstance(real, list):
            return len(shown) == len(real) and all(map(self._is_alike, shown, real))
        if isinstance(shown, str) and isinstance(real, str) and re.fullmatch(CHANGING.get(name, "(?!)"), shown):
            is_one = re.fullmatch(CHANGING[name], real) is not None
            return is_one and self.real.setdefault(shown, real) == real
        return type(shown) is type(real) and bool(shown == real)


class Terminal:
    """Somebody who reads a page and types what it says."""

    def __init__(self, servers: ExitStack, folder: Path, first: RunningServer) -> None:
        self._servers = servers
        self._folder = folder
        self._urls = {SHOWN_URL.format(8788): first.url}
        self._env = {"PATH": os.environ["PATH"]}
        self._answers = Answers()

    def type(self, command: Command) -> None:
        """Run one command and look at what it says."""
        words = shlex.split(command.line)
        if Path(words[0]).name == "semel":
            self._serve(words)
        elif re.match(r"[A-Z]+=", command.line):
            self._assign(command.line)
        else:
            said = self._run(command.line)
            assert self._answers.are_alike(command.shown, said), (command.line, said)

    def _serve(self, words: list[str]) -> None:
        """Start another server, with the settings that the page gives it."""
        assert words[1] == "serve", words
        flags = dict(zip(words[2::2], words[3::2], strict=True))
        port = flags.pop("--port")
        env = {"SEMEL_" + flag[2:].replace("-", "_").upper(): value for flag, value in flags.items()}
        server = self._servers.enter_context(RunningServer(self._folder / port, env=env))
        self._urls[SHOWN_URL.format(port)] = server.url

    def _assign(self, line: str) -> None:
        """A value that was shown is what the server really gave; anything else is the shell's."""
        name, _, value = line.partition("=")
        self._env[name] = self._answers.real.get(value) or self._run(f'{line}; printf %s "${name}"')

    def _run(self, line: str) -> str:
        for shown, real in self._urls.items():
            line = line.replace(shown, real)
        done = subprocess.run(
            ["sh", "-c", line], env=self._env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout.replace("\r\n", "\n")


def section(page: Path, heading: str) -> str:
    """One part of a page, without its parts."""
    [found] = re.findall(rf"^#+ {heading}\n(.*?)(?=^#+ )", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.mark.parametrize(
    ("text", "least"), [(GUIDE.read_text("utf-8"), 50), (section(README, "Jobs"), 3)], ids=["guide", "README"]
)
def test_commands_in_their_order(text: str, least: int, tmp_path: Path) -> None:
    typed = list(commands(text))
    assert len(typed) >= least
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(tmp_path / "data"))
        terminal = Terminal(servers, tmp_path, server)
        for command in typed:
            terminal.type(command)


def test_the_proof_in_python() -> None:
    [block] = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, str(GUIDE), "exec"), names)
    text = b'{"job_id":"job_1","ok":true,"result":{"note":"hello","value":42}}'
    plain = {"mode": "sha256", "sha256": hashlib.sha256(text).hexdigest()}
    signed = {**plain, "mode": "hmac", "sig": hmac.new(b"integrity-key", text, "sha256").hexdigest()}
    assert names["proof"]("job_1", {"value": 42, "note": "hello"}) == plain
    assert names["proof"]("job_1", {"value": 42, "note": "hello"}, b"integrity-key") == signed


@pytest.mark.parametrize(
    "shown",
    [
        "",
        '{"ok":true,"jobs":[{"job_id":"job_ID"}]}',
        '{"ok":1,...}',
        '{"ok":true,"jobs":[],...}',
        '{"ok":true,"jobs":[{"job_id":"job_ID"}],"job_id":"job_ID","defer_ms":0,...}',
        '{"ok":true,"jobs":[{"job_id":"job_ID"}],"job_id":"job_ID","defer_ms":0}',
        'HTTP/1.1 409 Conflict\n\n{"ok":true,...}',
    ],
)
def test_a_wrong_answer_is_noticed(shown: str) -> None:
    """The server gives two ids; a page that shows one for both is wrong."""
    one, two = "0" * 32, "1" * 32
    said = f'{{"ok":true,"jobs":[{{"job_id":"job_{one}"}}],"job_id":"job_{two}","defer_ms":0}}'
    assert not Answers().are_alike(shown.replace("ID", "a" * 32), said)
    right = said.replace(one, "a" * 32).replace(two, "b" * 32)
    assert Answers().are_alike(right, said)
    assert Answers().are_alike('{"ok":true,...}', said)
