"""Processes for CPU-bound functions: one run at a time in each, and a hard kill at a time limit or a lost lease.

A run is a conversation over a pipe, led by a thread of the worker: it sends the job, answers the child's steps, passes
on the signs that the run should end, and gets the report. The child process is started with `spawn`, so it imports the
module of the function by its name and shares no connection with the worker.

A crash: a child that dies (a fault in native code, a lack of memory, a kill) fails its run, and the job is retried. If
the worker dies, its children end at once, because their pipes are closed.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from semel.client.errors import ConfigurationError
from semel.client.worker.child import CHILD_FLAGS, ChildTask, child_main
from semel.client.worker.handler import Handler
from semel.client.worker.job import AnyJob, StepCalls
from semel.client.worker.reports import ReportedError

LOOK_SECONDS = 0.1
"""How often signs for the child are looked for."""
END_SECONDS = 2.0


class ProcessEndedError(Exception):
    """The process of a run ended before its report."""


class _Child(NamedTuple):
    process: BaseProcess
    pipe: Connection


def checked_place(handler: Handler) -> tuple[str, str]:
    """The module and the name of a function, by which a child process finds it. Raises ConfigurationError."""
    function = handler.function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<locals>")
    if handler.is_async:
        raise ConfigurationError(
            f"The function for jobs of the kind {handler.kind} is asynchronous: it needs no process."
        )
    if module is None or "<" in name:
        raise ConfigurationError(
            f"The function for jobs of the kind {handler.kind} runs in a process: define it at the top of its module."
        )
    return module, name


class ProcessPool:
    """The processes of a worker. There are as many as runs at once; idle ones are kept."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: list[_Child] = []
        self._is_closed = False

    def take(self) -> _Child:
        """An idle process, or a new one."""
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.process.is_alive():
                    self._busy.append(child)
                    return child
                child.pipe.close()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=child_main, args=(theirs,), name="semel-job", daemon=True)
        process.start()
        theirs.close()
        made = _Child(process, ours)
        with self._lock:
            if not self._is_closed:
                self._busy.append(made)
                return made
        end(made)
        raise ProcessEndedError("The worker has ended.")

    def give_back(self, child: _Child) -> None:
        """Keep a process that waits for its next run."""
        with self._lock:
            if not self._is_closed:
                self._busy.remove(child)
                self._idle.append(child)
                return
        self.forget(child)

    def forget(self, child: _Child) -> None:
        """End a process that cannot run another job. Until it has ended it is busy, so that `close` waits for it."""
        end(child)
        with self._lock:
            self._busy.remove(child)

    def close(self) -> None:
        """End all processes, and wait for that: the interpreter would wait for one that is left."""
        with self._lock:
            self._is_closed = True
            children, self._idle = self._idle, []
            busy = list(self._busy)
            for child in busy:
                child.process.kill()
        for child in children:
            end(child)
        for child in busy:
            child.process.join(END_SECONDS)  # its pipe is closed by the thread of its run


def end(child: _Child) -> None:
    """Kill a process and wait for its end."""
    child.process.kill()
    child.process.join(END_SECONDS)
    child.pipe.close()


class ChildRun:
    """One run in a process."""

    def __init__(self, pool: ProcessPool, handler: Handler, job: AnyJob, steps: StepCalls) -> None:
        self._pool = pool
        self._handler = handler
        self._job = job
        self._steps = steps
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._is_killed = False

    def kill(self) -> None:
        """End the process of this run at once."""
        with self._lock:
            self._is_killed = True
            if self._child is not None:
                self._child.process.kill()

    def run(self) -> Any:
        """Run the function in a process, and return its result. Blocks the thread that calls it."""
        child = self._pool.take()
        with self._lock:
            self._child = child
            if self._is_killed:
                child.process.kill()
        try:
            result = self._converse(child)
        except (EOFError, OSError):
            self._pool.forget(child)
            code = child.process.exitcode
            raise ProcessEndedError(f"The process of the run ended with code {code}.") from None
        except BaseException:
            self._pool.forget(child)  # it may be in the middle of a message, or of the run
            raise
        finally:
            with self._lock:
                self._child = None
        self._pool.give_back(child)
        if isinstance(result, ReportedError):
            raise result
        return result

    def _converse(self, child: _Child) -> Any:
        module, name = checked_place(self._handler)
        lease = replace(self._job.lease, token="")
        child.pipe.send(ChildTask(module, name, self._handler.kind, lease))
        told: tuple[Any, ...] = ()
        while True:
            signs = tuple(getattr(self._job, flag) for flag in CHILD_FLAGS)
            if signs != told:
                told = signs
                child.pipe.send(("signs", told))
            if not child.pipe.poll(LOOK_SECONDS):
                continue
            kind, value = child.pipe.recv()
            if kind == "done":
                return value
            if kind == "failed":
                report, trace = value
                return ReportedError(report, trace)
            if kind == "progress":
                self._job.progress = value
            else:
                number, call, arguments = value
                child.pipe.send(("answer", (number, *_answered(getattr(self._steps, call), arguments))))


def _answered(call: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, BaseException | None]:
    """The result of a call for the child, or its error."""
    try:
        return call(*arguments), None
    except Exception as error:  # noqa: BLE001 - it is raised in the child
        return None, error
