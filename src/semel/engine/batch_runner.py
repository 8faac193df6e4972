"""Runs the batches of one lane, and handles failures.

A batch that would load too much is split in halves. If a batch fails before its commit, its writes are tried one by
one, so that one bad write fails alone. If the store itself aborted the batch, the whole batch is retried; if the store
stays unreachable, the callers get "not stored". If a commit fails, the callers of that batch get "unknown".

This module starts no thread: the work is a generator that leaves each commit to its driver. One batch runs at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from semel.engine.batch import (
    LOADED_BYTES,
    HeavyBatchError,
    steps_of,
    store_soft,
)
from semel.engine.batch_order import in_order
from semel.engine.contract import NotStoredError, NoWritesError, OutcomeUnknownError
from semel.engine.group_commit import BatchReport, BatchResult, Commit, CommitSteps, QueuedWrite, callers_of
from semel.engine.plain_write import PlainWrite
from semel.engine.surroundings import Surroundings
from semel.store.protocol import (
    CommitUnknownError,
    Lock,
    StoreAwayError,
    StoreBrokenError,
    StoreChangedError,
    StoreError,
    StoreHeldError,
    StoreUnfitError,
    TryAgainError,
)

MAX_TRIES = 5
"""Limit on the tries of a batch that the store aborts for reasons other than its writes."""

MAX_HELD = 3
"""Limit on the busy locks that one batch waits for, one after the other; then its remaining writes are refused."""

_AWAY = "The store cannot be reached; nothing was stored."
_HELD = "Other transactions held a lock that this write needs for too long; nothing was stored."
_FAILED = "The store failed before the commit; nothing was stored."
_UNFIT = "The store takes no writes at the moment; nothing was stored."
_STOPPED = "The server stopped before this write ran; nothing was stored."
_BROKEN = "The server failed while it carried out the write, which may or may not be stored."


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one transaction."""

    writes: int = 512
    bytes: int = 32 * 1024 * 1024
    cost: int = 20_000
    loaded: int = LOADED_BYTES


class LightBatch(NamedTuple):
    """Limits of a batch that runs on the event loop."""

    loaded: int
    """Limit on the payload bytes that the batch loads."""
    until: float
    """The time of the performance counter after which no further write is decided."""
    plain: Sequence[PlainWrite] = ()
    """Plain writes that belong to the batch."""


class WriteProgress(NamedTuple):
    """The health of the write path."""

    lost: int
    """The number of writes since the start that the store refused, or whose outcome is unknown."""
    running_ms: int
    """The time for which the present batch has been running, in milliseconds."""


class BatchRunner:
    """Runs one batch after another. Used by one thread at a time."""

    def __init__(
        self,
        around: Surroundings,
        limits: BatchLimits,
        is_gone: Callable[[Any], bool],
        deliver: Callable[[BatchResult], None],
    ) -> None:
        self._around = around
        self._limits = limits
        self._is_gone = is_gone
        self._deliver = deliver
        self.current: Sequence[QueuedWrite] = ()
        """Writes taken from the queue that are not answered yet."""
        self.plain: Sequence[PlainWrite] = ()
        """Plain writes of the present batch that are not answered yet."""
        self.deferred: list[QueuedWrite] = []
        """Writes that wait for others, and go into the next batch."""
        self.left: Sequence[QueuedWrite] = ()
        """Writes of the last batch that were not decided within its time limit."""
        self.is_late = False
        """Whether the last batch reached its time limit."""
        self.lost = 0
        """The number of writes that the store refused, or whose outcome is unknown."""
        self._told: BaseException | None = None
        """The error of the last commit with an unknown outcome, which observers were told of."""
        self._is_unfit = False
        """Whether the store has taken no write since it refused one."""
        self._began_ms: int | None = None
        """When the running batch began, in milliseconds of the monotonic clock."""

    @property
    def running_ms(self) -> int:
        """Milliseconds for which the present batch has been running; 0 if no batch runs."""
        began_ms = self._began_ms
        return 0 if began_ms is None else self._around.timekeeper.monotonic_ms() - began_ms

    @property
    def waiting_since(self) -> float:
        """When the oldest write of the present batch, or of those that wait for others, was admitted; else infinite.

        May be called in another thread: it reads each sequence once.
        """
        held = [one.sender.admitted_at for one in (*self.current, *self.deferred, *self.left)]
        held += [one.admitted_at for one in self.plain]
        return min(held, default=inf)

    def fail(self, error: BaseException) -> None:
        """End the lane with an error: the callers of the present batch get "unknown", unless nothing was stored."""
        batch = self.take_all()
        if error is not self._told:
            self._around.observer.store_failure(error, callers_of(batch))
        is_definite = isinstance(error, StoreChangedError)
        self._refuse(batch, NotStoredError(_STOPPED) if is_definite else OutcomeUnknownError(_BROKEN))

    def take_all(self) -> Sequence[QueuedWrite]:
        """The unanswered writes of the present batch; plain writes are converted to writes for the full rules."""
        self.current = [*self.current, *(QueuedWrite(one.full(), one) for one in self.plain)]
        self.plain = ()
        return self.current

    def abandon(self, waiting: Sequence[QueuedWrite]) -> None:
        """The lane has ended: waiting callers are told that nothing was stored."""
        left, self.deferred, self.left = [*self.deferred, *self.left, *waiting], [], ()
        self._refuse(left, NotStoredError(_STOPPED))

    def run(self, batch: Sequence[QueuedWrite]) -> CommitSteps[None]:
        """Run a batch to its end. Whatever fails, every write of the batch is then answered or deferred."""
        batch, gone = self._present(batch)
        if not batch:
            return
        try:
            yield from self._run_whole(batch, gone)
        except StoreAwayError as error:
            self._lose(batch, error, _AWAY)
        except TryAgainError as error:
            self._lose(batch, error, _FAILED)
        except HeavyBatchError:
            yield from self._run_in_turn(_halves(batch))
        except StoreHeldError as error:
            yield from self._run_apart(batch, error)
        except StoreUnfitError:
            yield from self._run_one_by_one(in_order(batch))  # replays are answered
        except StoreError as error:
            self._around.observer.store_failure(error)
            yield from self._run_one_by_one(in_order(batch))

    def run_light(self, batch: Sequence[QueuedWrite], light: LightBatch) -> CommitSteps[None]:
        """Run a batch within narrow limits.

        If this raises, nothing was stored and no caller was answered: then `run` the batch. Only
        `StoreBrokenError` is final: the callers were told that the outcome is unknown.
        """
        self.plain = light.plain
        batch, gone = self._present(batch)
        if batch or light.plain:
            yield from self._run_whole(batch, gone, (), light)

    def _present(self, batch: Sequence[QueuedWrite]) -> tuple[Sequence[QueuedWrite], int]:
        """The writes whose callers still wait, and the number of the others, which are dropped."""
        gone = [submission for submission in batch if self._is_gone(submission.sender)]
        if gone:
            batch = [submission for submission in batch if submission not in gone]
            self._tell(gone, NotStoredError("The caller went away before its turn; nothing was stored."))
        self.current = batch
        if not batch and not self.plain:
            self._report(BatchResult(Commit.NOTHING), 0, len(gone), time.perf_counter())
        return batch, len(gone)

    def _run_apart(self, batch: Sequence[QueuedWrite], error: StoreHeldError) -> CommitSteps[None]:
        """After a timeout on a lock of this batch: run the writes of each set of locks as a separate batch."""
        groups: dict[tuple[Lock, ...], list[QueuedWrite]] = {}
        for submission in batch:
            groups.setdefault(tuple(submission.locks), []).append(submission)
        if len(groups) > 1:
            self._around.observer.store_failure(error)
            yield from self._run_in_turn(list(groups.values()))
        else:
            self._lose(batch, error, _HELD)

    def _run_in_turn(self, groups: Sequence[Sequence[QueuedWrite]]) -> CommitSteps[None]:
        """Run each of these groups as a separate batch, one after the other."""
        waiting = list(groups)
        held = 0
        while waiting:
            group = waiting.pop(0)
            behind = [one for some in waiting for one in some]
            self.current = [*group, *behind]
            try:
                yield from self._run_whole(group, 0, behind)
            except StoreBrokenError:
                self.current = ()
                self._refuse(behind, NotStoredError(_STOPPED))
                raise
            except (StoreAwayError, TryAgainError) as error:
                self._lose([*group, *behind], error, _AWAY)
                return
            except HeavyBatchError:
                waiting[:0] = _halves(group)
            except StoreHeldError as error:
                self._lose(group, error, _HELD)
                held += 1
                if held == MAX_HELD:
                    self._refuse(behind, NotStoredError(_HELD))
                    return
            except StoreError as error:
                self._around.observer.store_failure(error)
                yield from self._run_one_by_one(in_order(group), behind)

    def _run_one_by_one(self, batch: Sequence[QueuedWrite], further: Sequence[QueuedWrite] = ()) -> CommitSteps[None]:
        held: set[tuple[Lock, ...]] = set()
        for place, submission in enumerate(batch):
            behind = [*batch[place + 1 :], *further]
            self.current = [submission, *behind]
            if tuple(submission.locks) in held:
                self._refuse([submission], NotStoredError(_HELD))
                continue
            try:
                yield from self._run_whole([submission], 0, behind)
            except StoreBrokenError:
                self.current = ()
                self._refuse(behind, NotStoredError(_STOPPED))
                raise
            except (StoreAwayError, TryAgainError) as error:
                self._lose(batch[place:], error, _AWAY)
                return
            except StoreHeldError as error:
                self._lose([submission], error, _HELD)
                held.add(tuple(submission.locks))
            except StoreUnfitError as error:
                if not self._is_unfit:  # once until the next commit: a line for each write would fill a disk
                    self._around.observer.store_failure(error, callers_of([submission]))
                self._is_unfit = True
                self._refuse([submission], NoWritesError(_UNFIT))
            except StoreError as error:
                self._lose([submission], error, _FAILED)

    def _run_whole(
        self,
        batch: Sequence[QueuedWrite],
        dropped: int,
        behind: Sequence[QueuedWrite] = (),
        light: LightBatch | None = None,
    ) -> CommitSteps[None]:
        began = time.perf_counter()
        try:
            result = yield from self._try(batch, light)
        except CommitUnknownError as error:
            batch = [*batch, *(QueuedWrite(one.full(), one) for one in self.plain)]
            self.plain = ()
            self._report(BatchResult(Commit.UNKNOWN), len(batch), dropped, began)
            self.current, self._told = behind, error
            self._around.observer.store_failure(error, callers_of(batch))
            self._refuse(batch, OutcomeUnknownError("The commit failed; the write may or may not be stored."))
            if isinstance(error, StoreBrokenError):
                self.current = ()
                raise
            return
        except StoreError:
            self._report(BatchResult(Commit.ROLLED_BACK), len(batch), dropped, began)
            raise
        if result.commit is Commit.DURABLE:
            self._is_unfit = False
        self.deferred.extend(result.deferred)
        self.left, self.is_late = result.left, result.is_late
        self.current, self.plain = behind, ()
        self._deliver(result)
        self._around.reach("answered")
        plain = len(light.plain) if light is not None else 0
        self._report(result, plain + len(batch) - len(result.left), dropped, began)

    def _try(self, batch: Sequence[QueuedWrite], light: LightBatch | None) -> CommitSteps[BatchResult]:
        """Run one transaction, again if the store aborts it. This is safe because decisions are pure."""
        most, until, plain = (self._limits.loaded, None, ()) if light is None else light
        self._began_ms = self._around.timekeeper.monotonic_ms()
        try:
            for _ in range(MAX_TRIES - 1):
                try:
                    return (yield from steps_of(self._around, batch, most, until, plain))
                except TryAgainError as error:
                    self._around.observer.store_failure(error)
            return (yield from steps_of(self._around, batch, most, until, plain))
        finally:
            self._began_ms = None  # before callers are answered

    def _lose(self, batch: Sequence[QueuedWrite], error: StoreError, why: str) -> None:
        """The store has refused these writes for good: nothing was stored."""
        self._around.observer.store_failure(error, callers_of(batch))
        self._refuse(batch, NotStoredError(why))

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
            result.commit_seconds,
        )
        self._around.observer.batch(report)

    def store_soft(self) -> bool:
        """Store soft changes, and return whether there may be more. A failure is retried; a crash may lose them."""
        began = time.perf_counter()
        try:
            commit = store_soft(self._around)
        except StoreBrokenError:
            raise
        except StoreUnfitError:
            commit = Commit.ROLLED_BACK  # no news: durable writes are refused for the same reason
        except (StoreError, CommitUnknownError) as error:
            self._around.observer.store_failure(error)
            commit = Commit.ROLLED_BACK
        if commit is not Commit.NOTHING:
            self._report(BatchResult(commit), 0, 0, began)
        return commit is Commit.SOFT


def _halves(batch: Sequence[QueuedWrite]) -> list[Sequence[QueuedWrite]]:
    """The earlier half of a batch and the later one."""
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]
