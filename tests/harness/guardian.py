"""Ends every process that a test run has started when the run itself is gone: by SIGTERM, by SIGKILL or by a crash.

Each run has a guardian, a process of its own that does nothing but wait for the end of a pipe that the run holds open.
What the run starts inherits a mark in its environment; when the pipe ends, the guardian kills everything that has the
mark, with its children. Linux alone tells whose environment is whose; elsewhere nothing is found and nothing is killed.

The kernel's own way, a signal at the death of the parent, is of no use here: it goes by the thread that started the
process, and servers are started in threads that end long before the run does.
"""

from __future__ import annotations

import functools
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.harness.processes import family_of, is_there, send_all

MARK = "TEST_RUN_MARK"
ROOT = Path(__file__).parents[2]
ROUNDS = 100
"""How often the guardian looks again: a process may start another one while it is being ended."""


@functools.cache
def guard() -> int:
    """From now on, what this process starts ends with it; once is enough. The end of the pipe that must stay open."""
    mark = secrets.token_hex(16)
    wait_for, hold = os.pipe()  # what this process starts inherits neither
    command = [sys.executable, "-m", "tests.harness.guardian", mark]
    quiet = subprocess.DEVNULL
    # In a session of its own: a Control-C in the terminal is not meant for it.
    subprocess.run(command, cwd=ROOT, stdin=wait_for, stdout=quiet, stderr=quiet, start_new_session=True, check=True)
    os.close(wait_for)
    os.environ[MARK] = mark
    return hold


def marked(mark: str) -> list[int]:
    """The processes that inherited this mark, and have not ended."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            found.append(int(folder.name))
    return [pid for pid in found if is_there(pid)]


def end_all(mark: str) -> None:
    """Kill what has the mark and what that has started, until nothing is left."""
    for _ in range(ROUNDS):
        first = marked(mark)
        if not first:
            return
        send_all({pid for one in first for pid in family_of(one)}, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the run goes on; the one that waits is nobody's child
    sys.stdin.buffer.read()
    end_all(sys.argv[1])
