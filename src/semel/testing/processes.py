"""A call in its own process, which kills itself (SIGKILL) at a place; data that it has not written is lost.

The process is a fork of the test: closures work, and nothing needs to be importable. Socket connections of the test are
closed in it, as they are after a crash: processes that share one would read each other's answers. A process that does
not end in time is killed and reported.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import stat
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from semel.testing.calls import KeyedCall, Subject, UnusableCallError
from semel.testing.places import CodePlace, PlaceWatch
from semel.testing.report import CallOutcome

ANSWERING = CodePlace("when the call had ended, before its answer left the process", "")
_PIECE_BYTES = 65_536
_STANDARD_STREAMS = 3


def killed_at(subject: Subject, call: KeyedCall, number: int) -> CallOutcome:
    """Make a call in a new process that is killed at a place. Returns `cut off`, or the outcome if it ended before."""

    def make(writing: int) -> list[CallOutcome]:
        killer = Killer(number, writing)
        watch = PlaceWatch(killer.reached)
        threading.setprofile(watch)
        sys.setprofile(watch)
        try:
            found = call.outcome()
        finally:
            sys.setprofile(None)
        killer.reached(ANSWERING)
        return [found]

    return in_process(subject, make)[0]


def retried(subject: Subject, call: KeyedCall, names: Sequence[str]) -> list[tuple[str, CallOutcome]]:
    """Make calls in sequence in one new process."""

    def make(_: int) -> list[CallOutcome]:
        found = []
        for _name in names:
            subject.before_retry()
            found.append(call.outcome())
        return found

    return list(zip(names, in_process(subject, make), strict=False))


def in_process(subject: Subject, make: Callable[[int], list[CallOutcome]]) -> list[CallOutcome]:
    """Run a function in a fork of this process, and return its outcomes. It gets a pipe to write them to."""
    if not hasattr(os, "fork"):
        raise UnusableCallError("The schedule 'killed' needs os.fork: leave it out on this system.")
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # A fork has none of the test's threads, but the locks that they hold: the timeout detects such a deadlock.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _child(subject, make, writing)
    os.close(writing)
    try:
        return _received(reading, child, subject.timeout)
    finally:
        os.close(reading)


def _child(subject: Subject, make: Callable[[int], list[CallOutcome]], writing: int) -> None:
    """Run in the child and exit without returning: pytest's own exit steps belong to the parent."""
    status = 1
    try:
        cut_connections()
        subject.restart()
        _tell(writing, make(writing))
        status = 0
    except BaseException:  # noqa: BLE001 - any error is sent to the parent
        with suppress(OSError):
            _tell(writing, [CallOutcome("error", text=traceback.format_exc().rstrip())])
    finally:
        os._exit(status)


class Killer:
    """Kills this process at the nth place."""

    def __init__(self, at: int, writing: int) -> None:
        self._left = at
        self._writing = writing
        self._lock = threading.Lock()

    def reached(self, place: CodePlace) -> None:
        """Called at each place."""
        with self._lock:  # one thread at a time; the interpreter calls no profile function inside a profile function
            self._left -= 1
            if self._left == 0:
                _tell(self._writing, [CallOutcome("cut off", text=str(place))])
                os.kill(os.getpid(), signal.SIGKILL)


def _tell(writing: int, outcomes: list[CallOutcome]) -> None:
    try:
        data = pickle.dumps(outcomes)
    except Exception as error:  # noqa: BLE001 - a class may raise any error when it is pickled
        text = (
            f"The answer cannot be sent to the test's process: pass answer=, which converts it to plain data: {error}"
        )
        data = pickle.dumps([CallOutcome("error", text=text)])
    view = memoryview(data)
    while view:
        view = view[os.write(writing, view) :]


def _received(reading: int, child: int, timeout: float) -> list[CallOutcome]:
    deadline, data = time.monotonic() + timeout, bytearray()
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(reading, _PIECE_BYTES)
        if not piece:
            break
        data += piece
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return [CallOutcome("error", text=f"The process did not end within {timeout:g} s and was killed.")]
    _, status = os.waitpid(child, 0)
    if not data:
        return [CallOutcome("error", text=f"The process ended with status {status} and without an answer.")]
    found: list[CallOutcome] = pickle.loads(data)  # noqa: S301 - it comes from a fork of this process
    return found


def cut_connections() -> None:
    """Replace every inherited stream socket with a closed one: the connections belong to the parent."""
    ours, theirs = socket.socketpair()
    theirs.close()
    for number in _descriptors():
        if number >= _STANDARD_STREAMS and number != ours.fileno() and _is_connection(number):
            os.dup2(ours.fileno(), number, inheritable=False)
    ours.detach()


def _descriptors() -> Iterable[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return [int(one.name) for one in Path(folder).iterdir()]
    return ()


def _is_connection(number: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        looked_at = socket.socket(fileno=os.dup(number))
    except OSError:
        return False
    with looked_at:
        try:
            looked_at.getpeername()
        except OSError:
            return False
        return looked_at.type == socket.SOCK_STREAM
