"""Job functions: what `@worker.job` makes of a function.

    @worker.job(queue="billing", attempts=3)
    def bill(order: str) -> dict[str, str]: ...

    handle = bill.submit(order="4711")
    handle.result(timeout=30)

`submit` takes the parameters of the function, checks them by their types, and submits a job once. Calling the function
runs it here, without a job.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, overload

from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import Debounce, JobRequest, Unique
from semel.client.transport.network import finished
from semel.client.worker.handler import Handler
from semel.client.worker.handles import AsyncJobHandle, JobHandle
from semel.client.worker.job import AsyncJob, Job
from semel.client.worker.options import JobOptions, Priority
from semel.client.worker.outbox import OutboxAccess, post_job, post_job_async
from semel.client.worker.submitters import Submitters
from semel.once import Posted

P = ParamSpec("P")
Q = ParamSpec("Q")
C = TypeVar("C")
T = TypeVar("T")


class JobFunction(Generic[Q, P, C, T]):
    """A function that can be submitted as a job."""

    __name__: str

    def __init__(
        self, handler: Handler, submitters: Submitters, outbox: OutboxAccess, options: JobOptions | None = None
    ) -> None:
        self.handler = handler
        self.kind = handler.kind
        self._options = options or handler.options
        self._submitters = submitters
        self._outbox = outbox
        functools.update_wrapper(self, handler.function)

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        """Run the function here, without a job."""
        return cast(C, self.handler.function(*args, **kwargs))

    def request(self, *args: P.args, **kwargs: P.kwargs) -> JobRequest:
        """A job with these parameters, to be submitted with others by `client.jobs.submit_many`."""
        own = self._options
        return JobRequest(
            self.kind,
            self.handler.signature.encode(args, kwargs),
            own.key,
            own.queue,
            own.priority,
            own.delay,
            own.run_at,
            own.attempts,
            own.lease,
            own.timeout,
            own.on_failed,
            own.unique,
            own.debounce,
        )

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Submit a job with these parameters, once."""
        return JobHandle(finished(self._submit(self._submitters.blocking(), self.request(*args, **kwargs))))

    async def submit_async(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJobHandle[T]:
        """As `submit`, from asyncio code."""
        return await self._submit(self._submitters.asynchronous(), self.request(*args, **kwargs))

    async def _submit(self, jobs: AsyncJobs, request: JobRequest) -> AsyncJobHandle[T]:
        submitted = await jobs.submit_request(request)
        return AsyncJobHandle(jobs, submitted.job_id, self.handler.signature.result_of, submitted)

    def submit_join(self, members: Iterable[JobRequest], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle[T]:
        """Submit jobs, and one of this function that runs when all of them have ended.

        `report.submit_join([bill.request("1"), bill.request("2")], region="eu")`: the function gets their outcomes by
        `job.members()`. With a key of `with_options`, the same call after a crash completes the group.
        """
        return JobHandle(
            finished(self._submit_join(self._submitters.blocking(), members, self.request(*args, **kwargs)))
        )

    async def submit_join_async(
        self, members: Iterable[JobRequest], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobHandle[T]:
        """As `submit_join`, from asyncio code."""
        return await self._submit_join(self._submitters.asynchronous(), members, self.request(*args, **kwargs))

    async def _submit_join(
        self, jobs: AsyncJobs, members: Iterable[JobRequest], request: JobRequest
    ) -> AsyncJobHandle[T]:
        submitted = await jobs.submit_group(request, members, on_failure=self._options.on_member_failure)
        return AsyncJobHandle(jobs, submitted.job_id, self.handler.signature.result_of, submitted)

    def submit_in(self, using: Any, /, *args: P.args, **kwargs: P.kwargs) -> Posted:
        """Submit a job with the caller's own transaction: it is submitted if and only if that commits.

        `using` is a connection or session of the database with the outbox of `semel.once`, or an `Outbox`; the outbox
        is delivered by `semel outbox run`. Returns the key of the job.
        """
        return post_job(using, self._outbox, self.request(*args, **kwargs))

    async def submit_in_async(self, using: Any, /, *args: P.args, **kwargs: P.kwargs) -> Posted:
        """As `submit_in`, with an asynchronous connection or session."""
        return await post_job_async(using, self._outbox, self.request(*args, **kwargs))

    def handle(self, job_id: str) -> JobHandle[T]:
        """The handle of a job that was submitted before, perhaps by another process."""
        return JobHandle(AsyncJobHandle(self._submitters.blocking(), job_id, self.handler.signature.result_of))

    def handle_async(self, job_id: str) -> AsyncJobHandle[T]:
        """As `handle`, for asyncio code."""
        return AsyncJobHandle(self._submitters.asynchronous(), job_id, self.handler.signature.result_of)

    def with_options(
        self,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: Priority | None = None,
        delay: float | None = None,
        run_at: datetime | None = None,
        attempts: int | None = None,
        lease: int | None = None,
        timeout: float | None = None,
        on_failed: Literal["return", "retry"] | None = None,
        unique: Unique | None = None,
        debounce: Debounce | None = None,
        on_member_failure: Literal["wait", "cancel"] | None = None,
    ) -> JobFunction[Q, P, C, T]:
        """The same function with other options for its submissions: `bill.with_options(key=...).submit(...)`.

        With a key of the caller's own it is one job, even if this program crashes and submits again.
        """
        given = {
            "key": key,
            "queue": queue,
            "priority": priority,
            "delay": delay,
            "run_at": run_at,
            "attempts": attempts,
            "lease": lease,
            "timeout": timeout,
            "on_failed": on_failed,
            "unique": unique,
            "debounce": debounce,
            "on_member_failure": on_member_failure,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return JobFunction(self.handler, self._submitters, self._outbox, replace(self._options, **changes))

    def __repr__(self) -> str:
        return f"<JobFunction {self.kind}>"


class JobDecorator:
    """What `worker.job(...)` returns: makes a job function of a function."""

    def __init__(self, register: Callable[[Callable[..., Any]], Any]) -> None:
        self._register = register

    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncJob, P], Coroutine[Any, Any, T]], /
    ) -> JobFunction[Concatenate[AsyncJob, P], P, Coroutine[Any, Any, T], T]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Job, P], T], /) -> JobFunction[Concatenate[Job, P], P, T, T]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> JobFunction[P, P, Coroutine[Any, Any, T], T]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> JobFunction[P, P, T, T]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        """Register a function."""
        return self._register(function)
