"""Handles of submitted jobs: `handle.result()` waits for the result, as a future does.

A handle holds only the id of the job: another process makes an equal one of `job_id` with `function.handle(job_id)`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

from semel.client.errors import JobFailedError, UnexpectedResultError
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import Cancellation, JobInfo, Outcome, Submitted
from semel.client.transport.network import finished
from semel.client.worker.param_types import Fault

T = TypeVar("T")
FOREVER = 1e9
"""Seconds of a wait without a limit."""


class AsyncJobHandle(Generic[T]):
    """A submitted job, from asyncio code: `await handle` is its result."""

    def __init__(
        self, jobs: AsyncJobs, job_id: str, decode: Callable[[Any], Any], submitted: Submitted | None = None
    ) -> None:
        self._jobs = jobs
        self._decode = decode
        self.job_id = job_id
        self.submitted = submitted
        """The answer to the submission; None for a handle made of an id."""

    @property
    def replayed(self) -> bool:
        """Whether the job existed before this submission."""
        return self.submitted is not None and self.submitted.dedup

    async def outcome(self, timeout: float | None = None) -> Outcome:  # noqa: ASYNC109 - a long poll of the server
        """The result or the error of the job, as stored."""
        wait = FOREVER if timeout is None else timeout
        return await self._jobs.result(self.job_id, wait=wait)

    async def result(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - as above
        """The result, by the function's return type; waits `timeout` seconds, or without a limit.

        Raises `JobFailedError` if the job failed or was cancelled, and `NotFinishedError` after the timeout.
        """
        outcome = await self.outcome(timeout)
        if not outcome.ok:
            raise JobFailedError(self.job_id, outcome.error or {})
        try:
            return cast(T, self._decode(outcome.result))
        except Fault as fault:
            raise UnexpectedResultError(self.job_id, str(fault), outcome.result) from None

    async def info(self) -> JobInfo:
        """The state of the job now."""
        return await self._jobs.get(self.job_id)

    async def is_done(self) -> bool:
        """Whether it is completed or permanently failed."""
        return (await self.info()).has_ended

    async def cancel(self, *, force: bool = False) -> Cancellation:
        """Cancel it. The worker of a running job is asked to stop; with `force` its lease ends."""
        return await self._jobs.cancel(self.job_id, force=force)

    def __await__(self) -> Generator[Any, Any, T]:
        return self.result().__await__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.job_id}>"


class JobHandle(Generic[T]):
    """A submitted job, from synchronous code."""

    def __init__(self, calls: AsyncJobHandle[T]) -> None:
        self._calls = calls
        self.job_id = calls.job_id
        self.submitted = calls.submitted
        """The answer to the submission; None for a handle made of an id."""

    @property
    def replayed(self) -> bool:
        """Whether the job existed before this submission."""
        return self._calls.replayed

    def outcome(self, timeout: float | None = None) -> Outcome:
        """The result or the error of the job, as stored."""
        return finished(self._calls.outcome(timeout))

    def result(self, timeout: float | None = None) -> T:
        """The result, by the function's return type; waits `timeout` seconds, or without a limit.

        Raises `JobFailedError` if the job failed or was cancelled, and `NotFinishedError` after the timeout.
        """
        return finished(self._calls.result(timeout))

    def info(self) -> JobInfo:
        """The state of the job now."""
        return finished(self._calls.info())

    def is_done(self) -> bool:
        """Whether it is completed or permanently failed."""
        return finished(self._calls.is_done())

    def cancel(self, *, force: bool = False) -> Cancellation:
        """Cancel it. The worker of a running job is asked to stop; with `force` its lease ends."""
        return finished(self._calls.cancel(force=force))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.job_id}>"
