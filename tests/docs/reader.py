"""A reader who follows a page from its beginning: writes its files, runs its programs, types its commands.

- A block of Python that begins with `# name.py` is a file; any other is a program that is run where it stands.
- A block of text right after a program is what the program prints.
- Commands of a console are typed in their order, and answered as the page shows.
- What `NOT_RUN` names is not run; it says why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.docs.not_run import reason_not_to_run
from tests.docs.terminal import Command, Terminal, commands
from tests.harness.server import RunningServer

SHOWN_URL = "http://127.0.0.1:8788"
SECONDS = 60
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One block of code of a page: its language, its lines without their indent, and the lines before it."""

    language: str
    text: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page, in their order."""
    for found in _BLOCK.finditer(text):
        plain = re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)
        yield Block(found[2], plain, text.count("\n", 0, found.start()) + 1)


def follow(page: Path, folder: Path, changing: Mapping[str, str] | None = None) -> int:
    """Follow a page beside a server of its own; how many blocks were run."""
    text, count, printed = page.read_text("utf-8"), 0, None
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(folder / "data"))
        terminal = Terminal(servers, folder, server, changing or {})
        for block in blocks(text):
            if block.language == "text" and printed is not None:
                assert printed == block.text, f"{page.name}:{block.line}"
            printed = None
            if block.language == "python":
                printed = _python(block.text, folder, server.url)
                count += 1
            elif block.language == "console":
                for command in commands(f"```console\n{block.text}```\n"):
                    if reason_not_to_run(page, command.line) is None:
                        terminal.type(Command(command.line, command.shown))
                count += 1
    return count


def _python(text: str, folder: Path, url: str) -> str | None:
    """Write a file, or run a program; what the program prints."""
    named = re.match(r"# ([\w/]+\.py)\n", text)
    if named:
        path = folder / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        compile(text, str(path), "exec")
        return None
    own = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    code = text.replace(SHOWN_URL, url)
    return subprocess.check_output(
        [sys.executable, "-c", code], cwd=folder, env=own | {"SEMEL_URL": url}, text=True, timeout=SECONDS
    )
