"""A job as its function sees it: `Job` in a thread, `AsyncJob` on the event loop, and the steps of both.

A step happens once over all runs of a job: later runs get its first stored result. If a worker dies after a step and
before its result is stored, the next run does the step again: pass `step_key` on as an idempotency key.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast, overload

from semel.client.errors import StepError
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.integrity import canonical_bytes
from semel.client.jobs.values import JobMember, JobRequest, Lease, Outcome, Step, Submitted
from semel.client.worker.reports import WaitForChildren
from semel.client.worker.threads import Threads

T = TypeVar("T")


class MemberOutcome(NamedTuple):
    """A member of a group, or a child, and its outcome; None if not all of them have ended."""

    member: JobMember
    outcome: Outcome | None


def joined(members: list[MemberOutcome]) -> dict[str, Outcome]:
    """The outcomes of children by their names. Raises `WaitForChildren` unless all have ended."""
    outcomes: dict[str, Outcome] = {}
    for member, outcome in members:
        if outcome is None:
            raise WaitForChildren
        outcomes[member.name or member.job_id] = outcome
    return outcomes


def ended(members: list[MemberOutcome]) -> list[Outcome]:
    """The outcomes of the members that have ended."""
    return [outcome for _, outcome in members if outcome is not None]


class StepCalls(Protocol):
    """The calls of a running job, from synchronous code."""

    def begun(self, step_key: str) -> AbstractContextManager[None]:
        """Prevents that a step starts twice at the same time."""

    def known(self, step_key: str) -> Step:
        """The stored result of a step."""

    def kept(self, step_key: str, result: Any) -> Step:
        """Store a result unless there is one. Returns the stored one."""

    def child(self, name: str, request: JobRequest) -> Submitted:
        """Submit a child of the job."""

    def members(self) -> list[MemberOutcome]:
        """The members or children that the job waits for, with their outcomes if all have ended."""


class AsyncStepCalls(Protocol):
    """The calls of a running job, from asyncio code."""

    def begun(self, step_key: str) -> AbstractContextManager[None]:
        """Prevents that a step starts twice at the same time."""

    async def ask(self, step_key: str) -> Step:
        """The stored result of a step."""

    async def store(self, step_key: str, result: Any) -> Step:
        """Store a result unless there is one. Returns the stored one."""

    async def submit_child(self, name: str, request: JobRequest) -> Submitted:
        """Submit a child of the job."""

    async def member_outcomes(self) -> list[MemberOutcome]:
        """The members or children that the job waits for, with their outcomes if all have ended."""


class StepsUnderWay:
    """The names of the steps that run now. Several threads of a function may start steps."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()

    @contextmanager
    def begun(self, step_key: str) -> Iterator[None]:
        """Prevents that a step starts twice at the same time, which would do it twice."""
        with self._lock:
            if step_key in self._names:
                raise StepError("A step with this name is already running in this run.")
            self._names.add(step_key)
        try:
            yield
        finally:
            with self._lock:
                self._names.discard(step_key)


class Steps:
    """The steps of one run. Their requests are cancelled when it ends."""

    def __init__(self, client: AsyncJobs, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._under_way = StepsUnderWay()
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def ask(self, step_key: str) -> Step:
        """The stored result of a step."""
        return await self._tracked(self._client.step(self._lease, step_key))

    async def store(self, step_key: str, result: Any) -> Step:
        """Store a result unless there is one. Returns the stored one."""
        return await self._tracked(self._client.store_step(self._lease, step_key, result))

    async def submit_child(self, name: str, request: JobRequest) -> Submitted:
        """Submit a child of the job."""
        return await self._tracked(self._client.submit_child(self._lease, name, request))

    async def member_outcomes(self) -> list[MemberOutcome]:
        """The members or children that the job waits for, with their outcomes if all have ended."""
        return await self._tracked(self._found_members())

    async def _found_members(self) -> list[MemberOutcome]:
        members = [one async for one in self._client.walk_members(self._lease.job_id)]
        if not all(one.has_ended for one in members):
            return [MemberOutcome(one, None) for one in members]
        return [MemberOutcome(one, await self._client.result(one.job_id)) for one in members]

    def child(self, name: str, request: JobRequest) -> Submitted:
        """As `submit_child`, from a thread."""
        return self.wait_for(self.submit_child(name, request))

    def members(self) -> list[MemberOutcome]:
        """As `member_outcomes`, from a thread."""
        return self.wait_for(self.member_outcomes())

    def known(self, step_key: str) -> Step:
        """As `ask`, from a thread."""
        return self.wait_for(self.ask(step_key))

    def kept(self, step_key: str, result: Any) -> Step:
        """As `store`, from a thread."""
        return self.wait_for(self.store(step_key, result))

    def wait_for(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from a thread, and block that thread until it ends."""
        try:
            asked = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError:
            call.close()  # the loop is closed: the function outlived its worker
            raise
        return asked.result()

    def begun(self, step_key: str) -> AbstractContextManager[None]:
        """Prevents that a step starts twice at the same time."""
        return self._under_way.begun(step_key)

    def close(self) -> None:
        """Cancel open requests at the end of the run."""
        self._is_closed = True
        for call in self._calls:
            call.cancel()

    async def _tracked(self, call: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            call.close()
            raise asyncio.CancelledError
        task = asyncio.ensure_future(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await task


MAX_PROGRESS_BYTES = 1_024

P = ParamSpec("P")


class AnyJob:
    """The common part of `Job` and `AsyncJob`: facts, and signals that the run should end."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._progress: Any = None
        self.held_until = math.inf
        """Until when the lease lasts at least, by the monotonic clock."""
        self.is_cancelled = False
        """Its owner wants it cancelled, or it was taken away: stop if that is possible. A result still counts unless
        it was taken away."""
        self.is_taken = False
        """The server has taken the job away: the result will be dropped."""
        self.is_stopping = False
        """The worker is about to stop. A long function may raise `Defer`, so that another worker continues the job."""

    @property
    def is_lost(self) -> bool:
        """Whether the lease is lost, or may be: no heartbeat was answered for a whole lease."""
        return self.is_taken or time.monotonic() > self.held_until

    def hold_until(self, monotonic: float) -> None:
        """Record a lease that lasts at least until this time of the monotonic clock."""
        self.held_until = monotonic

    @property
    def id(self) -> str:
        """The job's id, the same in every run: usable as an idempotency key for services that the function calls."""
        return self.lease.job_id

    @property
    def kind(self) -> str:
        """The kind of the job."""
        return self.lease.kind

    @property
    def params(self) -> Mapping[str, Any]:
        """The params of the job."""
        return self.lease.params

    @property
    def queue(self) -> str:
        """The queue of the job."""
        return self.lease.queue

    @property
    def attempt(self) -> int:
        """Number of this run, from 1."""
        return self.lease.attempt

    @property
    def max_attempts(self) -> int:
        """Maximum number of runs."""
        return self.lease.max_attempts

    @property
    def created(self) -> datetime:
        """When it was submitted."""
        return self.lease.created

    @property
    def progress(self) -> Any:
        """Progress shown to readers of the job, from the next heartbeat on: any JSON of at most 1,024 bytes."""
        return self._progress

    @progress.setter
    def progress(self, value: Any) -> None:
        self._progress = self.copied_progress(value)

    def copied_progress(self, value: Any) -> Any:
        """A copy, because the function may change its value while a heartbeat is sent.

        Refuses progress that is not JSON or too large.
        """
        text = canonical_bytes(value)
        if len(text) > MAX_PROGRESS_BYTES:
            raise ValueError(f"progress is at most {MAX_PROGRESS_BYTES} bytes of JSON")
        return json.loads(text)

    def step_key(self, step_key: str) -> str:
        """An idempotency key of a step for other systems, the same in every run."""
        return f"{self.id}/{step_key}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.kind} attempt={self.attempt}>"


class Job(AnyJob):
    """A job in a thread, or in a process of its own."""

    def __init__(self, lease: Lease, steps: StepCalls) -> None:
        super().__init__(lease)
        self._steps = steps

    def once(self, step_key: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The stored result of a step. If there is none, run the function and store its result.

        The result is JSON, and the first stored one is returned. An exception stores nothing.
        """
        with self._steps.begun(step_key):
            known = self._steps.known(step_key)
            if not known.known:
                made = function(*args, **kwargs)
                known = self._steps.kept(step_key, made)
        return cast(T, known.result)

    def submit_child(self, name: str, request: JobRequest) -> Submitted:
        """Submit a job that belongs to this one: `job.submit_child("mail", mail.request(to=...))`.

        The name is its key: a later run of this job submits the same child again, which is one job.
        """
        return self._steps.child(name, request)

    def wait_children(self) -> dict[str, Outcome]:
        """The outcomes of all children, by their names.

        If one has not ended, it raises `WaitForChildren`: this run ends, uncounted, and the function runs again from
        its beginning when all have ended. Let the exception pass.
        """
        return joined(self._steps.members())

    def members(self) -> list[Outcome]:
        """The outcomes of the members of the group for which this job has waited, in the order of submission."""
        return ended(self._steps.members())


class AsyncJob(AnyJob):
    """A job on the event loop."""

    def __init__(self, lease: Lease, steps: AsyncStepCalls, threads: Threads) -> None:
        super().__init__(lease)
        self._steps = steps
        self._threads = threads

    @overload
    async def once(
        self, step_key: str, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    async def once(self, step_key: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def once(self, step_key: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As `Job.once`; a function that is not asynchronous runs in a thread."""
        with self._steps.begun(step_key):
            known = await self._steps.ask(step_key)
            if not known.known:
                known = await self._steps.store(step_key, await self._made(partial(function, *args, **kwargs)))
        return known.result

    async def submit_child(self, name: str, request: JobRequest) -> Submitted:
        """As `Job.submit_child`."""
        return await self._steps.submit_child(name, request)

    async def wait_children(self) -> dict[str, Outcome]:
        """As `Job.wait_children`."""
        return joined(await self._steps.member_outcomes())

    async def members(self) -> list[Outcome]:
        """As `Job.members`."""
        return ended(await self._steps.member_outcomes())

    async def _made(self, function: Callable[[], Any]) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function()
        ended = await self._threads.run(function)
        if ended.error is not None:
            raise ended.error
        return await ended.value if inspect.isawaitable(ended.value) else ended.value
