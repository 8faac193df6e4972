"""Group commit on the event loop: the loop's own thread writes to a store that is local to this process.

The writes that one pass of the loop has read, or a few passes (`loop_queue`), are one batch: decisions, statements,
COMMIT and answers follow each other without a queue or a hand-over between threads. A time budget keeps the loop
responsive: a batch decides for at most `BUDGET_SECONDS`, and its remaining writes form the next batch. A write with
many bytes or rows, and a batch that failed, run in the writer's thread; nothing else writes meanwhile, and reads
continue. On a slow disk COMMIT alone runs in that thread: see `commit_placement`.

A crash during a batch stores all of its writes or none, and no caller is answered before the COMMIT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

from semel.engine.batch import HeavyBatchError
from semel.engine.batch_runner import BatchLimits, BatchRunner, LightBatch
from semel.engine.commit_placement import CommitPlacement
from semel.engine.group_commit import CommitSteps, QueuedWrite, drive
from semel.engine.lane import IDLE_SECONDS
from semel.engine.loop_queue import LOADED_BYTES, LoopQueue
from semel.engine.plain_write import PlainWrite
from semel.engine.surroundings import Surroundings
from semel.store.protocol import StoreError

BUDGET_SECONDS = 0.002
"""Time limit for the decisions of one pass of the loop; the first write of a batch is always decided."""


class LoopLane:
    """The lane of a store that the event loop writes to. Used on the loop only; `start` it there."""

    def __init__(
        self,
        around: Surroundings,
        limits: BatchLimits,
        runner: BatchRunner,
        fail: Callable[[BaseException], None],
        placement: CommitPlacement,
    ) -> None:
        self._around = around
        self._limits = limits
        self.runner = runner
        self._fail = fail
        self._placement = placement
        self._loop = asyncio.get_running_loop()
        self._queue = LoopQueue(limits)
        self._is_due = False
        """Whether a pass is scheduled."""
        self.is_busy = False
        """Whether the writer's thread uses the store's writing connection."""
        self.is_apart = False
        """Whether the writer's thread runs a whole batch, and so delivers its answers."""
        self._idle = asyncio.Event()
        self._has_ended = False
        self._failure: BaseException | None = None
        """Why a checkpoint failed beside a batch; the lane ends when that batch has been answered."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="semel-lane")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="semel-checkpoint")
        self._is_checkpointing = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the threads, so that no write fails because a thread cannot start, and the timer for soft changes."""
        for threads in (self._thread, self._beside):
            threads.submit(int)
        self._timer = self._loop.call_later(IDLE_SECONDS, self._look_for_soft)

    def put(self, submission: QueuedWrite) -> None:
        """Queue a write for the next pass of the loop; the engine bounds the queue."""
        self._queue.put(submission)
        self._schedule()

    def put_plain(self, write: PlainWrite) -> None:
        """Queue a plain write for the next pass of the loop."""
        self._queue.put_plain(write)
        if not self._is_due:
            self._schedule()

    @property
    def waiting_since(self) -> float:
        """When the oldest write that is not answered was admitted; infinite if there is none."""
        return min(self.runner.waiting_since, self._queue.waiting_since)

    def _schedule(self) -> None:
        """Run the next batch in the next pass of the loop; while the thread writes, its end schedules the pass."""
        if not (self._is_due or self.is_busy):
            self._is_due = True
            self._loop.call_soon(self._run_next)

    async def stop(self) -> None:
        """Finish the queued writes and the soft changes, and end the threads."""
        if self._timer is not None:
            self._timer.cancel()
        while not self._has_ended and (self.is_busy or self._is_due or self._has_waiting):
            self._idle.clear()
            await self._idle.wait()
        if not self._has_ended:
            await self._loop.run_in_executor(self._thread, self._store_all_soft)
            self._has_ended = True
        self._thread.shutdown()
        self._beside.shutdown()

    def abandon(self) -> None:
        """After the lane has failed: answer all waiting callers that nothing was stored."""
        self.runner.abandon(self._queue.take_all())

    # ---- One pass ----

    def _run_next(self) -> None:
        if not self.is_busy and self._queue.waits_for_more():
            self._loop.call_soon(self._run_next)
            return
        self._is_due = False
        if self.is_busy or self._has_ended:
            return
        batch, plain, is_light = self._queue.gather(self.runner)
        if not batch and not plain:
            self._idle.set()
            return
        self.runner.current = batch
        try:
            self._around.reach("gathered")
        except BaseException as error:  # noqa: BLE001 - the engine must learn why the lane ended
            self._end(error)
            return
        if is_light:
            limits = LightBatch(LOADED_BYTES, perf_counter() + BUDGET_SECONDS, plain)
            steps = self.runner.run_light(batch, limits)
            self._advance(steps, steps.__next__)
        else:
            self._run_apart()

    def _advance(self, steps: CommitSteps[None], resume: Callable[[], Callable[[], Any]]) -> None:
        """Run a light batch to its next COMMIT, and further unless COMMIT runs in a thread."""
        try:
            commit = resume()
            while not self._placement.is_apart:
                commit = self._commit(steps, commit)()
        except StopIteration:
            self._finish()
        except (HeavyBatchError, StoreError):
            self.runner.take_all()
            self._run_apart()  # nothing was stored: run the batch again, with the retries that failures need
        except BaseException as error:  # noqa: BLE001 - the engine must learn why the lane ended
            self._end(error)
        else:
            self._hand_over(self._go_on, steps, work=partial(self._timed, commit))

    def _commit(self, steps: CommitSteps[None], commit: Callable[[], Any]) -> Callable[[], Callable[[], Any]]:
        """Commit on the loop. Returns the function that resumes the batch."""
        began = perf_counter()
        try:
            done = commit()
        except BaseException as error:  # noqa: BLE001 - the batch handles it
            return partial(steps.throw, error)
        self._placement.took(perf_counter() - began)
        return partial(steps.send, done)

    def _timed(self, commit: Callable[[], Any]) -> tuple[Any, float]:
        began = perf_counter()
        done = commit()
        return done, perf_counter() - began

    def _go_on(self, steps: CommitSteps[None], committed: Future[tuple[Any, float]]) -> None:
        """Resume the batch after a COMMIT in the thread."""
        self.is_busy = False
        error = committed.exception()
        if error is not None:
            self._advance(steps, partial(steps.throw, error))
            return
        done, seconds = committed.result()
        self._placement.took(seconds)
        self._advance(steps, partial(steps.send, done))

    def _run_apart(self) -> None:
        """Run the present batch in the writer's thread, from its beginning."""
        self.is_apart = True
        self._hand_over(self._come_back, work=partial(self._drive, self.runner.current))

    def _hand_over(self, then: Callable[..., None], *arguments: Any, work: Callable[[], Any]) -> None:
        """Run `work` in the writer's thread, then call `then` on the loop; nothing else writes meanwhile."""
        self.is_busy = True
        try:
            started = self._thread.submit(work)
        except RuntimeError as error:
            self.is_busy = self.is_apart = False
            self._end(error)
        else:
            started.add_done_callback(partial(self._call, then, *arguments))

    def _drive(self, batch: Sequence[QueuedWrite]) -> None:
        drive(self.runner.run(batch))

    def _come_back(self, done: Future[Any]) -> None:
        """The writer's thread has ended a batch, or stored soft changes."""
        self.is_busy = self.is_apart = False
        error = done.exception()
        if error is None:
            self._finish()
        else:
            self._end(error)

    def _finish(self) -> None:
        """End a batch, and schedule a pass of the loop if writes wait."""
        runner = self.runner
        if self._failure is not None:
            self._end(self._failure)
            return
        self._queue.adapt(is_late=runner.is_late)
        if runner.left:
            self._queue.put_first(runner.left)
            runner.left = ()
        try:
            self._checkpoint()
        except BaseException as error:  # noqa: BLE001 - the engine must learn why the lane ended
            self._end(error)
            return
        if self._has_waiting:
            self._schedule()
        elif not self._is_due:
            self._idle.set()

    @property
    def _has_waiting(self) -> bool:
        return bool(len(self._queue) or self.runner.deferred)

    def _end(self, error: BaseException) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self.runner.fail(error)
        self._idle.set()
        self._fail(error)

    # ---- Work between the batches ----

    def _checkpoint(self) -> None:
        """Checkpoint the store: a long checkpoint runs in its own thread beside the writes, the last pages of it here.

        If it cannot keep up with the writes, the writer's thread makes the checkpoint, and writes wait for it.
        """
        if self._is_checkpointing:
            return
        store = self._around.store
        beside = store.checkpoint_beside()
        if beside is None and store.is_tidy_long():
            self._hand_over(self._come_back, work=store.tidy)
        elif beside is None:
            store.tidy()
        else:
            self._is_checkpointing = True
            self._beside.submit(beside).add_done_callback(partial(self._call, self._end_checkpoint))

    def _end_checkpoint(self, done: Future[None]) -> None:
        self._is_checkpointing = False
        error = done.exception()
        if error is None:
            return
        if self.is_busy:
            self._failure = error  # the batch in the thread is answered first
        else:
            self._end(error)

    def _look_for_soft(self) -> None:
        """Store soft changes in the writer's thread if there are any and no batch runs."""
        if self._has_ended:
            return
        self._timer = self._loop.call_later(IDLE_SECONDS, self._look_for_soft)
        if len(self._around.soft) and not self.is_busy:
            self._hand_over(self._come_back, work=self._store_soft)

    def _store_soft(self) -> None:
        """Store soft changes until there are no more, or until writes wait."""
        while self.runner.store_soft() and not len(self._queue):
            continue

    def _store_all_soft(self) -> None:
        while self.runner.store_soft():
            continue

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the loop, from another thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)
