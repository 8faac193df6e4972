"""The tutorial, followed from an empty directory: every file and every command, on a real PostgreSQL."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.harness.guardian import guard
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/once/tutorial.md").read_text("utf-8")
SHOWN_URL = "http://127.0.0.1:8000"
INSTALLED = re.compile(r"mkdir |python3 -m venv |pip install |docker run |export DATABASE_URL=")
"""What is there already: an empty directory, the packages, a database and its URL."""
SECONDS = 60


class Reader:
    """Has an editor and two terminals: one for the shop, one for the rest."""

    def __init__(self, folder: Path) -> None:
        guard()
        self.folder = folder
        programs = Path(sys.executable).parent
        self.env = os.environ | {"DATABASE_URL": fresh_schema(), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        self._shop: subprocess.Popen[bytes] | None = None
        self._url = ""

    def write(self, name: str, text: str, *, is_added: bool) -> None:
        """A file, or the end of one."""
        path = self.folder / name
        path.write_text(path.read_text() + "\n\n" + text if is_added else text)

    def type(self, line: str, shown: str) -> None:
        """A command, which says what is shown."""
        if INSTALLED.match(line):
            assert not shown
        elif line.startswith("uvicorn "):
            self.stop()
            self._start(line)
        else:
            words = line.replace(SHOWN_URL, self._url)
            # A pipe is no terminal: curl would draw its progress there.
            words = words.replace("curl http", "curl --no-progress-meter http")
            done = subprocess.run(
                ["sh", "-c", words],
                cwd=self.folder,
                env=self.env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.stdout.strip() == shown.strip(), line

    def stop(self) -> None:
        """Control-C, and no harm if it was killed before."""
        if self._shop is not None:
            self._shop.kill()
            self._shop.wait()
            self._shop = None

    def _start(self, line: str) -> None:
        port = free_port()
        self._url = f"http://{HOST}:{port}"
        quiet = subprocess.DEVNULL
        words = [sys.executable, "-m", *line.split(), "--port", str(port)]
        self._shop = subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=quiet, stderr=quiet)
        eventually(self._answers, "the shop listens", SECONDS)

    def _answers(self) -> bool:
        with suppress(httpx.TransportError):
            httpx.get(self._url)
            return True
        return False


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader in an empty directory."""
    reader = Reader(tmp_path)
    yield reader
    reader.stop()


def test_who_follows_the_tutorial_sees_what_it_shows(reader: Reader) -> None:
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.M | re.S):
        if kind == "python":
            named = re.match(r"# (\S+\.py)(, at its end)?\n", text)
            assert named is not None
            reader.write(named[1], text, is_added=named[2] is not None)
        else:
            for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
                line, _, shown = part.partition("\n")
                reader.type(line, shown)


def test_only_three_lines_differ_in_what_is_done() -> None:
    first, second = (text for text in re.findall(r"^```python\n(# shop.py\n.*?)^```$", PAGE, re.M | re.S))
    added = [line for line in second.splitlines() if line.strip() and line not in first.splitlines()]
    assert [line for line in added if re.search(r"# (one|two|three)$", line)] == added[3:5] + added[6:7]
    assert len(added) == 8  # two imports, the key, the three, the insert further in, and what is returned
