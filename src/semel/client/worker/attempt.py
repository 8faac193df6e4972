"""One run of one job: the function, and the report at its end. A `LeaseKeeper` holds its lease meanwhile.

Promise: the report is retried until the server has answered. A job whose lease is lost is dropped without a report,
because the server would refuse it. After a crash at any point the lease ends: the server gives the job to the next
worker and refuses later reports of the first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable
from enum import Enum
from typing import Any

from semel.client.errors import (
    InvalidRequestError,
    LeaseLostError,
    ProofRefusedError,
    RefusedError,
    TooLargeError,
)
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import Lease
from semel.client.worker.handler import Handler
from semel.client.worker.job import AnyJob, AsyncJob, Job, Steps
from semel.client.worker.lease_keeper import HeldJob, LeaseKeeper, is_gone, settle
from semel.client.worker.processes import ChildRun, ProcessEndedError, ProcessPool
from semel.client.worker.reports import (
    Cancelled,
    DeferredReport,
    DoneReport,
    FailedReport,
    Report,
    bounded_seconds,
    note,
    report_of,
    short,
)
from semel.client.worker.threads import Ended, Threads

PROXY_SECONDS = 2.0
"""Pause before a report is repeated that no server of Semel has answered."""
CANCEL_SECONDS = 5.0
"""Seconds that a cancelled function may clean up when the worker stops or the lease is lost."""
UNSIGNED_DELAY = 30.0
_STOPPED = DeferredReport(0.0, "the worker stopped")
_LATE = FailedReport({"code": "timeout", "message": "The run exceeded its time limit."})

log = logging.getLogger("semel.worker")


class WorkerEnding(Enum):
    """How a run ended, for the worker's counts."""

    COMPLETED = "completed"
    FAILED = "failed"
    DEFERRED = "deferred"
    DROPPED = "dropped"


class WorkerAttempt:
    """Runs a claimed job."""

    def __init__(
        self,
        client: AsyncJobs,
        lease: Lease,
        handler: Handler,
        threads: Threads,
        keeper: LeaseKeeper,
        asked_at: float,
        processes: ProcessPool | None = None,
    ) -> None:
        """`asked_at` is the monotonic time when the claim was sent: the lease began no earlier. With `processes` the
        function runs in one of them.
        """
        self.lease = lease
        self._client = client
        self._handler = handler
        self._threads = threads
        self._steps = Steps(client, lease)
        self.job: AnyJob = AsyncJob(lease, self._steps, threads) if handler.is_async else Job(lease, self._steps)
        self._child = None if processes is None else ChildRun(processes, handler, self.job, self._steps)
        self._thread: asyncio.Future[Ended] | None = None
        """The call in a thread, if the function is synchronous."""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._keeper = keeper
        limit = lease.timeout_ms / 1_000 or handler.options.timeout or None
        name = f"{lease.job_id} {lease.kind}: {handler.name}"
        self._held = HeldJob(self.job, name, asked_at, limit, CANCEL_SECONDS, self._kill)

    def warn(self) -> None:
        """Signal that the worker is about to stop."""
        self.job.is_stopping = True

    def give_up(self) -> None:
        """Give the job back: the worker stops now."""
        self.job.is_stopping = self.job.is_cancelled = True
        settle(self._over)

    async def run(self) -> WorkerEnding:
        """Run the function, and report until the server has answered."""
        observer, lease = self._client.observer, self.lease
        if observer is None:
            return await self._run()
        with observer.job_run(lease.kind, lease.attempt, lease.client) as tell:
            ending = await self._run()
            tell(ending.value)
            return ending

    async def _run(self) -> WorkerEnding:
        began = time.monotonic()
        self._keeper.hold(self._held)
        try:
            if not await self._is_held():
                return WorkerEnding.DROPPED
            report = _LATE if self._held.is_late else await self._ended()
            ending = WorkerEnding.DROPPED if report is None else await self._deliver(report)
        finally:
            self._keeper.drop(self._held)
            self._steps.close()
        log.info("%s %s: %s after %.3f s", self.lease.job_id, self.lease.kind, ending.value, time.monotonic() - began)
        return ending

    async def _is_held(self) -> bool:
        """Whether the lease still holds. An offer is confirmed first; an expired one is dropped.

        A process that was suspended after its claim must not start a job that another worker may be running.
        """
        if not await asyncio.wrap_future(self._held.is_confirmed):
            return False
        if self.job.is_lost:
            log.warning("%s %s: the lease ended before the run began", self.lease.job_id, self.lease.kind)
            return False
        return True

    def _kill(self) -> None:
        """End the process of the run, if it has one."""
        if self._child is not None:
            self._child.kill()

    async def _ended(self) -> Report | None:
        """The report after the function has ended or timed out, or None."""
        self._held.begin()
        work = self._begun()
        signs: set[asyncio.Future[Any]] = {work, self._held.lost, self._over}
        await asyncio.wait({*signs, self._held.unwanted}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and isinstance(work, asyncio.Task):
            work.cancel()
        if not any(sign.done() for sign in signs):
            # The job was cancelled or is over its time limit. A function that continues keeps its lease, but one over
            # its limit does not keep its slot.
            timeout = CANCEL_SECONDS if self._held.is_late else None
            await asyncio.wait(signs, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not any(sign.done() for sign in signs):
            if self._is_left():
                return _LATE
            await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
        if self._held.lost.done():
            self._kill()
            await self._leave(work)
            return None
        if not work.done() and isinstance(work, asyncio.Task):
            await asyncio.wait({work}, timeout=CANCEL_SECONDS)
        if not work.done():
            self._kill()
            return _STOPPED
        return self._report(work)

    def _is_left(self) -> bool:
        """Whether the thread of the function could be abandoned."""
        return self._thread is not None and self._threads.leave(self._thread)

    async def _leave(self, work: asyncio.Future[Ended]) -> None:
        """Handle a lost lease: the function gets a short time to end, then its slot is free for the next job.

        A thread cannot be killed, so one that continues is abandoned. There are at most twice as many threads as
        concurrent jobs; above that, the slot stays taken until the function returns.
        """
        signs: set[asyncio.Future[Any]] = {work, self._over}
        await asyncio.wait(signs, timeout=CANCEL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if any(sign.done() for sign in signs):
            return
        if not self._is_left():
            await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)

    def _begun(self) -> asyncio.Future[Ended]:
        if self._handler.is_async:
            return asyncio.create_task(_awaited(self._handler.run_async(self.job)))
        if not self._handler.middleware.is_on_loop:
            return self._in_thread()
        # Not a task: a thread cannot be cancelled, so the middleware around it must not be either.
        return asyncio.shield(asyncio.create_task(_awaited(self._wrapped())))

    def _in_thread(self) -> asyncio.Future[Ended]:
        self._thread = self._threads.run(
            self._child.run if self._child is not None else lambda: self._handler.run(self.job)
        )
        return self._thread

    async def _wrapped(self) -> Any:
        """The asynchronous middleware around a synchronous function."""

        async def call() -> Any:
            value, error = await self._in_thread()
            if error is not None:
                raise error
            return value

        return await self._handler.middleware.call_async(self.job, call)

    def _report(self, work: asyncio.Future[Ended]) -> Report | None:
        if work.cancelled():
            return _STOPPED if self._over.done() else self._cancelled()
        value, error = work.result()
        if error is None:
            return DoneReport(value)
        if isinstance(error, LeaseLostError):
            return None  # raised by a step
        if isinstance(error, ProcessEndedError) and (self._held.is_late or self._over.done()):
            return _LATE if self._held.is_late else _STOPPED
        report = report_of(error)
        if isinstance(report, FailedReport) and report.retryable and report.retry_after is None:
            log.warning("%s %s: the run failed", self.lease.job_id, self.lease.kind, exc_info=error)
        return report

    def _cancelled(self) -> Report:
        """The report of a cancelled asynchronous function."""
        if self._held.is_late:
            return _LATE
        if self._held.unwanted.done():
            return report_of(Cancelled("The owner of the job has cancelled it."))
        return report_of(asyncio.CancelledError("the function was cancelled"))

    async def _deliver(self, report: Report) -> WorkerEnding:
        while not self._held.lost.done():
            try:
                return await self._send(report)
            except ProofRefusedError:
                # The server rejects this worker's signature. The job is given back, uncounted, for one with the right
                # key.
                await self._client.defer(self.lease, UNSIGNED_DELAY, reason="the worker cannot sign its reports")
                raise
            except RefusedError as error:
                if error.code and not is_gone(error) and not isinstance(error, InvalidRequestError):
                    raise
                log.warning("%s %s: %s", self.lease.job_id, self.lease.kind, error)
                if error.code:
                    break
            await asyncio.sleep(PROXY_SECONDS)  # a refusal without a code is a proxy's: the report was not judged
        return WorkerEnding.DROPPED

    async def _send(self, report: Report) -> WorkerEnding:
        if isinstance(report, DeferredReport):
            await self._client.defer(
                self.lease, report.delay, reason=report.reason or None, wait_children=report.wait_children
            )
            return WorkerEnding.DEFERRED
        if isinstance(report, DoneReport):
            await self._complete(report.result)
            return WorkerEnding.COMPLETED
        pause = report.retry_after
        if pause is None and report.retryable:
            pause = self._backoff()
        await self._client.fail(self.lease, report.error, retryable=report.retryable, retry_after=pause)
        return WorkerEnding.FAILED

    def _backoff(self) -> float | None:
        """The pause of the function's own backoff; None means the server's."""
        try:
            pause = self._handler.options.pause(self.lease.attempt)
            return None if pause is None else bounded_seconds(pause)
        except Exception:  # the user's own function: a fault in it must not lose the report
            log.exception("%s %s: the backoff of the job", self.lease.job_id, self.lease.kind)
            return None

    async def _complete(self, value: Any) -> None:
        """Complete the job, even if its result cannot be stored: the function's effects have happened."""
        try:
            await self._client.complete(self.lease, self._handler.result_json(value))
        except (TypeError, ValueError, RecursionError) as error:
            why = f"the function returned a {type(value).__name__} that is not JSON: {error}"
        except (TooLargeError, InvalidRequestError) as error:
            if not error.code and not isinstance(error, TooLargeError):
                raise
            why = f"the server refused the result: {error}"
        else:
            return
        log.error("%s %s: completed without a result: %s", self.lease.job_id, self.lease.kind, why)
        await self._client.complete(self.lease, note(short(why)))


async def _awaited(call: Awaitable[Any]) -> Ended:
    try:
        return Ended(await call)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an error of the function ends its job only
        return Ended(None, error)
