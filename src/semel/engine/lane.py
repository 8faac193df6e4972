"""Group commit: a lane has one queue and one thread, which runs one batch after another as a transaction.

The thread takes the waiting writes, limited by count, bytes and cost, and runs them as one batch; while the disk syncs,
the next batch collects. Callers get results only after the commit. A batch that would load too much is split in halves.
If a batch fails before its commit, its writes are tried one by one, so that one bad write fails alone. If the store
itself aborted it, the whole batch is retried, and if the store stays unreachable its callers get "not stored". If a
commit fails, the callers of that batch get "unknown"; if the store is broken for good, the lane stops, and the waiting
callers get "not stored".
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from semel.engine.batch import (
    LOADED_BYTES,
    HeavyBatchError,
    Surroundings,
    in_order,
    run,
    store_soft,
)
from semel.engine.contract import NotStoredError, OutcomeUnknownError
from semel.engine.group_commit import BatchReport, BatchResult, Commit, QueuedWrite
from semel.store.protocol import (
    CommitUnknownError,
    Lock,
    StoreAwayError,
    StoreBrokenError,
    StoreError,
    StoreHeldError,
    TryAgainError,
)

IDLE_SECONDS = 0.5
"""Seconds between two checks of an idle lane for soft changes, which are stored within a second."""

MAX_TRIES = 5
"""Limit on the tries of a batch that the store aborts for reasons other than its writes."""

MAX_HELD = 3
"""Limit on the busy locks that one batch waits for, one after the other; then its remaining writes are refused."""

_AWAY = "The store cannot be reached; nothing was stored."
_HELD = "Other transactions held a lock that this write needs for too long; nothing was stored."
_FAILED = "The store failed before the commit; nothing was stored."
_STOPPED = "The server stopped before this write ran; nothing was stored."


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one transaction."""

    writes: int = 512
    bytes: int = 32 * 1024 * 1024
    cost: int = 20_000
    loaded: int = LOADED_BYTES


class Lane:
    """A writer thread with its queue. It runs from `start` until `stop`, or until a commit breaks the store."""

    def __init__(
        self,
        around: Surroundings,
        limits: BatchLimits,
        is_gone: Callable[[Any], bool],
        deliver: Callable[[BatchResult], None],
        fail: Callable[[Lane, BaseException], None],
    ) -> None:
        self._around = around
        self._limits = limits
        self._is_gone = is_gone
        self._deliver = deliver
        self._fail = fail
        self._queue: queue.SimpleQueue[QueuedWrite | None] = queue.SimpleQueue()
        self._held: QueuedWrite | None = None
        self._deferred: list[QueuedWrite] = []
        self._current: Sequence[QueuedWrite] = ()
        """Writes taken from the queue that are not answered yet."""
        self.lost = 0
        """The number of writes that the store refused, or whose outcome is unknown."""
        self._began_ms: int | None = None
        """When the running batch began, in milliseconds of the monotonic clock."""
        self._stopping = False
        self._soft_at = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="semel-lane", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, submission: QueuedWrite) -> None:
        """Queue a write; the engine bounds the queue."""
        self._queue.put(submission)

    @property
    def running_ms(self) -> int:
        """Milliseconds for which the present batch has been running; 0 if there is none."""
        began_ms = self._began_ms
        return 0 if began_ms is None else self._around.timekeeper.monotonic_ms() - began_ms

    def stop(self) -> None:
        """Finish the queued writes and end the thread; waits for the end."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._stopping or self._held or self._deferred:
                self._current = self._gather()
                self._around.reach("gathered")
                if self._current:
                    self._run(self._current)
                self._store_soft_when_due()
                self._around.store.tidy()
            self._store_all_soft()
        except BaseException as error:  # noqa: BLE001 - the engine must learn why the thread ends
            self._around.observer.store_failure(error)
            unknown = "The server failed while it carried out the write, which may or may not be stored."
            self._refuse(self._current, OutcomeUnknownError(unknown))
            self._fail(self, error)

    def _gather(self) -> list[QueuedWrite]:
        """The deferred writes, then the waiting ones; a write that no longer fits is held for the next batch."""
        batch, self._deferred = self._deferred, []
        large = next((one for one in batch if one.write.is_large), None)
        if large is not None:  # a large write is a batch of its own
            self._deferred = [one for one in batch if one is not large]
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

    def _run(self, batch: Sequence[QueuedWrite]) -> None:
        gone = [submission for submission in batch if self._is_gone(submission.sender)]
        if gone:
            batch = self._current = [submission for submission in batch if submission not in gone]
            self._tell(gone, NotStoredError("The caller went away before its turn; nothing was stored."))
        if not batch:
            self._report(BatchResult(Commit.NOTHING), 0, len(gone), time.perf_counter())
            return
        try:
            self._run_whole(batch, len(gone))
        except StoreAwayError as error:
            self._around.observer.store_failure(error)
            self._refuse(batch, NotStoredError(_AWAY))
        except TryAgainError as error:
            self._around.observer.store_failure(error)
            self._refuse(batch, NotStoredError(_FAILED))
        except HeavyBatchError:
            self._run_in_turn(_halves(batch))
        except StoreHeldError as error:
            self._around.observer.store_failure(error)
            self._run_apart(batch)
        except StoreError as error:
            self._around.observer.store_failure(error)
            self._run_one_by_one(in_order(batch))

    def _run_apart(self, batch: Sequence[QueuedWrite]) -> None:
        """After a timeout on a lock of this batch: run the writes of other locks, which need not wait for it."""
        groups: dict[tuple[Lock, ...], list[QueuedWrite]] = {}
        for submission in batch:
            groups.setdefault(tuple(submission.locks), []).append(submission)
        if len(groups) > 1:
            self._run_in_turn(list(groups.values()))
        else:
            self._refuse(batch, NotStoredError(_HELD))

    def _run_in_turn(self, groups: Sequence[Sequence[QueuedWrite]]) -> None:
        """Run each of these groups as a separate batch, one after the other."""
        waiting = list(groups)
        held = 0
        while waiting:
            group = waiting.pop(0)
            behind = [one for some in waiting for one in some]
            self._current = [*group, *behind]
            try:
                self._run_whole(group, 0, behind)
            except StoreBrokenError:
                self._current = ()
                self._refuse(behind, NotStoredError(_STOPPED))
                raise
            except (StoreAwayError, TryAgainError) as error:
                self._around.observer.store_failure(error)
                self._refuse([*group, *behind], NotStoredError(_AWAY))
                return
            except HeavyBatchError:
                waiting[:0] = _halves(group)
            except StoreHeldError as error:
                self._around.observer.store_failure(error)
                self._refuse(group, NotStoredError(_HELD))
                held += 1
                if held == MAX_HELD:
                    self._refuse(behind, NotStoredError(_HELD))
                    return
            except StoreError as error:
                self._around.observer.store_failure(error)
                self._run_one_by_one(in_order(group), behind)

    def _run_one_by_one(self, batch: Sequence[QueuedWrite], further: Sequence[QueuedWrite] = ()) -> None:
        held: set[tuple[Lock, ...]] = set()
        for place, submission in enumerate(batch):
            behind = [*batch[place + 1 :], *further]
            self._current = [submission, *behind]
            if tuple(submission.locks) in held:
                self._refuse([submission], NotStoredError(_HELD))
                continue
            try:
                self._run_whole([submission], 0, behind)
            except StoreBrokenError:
                self._current = ()
                self._refuse(behind, NotStoredError(_STOPPED))
                raise
            except (StoreAwayError, TryAgainError) as error:
                self._around.observer.store_failure(error)
                self._refuse(batch[place:], NotStoredError(_AWAY))
                return
            except StoreHeldError as error:
                self._around.observer.store_failure(error)
                self._refuse([submission], NotStoredError(_HELD))
                held.add(tuple(submission.locks))
            except StoreError as error:
                self._around.observer.store_failure(error)
                self._refuse([submission], NotStoredError(_FAILED))

    def _run_whole(self, batch: Sequence[QueuedWrite], dropped: int, behind: Sequence[QueuedWrite] = ()) -> None:
        began = time.perf_counter()
        try:
            result = self._try(batch)
        except CommitUnknownError as error:
            self._report(BatchResult(Commit.UNKNOWN), len(batch), dropped, began)
            self._current = behind
            self._refuse(batch, OutcomeUnknownError("The commit failed; the write may or may not be stored."))
            if isinstance(error, StoreBrokenError):
                self._current = ()
                raise
            self._around.observer.store_failure(error)
            return
        except StoreError:
            self._report(BatchResult(Commit.ROLLED_BACK), len(batch), dropped, began)
            raise
        self._deferred.extend(result.deferred)
        self._current = behind
        self._deliver(result)
        self._around.reach("answered")
        self._report(result, len(batch), dropped, began)

    def _try(self, batch: Sequence[QueuedWrite]) -> BatchResult:
        """Decide the batch again if the store aborts it, which is safe because decisions are pure."""
        self._began_ms = self._around.timekeeper.monotonic_ms()
        try:
            for _ in range(MAX_TRIES - 1):
                try:
                    return run(self._around, batch, self._limits.loaded)
                except TryAgainError as error:
                    self._around.observer.store_failure(error)
            return run(self._around, batch, self._limits.loaded)
        finally:
            self._began_ms = None  # before callers are answered

    def _refuse(self, batch: Sequence[QueuedWrite], error: NotStoredError | OutcomeUnknownError) -> None:
        self.lost += len(batch)
        self._tell(batch, error)

    def _tell(self, batch: Sequence[QueuedWrite], error: NotStoredError | OutcomeUnknownError) -> None:
        self._deliver(BatchResult(Commit.NOTHING, failed=[(submission, error) for submission in batch]))

    def _report(self, result: BatchResult, writes: int, dropped: int, began: float) -> None:
        report = BatchReport(
            result.commit,
            writes,
            len(result.failed),
            result.reruns,
            len(result.deferred),
            dropped,
            time.perf_counter() - began,
        )
        self._around.observer.batch(report)

    def _store_soft_when_due(self) -> None:
        now = time.monotonic()
        if not len(self._around.soft):
            self._soft_at = now
        elif now - self._soft_at >= IDLE_SECONDS:
            self._soft_at = now
            while self._store_soft() and self._queue.empty():
                continue

    def _store_all_soft(self) -> None:
        while self._store_soft():
            continue

    def _store_soft(self) -> bool:
        """Store soft changes; they carry no promise, so a failure is retried later."""
        began = time.perf_counter()
        try:
            commit = store_soft(self._around)
        except StoreBrokenError:
            raise
        except (StoreError, CommitUnknownError) as error:
            self._around.observer.store_failure(error)
            commit = Commit.ROLLED_BACK
        if commit is not Commit.NOTHING:
            self._report(BatchResult(commit), 0, 0, began)
        return commit is Commit.SOFT

    def abandon(self) -> None:
        """After the thread has ended: answer all waiting callers that nothing was stored."""
        left = [*self._deferred, *([self._held] if self._held else [])]
        while not self._queue.empty():
            taken = self._queue.get_nowait()
            if taken is not None:
                left.append(taken)
        self._deferred, self._held = [], None
        self._refuse(left, NotStoredError(_STOPPED))


def _halves(batch: Sequence[QueuedWrite]) -> list[Sequence[QueuedWrite]]:
    """The first and the second half of a batch."""
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
