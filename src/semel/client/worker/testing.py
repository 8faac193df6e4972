"""`worker.testing()`: run job functions in this process without a server, for tests.

    with worker.testing() as test:
        handle = bill.submit(order="4711")
        [run] = test.run()
        assert handle.result() == "billed"

What is as with a server: params and results are stored as JSON and rebuilt; idempotency keys; priorities, delays and
order; attempts, `backoff`, `RetryLater`, `Permanent` and `Defer`; steps; middleware.

What is not: jobs run one at a time, here, when the test calls `run`; time passes only by its argument. There are no
leases, heartbeats, time limits, processes, lost answers or crashes, and the server's own backoff has no jitter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from semel.client.errors import ConfigurationError
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import Outcome
from semel.client.transport.network import finished
from semel.client.worker.handler import Handler
from semel.client.worker.job import AnyJob, AsyncJob, Job
from semel.client.worker.memory_jobs import MemoryJob, MemoryJobs, stored
from semel.client.worker.memory_steps import MemorySteps
from semel.client.worker.reports import (
    DeferredReport,
    DoneReport,
    FailedReport,
    Report,
    bounded_seconds,
    note,
    report_of,
    short,
)
from semel.client.worker.submitters import Submitters
from semel.client.worker.threads import Threads

MOST_RUNS = 10_000
"""Runs of one call; a job that submits itself for ever is stopped."""


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job in a test."""

    job_id: str
    kind: str
    params: Mapping[str, Any]
    attempt: int
    at: float
    """When it ran, in seconds of the test's time."""
    ended: str
    """`completed`, `failed` or `deferred`."""
    outcome: Outcome | None
    """The outcome of the job, if this run ended it."""
    error: Mapping[str, Any] | None
    """What the run reported, if it failed."""
    next_run: float | None
    """When the job runs again, in seconds of the test's time; None if it has ended."""
    exception: BaseException | None
    """The exception of the function, with its traceback."""


class WorkerTest:
    """The jobs of a test. While the block runs, job functions of the worker submit to it."""

    def __init__(self, handlers: Mapping[str, Handler], submitters: Submitters, now: float) -> None:
        self._handlers = handlers
        self._submitters = submitters
        self.jobs = MemoryJobs(now)
        """The jobs, by the calls of `client.jobs`."""

    @property
    def now(self) -> float:
        """The time of the test, in seconds."""
        return self.jobs.now

    def __enter__(self) -> Self:
        if self._submitters.override is not None:
            raise ConfigurationError("The worker is in a test already.")
        self._submitters.override = cast(AsyncJobs, self.jobs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._submitters.override = None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def run(self, *, now: float | None = None) -> list[JobRun]:
        """Run the jobs that are ready at this time, in order, until none is. Returns the runs."""
        if _is_in_loop() and any(one.is_async or one.middleware.is_on_loop for one in self._handlers.values()):
            raise ConfigurationError("An event loop is running here: call `await test.run_async()`.")
        return finished(self._run(now, _here))

    async def run_async(self, *, now: float | None = None) -> list[JobRun]:
        """As `run`, in the running event loop; synchronous functions run in threads."""
        return await self._run(now, _on_loop)

    def run_all(self) -> list[JobRun]:
        """Run until every job has ended: time goes on to the next one that waits."""
        runs: list[JobRun] = []
        while (ready := self.jobs.next_ready()) is not None:
            runs += self.run(now=max(self.now, ready))
            if len(runs) > MOST_RUNS:
                raise ConfigurationError(f"The jobs have not ended after {MOST_RUNS} runs.")
        return runs

    async def _run(self, now: float | None, execute: Callable[[Handler, AnyJob], Awaitable[Any]]) -> list[JobRun]:
        self._go_on(now)
        runs: list[JobRun] = []
        while (job := self.jobs.take()) is not None:
            if len(runs) == MOST_RUNS:
                raise ConfigurationError(f"Jobs are ready after {MOST_RUNS} runs.")
            runs.append(await self._run_one(job, execute))
        return runs

    def _go_on(self, now: float | None) -> None:
        if now is not None:
            if now < self.now:
                raise ConfigurationError("The time of a test does not go back.")
            self.jobs.now = now

    async def _run_one(self, job: MemoryJob, execute: Callable[[Handler, AnyJob], Awaitable[Any]]) -> JobRun:
        handler = self._handlers.get(job.request.kind)
        if handler is None:
            raise ConfigurationError(f"The worker has no function for jobs of the kind {job.request.kind}.")
        lease, steps, fault = self.jobs.lease_of(job), MemorySteps(self.jobs, job), None
        made: AnyJob = AsyncJob(lease, steps, Threads(1)) if handler.is_async else Job(lease, steps)
        attempt = job.attempt
        try:
            report: Report = DoneReport(_stored(handler, await execute(handler, made)))
        except Exception as error:  # noqa: BLE001 - an error of the function ends its run
            fault = error
            report = report_of(error)
        pause = None
        if isinstance(report, FailedReport) and report.retryable:
            pause = handler.options.pause(attempt) if report.retry_after is None else report.retry_after
        next_run = self.jobs.report(job, report, None if pause is None else bounded_seconds(pause))
        return JobRun(
            job.job_id,
            handler.kind,
            lease.params,
            attempt,
            self.now,
            _ended(report),
            job.outcome,
            report.error if isinstance(report, FailedReport) else None,
            next_run,
            fault,
        )


def _ended(report: Report) -> str:
    return {DoneReport: "completed", FailedReport: "failed", DeferredReport: "deferred"}[type(report)]


def _stored(handler: Handler, value: Any) -> Any:
    """The result as the server would store it."""
    try:
        return stored(handler.result_json(value))
    except (TypeError, ValueError, RecursionError) as error:
        return note(short(f"the function returned a {type(value).__name__} that is not JSON: {error}"))


async def _here(handler: Handler, job: AnyJob) -> Any:
    """Run without an event loop of the caller; what is asynchronous gets one of its own."""
    if handler.is_async:
        return asyncio.run(handler.run_async(job))
    if handler.middleware.is_on_loop:
        return asyncio.run(_wrapped(handler, job))
    return handler.run(job)


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _on_loop(handler: Handler, job: AnyJob) -> Any:
    if handler.is_async:
        return await handler.run_async(job)
    return await _wrapped(handler, job)


async def _wrapped(handler: Handler, job: AnyJob) -> Any:
    return await handler.middleware.call_async(job, lambda: asyncio.to_thread(handler.run, job))
