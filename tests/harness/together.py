"""What the tests of every surface do with servers: read all they printed, call them at the same moment, wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tests.harness.nodes import Nodes
from tests.harness.server import RunningServer

T = TypeVar("T")

Servers = RunningServer | Nodes
PATIENCE_SECONDS = 25.0
"""Less than the half minute after which some servers look by themselves for what they were not told."""
TRIES = 4
LOOK_SECONDS = 0.02
STOOD_STILL = '"reason":"the disk does not answer"'
"""Said of the audit file when it took a second: a line that is to be there before an answer may come after it then."""


class LateError(Exception):
    """A test did not do in time what it had to do in time: what it saw then says nothing about the server."""


def log_of(server: Servers) -> str:
    """All that was printed."""
    outputs = server.outputs if isinstance(server, Nodes) else [server.output]
    return "".join(output.read_text(errors="replace") for output in outputs)


def check_log(server: Servers) -> None:
    """Nothing went wrong inside."""
    log = log_of(server)
    assert not faults_of(log), log


def faults_of(log: str) -> list[str]:
    """The lines of a log that tell of a fault; that the machine stood still is none."""
    marks = ("Traceback", '"level":"error"')
    return [line for line in log.splitlines() if any(mark in line for mark in marks) and STOOD_STILL not in line]


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at the same moment, each in a thread of its own; their results in the same order."""
    barrier = threading.Barrier(len(calls))

    def call(function: Callable[[], T]) -> T:
        barrier.wait(PATIENCE_SECONDS)
        return function()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


def here_only(replacement: Callable[..., T], genuine: Callable[..., T]) -> Callable[..., T]:
    """A replacement, for this thread alone, of a function of the whole process: other threads get the genuine one."""
    here = threading.get_ident()

    def chosen(*args: Any, **named: Any) -> T:
        return (replacement if threading.get_ident() == here else genuine)(*args, **named)

    return chosen


def eventually(check: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a check holds."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.02)


def in_time(body: Callable[[float], None], seconds: float) -> None:
    """Run a test that has to be in time, and again with twice the time when it was late; machines stand still at times.

    A body raises `LateError` only if it was late by its own clock, so a fault of the server is not tried again.
    """
    for _ in range(TRIES - 1):
        try:
            return body(seconds)
        except LateError:
            seconds *= 2
    return body(seconds)


@contextmanager
def unless_late(since: Callable[[], float], seconds: float) -> Iterator[None]:
    """What fails in here fails because the test was late, if more than these seconds have passed since an instant."""
    try:
        yield
    except Exception as error:
        if time.monotonic() - since() < seconds:
            raise
        raise LateError(f"more than {seconds} s have passed") from error


@contextmanager
def unless_slow(seconds: float) -> Iterator[None]:
    """What fails in here fails because something took its time, if this block took so long.

    With the shortest time after which a server gives something up, only what it may have given up is tried again.
    """
    began = time.monotonic()
    with unless_late(lambda: began, seconds):
        yield


@contextmanager
def unless_held_up(seconds: float, ask: Callable[[], object] = lambda: None) -> Iterator[None]:
    """What fails in here fails because the machine is slow, if it was, meanwhile, by more than these seconds.

    A thread does nothing but look at the clock, and ask somebody who answers at once: the time between two of its looks
    is for how long this process, or the one that is asked, did not run.
    """
    over, held_up = threading.Event(), False

    def look() -> None:
        nonlocal held_up
        is_over, last = False, time.monotonic()
        while not is_over:
            is_over = over.wait(LOOK_SECONDS)
            with suppress(Exception):  # how long it took says enough
                ask()
            last, before = time.monotonic(), last
            held_up = held_up or last - before > seconds + LOOK_SECONDS

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    except Exception as error:
        over.set()
        looking.join()
        if not held_up:
            raise
        raise LateError(f"the machine stood still for more than {seconds} s") from error
    finally:
        over.set()
        looking.join()
