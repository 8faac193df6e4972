"""Types the commands of a page into a shell of its own: `semel` runs in this process, so that hundreds are cheap.

What a page names and a machine does not have is put in: folders, a database, ids that the server gave. A command that
does not end by itself is started as a process, must say something, and is stopped.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.cli.command import Semel

SECONDS = 60.0
PROCESSES = ("worker", "outbox", "proxy", "serve")
"""Commands that take over the signals of their process."""


class PageShell:
    """One reader in one folder, beside one server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.semel = Semel(url, {"SEMEL_DATA": str(folder / "data")})
        self.put_in: dict[str, str] = {}
        """What stands in a page, and what is typed for it."""

    def typed(self, line: str) -> str:
        """A line as it is typed here."""
        longest_first = sorted(self.put_in, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), lambda found: self.put_in[found[0]], line)

    def type(self, line: str, says: str = "") -> str:
        """Run a line to its end; what it prints. It fails unless the command succeeds and says this."""
        parts = _pipeline(self.typed(line))
        stdin = b""
        said = ""
        for words in parts:
            if words[0] == "semel":
                run = self.semel(*words[1:]) if words[1] in PROCESSES else self.semel.here(*words[1:], stdin=stdin)
                assert run.code == 0, (line, run.out, run.err)
                stdin, said = run.raw, run.out + run.err
            else:
                other = subprocess.run(words, cwd=self.folder, capture_output=True, timeout=SECONDS, check=True)
                stdin = other.stdout
        assert says in said, (line, said)
        return said

    def watch(self, line: str, says: str, env: Mapping[str, str] | None = None) -> None:
        """Start a line that goes on until it is stopped; it must say this, and end when it is told to."""
        [words] = _pipeline(self.typed(line))
        command = [sys.executable, "-u", "-m", "semel", *words[1:]]
        pipe = subprocess.PIPE
        environ = {**self.semel.env, **(env or {})}
        with subprocess.Popen(command, cwd=self.folder, env=environ, stdout=pipe, stderr=subprocess.STDOUT) as process:
            stop = threading.Timer(SECONDS, process.kill)
            stop.start()
            try:
                assert process.stdout is not None
                said = ""
                for piece in process.stdout:
                    said += piece.decode()
                    if says in said:
                        break
                assert says in said, (line, said)
                process.send_signal(signal.SIGINT)
                process.stdout.read()
                process.wait(SECONDS)
            finally:
                stop.cancel()
                process.kill()


def _pipeline(line: str) -> list[list[str]]:
    """The commands of a pipe, as words; `$(date ...)` and the like are no part of the pages that are typed here."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def headings(text: str) -> dict[str, list[str]]:
    """The commands below each heading of a page, in their order."""
    found: dict[str, list[str]] = {}
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        heading = part.partition("\n")[0].strip("# ")
        for block in re.findall(r"^```console\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
            lines = re.findall(r"^\$ (.*)$", block.replace("\\\n", " "), re.MULTILINE)
            found.setdefault(heading, []).extend(lines)
    return found
