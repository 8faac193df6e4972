"""Group commit on the event loop: the loop's own thread writes to a store that is local to this process.

The writes that one pass of the loop has read are one batch: decisions, statements, COMMIT and answers follow each other
without a queue or a hand-over between threads. A time budget keeps the loop responsive: a batch decides for at most
`BUDGET_SECONDS`, and its remaining writes form the next batch. A write with many bytes or rows, and a batch that
failed, run in the writer's thread; nothing else writes meanwhile, and reads continue. On a slow disk COMMIT alone runs
in that thread: see `commit_placement`.

A crash during a batch stores all of its writes or none, and no caller is answered before the COMMIT.
"""

from __future__ import annotations

import asyncio
from collections import deque
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
from semel.engine.plain_write import PlainWrite, without_plain
from semel.engine.surroundings import Surroundings
from semel.store.protocol import StoreError

BUDGET_SECONDS = 0.002
"""Time limit for the decisions of one pass of the loop; the first write of a batch is always decided."""
LIGHT_COST = 128
"""A write that touches more rows runs in the writer's thread."""
LIGHT_BYTES = 64 * 1024
"""A write of more bytes runs in the writer's thread."""
PLAIN_WRITES = 256
"""Limit on the plain writes of one batch."""
PLAIN_COST = 512
"""Limit on the cost of the plain writes of one batch together; a single write may cost more."""
LOADED_BYTES = 1024 * 1024
"""A batch that would load more payload bytes runs in the writer's thread."""


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
        self._waiting: deque[QueuedWrite | PlainWrite] = deque()
        self._plain: list[PlainWrite] = []
        self._most = limits.writes
        """The number of writes that the last batches could decide within the budget."""
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
        self._waiting.append(submission)
        self._schedule()

    def put_plain(self, write: PlainWrite) -> None:
        """Queue a plain write for the next pass of the loop."""
        self._plain.append(write)
        self._schedule()

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
        waiting = [_as_queued(one) for one in (*self._waiting, *self._plain)]
        self._waiting, self._plain = deque(), []
        self.runner.abandon(waiting)

    # ---- One pass ----

    def _run_next(self) -> None:
        self._is_due = False
        if self.is_busy or self._has_ended:
            return
        batch, plain, is_light = self._gather()
        if is_light and (plain or self._plain):
            plain = self._gather_plain(batch, plain)
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

    def _gather(self) -> tuple[list[QueuedWrite], list[PlainWrite], bool]:
        """The writes of the next batch in their order, its plain writes, and whether they may run on the loop.

        A heavy write ends a batch of light writes, and is a batch alone. Deferred writes wait for other writes, which
        may be heavy or late in the queue: a batch with deferred writes is filled up to its limits, and runs in the
        writer's thread without a time budget.

        Plain writes that wait behind others under their lock stay plain: the batch ends where plain and other writes of
        one lock meet. Else one write for the full rules would make all later ones dear while the queue is never empty.
        """
        if self.runner.deferred:
            return self._gather_deferred(), [], False
        waiting = self._waiting
        batch: list[QueuedWrite] = []
        plain: list[PlainWrite] = []
        held: set[bytes] = set()
        shared: set[bytes] = set()
        size = 0
        while waiting and len(batch) < self._most and len(plain) < PLAIN_WRITES and size <= LOADED_BYTES:
            first = waiting[0]
            if isinstance(first, PlainWrite):
                if first.lock in held:
                    break
                shared.add(first.lock)
                plain.append(first)
                size += first.size
            elif not _is_light(first):
                if batch or plain:
                    break
                waiting.popleft()
                return [first], [], False
            else:
                locks = {lock.name for lock in first.locks}
                if locks & shared:
                    break
                held |= locks
                batch.append(first)
                size += first.write.size
            waiting.popleft()
        return batch, plain, True

    def _gather_deferred(self) -> list[QueuedWrite]:
        """The deferred writes, then waiting writes up to the limits of a batch; a large write is a batch alone."""
        batch, self.runner.deferred = self.runner.deferred, []
        large = next((one for one in batch if one.write.is_large), None)
        if large is not None:
            self.runner.deferred = [one for one in batch if one is not large]
            return [large]
        waiting, limits = self._waiting, self._limits
        most = len(batch) + limits.writes
        size = cost = 0
        while waiting and len(batch) < most:
            first = _as_queued(waiting[0])
            size += first.write.size
            cost += first.write.cost
            if first.write.is_large or size > limits.bytes or cost > limits.cost:
                break
            waiting.popleft()
            batch.append(first)
        return batch

    def _gather_plain(self, batch: list[QueuedWrite], plain: list[PlainWrite]) -> list[PlainWrite]:
        """The plain writes of the next batch, up to the limits of number, cost and bytes; `plain` have waited.

        A plain write whose lock the batch or a waiting write needs waits behind it. If its caller has left, it becomes
        a write for the full rules, which drop it.
        """
        count, size, cost = len(plain), sum(one.size for one in plain), sum(one.cost for one in plain)
        most, taken = min(PLAIN_WRITES, self._limits.writes), 0
        for one in self._plain:
            size += one.size
            cost += one.cost
            if count == most or (count and (size > LOADED_BYTES or cost > PLAIN_COST)):
                break
            count += 1
            taken += 1
        fresh, self._plain = self._plain[:taken], self._plain[taken:]
        if self._waiting or batch:
            behind = {lock.name for one in batch for lock in one.locks} | self._locks_of_waiting()
            self._waiting.extend(one for one in fresh if one.lock in behind)
            fresh = [one for one in fresh if one.lock not in behind]
        plain += fresh
        if not any(one.has_left for one in plain):
            return plain
        batch += [QueuedWrite(one.full(), one) for one in plain if one.has_left]
        batch[:], left = without_plain([*batch, *(one for one in plain if not one.has_left)])
        return list(left)

    def _locks_of_waiting(self) -> set[bytes]:
        """The locks that waiting writes need."""
        plain = {one.lock for one in self._waiting if isinstance(one, PlainWrite)}
        return plain | {lock.name for one in self._waiting if isinstance(one, QueuedWrite) for lock in one.locks}

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
        self._most = max(1, self._most // 2) if runner.is_late else min(self._limits.writes, self._most + 1)
        if runner.left:
            self._waiting.extendleft(reversed(runner.left))
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
        return bool(self._waiting or self._plain or self.runner.deferred)

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
        while self.runner.store_soft() and not (self._waiting or self._plain):
            continue

    def _store_all_soft(self) -> None:
        while self.runner.store_soft():
            continue

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the loop, from another thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _as_queued(one: QueuedWrite | PlainWrite) -> QueuedWrite:
    return QueuedWrite(one.full(), one) if isinstance(one, PlainWrite) else one


def _is_light(submission: QueuedWrite) -> bool:
    write = submission.write
    return write.cost <= LIGHT_COST and write.size <= LIGHT_BYTES and not write.is_large
