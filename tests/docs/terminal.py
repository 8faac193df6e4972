"""A reader who types the commands of a page, and compares the answers with those that it shows.

What differs from run to run (ids, tokens, hashes, instants) is remembered by what the page shows for it: where the page
shows one value twice, the server must have given one value twice. `...` stands for members that are not shown.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.harness.server import RunningServer

SHOWN_URL = "http://127.0.0.1:{}"
LEFT_OUT = "..."
PATIENCE_SECONDS = 60.0


class Command(NamedTuple):
    """One line of a console block, and what is shown below it."""

    line: str
    shown: str


def commands(text: str) -> Iterator[Command]:
    """The commands of a text, in their order."""
    for indent, block in re.findall(r"^( *)```console\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
        plain = re.sub(rf"^{indent}", "", block, flags=re.MULTILINE)
        for part in re.split(r"^\$ ", plain.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            yield Command(line, shown)


def parsed(text: str) -> Any:
    """JSON in which `,...}` stands for members that are not shown."""
    return json.loads(text.replace(",...}", f',"{LEFT_OUT}":0}}'))


class Answers:
    """What a page shows, held against what a server says."""

    def __init__(self, changing: Mapping[str, str]) -> None:
        self.real: dict[str, str] = {}
        """What the server really gave, by what the page shows for it."""
        self._changing = changing
        """Patterns of what differs from run to run, by the names of members in JSON."""
        self._anything = re.compile("|".join(rf"(?<!\w){pattern}(?!\w)" for pattern in changing.values()))

    def are_alike(self, shown: str, said: str) -> bool:
        """Whether an answer is the one that is shown; with a head, whether its shown lines are there."""
        shown, said = shown.strip(), said.strip()
        if shown.startswith("HTTP/"):
            shown_head, _, shown = shown.partition("\n\n")
            head, _, said = said.partition("\n\n")
            if not set(shown_head.split("\n")) - {LEFT_OUT} <= set(head.split("\n")):
                return False
        if shown == said:
            return True
        if not shown.startswith(("{", "[")):
            return self._is_alike_text(shown, said)
        return bool(said) and self._is_alike(parsed(shown), json.loads(said))

    def _is_alike(self, shown: Any, real: Any, name: str = "") -> bool:
        if isinstance(shown, dict) and isinstance(real, dict):
            names = shown.keys() - {LEFT_OUT}
            are_all = names < real.keys() if LEFT_OUT in shown else names == real.keys()
            return are_all and all(self._is_alike(shown[one], real[one], one) for one in names)
        if isinstance(shown, list) and isinstance(real, list):
            return len(shown) == len(real) and all(map(self._is_alike, shown, real))
        if isinstance(shown, str) and isinstance(real, str) and re.fullmatch(self._changing.get(name, "(?!)"), shown):
            is_one = re.fullmatch(self._changing[name], real) is not None
            return is_one and self.real.setdefault(shown, real) == real
        return type(shown) is type(real) and bool(shown == real)

    def _is_alike_text(self, shown: str, said: str) -> bool:
        """Whether words are the same, but for what differs from run to run."""
        if not shown or self._anything.sub("?", shown) != self._anything.sub("?", said):
            return False
        pairs = zip(self._anything.findall(shown), self._anything.findall(said), strict=True)
        return all(self.real.setdefault(one, other) == other for one, other in pairs)


class Terminal:
    """Types commands against a server, and starts further ones where the page does."""

    def __init__(self, servers: ExitStack, folder: Path, first: RunningServer, changing: Mapping[str, str]) -> None:
        self._servers = servers
        self._folder = folder
        self._first = first
        self.urls = {SHOWN_URL.format(8788): first.url}
        """Where the servers of the page really are."""
        programs = Path(sys.executable).parent
        self._env = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "SEMEL_URL": first.url}
        self._env |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        self.answers = Answers(changing)

    def type(self, command: Command) -> None:
        """Run one command and look at what it says."""
        words = shlex.split(command.line)
        if Path(words[0]).name == "semel" and words[1] == "serve":
            self._serve(words)
        elif words[:2] == ["kill", "-9"]:
            self._first.kill()
            self._first.start()
        elif re.match(r"[A-Z]+=", command.line):
            self._assign(command.line)
        else:
            said = self.run(command.line)
            assert self.answers.are_alike(command.shown, said), (command.line, said)

    def run(self, line: str) -> str:
        """What a command of the shell says."""
        for shown, real in self.urls.items():
            line = line.replace(shown, real)
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout.replace("\r\n", "\n")

    def _serve(self, words: list[str]) -> None:
        """Start another server, with the settings that the page gives it."""
        flags = dict(zip(words[2::2], words[3::2], strict=True))
        port = flags.pop("--port")
        data = self._folder / flags.pop("--data", port)
        env = {"SEMEL_" + flag[2:].replace("-", "_").upper(): value for flag, value in flags.items()}
        server = self._servers.enter_context(RunningServer(data, env=env))
        self.urls[SHOWN_URL.format(port)] = server.url

    def _assign(self, line: str) -> None:
        """A value that was shown is what the server really gave; anything else is the shell's."""
        name, _, value = line.partition("=")
        self._env[name] = self.answers.real.get(value) or self.run(f'{line}; printf %s "${name}"')
