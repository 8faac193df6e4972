"""Runs commands that are killed at one of their steps, each in a process of its own.

A step is a statement of a database, or a write, sync or naming of a file. Steps are counted from the first write of the
command on: from the mark of a move, and from the transaction of a restore.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from semel.cli.main import main
from semel.server import offline_backup
from semel.store.new_file import NewFile
from semel.store.postgres.connection import PgConnection
from semel.store.postgres.store import PgStore
from semel.store.sqlite.store import SqliteFileStore

NEVER = 2**31
FIRST, EVERY = 12, 9
"""The first and the last steps are all tried, and of those between them one in so many."""


class Ended(NamedTuple):
    """How a run ended, below 0 by a signal, and its number of steps."""

    code: int
    steps: int


class Killer:
    """A process that runs commands in children, and kills each at a step."""

    def __init__(self, env: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "tests.backup.kill_steps"]
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def run(self, step: int, *args: str) -> Ended:
        """Run a command that is killed at this step, the first being 1."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([step, args]) + "\n")
        self._process.stdin.flush()
        return Ended(*json.loads(self._process.stdout.readline()))


def tried_steps(count: int) -> Iterator[int]:
    """The steps at which a command with so many is killed."""
    for step in range(1, count + 1):
        if step <= FIRST or step > count - FIRST or step % EVERY == 0:
            yield step


class _Steps:
    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last
        self._is_counting = False

    def begin(self) -> None:
        self._is_counting = True

    def take(self) -> None:
        self.count += self._is_counting
        if self.count == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def _patch(steps: _Steps) -> None:
    def around(inside: Callable[..., Any], *, begins: bool = False) -> Callable[..., Any]:
        def called(*args: Any, **named: Any) -> Any:
            if begins:
                steps.begin()
            steps.take()
            result = inside(*args, **named)
            steps.take()
            return result

        return called

    def trace(*_: object) -> bool:
        steps.take()
        return True

    apsw.connection_hooks.append(lambda connection: connection.set_exec_trace(trace))
    patched: Sequence[tuple[Any, str, bool]] = (
        (SqliteFileStore, "mark_moved", True),
        (PgStore, "mark_moved", True),
        (offline_backup, "restore_backup", True),
        (PgConnection, "exchange", False),
        (NewFile, "write", False),
        (NewFile, "publish", False),
        (os, "fsync", False),
        (os, "link", False),
        (Path, "replace", False),
    )
    for owner, name, begins in patched:
        setattr(owner, name, around(getattr(owner, name), begins=begins))


def _run(step: int, args: list[str]) -> Ended:
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        steps, code = _Steps(step), 1
        try:
            silent = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(silent, number)
            _patch(steps)
            code = main(args, standalone_mode=False) or 0
        finally:
            os.write(writes, b"%d" % steps.count)
            os._exit(code)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        told = pipe.read()
    return Ended(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(told or b"0"))


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_run(*json.loads(line))) + "\n")
        sys.stdout.flush()
