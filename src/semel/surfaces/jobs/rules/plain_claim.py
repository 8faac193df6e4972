"""The express decision on plain claims: the result of `claim` without a view.

A claim is plain if it has no name and no filter, and finds the simple case: no lease has expired, no
limit on leases is reached, the first jobs of few lines are ready, counted as queued, and small. If anything else shows,
all claims of the batch are left to `claim`. The first jobs of each line are read once for all claims of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from semel.engine.contract import Write
from semel.engine.plain_write import LoadPlain, PlainContract, PlainWrite
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.jobs.commands import ClaimJobs, JobLease, JobsClaimed
from semel.surfaces.jobs.rules.claim import JobLine
from semel.surfaces.jobs.rules.leases import token
from semel.surfaces.jobs.rules.plain_submission import LOCK_NAME
from semel.surfaces.jobs.rules.plain_tally import PlainTally, place_of, row_changer
from semel.surfaces.jobs.rules.reaper import has_ended, leases_until
from semel.surfaces.jobs.tables import (
    ALONE,
    AS_QUEUED,
    INLINE_BYTES,
    JOB_KIND,
    JOB_LINE,
    JOB_QUEUE,
    JOB_SEAL,
    JOB_SHARE,
    LEASED,
    LISTED_ACTIVE,
    JobLineRow,
    JobRow,
)

MAX_PLAIN_LINES = 16
"""With more lines, the full rules decide."""
MAX_PLAIN_DUE = 4
"""With more leases that are about to end, the full rules decide: a heartbeat that is not stored yet may have extended
those that were read, and a further one may have ended.
"""
MAX_PLAIN_JOBS = 512
"""Limit on the jobs that the claims of one batch read."""


_new_tuple = tuple.__new__
"""Makes a named tuple in a third of the time of its constructor."""
CLAIMED = (
    *("phase", "due_at", "attempt", "epoch", "held_ms", "claimed_at", "worker", "holder", "ended_by", "progress"),
    *("offered", "timeout_at", "lease"),
)
"""The columns that a claim changes."""
_LEASED_ROW = row_changer(CLAIMED)


class PlainClaim(PlainWrite):
    """One plain claim, and its caller."""

    __slots__ = ("claim", "cost")

    def __init__(self, contract: PlainContract, claim: ClaimJobs, size: int, principal: str = "") -> None:
        super().__init__(contract, LOCK_NAME, size, principal)
        self.claim = claim
        self.cost = claim.most

    def full(self) -> Write:
        """The same claim for the full rules."""
        return Write(self.contract, self.claim, self.size, self.claim.most)


def is_plain_claim(claim: ClaimJobs) -> bool:
    """Whether a claim may be plain, by its request alone."""
    return not (claim.kinds or claim.queues or claim.claim) and claim.reach is None


class Fronts:
    """The first jobs of the lines, as the claims of a batch find them."""

    def __init__(self, due: Sequence[JobRow], lines: Sequence[JobLineRow]) -> None:
        self.due = due
        """The leases that end first, if they may have ended."""
        self.lines = sorted(lines)
        """All lines, most urgent first."""
        self.jobs: list[Sequence[JobRow]] = []
        """The first jobs of each line, up to the line that has enough of them."""


def claim_ranges(claims: Sequence[PlainClaim]) -> list[Range]:
    """The leases that end first, and all lines."""
    until = max(one.claim.reap_until for one in claims)
    return [leases_until(until, MAX_PLAIN_DUE + 1), Range(JOB_LINE, "ready", (), MAX_PLAIN_LINES + 1)]


def load_fronts(load: LoadPlain, claims: Sequence[PlainClaim], fronts: Fronts) -> dict[AnyTable, dict[Key, None]]:
    """Read the first jobs of the lines; returns the keys of their counters."""
    keys: dict[AnyTable, dict[Key, None]] = {table: {} for table in (JOB_KIND, JOB_LINE, JOB_QUEUE, JOB_SHARE)}
    if len(fronts.due) > MAX_PLAIN_DUE or len(fronts.lines) > MAX_PLAIN_LINES:
        return keys
    wanted = min(MAX_PLAIN_JOBS, sum(one.claim.most for one in claims))
    found = 0
    some: list[JobLineRow] = []
    for line in fronts.lines:
        if found >= wanted and line.priority > some[-1].priority:
            break  # lines of one priority are read together, because their jobs are merged
        some.append(line)
        found += line.waiting
    ranges = [JobLine(row.priority, row.queue, None, row.waiting, row.ready_at).front(wanted) for row in some]
    fronts.jobs = list(load({}, ranges).ranges) if ranges else []
    for principal, kind, priority, queue in {place_of(job) for jobs in fronts.jobs for job in jobs}:
        keys[JOB_KIND][kind, priority, queue] = None
        keys[JOB_LINE][priority, queue] = None
        keys[JOB_QUEUE][queue,] = None
        keys[JOB_SHARE][principal,] = None
    return keys


class _ReadyJobs(NamedTuple):
    jobs: list[JobRow]
    is_all: bool
    """Whether there are no further ready jobs."""
    last_plain: int
    """The last place at which a claim may begin: behind it, a line has only jobs that are not ready, which the full
    rules note in the line.
    """


def _is_simple(job: JobRow) -> bool:
    return job.counted == AS_QUEUED and job.listed == LISTED_ACTIVE and job.params_bytes <= INLINE_BYTES


class PlainClaims:
    """Decides the claims of one batch, in their order."""

    def __init__(self, tally: PlainTally, fronts: Fronts, writes: Sequence[PlainClaim]) -> None:
        self._tally = tally
        self._fronts = fronts
        self._writes = writes
        self._leased: list[JobRow] = tally.moved.setdefault(CLAIMED, []) if writes else []
        self.decided: list[tuple[PlainWrite, Any]] = []
        self.left: list[PlainWrite] = []

    def decide(self) -> None:
        """Decide each claim, or leave all further ones to the full rules."""
        tally, now = self._tally, self._tally.now
        seal = tally.rows[JOB_SEAL].get(ALONE)
        most_leased = tally.policy.max_inflight
        found = self._ready()
        if seal is None or found is None or not self._is_plain():
            self.left += self._writes
            return
        at = 0
        for place, one in enumerate(self._writes):
            most = one.claim.most
            if most_leased:
                most = min(most, most_leased - tally.leased)
            taken = found.jobs[at : at + max(0, most)]
            if most <= 0 or at > found.last_plain or (len(taken) < most and not found.is_all):
                self.left += self._writes[place:]
                return
            at += len(taken)
            leases = tuple([self._lease(one.claim, job, seal.secret) for job in taken])
            tally.taken.update(map(place_of, taken))
            tally.leased += len(taken)
            self.decided.append((one, JobsClaimed(leases, now.ms, now.steady_ms)))

    def _is_plain(self) -> bool:
        """Whether no lease has expired, and no queue has a limit on leases or on their rate."""
        tally, fronts = self._tally, self._fronts
        if len(fronts.due) > MAX_PLAIN_DUE or any(has_ended(job, tally.policy, tally.now) for job in fronts.due):
            return False
        queues = (tally.rows[JOB_QUEUE].get((queue,)) for queue in {line.queue for line in fronts.lines})
        return not any(row is not None and (row.max_inflight or row.rate_count) for row in queues)

    def _ready(self) -> _ReadyJobs | None:
        """The ready jobs that were read, in the order of claims; None if the full rules must look."""
        now_ms, lines, fronts = self._tally.now.ms, self._fronts.lines, self._fronts.jobs
        if len(lines) > MAX_PLAIN_LINES:
            return None
        found: list[JobRow] = []
        mixed: list[JobRow] = []
        cut: list[JobRow] = []
        is_all = not any(line.ready_at <= now_ms for line in lines[len(fronts) :])
        for line, front in zip(lines, fronts, strict=False):
            if line.ready_at > now_ms:
                continue
            ready = [job for job in front if job.ready_at <= now_ms]
            if not ready or not all(map(_is_simple, ready)):
                return None
            found += ready
            if len(ready) < len(front):
                mixed.append(ready[-1])
            elif len(front) < line.waiting:
                cut.append(ready[-1])
        if len(fronts) > 1:
            found.sort(key=lambda job: (job.priority, job.ready_at, job.id))
        last_plain = min(map(found.index, mixed), default=len(found))
        if cut and len(fronts) > 1:  # a line that was not read to its end may go on before the jobs of other lines
            del found[min(map(found.index, cut)) + 1 :]
        return _ReadyJobs(found, is_all and not cut, last_plain)

    def _lease(self, claim: ClaimJobs, job: JobRow, secret: bytes) -> JobLease:
        tally, steady_ms, epoch = self._tally, self._tally.now.steady_ms, job.epoch + 1
        timeout_ms = job.timeout_ms
        if timeout_ms < 0:
            queue = tally.rows[JOB_QUEUE].get((job.queue,))
            timeout_ms = 0 if queue is None else queue.default_timeout_ms
        held_ms = min(job.lease_ms, claim.lease_ms) if claim.lease_ms else job.lease_ms
        is_offered = claim.waits and tally.policy.offer_ms > 0
        timeout_at = steady_ms + timeout_ms if timeout_ms else 0
        due_at = steady_ms + (min(held_ms, tally.policy.offer_ms) if is_offered else held_ms)
        leased = _LEASED_ROW(
            job,
            LEASED,
            min(due_at, timeout_at) if timeout_at else due_at,
            job.attempt + 1,
            epoch,
            held_ms,
            steady_ms,
            claim.worker,
            claim.principal,
            0,
            b"",
            int(is_offered),
            timeout_at,
            epoch.to_bytes(8, "big"),
        )
        self._leased.append(leased)
        return _new_tuple(JobLease, (leased, token(secret, job.id, epoch)))
