"""A batch of plain writes: one transaction that loads, decides, flushes and commits, without a view.

The promise is that of `batch`: verdict, effect and receipt of every write are one transaction, and no caller is
answered before it is on disk. A crash stores all of the batch or nothing of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.engine.group_commit import BatchResult, Commit, CommitSteps, QueuedWrite
from semel.engine.plain_write import PlainContract, PlainResult, PlainWrite, merged, plain_rows
from semel.engine.soft_changes import MAX_TOUCHES
from semel.engine.surroundings import Surroundings
from semel.kernel.clock import Now
from semel.store.protocol import Changes, CommitUnknownError, Lock, StoreError, Tx

_NO_CHANGES = Changes({}, {}, {})


def run_plain(around: Surroundings, writes: Sequence[PlainWrite], *, wait: bool) -> CommitSteps[BatchResult]:
    """Run a batch of plain writes alone: without a view, and without stages."""
    tx = around.store.begin(plain_locks(writes), wait=wait)
    try:
        around.reach("locked")
        result = BatchResult(Commit.NOTHING)
        changes = _NO_CHANGES
        for plain in decided_plain(around, tx, None, writes, result):
            changes = merged(changes, plain)
            if plain.touches:
                around.soft.touch(plain.touches)
        around.reach("decided")
        if not changes.is_empty:
            around.check_open([QueuedWrite(one.full(), one) for one in writes] if around.openings else ())
            touches = around.soft.waiting(MAX_TOUCHES) if len(around.soft) else ()
            changes = changes._replace(topics=result.plain_topics, touches=touches)
            tx.flush(changes)
            around.reach("flushed")
            undone = yield result.timed(tx.commit)
            around.reach("committed")
            if touches:
                around.soft.stored(touch for touch in touches if touch not in undone)
            result.commit, result.changes = Commit.DURABLE, changes
        else:
            tx.check()
        return result
    finally:
        tx.rollback()


def plain_locks(writes: Sequence[PlainWrite], others: Sequence[Lock] = ()) -> Sequence[Lock]:
    """The locks of plain writes and of other writes, which have none in common, in the order of their names."""
    own = {write.lock for write in writes}
    return sorted([*others, *map(Lock, own)]) if others or len(own) > 1 else list(map(Lock, own))


def decided_plain(
    around: Surroundings, tx: Tx, now: Now | None, writes: Sequence[PlainWrite], result: BatchResult
) -> list[PlainResult]:
    """Let each contract decide its plain writes. A fault leaves them to the full rules: only the faulty one fails.

    Without `now` the clock is read after the first rows: a remote store sends locks, clock and rows in one answer.
    """
    groups: dict[PlainContract, list[PlainWrite]] = {}
    for write in writes:
        groups.setdefault(write.contract, []).append(write)
    decided = []
    for contract, some in groups.items():
        try:
            rows = plain_rows(contract, tx.load, around.soft, some)
            now = now or around.timekeeper.now(tx.now_ms)
            around.reach("loaded")
            made = contract.decide_plain(rows, some, now)
        except (StoreError, CommitUnknownError):
            raise
        except Exception as error:  # noqa: BLE001 - the full rules decide each of them
            around.observer.fault(around.error_id(), error)
            made = PlainResult((), some, {}, {}, ())
        decided.append(made)
        if made.left:
            result.left = [*result.left, *(QueuedWrite(one.full(), one) for one in made.left)]
        result.plain = [*result.plain, *made.decided] if result.plain else made.decided
        result.plain_topics = [*result.plain_topics, *made.topics]
    return decided
