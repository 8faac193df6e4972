"""The loop of a running worker: claims jobs while it has free slots, runs them, and stops without losing one.

A claim has an id, so it is repeated if its answer was lost. A worker that stops claims no more, gives back the jobs of
a claim in flight, waits the grace time for running jobs, and gives back the rest without counting an attempt.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from semel.client.errors import CallError, RefusedError, SemelError
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.submission import fresh_name
from semel.client.jobs.values import Claimed, Lease
from semel.client.worker.attempt import CANCEL_SECONDS, WorkerAttempt, WorkerEnding
from semel.client.worker.handler import Handler
from semel.client.worker.lease_keeper import LeaseKeeper
from semel.client.worker.processes import ProcessPool
from semel.client.worker.threads import Threads

MOST_CLAIMED = 100
REPORT_SECONDS = 10.0
"""Seconds that reports may take after the last job was given back."""
HANDBACK_SECONDS = 3.0

log = logging.getLogger("semel.worker")


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The options of a worker."""

    worker_id: str
    queues: tuple[str, ...] | None
    concurrency: int
    lease: int | None
    poll: float
    grace: float


class WorkerLoop:
    """One run of a worker."""

    def __init__(
        self,
        client: AsyncJobs,
        plan: WorkerPlan,
        handlers: Mapping[str, Handler],
        keeper: LeaseKeeper,
        processes: ProcessPool | None = None,
    ) -> None:
        """With `processes` every function runs in one of them."""
        self._processes = processes
        self._client = client
        self._plan = plan
        self._handlers = handlers
        self._keeper = keeper
        self._threads = Threads(plan.concurrency)
        self._attempts: dict[asyncio.Task[None], WorkerAttempt] = {}
        self._freed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._asking: str | None = None
        """The id of a claim that has no answer yet."""
        self._fault: SemelError | None = None
        self.tally: Counter[str] = Counter()

    def stop(self) -> None:
        """Claim no more and stop gracefully; on the second call, stop at once."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    async def stopped(self) -> None:
        """Wait until it is asked to stop."""
        await self._stopping.wait()

    async def run(self, *, until_idle: bool) -> None:
        """Run until stopped, or until no job is ready."""
        claiming = asyncio.create_task(self._claim_on(until_idle))
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({claiming, stopped}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._hurrying.set()
            raise
        finally:
            self._stopping.set()
            for task in (claiming, stopped):
                task.cancel()
            await asyncio.gather(claiming, stopped, return_exceptions=True)
            await self._wind_down()
        if not claiming.cancelled():
            claiming.result()
        if self._fault is not None:
            raise self._fault

    async def _claim_on(self, until_idle: bool) -> None:
        while True:
            await self._room(self._plan.concurrency)
            asked_at = time.monotonic()
            claimed = await self._claim(0.0 if until_idle else self._plan.poll)
            for lease in claimed.leases:
                handler = self._handlers[lease.kind]
                self._begin(
                    WorkerAttempt(self._client, lease, handler, self._threads, self._keeper, asked_at, self._processes)
                )
            if claimed.leases:
                continue
            if until_idle:
                if not self._attempts:
                    return
                await self._room(len(self._attempts))
            else:
                await asyncio.sleep(claimed.pause * random.uniform(0.75, 1.25))  # noqa: S311 - not a secret

    async def _claim(self, wait: float) -> Claimed:
        plan, self._asking = self._plan, fresh_name()
        try:
            claimed = await self._client.claim(
                plan.worker_id,
                most=min(plan.concurrency - len(self._attempts), MOST_CLAIMED),
                kinds=list(self._handlers),
                queues=plan.queues,
                wait=wait,
                lease=plan.lease,
                claim_id=self._asking,
            )
        except SemelError as error:
            if not (isinstance(error, CallError) and error.is_unsettled):
                self._asking = None  # refused: the claim got no jobs
            raise
        self._asking = None
        return claimed

    async def _room(self, most: int) -> None:
        """Wait until fewer jobs than `limit` are running."""
        while len(self._attempts) >= most:
            self._freed.clear()
            await self._freed.wait()

    def _begin(self, attempt: WorkerAttempt) -> None:
        task = asyncio.create_task(self._run(attempt))
        self._attempts[task] = attempt
        task.add_done_callback(self._end)

    async def _run(self, attempt: WorkerAttempt) -> None:
        try:
            ending = await attempt.run()
        except SemelError as error:
            # The server would refuse every report of this worker: continuing would only use up attempts.
            log.error("%s %s: %s", attempt.lease.job_id, attempt.lease.kind, error)
            self._fault = error
            ending = WorkerEnding.DROPPED
            self._stopping.set()
        self.tally[ending.value] += 1

    def _end(self, task: asyncio.Task[None]) -> None:
        attempt = self._attempts.pop(task)
        self._freed.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.error(
                "%s %s: an internal error of the worker", attempt.lease.job_id, attempt.lease.kind, exc_info=fault
            )

    async def _wind_down(self) -> None:
        for attempt in self._attempts.values():
            attempt.warn()
        if self._attempts and not self._hurrying.is_set():
            log.info("Stopping: %d jobs have up to %g s to finish.", len(self._attempts), self._plan.grace)
        await asyncio.gather(self._hand_back(), self._ended_within(self._plan.grace))
        for attempt in self._attempts.values():
            attempt.give_up()
        if self._attempts:
            await asyncio.wait(list(self._attempts), timeout=CANCEL_SECONDS + REPORT_SECONDS)
        for task in list(self._attempts):
            task.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        self._threads.close()
        if self._processes is not None:
            await asyncio.to_thread(self._processes.close)

    async def _ended_within(self, seconds: float) -> None:
        """Wait until all jobs have ended, the time is up, or the worker must stop at once."""
        all_ended = asyncio.create_task(self._room(1))
        hurried = asyncio.create_task(self._hurrying.wait())
        await asyncio.wait({all_ended, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in (all_ended, hurried):
            task.cancel()
        await asyncio.gather(all_ended, hurried, return_exceptions=True)

    async def _hand_back(self) -> None:
        """Give back the jobs of a claim whose answer was lost. It repeats the claim with an unknown kind: no new
        jobs."""
        if self._asking is None:
            return
        try:
            async with asyncio.timeout(HANDBACK_SECONDS):
                claimed = await self._client.claim(
                    self._plan.worker_id, most=MOST_CLAIMED, kinds=[fresh_name()], claim_id=self._asking
                )
                await asyncio.gather(*map(self._give_back, claimed.leases))
        except (CallError, TimeoutError):
            log.warning("The answer to the last claim was lost: if it got jobs, they wait until their leases end.")

    async def _give_back(self, lease: Lease) -> None:
        try:
            await self._client.defer(lease, reason="the worker stopped")
        except RefusedError as error:  # an offer that has lapsed, for example
            log.warning("%s %s: %s", lease.job_id, lease.kind, error)
            return
        self.tally[WorkerEnding.DEFERRED.value] += 1
