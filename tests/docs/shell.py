"""A bash that types the commands of a page in their order; what they start ends with it.

Variables, folders and `$?` go on from one command to the next. Each command has a file of its own for both outputs, in
which those that stay in the background go on writing.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.harness.processes import kill_all

SECONDS = 60.0
_SCRIPT = """
__code=0
while IFS= read -r -d '' -u {reads} __file && IFS= read -r -d '' -u {reads} __line; do
  exec >"$__file" 2>&1
  (exit "$__code")
  eval "$__line" {reads}<&- {writes}>&-
  __code=$?
  printf '%s %s\\n' "$__code" "${{!:-0}}" >&{writes}
done
"""
_OWN_WORDS = re.compile(r"^bash: line \d+: +\d+ (?:Killed|Terminated|Aborted|Interrupt|Hangup)\b.*\n", re.MULTILINE)
"""What bash says of a command in the background that was killed."""
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


class Command(NamedTuple):
    """One command of a console, and the lines that are shown below it."""

    text: str
    shown: str
    line: int
    """Its line in the page."""


class Ended(NamedTuple):
    """How a command ended, or that it did not."""

    code: int | None
    said: str
    child: int
    """The process that bash has put in the background last; 0 for none."""


def commands(text: str, line: int) -> Iterator[Command]:
    """The commands of a console whose fence is opened at a line."""
    typed: list[str] = []
    shown: list[str] = []
    first = line
    for number, one in enumerate(text.splitlines(), start=line + 1):
        if one.startswith("$ ") and (shown or not _goes_on(typed)):
            if typed:
                yield Command("\n".join(typed), "\n".join(shown), first)
            typed, shown, first = [one[2:]], [], number
        elif typed and not shown and _goes_on(typed):
            typed.append(one)
        else:
            shown.append(one)
    if typed:
        yield Command("\n".join(typed), "\n".join(shown), first)


def _goes_on(typed: list[str]) -> bool:
    """Whether bash would ask for another line."""
    if not typed:
        return False
    here = _HEREDOC.search("\n".join(typed))
    if here:
        return here[2] not in (line.strip() for line in typed[1:])
    if typed[-1].endswith("\\"):
        return True
    try:
        shlex.split("\n".join(typed), comments=True)
    except ValueError:
        return True
    return False


class Shell:
    """One bash in one folder."""

    def __init__(self, folder: Path, env: Mapping[str, str], notes: Path) -> None:
        self._notes = notes
        self._count = 0
        reads, self._lines = os.pipe()
        self._ends, writes = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", _SCRIPT.format(reads=reads, writes=writes)],
            cwd=folder,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            pass_fds=(reads, writes),
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)

    @property
    def output(self) -> Path:
        """Where the last command writes."""
        return self._notes / f"{self._count}.out"

    def type(self, text: str) -> Ended:
        """Run a command, and wait for its end; one that does not end is killed, and bash with it."""
        self._count += 1
        with suppress(BrokenPipeError):
            os.write(self._lines, f"{self.output}\0{text}\0".encode())
        ready, _, _ = select.select([self._ends], [], [], SECONDS)
        told = os.read(self._ends, 100).decode().split() if ready else []
        if not told:
            self._kill()
        said = self.output.read_text("utf-8", errors="replace") if self.output.exists() else ""
        said = _OWN_WORDS.sub("", said)
        return Ended(int(told[0]), said, int(told[1])) if told else Ended(None, said, 0)

    def end(self) -> None:
        """End bash and what it has started."""
        self._kill()
        self._process.wait(SECONDS)
        os.close(self._lines)
        os.close(self._ends)

    def _kill(self) -> None:
        kill_all([self._process.pid])
        with suppress(ProcessLookupError):  # and those whose parents have ended
            os.killpg(self._process.pid, signal.SIGKILL)
