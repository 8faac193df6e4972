"""A batch of the group commit: one transaction that locks, loads, decides, flushes and commits.

The promise: verdict, effect and receipt of every write in the batch are one transaction, and `run` returns only when it
is on disk. A decision that raises is undone alone. A failure before the commit leaves nothing stored and is raised as
`StoreError`; a failure of the commit itself is raised as `CommitUnknownError`, and callers are told only that the
outcome is unknown. A crash at any point in this module leaves all of the batch or nothing of it, and no caller has been
answered yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from semel.engine.batch_order import UndecidedSequences, all_locks, in_order
from semel.engine.contract import (
    DecisionResult,
    FaultError,
    LastWord,
    MissingLocksError,
    MissingRowsError,
    Stage,
    Write,
)
from semel.engine.group_commit import BatchResult, Commit, CommitSteps, QueuedWrite, callers_of, drive
from semel.engine.plain_batch import decided_plain, plain_locks, run_plain
from semel.engine.plain_write import PlainResult, PlainWrite, merged
from semel.engine.soft_changes import MAX_TOUCHES
from semel.engine.surroundings import Surroundings
from semel.engine.view import LOADED_AT_ONCE, BatchView, in_slices, same_rows
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Changes, CommitUnknownError, Lock, Range, Row, StoreError, Touch, Tx
from semel.store.table import Key, bytes_of

MAX_RERUNS = 16
MAX_DEFERRALS = 64
LOADED_BYTES = 32 * 1024 * 1024
"""Limit on the payload bytes that one batch loads; deciding over them takes several times that memory."""
PART_BYTES = 2 * 1024 * 1024
"""The same limit for one part of a write that is decided in parts, and for such a write alone."""


class HeavyBatchError(Exception):
    """The rows that these writes need exceed the memory limit of a batch; the caller splits it."""


def run(around: Surroundings, submissions: Sequence[QueuedWrite], most_loaded: int = LOADED_BYTES) -> BatchResult:
    """Carry out one batch in this thread."""
    return drive(steps_of(around, submissions, most_loaded))


def steps_of(
    around: Surroundings,
    submissions: Sequence[QueuedWrite],
    most_loaded: int = LOADED_BYTES,
    until: float | None = None,
    plain: Sequence[PlainWrite] = (),
) -> CommitSteps[BatchResult]:
    """Run one batch; raises `HeavyBatchError` if it would load too much, unless it is a single write.

    With `until` nothing may load too much, and after that time of the performance counter no write is decided but the
    first; those are in `left`.
    """
    if plain and not submissions:
        return (yield from run_plain(around, plain, wait=until is None))
    locks: Sequence[Lock] = all_locks(submissions)
    if plain:
        locks = plain_locks(plain, locks)
    if until is not None:
        return (yield from _run_at_once(around, submissions, locks, most_loaded, until, plain))
    parts = submissions[0].write.parts if len(submissions) == 1 else None
    if parts is None:
        most = None if len(submissions) == 1 else most_loaded
        return (yield from _run_at_once(around, submissions, locks, most, None, plain))
    if not submissions[0].write.is_large:
        with suppress(HeavyBatchError):
            return (yield from _run_at_once(around, submissions, locks, PART_BYTES))
    return (yield from _run_in_parts(around, submissions[0], locks, parts()))


def _run_at_once(
    around: Surroundings,
    submissions: Sequence[QueuedWrite],
    locks: Sequence[Lock],
    most_loaded: int | None,
    until: float | None = None,
    plain: Sequence[PlainWrite] = (),
) -> CommitSteps[BatchResult]:
    durable = bool(plain) or not all(one.write.is_soft for one in submissions)
    tx = around.store.begin(locks, durable=durable, wait=until is None)
    try:
        around.reach("locked")
        batch = _Batch(around, tx, locks, most_loaded)
        batch.load_stages(submissions)
        around.reach("loaded")
        ordered = in_order(batch.sound(submissions))
        for place, submission in enumerate(ordered):
            if until is not None and place and perf_counter() > until:
                batch.result.left, batch.result.is_late = ordered[place:], True
                break
            batch.decide(submission)
        if plain:
            batch.decide_plain(plain)
        around.reach("decided")
        yield from batch.commit(Commit.DURABLE if durable else Commit.SOFT)
        return batch.result
    finally:
        tx.rollback()


def _run_in_parts(
    around: Surroundings,
    submission: QueuedWrite,
    locks: Sequence[Lock],
    parts: Generator[Any, DecisionResult | None, LastWord],
) -> CommitSteps[BatchResult]:
    """Run one large write: its parts are decided one after the other, in one transaction."""
    tx = around.store.begin(locks)
    try:
        around.reach("locked")
        result, last, is_changed = _decide_parts(around, submission, locks, parts, tx)
        if last is None or last.is_refused:
            tx.check()
            return result
        around.reach("decided")
        if last.outcome.touches:
            around.soft.touch(last.outcome.touches)
        if is_changed:
            around.check_open([submission])
            tx.flush(Changes({}, {}, {}, topics=list(last.outcome.signals)))
            around.reach("flushed")
            yield result.timed(tx.commit)
            around.reach("committed")
            result.commit = Commit.DURABLE
        else:
            tx.check()
        return result
    finally:
        tx.rollback()


def _decide_parts(
    around: Surroundings,
    submission: QueuedWrite,
    locks: Sequence[Lock],
    parts: Generator[Any, DecisionResult | None, LastWord],
    tx: Tx,
) -> tuple[BatchResult, LastWord | None, bool]:
    """Decide the parts of a large write: its outcome, its `LastWord` if it has one, and whether anything was
    changed.
    """
    command, before, is_changed = next(parts), None, False
    while True:
        batch = _Batch(around, tx, locks, None if command is before else PART_BYTES)
        try:
            told = batch.decide_part(submission.part(command))
        except HeavyBatchError:
            told = None
        result = batch.result
        if result.failed:
            return BatchResult(Commit.NOTHING, failed=[(submission, result.failed[0][1])]), None, False
        if result.deferred:  # because a lock is missing
            submission.locks, submission.deferrals = result.deferred[0].locks, result.deferred[0].deferrals
            return BatchResult(Commit.NOTHING, deferred=[submission]), None, False
        is_changed = is_changed or batch.is_changed
        before = command
        try:
            command = parts.send(told)
        except StopIteration as end:
            last: LastWord = end.value
            result = BatchResult(Commit.NOTHING, decided=[(submission, last.outcome)])
            return result, last, is_changed


def store_soft(around: Surroundings) -> Commit:
    """Store waiting soft changes in a separate transaction, which does not wait for the disk."""
    touches = around.soft.waiting(MAX_TOUCHES)
    if not touches:
        return Commit.NOTHING
    tx = around.store.begin((), durable=False)
    try:
        view = BatchView(around.is_admitted, around.soft.over)
        tx.flush(view.changes(touches))
        undone = tx.commit()
    finally:
        tx.rollback()
    around.soft.stored(touch for touch in touches if touch not in undone)
    return Commit.SOFT if len(undone) < len(touches) else Commit.NOTHING


class _Batch:
    def __init__(self, around: Surroundings, tx: Tx, held: Sequence[Lock], most_loaded: int | None) -> None:
        self._around = around
        self._left = most_loaded
        """Payload bytes that may still be loaded."""
        self._tx = tx
        self._waiting = UndecidedSequences(around.is_admitted)
        self._view = BatchView(self._waiting.has, around.soft.over, held)
        self._asked: Counter[tuple[Any, ...]] = Counter()
        """The number of rows of each range that all writes together have requested."""
        self._plain: list[PlainResult] = []
        self.result = BatchResult(Commit.NOTHING)

    def load_stages(self, submissions: Sequence[QueuedWrite]) -> None:
        """Load the rows of every write, stage by stage, each stage for the whole batch at once."""
        asking = [(one, one.write.contract.needs(one.write.command)) for one in submissions]
        begun = False
        while asking:
            stages: list[Stage] = []
            going = []
            for pair in asking:
                try:
                    stages.append(pair[1].send(self._view) if begun else next(pair[1]))
                except StopIteration:
                    continue
                except Exception as error:  # noqa: BLE001 - an error in one write must not fail the others
                    self._fail(pair[0], error)
                    continue
                going.append(pair)
            self._load(stages)
            asking, begun = going, True
        # Read the clock only now: a remote store sends locks, clock and first rows in one answer.
        self._now: Now = self._around.timekeeper.now(self._tx.now_ms)

    def sound(self, submissions: Sequence[QueuedWrite]) -> Sequence[QueuedWrite]:
        """The writes that have not failed."""
        broken = {id(submission) for submission, _ in self.result.failed}
        return [one for one in submissions if id(one) not in broken] if broken else submissions

    def decide_plain(self, writes: Sequence[PlainWrite]) -> None:
        """Let each contract decide its plain writes; they touch no row that the other writes have changed."""
        self._plain = decided_plain(self._around, self._tx, self._now, writes, self.result)

    def decide(self, submission: QueuedWrite) -> None:
        """Decide one write; an error in it fails only this write."""
        mark = self._view.mark()
        self._waiting.is_believed = submission.deferrals < MAX_DEFERRALS
        try:
            outcome = self._decide_with_reruns(submission.write, mark)
        except (StoreError, CommitUnknownError, HeavyBatchError):
            raise  # the batch has failed, not this decision
        except MissingLocksError as missing:
            self._view.undo(mark)
            submission.locks = (*submission.locks, *missing.locks)
            if submission.deferrals < MAX_RERUNS:
                self._defer(submission)
            else:
                self._fail(submission, missing)
        except Exception as error:  # noqa: BLE001 - an error in one decision must not fail the others
            self._view.undo(mark)
            self._fail(submission, error)
        else:
            if outcome.later:
                self._view.undo(mark)
                self._defer(submission)
            else:
                self._view.soften(outcome.touches)
                self.result.decided.append((submission, outcome))
                self._settle(submission)

    @property
    def is_changed(self) -> bool:
        """Whether any write changed a row."""
        return self._view.is_changed()

    def decide_part(self, submission: QueuedWrite) -> DecisionResult | None:
        """Decide a part of a write, and flush its changes to the store; None if it was not decided."""
        self.load_stages([submission])
        for one in self.sound([submission]):
            self.decide(one)
        if not self.result.decided:
            return None
        self._tx.flush(self._view.changes(()))
        return self.result.decided[0][1]

    def commit(self, kind: Commit) -> CommitSteps[None]:
        """Write the changed rows and commit, durably or softly; a batch that changed nothing costs no sync."""
        soft = self._around.soft
        for some in (*(outcome.touches for _, outcome in self.result.decided), *(one.touches for one in self._plain)):
            if some:
                soft.touch(some)
        if not (self._view.is_changed() or self._plain):
            self._tx.check()
            return
        touches: Sequence[Touch] = soft.waiting(MAX_TOUCHES) if len(soft) else ()
        changes = self._view.changes(touches)
        for plain in self._plain:
            changes = merged(changes, plain)
        if changes.is_empty and not self._view.rotations:
            self._tx.check()
            return
        if self._around.openings:
            others = [QueuedWrite(write.full(), write) for write, _ in self.result.plain]
            self._around.check_open([*(one for one, _ in self.result.decided), *others])
        self._tx.flush(changes._replace(topics=self._topics()))
        for table in self._view.rotations:
            self._tx.rotate(table)
        self._around.reach("flushed")
        undone = yield self.result.timed(self._tx.commit)
        self._around.reach("committed")
        soft.stored(touch for touch in touches if touch not in undone)
        self.result.commit, self.result.changes = kind, changes

    def _topics(self) -> list[bytes]:
        signals = {topic: None for _, outcome in self.result.decided for topic in outcome.signals}
        return [*signals, *self.result.plain_topics]

    def _decide_with_reruns(self, write: Write, mark: tuple[int, int]) -> DecisionResult:
        for attempt in range(MAX_RERUNS):
            try:
                return write.contract.decide(self._view, write.command, self._now)
            except MissingRowsError as missing:
                self._view.undo(mark)
                self.result.reruns += 1
                self._load([_wider(missing.stage, attempt)])
        raise RuntimeError("a decision requested further rows too many times")

    def _load(self, stages: Iterable[Stage]) -> None:
        """Load rows that are not loaded yet; equal ranges are merged and their limits summed."""
        view = self._view
        keys: dict[AnyTable, dict[Key, None]] = {}
        limits: dict[tuple[Any, ...], Range] = {}
        for stage in stages:
            for table, key in stage.keys:
                if key not in view.known(table):
                    keys.setdefault(table, {})[key] = None
            for wanted in stage.ranges:
                nameless = same_rows(wanted)
                self._asked[nameless] += wanted.limit
                limits[nameless] = wanted
        if not keys and not limits:
            return
        ranges = [wanted._replace(limit=self._asked[nameless]) for nameless, wanted in limits.items()]
        for some in in_slices(keys, LOADED_AT_ONCE if self._left is None or self._left > PART_BYTES else 1):
            loaded = self._tx.load(some, ranges)
            for table, wanted_keys in some.items():
                rows = loaded.rows[table]
                self._weigh(table, rows.values())
                view.add_rows(table, wanted_keys, rows)
            for wanted, found in zip(ranges, loaded.ranges, strict=True):
                self._weigh(wanted.table, found)
                view.add_range(wanted, found)
            ranges = []

    def _weigh(self, table: AnyTable, rows: Iterable[Row]) -> None:
        """Count the payload bytes of loaded rows."""
        if self._left is None or not table.bulky:
            return
        self._left -= sum(map(bytes_of, rows))
        if self._left < 0:
            raise HeavyBatchError

    def _fail(self, submission: QueuedWrite, error: Exception) -> None:
        error_id = self._around.error_id()
        self._around.observer.fault(error_id, error, callers_of([submission]))
        self.result.failed.append((submission, FaultError(error_id)))
        self._settle(submission)

    def _settle(self, submission: QueuedWrite) -> None:
        if submission.order is not None:
            self._waiting.settled.add(submission.order)

    def _defer(self, submission: QueuedWrite) -> None:
        submission.deferrals += 1
        self.result.deferred.append(submission)


def _wider(stage: Stage, attempt: int) -> Stage:
    # Repeat a range that was too short with a larger limit: changes of the batch itself used its rows up.
    return Stage(stage.keys, [wanted._replace(limit=wanted.limit << (attempt + 1)) for wanted in stage.ranges])
