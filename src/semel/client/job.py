"""A job as its function sees it: `Job` in a thread, `AsyncJob` on the event loop, and the steps of both.

A step happens once over all runs of a job: later runs get its first stored result. If a worker dies after a step and
before its result is stored, the next run does the step again: pass `step_key` on as an idempotency key.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast, overload

from semel.client.errors import StepError
from semel.client.integrity import canonical_bytes
from semel.client.jobs import JobsClient
from semel.client.threads import Threads
from semel.client.values import Lease, Step

T = TypeVar("T")


class Steps:
    """The steps of one run. Their requests are cancelled when it ends."""

    def __init__(self, client: JobsClient, lease: Lease) -> None:
        self._client = client
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._under_way: set[str] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def ask(self, step_key: str) -> Step:
        """The stored result of a step."""
        return await self._tracked(self._client.step(self._lease, step_key))

    async def store(self, step_key: str, result: Any) -> Step:
        """Store a result unless there is one. Returns the stored one."""
        return await self._tracked(self._client.store_step(self._lease, step_key, result))

    def wait_for(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from a thread, and block that thread until it ends."""
        try:
            asked = asyncio.run_coroutine_threadsafe(call, self._loop)
        except RuntimeError:
            call.close()  # the loop is closed: the function outlived its worker
            raise
        return asked.result()

    @contextmanager
    def begun(self, step_key: str) -> Iterator[None]:
        """Prevents that a step starts twice at the same time, which would do it twice."""
        if step_key in self._under_way:
            raise StepError("A step with this name is already running in this run.")
        self._under_way.add(step_key)
        try:
            yield
        finally:
            self._under_way.discard(step_key)

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

    def __init__(self, lease: Lease, steps: Steps, threads: Threads) -> None:
        self._lease = lease
        self._steps = steps
        self._threads = threads
        self._progress: Any = None
        self._held_until = math.inf
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
        return self.is_taken or time.monotonic() > self._held_until

    def hold_until(self, monotonic: float) -> None:
        """Record a lease that lasts at least until this time of the monotonic clock."""
        self._held_until = monotonic

    @property
    def id(self) -> str:
        """The job's id, the same in every run: usable as an idempotency key for services that the function calls."""
        return self._lease.job_id

    @property
    def kind(self) -> str:
        """The kind of the job."""
        return self._lease.kind

    @property
    def params(self) -> Mapping[str, Any]:
        """The params of the job."""
        return self._lease.params

    @property
    def queue(self) -> str:
        """The queue of the job."""
        return self._lease.queue

    @property
    def attempt(self) -> int:
        """Number of this run, from 1."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        """Maximum number of runs."""
        return self._lease.max_attempts

    @property
    def created(self) -> datetime:
        """When it was submitted."""
        return self._lease.created

    @property
    def progress(self) -> Any:
        """Progress shown to readers of the job, from the next heartbeat on: any JSON of at most 1,024 bytes."""
        return self._progress

    @progress.setter
    def progress(self, value: Any) -> None:
        if len(canonical_bytes(value)) > MAX_PROGRESS_BYTES:
            raise ValueError(f"progress is at most {MAX_PROGRESS_BYTES} bytes of JSON")
        self._progress = value

    def step_key(self, step_key: str) -> str:
        """An idempotency key of a step for other systems, the same in every run."""
        return f"{self.id}/{step_key}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.kind} attempt={self.attempt}>"


class Job(AnyJob):
    """A job in a thread."""

    def once(self, step_key: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The stored result of a step. If there is none, run the function and store its result.

        The result is JSON, and the first stored one is returned. An exception stores nothing.
        """
        with self._steps.begun(step_key):
            known = self._steps.wait_for(self._steps.ask(step_key))
            if not known.known:
                made = function(*args, **kwargs)
                known = self._steps.wait_for(self._steps.store(step_key, made))
        return cast(T, known.result)


class AsyncJob(AnyJob):
    """A job on the event loop."""

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

    async def _made(self, function: Callable[[], Any]) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function()
        ended = await self._threads.run(function)
        if ended.error is not None:
            raise ended.error
        return await ended.value if inspect.isawaitable(ended.value) else ended.value
