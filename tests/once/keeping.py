"""A program that calls a function under a short lease: `python -m tests.once.keeping JSON`.

The function notes its process in a file when it begins. Then it works for a while, or holds the write lock of the file
that has its receipt. The program prints what it was told, and what the function saw of its own call.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import create_engine

from semel.once import Once, OnceError, current_call

ROOT = Path(__file__).parent.parent.parent
SECONDS = 60


class Keeping(NamedTuple):
    """Where the receipts are, and what the function does."""

    place: str
    runs: str
    """The file in which each run is noted."""
    has_engine: bool = False
    """Whether the store is over an engine of the program."""
    lease: str = "0.5s"
    locks: str = ""
    """A file of SQLite whose write lock the function holds."""
    locks_seconds: float = 0.0
    works_seconds: float = 0.0
    has_child: bool = False
    """Whether the function forks a child, which lives as long as it works."""

    def open(self) -> Once:
        """A store."""
        if not self.has_engine:
            return Once(self.place)
        is_file = not self.place.startswith("postgresql:")
        return Once(create_engine(f"sqlite:///{self.place}" if is_file else with_driver(self.place)))

    def start(self) -> subprocess.Popen[str]:
        """This program, in a process of its own."""
        words = [sys.executable, "-m", "tests.once.keeping", json.dumps(self._asdict())]
        return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def noted(self) -> list[int]:
        """The processes in which the function has begun."""
        path = Path(self.runs)
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def with_driver(url: str) -> str:
    """The URL of a PostgreSQL database as SQLAlchemy reads it."""
    return url.replace("postgresql:", "postgresql+psycopg:", 1)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process printed."""
    out, _ = process.communicate(timeout=SECONDS)
    found: dict[str, Any] = json.loads(out)
    return found


def work(keeping: Keeping) -> None:
    """What the function does."""
    with Path(keeping.runs).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if keeping.locks:
        with closing(sqlite3.connect(keeping.locks, isolation_level=None, timeout=SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(keeping.locks_seconds)
            connection.execute("COMMIT")
    child = os.fork() if keeping.has_child else -1
    end = time.monotonic() + keeping.works_seconds
    while time.monotonic() < end:
        time.sleep(0.05)
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)


def main() -> None:
    """Call the function once."""
    keeping = Keeping(**json.loads(sys.argv[1]))
    seen: dict[str, Any] = {}

    @keeping.open().once(key="key", scope="shop", lease=keeping.lease, on_crash="retry", wait="30s")
    def charge(key: str) -> int:
        call = current_call()
        seen.update(key=call.key, attempt=call.attempt, fence=call.fence, left=call.lease_left, was_lost=call.is_lost)
        work(keeping)
        seen.update(is_lost=call.is_lost, left_at_end=call.lease_left)
        return os.getpid()

    try:
        answer: object = charge("k")
    except OnceError as error:
        answer = type(error).__name__
    sys.stdout.write(json.dumps({"answer": answer, "seen": seen}))


if __name__ == "__main__":
    main()
