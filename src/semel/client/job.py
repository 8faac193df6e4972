"""A job as its function sees it: `Job` for functions that block, in a thread; `AsyncJob` for those of the loop."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast, overload

from semel.client.integrity import canonical_bytes
from semel.client.steps import Steps
from semel.client.threads import Threads
from semel.client.values import Lease

MAX_PROGRESS_BYTES = 1_024

P = ParamSpec("P")
T = TypeVar("T")


class AnyJob:
    """The common part of both kinds: facts, and signals that the run should end."""

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
        """The server has said that it is not this worker's any more: its result will be dropped."""
        self.is_stopping = False
        """The worker is about to stop. A long function may raise `Defer`, and the job goes on elsewhere."""

    @property
    def is_lost(self) -> bool:
        """It is not this worker's any more, or may not be: no heartbeat was answered for a whole lease."""
        return self.is_taken or time.monotonic() > self._held_until

    def hold_until(self, monotonic: float) -> None:
        """The lease was given or renewed: by this machine's clock it lasts at least until then."""
        self._held_until = monotonic

    @property
    def id(self) -> str:
        """The job's id, the same in every run: a good idempotency key for what the function calls."""
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
        """Which run this is, from 1."""
        return self._lease.attempt

    @property
    def max_attempts(self) -> int:
        """How many runs it has."""
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
        """A step's name for other systems, the same in every run."""
        return f"{self.id}/{step_key}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.kind} attempt={self.attempt}>"


class Job(AnyJob):
    """A job in a thread."""

    def once(self, step_key: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The stored result of a step; where there is none the function is run and its result stored.

        The result is JSON, and what comes back is what was stored first. An exception stores nothing.
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
