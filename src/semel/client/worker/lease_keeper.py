"""Keeps the leases of running jobs, in a thread of its own.

What guards a run must not depend on the function that it guards: a function may block the event loop of its worker, or
use all threads of an executor. So one daemon thread confirms offers, sends heartbeats and watches time limits, in an
event loop and over connections that nothing else uses. Each lease has its own pace, so a heartbeat that gets no answer
delays no other.

| the function | its lease |
|---|---|
| runs, blocks the event loop of its worker, or hangs | is renewed as long as its process lives; a warning names it |
| exceeds its time limit | is renewed for the seconds in which the function may clean up, and no longer |
| is stopped with its process, or runs C code that keeps the interpreter's lock | ends; its report is refused |
| is in a process that was forked meanwhile | is renewed by the parent alone: a fork copies no thread |

A heartbeat that fails is repeated until the server says that the lease is lost.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Self

from semel.client.client import AsyncClient
from semel.client.errors import LeaseLostError, NotFoundError, RefusedError, ResultConflictError
from semel.client.jobs.calls import AsyncJobs
from semel.client.jobs.values import Beat, Lease
from semel.client.worker.job import AnyJob
from semel.once.keeper import RENEWALS, HeldLease

LEAST_BEAT_SECONDS = 1.0
"""A heartbeat waits this long for its answer, or a third of a longer lease."""
LOOK_SECONDS = 1.0
"""How often the event loop of the worker is asked for a sign of life."""
BLOCKED_SECONDS = 2.0
"""A loop without a sign of life for so long is reported, and again whenever the time has doubled."""
_MACHINERY = ("asyncio", "selectors", "semel.client.worker", "uvloop")
"""Modules between an event loop and the function that runs on it."""

log = logging.getLogger("semel.worker")


class HeldJob:
    """A claimed job, as the keeper holds its lease and as its run sees it.

    It is made in the event loop of the worker. The thread of the keeper runs `keep`.
    """

    def __init__(
        self, job: AnyJob, name: str, asked_at: float, limit: float | None, grace: float, kill: Callable[[], None]
    ) -> None:
        """The claim was sent at `asked_at`, by the monotonic clock: the lease began no earlier. After `limit` seconds
        the run is late: `kill` is called, and the lease is renewed for `grace` seconds more.
        """
        self.job = job
        self._limit, self._grace, self._kill = limit, grace, kill
        self._lease: HeldLease[Lease] = HeldLease(job.lease, job.lease.lease_ms / 1_000, name)
        self._lease.due = asked_at + self._lease.seconds / RENEWALS
        self._hold_since(asked_at)
        self._loop = asyncio.get_running_loop()
        self.is_confirmed: Future[bool] = Future()
        """Whether the run may begin, as soon as that is known."""
        self.is_confirmed.set_running_or_notify_cancel()  # a run that stops waiting does not cancel it
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the server has said that another worker may have the job."""
        self.unwanted: asyncio.Future[None] = self._loop.create_future()
        """Done when the owner has cancelled the job, or when it has exceeded its time limit."""
        self.is_late = False
        self._has_begun = False

    def begin(self) -> None:
        """Note that the function begins now: from now on the time that it takes is reported."""
        self._lease.began, self._has_begun = time.monotonic(), True

    async def keep(self, jobs: AsyncJobs) -> None:
        """Confirm an offer, and renew the lease until it is lost or the run is late."""
        try:
            is_held = await self._confirm(jobs)
        except Exception as error:  # noqa: BLE001 - it ends the run, which waits for it
            self.is_confirmed.set_exception(error)
            return
        self.is_confirmed.set_result(is_held)
        if not is_held:
            return
        try:
            async with asyncio.timeout(self._limit):
                await self._renew(jobs)
            return
        except TimeoutError:
            self._time_out()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace):
                await self._renew(jobs)

    async def _confirm(self, jobs: AsyncJobs) -> bool:
        """Whether the lease still holds. An offer that is not confirmed lapses, and is no attempt."""
        lease = self.job.lease
        if not lease.offer_ms:
            return True
        asked_at = time.monotonic()
        try:
            beat = await jobs.heartbeat(lease)
        except RefusedError as error:
            if error.code and not is_gone(error):
                raise
            log.warning("%s %s: %s", lease.job_id, lease.kind, error)
            return False
        self._hear(beat, asked_at)
        return True

    async def _renew(self, jobs: AsyncJobs) -> None:
        """Send three heartbeats per lease until the lease is lost; nothing else ends it."""
        held, lease = self._lease, self.job.lease
        third = held.seconds / RENEWALS
        while True:
            await asyncio.sleep(max(0.0, held.due - time.monotonic()))
            asked_at = time.monotonic()
            if self._has_begun:
                held.warn(asked_at, log.warning)
            try:
                # No longer: neither the backoff of retries nor a connection that died without a sign takes the lease.
                async with asyncio.timeout(max(third, LEAST_BEAT_SECONDS)):
                    beat = await jobs.heartbeat(lease, progress=self.job.progress)
            except TimeoutError:
                continue
            except Exception as error:  # noqa: BLE001 - without heartbeats the job would run a second time
                if is_gone(error):
                    self._lose()
                    return
                log.warning("%s %s: heartbeat: %s", lease.job_id, lease.kind, error)
            else:
                self._hear(beat, asked_at)
            held.due = asked_at + third

    def _hold_since(self, asked_at: float) -> None:
        """Record that the server got a heartbeat after this time: the lease lasts its full length from then."""
        self.job.hold_until(asked_at + self._lease.seconds)

    def _hear(self, beat: Beat, asked_at: float) -> None:
        self._hold_since(asked_at)
        if beat.cancel_requested:
            self.job.is_cancelled = True
            self._wake(self.unwanted)

    def _lose(self) -> None:
        self.job.is_taken = self.job.is_cancelled = True
        self._wake(self.lost)

    def _time_out(self) -> None:
        log.warning("%s %s: the run exceeded its time limit", self.job.lease.job_id, self.job.lease.kind)
        self.is_late = self.job.is_cancelled = True
        self._kill()
        self._wake(self.unwanted)

    def _wake(self, sign: asyncio.Future[None]) -> None:
        """Tell the run, in the loop of the worker."""
        with suppress(RuntimeError):  # that loop is closed: the run is over
            self._loop.call_soon_threadsafe(settle, sign)


class LeaseKeeper:
    """Holds the leases of one worker: `async with` in the worker's event loop."""

    def __init__(self, client: AsyncClient) -> None:
        """The client is used and closed in the thread of the keeper."""
        self._client = client
        self._thread = threading.Thread(target=self._run, name="semel-worker-keeper", daemon=True)
        self._begun: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._watch = LoopWatch()
        self._loop: asyncio.AbstractEventLoop
        self._main: asyncio.Task[None]
        self._tasks: dict[HeldJob, asyncio.Task[None]] = {}

    def hold(self, held: HeldJob) -> None:
        """Confirm and renew a lease, until `drop`."""
        self._loop.call_soon_threadsafe(self._begin, held)

    def drop(self, held: HeldJob) -> None:
        """Renew it no more."""
        self._loop.call_soon_threadsafe(self._end, held)

    async def __aenter__(self) -> Self:
        self._thread.start()
        await asyncio.wrap_future(self._begun)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        await asyncio.wrap_future(self._ended)

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(self._serve())
        except Exception as error:
            if self._begun.done():
                raise
            self._begun.set_exception(error)  # no descriptor is left for another event loop, for example
        finally:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._loop, self._main = asyncio.get_running_loop(), task
        async with self._client:
            self._begun.set_result(None)
            try:
                while True:
                    await asyncio.sleep(LOOK_SECONDS)
                    if self._tasks:
                        self._watch.look()
            finally:
                for one in self._tasks.values():
                    one.cancel()
                await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, held: HeldJob) -> None:
        self._tasks[held] = asyncio.create_task(held.keep(self._client.jobs))

    def _end(self, held: HeldJob) -> None:
        self._tasks.pop(held).cancel()


class LoopWatch:
    """Notices that the event loop of a worker stands still, and names the function that runs on it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._has_answered = True
        self._asked_at = 0.0
        self._patience = BLOCKED_SECONDS

    def _answer(self) -> None:
        self._has_answered = True

    def look(self) -> None:
        """Ask for a sign of life, or warn that there is none. Call it in another thread."""
        now = time.monotonic()
        if self._has_answered:
            self._has_answered, self._asked_at, self._patience = False, now, BLOCKED_SECONDS
            self._loop.call_soon_threadsafe(self._answer)
        elif now - self._asked_at >= self._patience:
            self._patience *= 2
            if (running := running_call(self._thread)) is not None:
                log.warning(
                    "%s has blocked the event loop for %.0f s, at %s.", running[0], now - self._asked_at, running[1]
                )


def running_call(thread: int) -> tuple[str, str] | None:
    """The function that runs on the event loop of a thread, and the line where it is; None if the loop waits."""
    last = sys._current_frames().get(thread)
    frame, first = last, None
    while frame is not None and not _is_machinery(frame):
        frame, first = frame.f_back, frame
    if first is None or last is None:
        return None
    name = f"{first.f_globals.get('__name__')}.{first.f_code.co_qualname}"
    return name, f"{last.f_code.co_filename}:{last.f_lineno}"


def _is_machinery(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return any(module == one or module.startswith(f"{one}.") for one in _MACHINERY)


def is_gone(error: BaseException) -> bool:
    """Whether the server says that this run does not count any more. The 404 of a proxy, without a code, does not."""
    if isinstance(error, NotFoundError):
        return bool(error.code)
    return isinstance(error, LeaseLostError | ResultConflictError)


def settle(future: asyncio.Future[None]) -> None:
    """Set a sign that may be set already."""
    if not future.done():
        future.set_result(None)
