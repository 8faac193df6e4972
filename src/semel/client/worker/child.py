"""The child's side of a run in a process: it waits for jobs, runs their functions and sends reports.

One thread reads the pipe: jobs, answers to steps, and signs. The main thread runs the functions. When the pipe is
closed, the worker is gone: the process ends at once, in the middle of a run, because its lease will end too.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, NamedTuple

from semel.client.jobs.values import JobRequest, Lease, Step, Submitted
from semel.client.worker.functions import JobFunction
from semel.client.worker.handler import Handler
from semel.client.worker.job import Job, MemberOutcome, StepsUnderWay
from semel.client.worker.reports import note, report_of, short

CHILD_FLAGS = ("is_cancelled", "is_taken", "is_stopping", "held_until")
"""Attributes of a job that the worker sends to the child when they change."""


class ChildTask(NamedTuple):
    """A job for the child: where its function is, and its lease without the token."""

    module: str
    name: str
    kind: str
    lease: Lease


class _Pipe:
    """The pipe to the worker."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._answers: dict[int, SimpleQueue[tuple[Any, BaseException | None]]] = {}
        self.tasks: SimpleQueue[ChildTask] = SimpleQueue()
        self.job: Job | None = None

    def read(self) -> None:
        """Read until the worker is gone."""
        try:
            while True:
                self._take(self._pipe.recv())
        finally:
            os._exit(1)  # also after a message that cannot be read: its step would wait for ever

    def _take(self, message: Any) -> None:
        if isinstance(message, ChildTask):
            self.tasks.put(message)
            return
        kind, value = message
        if kind == "answer":
            number, result, error = value
            self._answers.pop(number).put((result, error))
        elif self.job is not None:
            for name, sign in zip(CHILD_FLAGS, value, strict=True):
                setattr(self.job, name, sign)

    def send(self, kind: str, value: Any) -> None:
        """Send a message to the worker."""
        with self._lock:
            self._pipe.send((kind, value))

    def ask(self, call: str, *arguments: Any) -> Any:
        """The result of a call that the worker makes."""
        number, answer = next(self._numbers), SimpleQueue[tuple[Any, BaseException | None]]()
        self._answers[number] = answer
        self.send("step", (number, call, arguments))
        result, error = answer.get()
        if error is not None:
            raise error
        return result


class ChildSteps:
    """The steps of a run, stored by way of the worker."""

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        self._under_way = StepsUnderWay()

    def begun(self, step_key: str) -> AbstractContextManager[None]:
        """Prevents that a step starts twice at the same time."""
        return self._under_way.begun(step_key)

    def known(self, step_key: str) -> Step:
        """The stored result of a step."""
        step: Step = self._pipe.ask("known", step_key)
        return step

    def kept(self, step_key: str, result: Any) -> Step:
        """Store a result unless there is one."""
        step: Step = self._pipe.ask("kept", step_key, result)
        return step

    def child(self, name: str, request: JobRequest) -> Submitted:
        """Submit a child of the job."""
        submitted: Submitted = self._pipe.ask("child", name, request)
        return submitted

    def members(self) -> list[MemberOutcome]:
        """The members or children that the job waits for."""
        members: list[MemberOutcome] = self._pipe.ask("members")
        return members


class ChildJob(Job):
    """A job in a process of its own."""

    def __init__(self, lease: Lease, pipe: _Pipe) -> None:
        super().__init__(lease, ChildSteps(pipe))
        self._pipe = pipe

    @property
    def progress(self) -> Any:
        """Progress shown to readers of the job."""
        return self._progress

    @progress.setter
    def progress(self, value: Any) -> None:
        self._progress = self.copied_progress(value)
        self._pipe.send("progress", self._progress)


def child_main(connection: Connection) -> None:
    """Run jobs until the worker is gone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a signal to the group is for the worker, which ends its children
    pipe = _Pipe(connection)
    threading.Thread(target=pipe.read, daemon=True).start()
    while True:
        pipe.send(*_ended(pipe, pipe.tasks.get()))


def _ended(pipe: _Pipe, task: ChildTask) -> tuple[str, Any]:
    """The report of one run."""
    try:
        handler = _found(task)
        pipe.job = ChildJob(task.lease, pipe)
        value = handler.run(pipe.job)
    except BaseException as error:  # noqa: BLE001 - an error of the function ends its job, not the process
        return "failed", (report_of(error), "".join(traceback.format_exception(error)))
    finally:
        pipe.job = None
    return "done", _storable(handler.result_json, value)


def _storable(result_json: Callable[[Any], Any], value: Any) -> Any:
    try:
        return result_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        return note(short(f"the function returned a {type(value).__name__} that is not JSON: {error}"))


def _found(task: ChildTask) -> Handler:
    """The handler of a job, by the name of its function."""
    found: Any = import_module(task.module)
    for name in task.name.split("."):
        found = getattr(found, name)
    return found.handler if isinstance(found, JobFunction) else Handler(task.kind, found)
