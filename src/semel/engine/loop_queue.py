"""The queue of the loop's lane: which of the waiting writes form the next batch, and when it runs.

A client that was just answered usually writes again at once, but its request may arrive a little after the next batch
has begun; the clients then take turns in two batches of half the size, and the fixed cost of a batch and its sync is
paid twice. So a batch that has fewer writes than the last ones waits for up to `MAX_WAITS` more passes of the loop. A
pass is only a look at the sockets: no timer runs. A client alone does not wait, except in the batches after a burst:
the size that counts as usual falls by one with each smaller batch.

Nothing here is stored: a crash loses writes that were not acknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from math import inf

from semel.engine.batch_runner import BatchLimits, BatchRunner
from semel.engine.caller import WaitingCaller
from semel.engine.group_commit import QueuedWrite
from semel.engine.plain_write import PlainWrite, without_plain

MAX_WAITS = 3
"""Limit on the passes of the loop that a batch waits for further writes."""
LIGHT_COST = 128
"""A write that touches more rows runs in the writer's thread."""
LIGHT_BYTES = 64 * 1024
"""A write of more bytes runs in the writer's thread."""
PLAIN_WRITES = 256
"""Limit on the plain writes of one batch."""
PLAIN_COST = 512
"""Limit on the cost of the writes of one batch together; a single write may cost more."""
LOADED_BYTES = 1024 * 1024
"""A batch that would load more payload bytes runs in the writer's thread."""


class LoopQueue:
    """Waiting writes; used on the loop only."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._waiting: deque[QueuedWrite | PlainWrite] = deque()
        self._plain: list[PlainWrite] = []
        self._most = limits.writes
        """The number of writes that the last batches could decide within the budget."""
        self._usual = 0
        """The number of writes that were waiting when a batch began, at most: one less after each smaller batch."""
        self._waits = 0
        """Passes of the loop that the next batch has waited."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._plain)

    @property
    def waiting_since(self) -> float:
        """When the first write of the queue was admitted; infinite if no write waits."""
        first = [one.admitted_at for one in self._plain[:1]]
        first += [_caller_of(one).admitted_at for one in islice(self._waiting, 1)]
        return min(first, default=inf)

    def put(self, submission: QueuedWrite) -> None:
        """Add a write for the full rules."""
        self._waiting.append(submission)

    def put_plain(self, write: PlainWrite) -> None:
        """Add a plain write."""
        self._plain.append(write)

    def put_first(self, left: Sequence[QueuedWrite]) -> None:
        """Add writes that a batch has left, in front of all others."""
        self._waiting.extendleft(reversed(left))

    def take_all(self) -> list[QueuedWrite]:
        """Empty the queue."""
        waiting = [_as_queued(one) for one in (*self._waiting, *self._plain)]
        self._waiting, self._plain = deque(), []
        return waiting

    def adapt(self, *, is_late: bool) -> None:
        """A batch has ended: late if its decisions exceeded the budget."""
        self._most = max(1, self._most // 2) if is_late else min(self._limits.writes, self._most + 1)

    def waits_for_more(self) -> bool:
        """Whether the next batch waits for one more pass of the loop, because it is smaller than the last ones."""
        writes = len(self)
        if not writes:
            return False
        if writes < self._usual and self._waits < MAX_WAITS:
            self._waits += 1
            return True
        self._waits = 0
        self._usual = min(max(writes, self._usual - 1), PLAIN_WRITES)
        return False

    def gather(self, runner: BatchRunner) -> tuple[list[QueuedWrite], list[PlainWrite], bool]:
        """The writes of the next batch in their order, its plain writes, and whether they may run on the loop."""
        if runner.deferred:
            return self._gather_deferred(runner), [], False
        batch, plain, is_light = self._gather_waiting()
        if is_light and (plain or self._plain):
            plain = self._gather_plain(batch, plain)
        return batch, plain, is_light

    def _gather_waiting(self) -> tuple[list[QueuedWrite], list[PlainWrite], bool]:
        """As `gather`, from the queue of writes that are not plain, or have waited behind such a write.

        A heavy write ends a batch of light writes, and is a batch alone. Deferred writes wait for other writes, which
        may be heavy or late in the queue: a batch with deferred writes is filled up to its limits, and runs in the
        writer's thread without a time budget.

        Plain writes that wait behind others under their lock stay plain: the batch ends where plain and other writes of
        one lock meet. Else one write for the full rules would make all later ones dear while the queue is never empty.
        """
        waiting = self._waiting
        batch: list[QueuedWrite] = []
        plain: list[PlainWrite] = []
        held: set[bytes] = set()
        shared: set[bytes] = set()
        size = cost = 0
        while waiting and len(batch) < self._most and len(plain) < PLAIN_WRITES and size <= LOADED_BYTES:
            first = waiting[0]
            cost += first.cost if isinstance(first, PlainWrite) else first.write.cost
            if cost > PLAIN_COST and (batch or plain):
                break
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

    def _gather_deferred(self, runner: BatchRunner) -> list[QueuedWrite]:
        """The deferred writes, then waiting writes up to the limits of a batch; a large write is a batch alone."""
        batch, runner.deferred = runner.deferred, []
        large = next((one for one in batch if one.write.is_large), None)
        if large is not None:
            runner.deferred = [one for one in batch if one is not large]
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


def _as_queued(one: QueuedWrite | PlainWrite) -> QueuedWrite:
    return QueuedWrite(one.full(), one) if isinstance(one, PlainWrite) else one


def _caller_of(one: QueuedWrite | PlainWrite) -> WaitingCaller:
    caller: WaitingCaller = one if isinstance(one, PlainWrite) else one.sender
    return caller


def _is_light(submission: QueuedWrite) -> bool:
    write = submission.write
    return write.cost <= LIGHT_COST and write.size <= LIGHT_BYTES and not write.is_large
