"""Counters of jobs, and the capacity check that uses them (back pressure).

Every change of a job goes through the counters of its decision, so that counters and rows cannot diverge.

The capacity has global limits, limits for each caller and limits for each queue. Queued and scheduled jobs are counted
separately, so that scheduled jobs do not block queued ones. A scheduled job that becomes ready was admitted before and
is never rejected; from then on it counts as queued.

No caller can use up the capacity that others need. While others have jobs, a caller may take only its share of a global
limit. What it took beyond its share while it was alone does not count against the others. The number of jobs may
therefore exceed the limit by what one caller holds beyond its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from semel.engine.contract import View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobNote, JobRefused
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.idempotency import is_alias
from semel.surfaces.jobs.tables import (
    ALONE,
    AS_QUEUED,
    AS_SCHEDULED,
    DONE,
    GENERATED,
    JOB,
    JOB_ALIAS,
    JOB_DEAD,
    JOB_KIND,
    JOB_LINE,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SHARE,
    JOB_TENANT,
    JOB_TOTALS,
    LEASED,
    LISTED_ACTIVE,
    LISTED_COMPLETED,
    LISTED_FAILED,
    LISTED_SCHEDULED,
    NO_TOTALS,
    NOT_COUNTED,
    WAITING,
    JobDeadRow,
    JobExpiryRow,
    JobKindRow,
    JobLineRow,
    JobQueueRow,
    JobRecordRow,
    JobRow,
    JobShareRow,
    JobTenantRow,
    JobTotalsRow,
)


@dataclass(slots=True)
class JobTotals:
    """The counts over all jobs while a decision changes them."""

    seq: int
    waiting: int
    leased: int
    records: int
    dead: int
    scheduled: int

    @property
    def queued(self) -> int:
        """Waiting jobs that are not scheduled."""
        return self.waiting - self.scheduled

    def row(self, updated_at: int) -> JobTotalsRow:
        """The row to store."""
        return JobTotalsRow(
            b"", self.seq, updated_at, self.waiting, self.leased, self.records, self.dead, self.scheduled
        )


class JobCounters:
    """The counters of one decision; `store` writes them once, and only if something changed."""

    def __init__(self, view: View, policy: JobPolicy, now: Now) -> None:
        self.view = view
        self.policy = policy
        before = self._before = view.get(JOB_TOTALS, ALONE) or NO_TOTALS
        self.totals = JobTotals(
            before.seq, before.waiting, before.leased, before.records, before.dead, before.scheduled
        )
        # Do not store the time of a clock jump before it is accepted: decision time would stand still afterwards.
        self.now = now._replace(ms=max(now.expiry_ms, before.updated_at))

    def next_number(self) -> int:
        """The number of a new job."""
        self.totals.seq += 1
        return self.totals.seq

    def add(self, job: JobRow) -> JobRow:
        """Insert and count a new job."""
        job = self._as_counted(job)
        self.view.insert(JOB, job)
        self._count(job, 1)
        return job

    def move(self, before: JobRow, after: JobRow) -> JobRow:
        """Store a changed job and update the counts; a job that is no longer leased loses its lease id and its
        offer.
        """
        if after.phase != LEASED and (after.offered or after.lease):
            after = after._replace(offered=0, lease=b"")
        if before.phase != after.phase:
            after = self._as_counted(after)
        self.view.put(JOB, after)
        if before.phase != after.phase:
            self._count(before, -1)
            self._count(after, 1)
        return after

    def promote(self, job: JobRow) -> None:
        """Count a waiting job anew, because it has become ready."""
        self.rearrange(job, job)

    def rearrange(self, before: JobRow, after: JobRow) -> JobRow:
        """Store a waiting job that waits on in another place, and count it anew."""
        self._count(before, -1)
        after = self._as_counted(after)
        self.view.put(JOB, after)
        self._count(after, 1)
        return after

    def _as_counted(self, job: JobRow) -> JobRow:
        is_later = job.phase == WAITING and job.ready_at > self.now.ms
        ended = LISTED_FAILED if job.reason else LISTED_COMPLETED
        return job._replace(
            counted=AS_SCHEDULED if is_later else AS_QUEUED,
            listed=ended if job.phase == DONE else LISTED_SCHEDULED if is_later else LISTED_ACTIVE,
        )

    def remove(self, job: JobRow) -> None:
        """Delete a finished job."""
        assert job.phase == DONE
        self.view.delete(JOB, (job.id,))

    def count_record(self, record: JobRecordRow, change: int) -> None:
        """Count a new key, or one less; generated keys are counted apart from those that callers named."""
        if record.alias != GENERATED:
            self.totals.records += change
            self._count_keys(record.principal, named=change)
            return
        for principal in (record.principal, *ALONE):
            self._count_keys(principal, generated=change)

    def _count_keys(self, principal: bytes, named: int = 0, generated: int = 0) -> None:
        before = self.keys_of(principal)
        row = JobTenantRow(principal, before.records + named, before.generated + generated)
        self._keep(JOB_TENANT, row, row.records + row.generated)

    def keys_of(self, principal: bytes) -> JobTenantRow:
        """The numbers of keys of a principal."""
        return self.view.get(JOB_TENANT, (principal,)) or JobTenantRow(principal, 0)

    def replace_record(self, stale: JobRecordRow | None, record: JobRecordRow) -> None:
        """Store the record of a key in place of an expired one."""
        self.view.put(JOB_RECORD, record)
        self.count_record(record, 1)
        if stale is not None:
            self.count_record(stale, -1)

    def drop_key(self, table: AnyTable, row: JobExpiryRow) -> bool:
        """Delete the key of an ended job, and its row in a table of expiries; returns whether it was still that
        job's.
        """
        self.view.delete(table, (row.expires_at, row.id))
        record = self.view.get(JOB_RECORD, (row.principal, row.key))
        if record is None or record.job != row.id:
            return False
        self.view.delete(JOB_RECORD, (row.principal, row.key))
        self.count_record(record, -1)
        return True

    def drop_alias(self, job_id: bytes, principal: bytes, key: bytes) -> None:
        """Delete a key that points to a job which another submission made."""
        self.view.forget(JOB_ALIAS, (job_id, principal, key))
        record = self.view.get(JOB_RECORD, (principal, key))
        if record is not None and record.job == job_id and is_alias(record):
            self.view.delete(JOB_RECORD, (principal, key))
            self.count_record(record, -1)

    def bury(self, job: JobRow) -> None:
        """List a dead letter."""
        self.view.insert(JOB_DEAD, JobDeadRow(job.finished_at, job.id))
        self.totals.dead += 1

    def unbury(self, key: Key) -> None:
        """Remove a job from the dead letter queue, if it is listed."""
        if self.view.get(JOB_DEAD, key) is not None:
            self.view.delete(JOB_DEAD, key)
            self.totals.dead -= 1

    def queue(self, name: bytes) -> JobQueueRow:
        """The row of a queue: leases and limits."""
        return self.view.get(JOB_QUEUE, (name,)) or JobQueueRow(name, 0, 0, 0, 0, 0)

    def share(self, principal: bytes) -> JobShareRow:
        """The number of waiting jobs of a principal."""
        return self.view.get(JOB_SHARE, (principal,)) or JobShareRow(principal, 0, 0)

    def keep_queue(self, row: JobQueueRow) -> None:
        """Store the counts and limits of a queue."""
        self._keep(JOB_QUEUE, row, sum(row[1:]))

    def store(self) -> None:
        """Write the totals, with the time of this decision, if they have changed."""
        if self.totals.row(self._before.updated_at) != self._before:
            self.touch()

    def touch(self) -> None:
        """Write the totals even if they are unchanged, so that the time of this decision is stored."""
        self.view.put(JOB_TOTALS, self.totals.row(self.now.ms))

    def _count(self, job: JobRow, change: int) -> None:
        if job.phase == WAITING:
            self._count_waiting(job, change)
            place = (job.priority, job.queue)
            line = self.view.get(JOB_LINE, place) or JobLineRow(*place, 0, NEVER)
            ready_at = min(line.ready_at, job.ready_at)
            self._keep(JOB_LINE, JobLineRow(*place, line.waiting + change, ready_at), line.waiting + change)
            kind = self.view.get(JOB_KIND, (job.kind, *place)) or JobKindRow(job.kind, *place, 0, NEVER)
            ready_at = min(kind.ready_at, job.ready_at)
            self._keep(JOB_KIND, JobKindRow(job.kind, *place, kind.waiting + change, ready_at), kind.waiting + change)
        elif job.phase == LEASED:
            self.totals.leased += change
            queue = self.queue(job.queue)
            self.keep_queue(queue._replace(leased=queue.leased + change))

    def _count_waiting(self, job: JobRow, change: int) -> None:
        self.totals.waiting += change
        if job.counted == NOT_COUNTED:
            return
        state = "scheduled" if job.counted == AS_SCHEDULED else "queued"
        if state == "scheduled":
            self.totals.scheduled += change
        queue, share = self.queue(job.queue), self.share(job.principal)
        self.keep_queue(queue._replace(**{state: getattr(queue, state) + change}))
        share = share._replace(**{state: getattr(share, state) + change})
        self._keep(JOB_SHARE, share, share.queued + share.scheduled)

    def _keep(self, table: AnyTable, row: tuple[object, ...], weight: int) -> None:
        """Store a count; a count of 0 needs no row."""
        assert weight >= 0, f"the count of {table.name} fell below 0"
        if weight:
            self.view.put(table, row)
        elif self.view.get(table, table.key_of(row)) is not None:
            self.view.delete(table, table.key_of(row))


def counted_keys(job: JobRow) -> list[tuple[AnyTable, Key]]:
    """The counts that a change of this job modifies."""
    return [
        (JOB_TOTALS, ALONE),
        (JOB_LINE, (job.priority, job.queue)),
        (JOB_KIND, (job.kind, job.priority, job.queue)),
        (JOB_QUEUE, (job.queue,)),
        (JOB_SHARE, (job.principal,)),
    ]


_FULL = "The queue is full. Nothing was stored; send the same request again in a moment, with the same key."


def expiry_keys(table: AnyTable, row: JobExpiryRow) -> list[tuple[AnyTable, Key]]:
    """The rows that `JobCounters.drop_key` reads."""
    return [
        (table, (row.expires_at, row.id)),
        (JOB_RECORD, (row.principal, row.key)),
        (JOB_TENANT, (row.principal,)),
        (JOB_TENANT, ALONE),
    ]


class _Bound(NamedTuple):
    """A limit that was reached: its name, the present number, and the limit."""

    name: str
    held: int
    most: int


def capacity_refusal(counters: JobCounters, principal: bytes, queue: bytes, *, is_scheduled: bool) -> JobRefused | None:
    """The refusal of a job for which there is no capacity; None if there is."""
    bound = _met(counters, principal, queue, "scheduled" if is_scheduled else "queued")
    if bound is None:
        return None
    facts = {"queue_depth": bound.held, "max": bound.most, "bound": bound.name}
    refusal = Refusal("jobs:backpressure", _FULL, facts, retry_after_ms=1_000)
    return JobRefused(refusal, (JobNote("BACKPRESSURE_DROP", facts),))


def _met(counters: JobCounters, principal: bytes, queue: bytes, state: str) -> _Bound | None:
    """The first limit that allows no further job in this state."""
    bounds = counters.policy.scheduled if state == "scheduled" else counters.policy.queued
    total: int = getattr(counters.totals, state)
    mine: int = getattr(counters.share(principal), state)
    there: int = getattr(counters.queue(queue), state)
    if bounds.each_principal and mine >= bounds.each_principal:
        return _Bound(f"{state}_per_principal", mine, bounds.each_principal)
    if bounds.each_queue and there >= bounds.each_queue:
        return _Bound(f"{state}_per_queue", there, bounds.each_queue)
    if not bounds.all:
        return None
    fair = max(1, int(bounds.all * counters.policy.principal_share))
    if total > mine >= fair:
        return _Bound(f"{state}_share", mine, fair)
    if total >= bounds.all and total - _excess(counters, principal, state, fair) >= bounds.all:
        return _Bound(state, total, bounds.all)
    return None


def _excess(counters: JobCounters, principal: bytes, state: str, fair: int) -> int:
    """The number of jobs that the largest of the other callers holds beyond its share."""
    if counters.policy.principal_share >= 1:
        return 0
    largest = counters.view.range(Range(JOB_SHARE, state, (), 2, reverse=True))
    held = [getattr(row, state) for row in largest if row.principal != principal]
    return max(0, held[0] - fair) if held else 0
