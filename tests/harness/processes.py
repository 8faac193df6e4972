"""Processes as Linux tells of them: whose child one is, and what it does. Elsewhere none is known."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

STOPPED, ENDED = "T", ("X", "Z")
"""Letters for what a process does; one that has ended may still have an entry, until its parent has collected it."""


OBEY_SECONDS = 60.0
"""Until a process has done what a signal tells it, on a machine that is very busy."""


def state_of(pid: int) -> tuple[str, int]:
    """What a process does, and its parent."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return "X", 0
    return state, int(parent)


def is_there(pid: int) -> bool:
    """Whether a process has not ended."""
    return state_of(pid)[0] not in ENDED


def is_running(pid: int) -> bool:
    """Whether a process does something, or would."""
    return state_of(pid)[0] not in (STOPPED, *ENDED)


def family_of(first: int) -> list[int]:
    """A process, its children, theirs and so on.

    Every process is asked for its parent: the list of children that Linux keeps may lack some while others end.
    """
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        children[state_of(pid)[1]].append(pid)
    family = [first]
    for pid in family:
        family += sorted(children[pid])
    return family


def send_all(processes: Iterable[int], number: signal.Signals) -> None:
    """A signal to each that is still there."""
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def halt_all(roots: Sequence[int]) -> list[int]:
    """Stop these processes, which then start no more, and everything that they have started; all of them."""
    family = list(roots)
    halted: list[int] = []
    while family != halted:
        halted = family
        send_all(family, signal.SIGSTOP)
        _wait_for(halted, is_running, "went on after SIGSTOP")
        family = [pid for root in roots for pid in family_of(root)]
    return family


def kill_all(roots: Sequence[int]) -> None:
    """End these processes and their families at once, as a power cut would."""
    family = halt_all(roots)
    send_all(family, signal.SIGKILL)
    _wait_for(family, is_there, "outlived SIGKILL")


def _wait_for(processes: Sequence[int], still: Callable[[int], bool], otherwise: str) -> None:
    deadline = time.monotonic() + OBEY_SECONDS
    while any(map(still, processes)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"Process {next(filter(still, processes), 0)} {otherwise}.")
        time.sleep(0.01)
