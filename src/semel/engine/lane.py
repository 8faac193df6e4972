"""Group commit in a thread: a lane has one queue and one thread, which runs one batch after another as a transaction.

The thread takes the waiting writes, limited by count, bytes and cost, and runs them as one batch; while the disk syncs,
the next batch collects. Callers get results only after the commit. If the store is broken for good, the lane stops, and
the waiting callers get "not stored".
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable

from semel.engine.batch_runner import BatchLimits, BatchRunner
from semel.engine.group_commit import QueuedWrite, drive
from semel.engine.surroundings import Surroundings

IDLE_SECONDS = 0.5
"""Seconds between two checks of an idle lane for soft changes, which are stored within a second."""


class ThreadLane:
    """A writer thread with its queue. It runs from `start` until `stop`, or until a commit breaks the store."""

    def __init__(
        self, around: Surroundings, limits: BatchLimits, runner: BatchRunner, fail: Callable[[BaseException], None]
    ) -> None:
        self._around = around
        self._limits = limits
        self.runner = runner
        self._fail = fail
        self._queue: queue.SimpleQueue[QueuedWrite | None] = queue.SimpleQueue()
        self._held: QueuedWrite | None = None
        self._stopping = False
        self._soft_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="semel-lane", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, submission: QueuedWrite) -> None:
        """Queue a write; the engine bounds the queue."""
        self._queue.put(submission)

    async def stop(self) -> None:
        """Finish the queued writes and end the thread; waits for the end."""
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        runner = self.runner
        try:
            while not self._stopping or self._held or runner.deferred:
                runner.current = self._gather()
                self._around.reach("gathered")
                if runner.current:
                    drive(runner.run(runner.current))
                self._store_soft_when_due()
                self._around.store.tidy()
            while runner.store_soft():
                continue
        except BaseException as error:  # noqa: BLE001 - the engine must learn why the thread ends
            runner.fail(error)
            self._fail(error)

    def _gather(self) -> list[QueuedWrite]:
        """The deferred writes, then the waiting ones; a write that no longer fits is held for the next batch."""
        batch, self.runner.deferred = self.runner.deferred, []
        large = next((one for one in batch if one.write.is_large), None)
        if large is not None:  # a large write is a batch of its own
            self.runner.deferred = [one for one in batch if one is not large]
            return [large]
        size = cost = 0
        # Deferred writes do not count towards the limit: they wait for predecessors, which must fit into this batch.
        put_off = len(batch)
        while len(batch) - put_off < self._limits.writes:
            submission = self._next(wait=not batch)
            if submission is None:
                break
            size += submission.write.size
            cost += submission.write.cost
            if submission.write.is_large:
                if batch:
                    self._held = submission
                else:
                    batch.append(submission)
                break
            if len(batch) > put_off and (size > self._limits.bytes or cost > self._limits.cost):
                self._held = submission
                break
            batch.append(submission)
        return batch

    def _next(self, *, wait: bool) -> QueuedWrite | None:
        held, self._held = self._held, None
        if held is not None:
            return held
        try:
            taken = self._queue.get(wait and not self._stopping, IDLE_SECONDS)
        except queue.Empty:
            return None
        if taken is None:
            self._stopping = True
        return taken

    def _store_soft_when_due(self) -> None:
        now = time.monotonic()
        if not len(self._around.soft):
            self._soft_at = now
        elif now - self._soft_at >= IDLE_SECONDS:
            self._soft_at = now
            while self.runner.store_soft() and self._queue.empty():
                continue

    def abandon(self) -> None:
        """After the thread has ended: answer all waiting callers that nothing was stored."""
        waiting = [self._held] if self._held else []
        while not self._queue.empty():
            taken = self._queue.get_nowait()
            if taken is not None:
                waiting.append(taken)
        self._held = None
        self.runner.abandon(waiting)
