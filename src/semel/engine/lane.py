"""Group commit in a thread: a lane has one queue and one thread, which runs one batch after another as a transaction.

The thread takes the waiting writes, limited by count, bytes and cost, and runs them as one batch; while the disk syncs,
the next batch collects. Plain writes are part of the batch, without the full rules. Callers get results only after the
commit. If the store is broken for good, the lane stops, and the waiting callers get "not stored".
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from semel.engine.batch import HeavyBatchError
from semel.engine.batch_runner import BatchLimits, BatchRunner, LightBatch
from semel.engine.group_commit import QueuedWrite, drive
from semel.engine.plain_write import PlainWrite, without_plain
from semel.engine.surroundings import Surroundings
from semel.store.protocol import StoreError

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
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[QueuedWrite | list[PlainWrite] | None] = queue.SimpleQueue()
        self._entered: deque[QueuedWrite | list[PlainWrite]] = deque()
        """What is in the queue, whose first entry cannot be looked at."""
        self._collected: list[PlainWrite] = []
        """Plain writes of the present pass of the event loop, which enter the queue together."""
        self._next_up: deque[QueuedWrite | PlainWrite] = deque()
        """Writes that were taken from the queue and go into the next batch."""
        self._stopping = False
        self._soft_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="semel-lane", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def waiting_since(self) -> float:
        """When the oldest write that is not answered was admitted; infinite if there is none.

        A write that the thread is moving from one place to the next at this instant may be missed.
        """
        first = [
            _admitted_at(entry)
            for place in (self._entered, self._next_up, self._collected)
            for entry in list(place)[:1]
        ]
        return min(self.runner.waiting_since, *first, inf)

    def put(self, submission: QueuedWrite) -> None:
        """Queue a write; the engine bounds the queue."""
        self._hand_over()  # writes are decided in their order
        self._enter(submission)

    def put_plain(self, write: PlainWrite) -> None:
        """Queue a plain write; the thread is woken once for those of one pass of the event loop."""
        self._collected.append(write)
        if len(self._collected) == 1:
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        if self._collected:
            collected, self._collected = self._collected, []
            self._enter(collected)

    def _enter(self, entry: QueuedWrite | list[PlainWrite]) -> None:
        self._entered.append(entry)
        self._queue.put(entry)

    async def stop(self) -> None:
        """Finish the queued writes and end the thread; waits for the end."""
        self._hand_over()
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        runner = self.runner
        try:
            while not self._stopping or self._next_up or runner.deferred:
                runner.current, plain = self._gather()
                self._around.reach("gathered")
                if plain:
                    self._run_plain(plain)
                elif runner.current:
                    drive(runner.run(runner.current))
                self._store_soft_when_due()
                self._around.store.tidy()
            while runner.store_soft():
                continue
        except BaseException as error:  # noqa: BLE001 - the engine must learn why the thread ends
            runner.fail(error)
            self._fail(error)

    def _run_plain(self, plain: Sequence[PlainWrite]) -> None:
        """Run a batch that has plain writes; after a failure the full rules decide all of it."""
        runner = self.runner
        try:
            drive(runner.run_light(runner.current, LightBatch(self._limits.loaded, inf, plain)))
        except (HeavyBatchError, StoreError):
            drive(runner.run(runner.take_all()))
        self._next_up.extendleft(reversed(runner.left))
        runner.left = ()

    def _gather(self) -> tuple[Sequence[QueuedWrite], Sequence[PlainWrite]]:
        """The deferred writes, then the waiting ones; a write that no longer fits goes into the next batch."""
        deferred, self.runner.deferred = self.runner.deferred, []
        large = next((one for one in deferred if one.write.is_large), None)
        if large is not None:  # a large write is a batch of its own
            self.runner.deferred = [one for one in deferred if one is not large]
            return [large], ()
        batch: list[QueuedWrite | PlainWrite] = [*deferred]
        size = cost = 0
        # Deferred writes do not count towards the limit: they wait for predecessors, which must fit into this batch.
        while len(batch) - len(deferred) < self._limits.writes:
            taken = self._next(wait=not batch)
            if taken is None:
                break
            write = taken if isinstance(taken, PlainWrite) else taken.write
            size += write.size
            cost += write.cost
            if write.is_large:
                if batch:
                    self._next_up.appendleft(taken)
                else:
                    batch.append(taken)
                break
            if len(batch) > len(deferred) and (size > self._limits.bytes or cost > self._limits.cost):
                self._next_up.appendleft(taken)
                break
            batch.append(taken)
        return without_plain(batch)

    def _next(self, *, wait: bool) -> QueuedWrite | PlainWrite | None:
        if self._next_up:
            return self._next_up.popleft()
        try:
            taken = self._queue.get(wait and not self._stopping, IDLE_SECONDS)
        except queue.Empty:
            return None
        if taken is not None:
            self._entered.popleft()
        if isinstance(taken, list):
            self._next_up.extend(taken)
            return self._next_up.popleft()
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
        self._hand_over()
        waiting, self._next_up = [*self._next_up], deque()
        self._entered.clear()
        while not self._queue.empty():
            taken = self._queue.get_nowait()
            if taken is not None:
                waiting += taken if isinstance(taken, list) else [taken]
        self.runner.abandon([QueuedWrite(one.full(), one) if isinstance(one, PlainWrite) else one for one in waiting])


def _admitted_at(entry: QueuedWrite | PlainWrite | list[PlainWrite]) -> float:
    first = entry[0] if isinstance(entry, list) else entry
    at: float = first.admitted_at if isinstance(first, PlainWrite) else first.sender.admitted_at
    return at
