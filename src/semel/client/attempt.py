"""One run of one job: the function, heartbeats beside it, and the report at its end.

Promise: what the function left is reported until the server has answered; a job that is not this worker's any more is
dropped in silence, because the server would refuse it. A crash at any point leaves the job to its lease: the server
gives it to the next worker, and refuses what the dead one might still say.
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
from semel.client.job import AnyJob, AsyncJob, Job
from semel.client.jobs import JobsClient
from semel.client.orders import Cancelled
from semel.client.reports import Deferred, Done, Failed, Report, report_of, short
from semel.client.results import note, plain
from semel.client.steps import Steps
from semel.client.threads import Ended, Threads
from semel.client.values import Beat, Lease

CANCEL_SECONDS = 5.0
"""How long a cancelled function may tidy up when the worker stops, or when its job was taken away."""
UNSIGNED_DELAY = 30.0
_STOPPED = Deferred(0.0, "the worker stopped")
_GONE = (LeaseLostError, NotFoundError, ResultConflictError)

log = logging.getLogger("semel.worker")


class Handler(NamedTuple):
    """The function of a kind."""

    function: Callable[[Any], Any]
    is_async: bool


class Ending(Enum):
    """How a run ended, for the count."""

    COMPLETED = "completed"
    FAILED = "failed"
    DEFERRED = "deferred"
    DROPPED = "dropped"


class Attempt:
    """Runs a job that was claimed."""

    def __init__(self, client: JobsClient, lease: Lease, handler: Handler, threads: Threads, asked_at: float) -> None:
        """`asked_at` is when the claim was sent, by the monotonic clock: no lease is older than that."""
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
        """Settled when the owner cancels the job, or when its time is up."""
        self._is_late = False
        self._asked_at = asked_at

    def warn(self) -> None:
        """The worker is about to stop."""
        self.job.is_stopping = True

    def give_up(self) -> None:
        """The worker waits no longer: give the job back."""
        self.job.is_stopping = self.job.is_cancelled = True
        _settle(self._over)

    async def run(self) -> Ending:
        """From the first line of the function to the server's answer to its report."""
        began = time.monotonic()
        if not await self._is_held():
            self._steps.close()
            return Ending.DROPPED
        beating = asyncio.create_task(self._beat())
        timer = self._timer() if self.lease.timeout_ms else None
        try:
            report = await self._ended()
            ending = Ending.DROPPED if report is None else await self._deliver(report)
        finally:
            if timer is not None:
                timer.cancel()
            beating.cancel()
            self._steps.close()
            await asyncio.gather(beating, return_exceptions=True)
        log.info("%s %s: %s after %.3f s", self.lease.job_id, self.lease.kind, ending.value, time.monotonic() - began)
        return ending

    async def _is_held(self) -> bool:
        """Whether the lease lasts: an offer is made a lease first, and one that has run out meanwhile is dropped.

        A process that stood still after its claim must not begin what another worker may be doing by now.
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
            log.warning("%s %s: the lease ran out before the run began", self.lease.job_id, self.lease.kind)
            return False
        return True

    def _hold_since(self, asked_at: float) -> None:
        """The server has got a heartbeat after that moment, so the lease lasts for its whole length from there."""
        self.job.hold_until(asked_at + self.lease.lease_ms / 1_000)

    def _hear(self, beat: Beat) -> None:
        if beat.cancel_requested:
            self.job.is_cancelled = True
            _settle(self._unwanted)

    def _timer(self) -> asyncio.TimerHandle:
        """Ends a run that takes longer than its job may."""
        return asyncio.get_running_loop().call_later(self.lease.timeout_ms / 1_000, self._time_out)

    def _time_out(self) -> None:
        log.warning("%s %s: the run took longer than its job may", self.lease.job_id, self.lease.kind)
        self._is_late = self.job.is_cancelled = True
        _settle(self._unwanted)

    async def _ended(self) -> Report | None:
        """The report, once the function has ended or timed out; None for no report."""
        work = self._begun()
        signs: set[asyncio.Future[Any]] = {work, self._lost, self._over}
        await asyncio.wait({*signs, self._unwanted}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and isinstance(work, asyncio.Task):
            work.cancel()
        if not any(sign.done() for sign in signs):
            # Its owner does not want it, or its time is up: a function that goes on all the same keeps its lease.
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
        """The job was taken away: its function has a moment to notice, then its slot goes to the next job.

        A thread cannot be ended from outside, so one that goes on is left alone. There are at most twice as many
        threads as jobs at once; beyond that the slot is kept until the function returns.
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
            return Done(value)
        if isinstance(error, LeaseLostError):
            return None  # a step was told so
        report = report_of(error)
        if isinstance(report, Failed) and report.retryable and report.retry_after is None:
            log.warning("%s %s: the run failed", self.lease.job_id, self.lease.kind, exc_info=error)
        return report

    def _cancelled(self) -> Report:
        """The report of a cancelled asynchronous function."""
        if self._is_late:
            return Failed({"code": "timeout", "message": "The run took longer than its job may."})
        if self._unwanted.done():
            return report_of(Cancelled("The owner of the job has cancelled it."))
        return report_of(asyncio.CancelledError("the function was cancelled"))

    async def _deliver(self, report: Report) -> Ending:
        try:
            return await self._send(report)
        except (*_GONE, InvalidRequestError) as error:
            log.warning("%s %s: %s", self.lease.job_id, self.lease.kind, error)
            return Ending.DROPPED
        except ProofRefusedError:
            # Reports of this worker are not believed. The job goes back uncharged, for one that has the right key.
            await self._client.defer(self.lease, UNSIGNED_DELAY, reason="the worker cannot sign its reports")
            raise

    async def _send(self, report: Report) -> Ending:
        if isinstance(report, Deferred):
            await self._client.defer(self.lease, report.delay, reason=report.reason or None)
            return Ending.DEFERRED
        if isinstance(report, Done):
            await self._complete(report.result)
            return Ending.COMPLETED
        await self._client.fail(self.lease, report.error, retryable=report.retryable, retry_after=report.retry_after)
        return Ending.FAILED

    async def _complete(self, value: Any) -> None:
        """The job is done, even if its result cannot be stored: the function has had its effects."""
        try:
            await self._client.complete(self.lease, plain(value))
        except (TypeError, ValueError, RecursionError) as error:
            why = f"the function returned a {type(value).__name__} that is not JSON: {error}"
        except (TooLargeError, InvalidRequestError) as error:
            why = f"the server does not store the result: {error}"
        else:
            return
        log.error("%s %s: done, and without a result: %s", self.lease.job_id, self.lease.kind, why)
        await self._client.complete(self.lease, note(short(why)))

    async def _beat(self) -> None:
        """Send heartbeats, three in each length of the lease, until it is lost."""
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
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever ends the function ends its job, and no more
        return Ended(None, error)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
