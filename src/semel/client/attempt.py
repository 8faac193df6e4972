"""One run of one job: the function, its heartbeats, and the report at its end.

Promise: the report is retried until the server has answered. A job whose lease is lost is dropped without a report,
because the server would refuse it. After a crash at any point the lease ends: the server gives the job to the next
worker and refuses later reports of the first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple

from semel.client.errors import (
    BadAnswerError,
    InvalidRequestError,
    LeaseLostError,
    NotFoundError,
    ProofRefusedError,
    RefusedError,
    ResultConflictError,
    TooLargeError,
)
from semel.client.job import AnyJob, AsyncJob, Job, Steps
from semel.client.jobs import JobsClient
from semel.client.reports import (
    Cancelled,
    DeferredReport,
    DoneReport,
    FailedReport,
    Report,
    note,
    plain,
    report_of,
    short,
)
from semel.client.threads import Ended, Threads
from semel.client.values import Beat, Lease

CANCEL_SECONDS = 5.0
"""Seconds that a cancelled function may clean up when the worker stops or the lease is lost."""
UNSIGNED_DELAY = 30.0
_STOPPED = DeferredReport(0.0, "the worker stopped")
_GONE = (LeaseLostError, NotFoundError, ResultConflictError)

log = logging.getLogger("semel.worker")


class Handler(NamedTuple):
    """The function for a kind of jobs."""

    function: Callable[[Any], Any]
    is_async: bool


class WorkerEnding(Enum):
    """How a run ended, for the worker's counts."""

    COMPLETED = "completed"
    FAILED = "failed"
    DEFERRED = "deferred"
    DROPPED = "dropped"


class WorkerAttempt:
    """Runs a claimed job."""

    def __init__(self, client: JobsClient, lease: Lease, handler: Handler, threads: Threads, asked_at: float) -> None:
        """`asked_at` is the monotonic time when the claim was sent: the lease began no earlier."""
        self.lease = lease
        self._client = client
        self._handler = handler
        self._threads = threads
        self._steps = Steps(client, lease)
        self.job: AnyJob = (AsyncJob if handler.is_async else Job)(lease, self._steps, threads)
        loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._over: asyncio.Future[None] = loop.create_future()
        self._unwanted: asyncio.Future[None] = loop.create_future()
        """Done when the owner cancels the job, or its time limit is reached."""
        self._is_late = False
        self._asked_at = asked_at

    def warn(self) -> None:
        """Signal that the worker is about to stop."""
        self.job.is_stopping = True

    def give_up(self) -> None:
        """Give the job back: the worker stops now."""
        self.job.is_stopping = self.job.is_cancelled = True
        _settle(self._over)

    async def run(self) -> WorkerEnding:
        """Run the function, and report until the server has answered."""
        began = time.monotonic()
        if not await self._is_held():
            self._steps.close()
            return WorkerEnding.DROPPED
        beating = asyncio.create_task(self._beat())
        timer = self._timer() if self.lease.timeout_ms else None
        try:
            report = await self._ended()
            ending = WorkerEnding.DROPPED if report is None else await self._deliver(report)
        finally:
            if timer is not None:
                timer.cancel()
            beating.cancel()
            self._steps.close()
            await asyncio.gather(beating, return_exceptions=True)
        log.info("%s %s: %s after %.3f s", self.lease.job_id, self.lease.kind, ending.value, time.monotonic() - began)
        return ending

    async def _is_held(self) -> bool:
        """Whether the lease still holds. An offer is confirmed first; an expired one is dropped.

        A process that was suspended after its claim must not start a job that another worker may be running.
        """
        self._hold_since(self._asked_at)
        if self.lease.offer_ms:
            asked_at = time.monotonic()
            try:
                beat = await self._client.heartbeat(self.lease)
            except _GONE as error:
                log.warning("%s %s: %s", self.lease.job_id, self.lease.kind, error)
                return False
            self._hold_since(asked_at)
            self._hear(beat)
        if self.job.is_lost:
            log.warning("%s %s: the lease ended before the run began", self.lease.job_id, self.lease.kind)
            return False
        return True

    def _hold_since(self, asked_at: float) -> None:
        """Record that the server got a heartbeat after this time: the lease lasts its full length from then."""
        self.job.hold_until(asked_at + self.lease.lease_ms / 1_000)

    def _hear(self, beat: Beat) -> None:
        if beat.cancel_requested:
            self.job.is_cancelled = True
            _settle(self._unwanted)

    def _timer(self) -> asyncio.TimerHandle:
        """Ends a run at its time limit."""
        return asyncio.get_running_loop().call_later(self.lease.timeout_ms / 1_000, self._time_out)

    def _time_out(self) -> None:
        log.warning("%s %s: the run exceeded its time limit", self.lease.job_id, self.lease.kind)
        self._is_late = self.job.is_cancelled = True
        _settle(self._unwanted)

    async def _ended(self) -> Report | None:
        """The report after the function has ended or timed out, or None."""
        work = self._begun()
        signs: set[asyncio.Future[Any]] = {work, self._lost, self._over}
        await asyncio.wait({*signs, self._unwanted}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and isinstance(work, asyncio.Task):
            work.cancel()
        if not any(sign.done() for sign in signs):
            # The job was cancelled or is over its time limit: a function that continues keeps its lease.
            await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
        if self._lost.done():
            await self._leave(work)
            return None
        if not work.done() and isinstance(work, asyncio.Task):
            await asyncio.wait({work}, timeout=CANCEL_SECONDS)
        if not work.done():
            return _STOPPED
        return self._report(work)

    async def _leave(self, work: asyncio.Future[Ended]) -> None:
        """Handle a lost lease: the function gets a short time to end, then its slot is free for the next job.

        A thread cannot be killed, so one that continues is abandoned. There are at most twice as many threads as
        concurrent jobs; above that, the slot stays taken until the function returns.
        """
        signs: set[asyncio.Future[Any]] = {work, self._over}
        await asyncio.wait(signs, timeout=CANCEL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if any(sign.done() for sign in signs):
            return
        if isinstance(work, asyncio.Task) or not self._threads.leave(work):
            await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)

    def _begun(self) -> asyncio.Future[Ended]:
        if self._handler.is_async:
            return asyncio.create_task(_awaited(self._handler.function, self.job))
        return self._threads.run(lambda: self._handler.function(self.job))

    def _report(self, work: asyncio.Future[Ended]) -> Report | None:
        if work.cancelled():
            return _STOPPED if self._over.done() else self._cancelled()
        value, error = work.result()
        if error is None:
            return DoneReport(value)
        if isinstance(error, LeaseLostError):
            return None  # raised by a step
        report = report_of(error)
        if isinstance(report, FailedReport) and report.retryable and report.retry_after is None:
            log.warning("%s %s: the run failed", self.lease.job_id, self.lease.kind, exc_info=error)
        return report

    def _cancelled(self) -> Report:
        """The report of a cancelled asynchronous function."""
        if self._is_late:
            return FailedReport({"code": "timeout", "message": "The run exceeded its time limit."})
        if self._unwanted.done():
            return report_of(Cancelled("The owner of the job has cancelled it."))
        return report_of(asyncio.CancelledError("the function was cancelled"))

    async def _deliver(self, report: Report) -> WorkerEnding:
        try:
            return await self._send(report)
        except (*_GONE, InvalidRequestError) as error:
            log.warning("%s %s: %s", self.lease.job_id, self.lease.kind, error)
            return WorkerEnding.DROPPED
        except ProofRefusedError:
            # The server rejects this worker's signature. The job is given back, uncounted, for one with the right key.
            await self._client.defer(self.lease, UNSIGNED_DELAY, reason="the worker cannot sign its reports")
            raise

    async def _send(self, report: Report) -> WorkerEnding:
        if isinstance(report, DeferredReport):
            await self._client.defer(self.lease, report.delay, reason=report.reason or None)
            return WorkerEnding.DEFERRED
        if isinstance(report, DoneReport):
            await self._complete(report.result)
            return WorkerEnding.COMPLETED
        await self._client.fail(self.lease, report.error, retryable=report.retryable, retry_after=report.retry_after)
        return WorkerEnding.FAILED

    async def _complete(self, value: Any) -> None:
        """Complete the job, even if its result cannot be stored: the function's effects have happened."""
        try:
            await self._client.complete(self.lease, plain(value))
        except (TypeError, ValueError, RecursionError) as error:
            why = f"the function returned a {type(value).__name__} that is not JSON: {error}"
        except (TooLargeError, InvalidRequestError) as error:
            why = f"the server refused the result: {error}"
        else:
            return
        log.error("%s %s: completed without a result: %s", self.lease.job_id, self.lease.kind, why)
        await self._client.complete(self.lease, note(short(why)))

    async def _beat(self) -> None:
        """Send three heartbeats per lease until the lease is lost."""
        while True:
            await asyncio.sleep(self.lease.lease_ms / 3_000)
            asked_at = time.monotonic()
            try:
                beat = await self._client.heartbeat(self.lease, progress=self.job.progress)
            except _GONE:
                self.job.is_taken = self.job.is_cancelled = True
                _settle(self._lost)
                return
            except (RefusedError, BadAnswerError) as error:
                log.warning("%s %s: heartbeat: %s", self.lease.job_id, self.lease.kind, error)
                continue
            self._hold_since(asked_at)
            self._hear(beat)


async def _awaited(function: Callable[[Any], Awaitable[Any]], job: AnyJob) -> Ended:
    try:
        return Ended(await function(job))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of the function ends its job only
        return Ended(None, error)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
