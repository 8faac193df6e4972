"""Lists of jobs with pagination: a page is full unless the list ends, and its cost does not grow with the list.

The indexes "listed" (all jobs) and "owner" (the jobs of one owner) have one *line* for each value of `listed`, kind and
queue: its jobs in the order of creation. A page is merged from the lines that match a filter; the number of lines
depends on kinds and queues, not on jobs. Leased jobs have no separate line, because every claim would have to move
them; they are few and are found by their leases. A line may contain more states than the filter selects, so each job's
row is checked again: queued jobs share a line with leased jobs, and newly ready jobs share one with scheduled jobs
until they are promoted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.verdict import NEVER
from semel.store.protocol import Range
from semel.store.table import Key
from semel.surfaces.jobs.limits import MAX_LISTED_LINES, MAX_LISTED_ROWS
from semel.surfaces.jobs.rules.schedules import to_promote
from semel.surfaces.jobs.rules.states import JobState, state_of
from semel.surfaces.jobs.tables import (
    ALONE,
    JOB,
    JOB_TOTALS,
    LEASED,
    LISTED_ACTIVE,
    LISTED_COMPLETED,
    LISTED_FAILED,
    LISTED_SCHEDULED,
    NO_TOTALS,
    JobRow,
)

FEW = 128
"""Lines with at most this number of jobs in total are read whole, without a query for the separate lines."""
LINES_AT_ONCE = 64
ROWS_AT_ONCE = 500

_LISTED = {
    None: (LISTED_SCHEDULED, LISTED_ACTIVE, LISTED_COMPLETED, LISTED_FAILED),
    JobState.SCHEDULED.value: (LISTED_SCHEDULED,),
    JobState.QUEUED.value: (LISTED_ACTIVE,),
    JobState.LEASED.value: (),
    JobState.COMPLETED.value: (LISTED_COMPLETED,),
    JobState.FAILED.value: (LISTED_FAILED,),
}
"""The values of `listed` for a state, without the jobs that `_others` finds; None is any state."""


class JobFilter(NamedTuple):
    """The filter of a list; None matches anything."""

    principal: bytes | None
    state: str | None
    queue: bytes | None
    kind: bytes | None

    def holds(self, job: JobRow, now_ms: int) -> bool:
        """Whether a job matches."""
        return (
            (self.principal is None or job.principal == self.principal)
            and (self.state is None or state_of(job, now_ms).value == self.state)
            and (self.queue is None or job.queue == self.queue)
            and (self.kind is None or job.kind == self.kind)
        )


_EVERYTHING = JobFilter(None, None, None, None)


class JobPage(NamedTuple):
    """Jobs, newest first; `next` is the id to continue after, None at the end of the list."""

    jobs: list[JobRow]
    next: bytes | None
    now_ms: int
    steady_ms: int


class _Lines(NamedTuple):
    """The index lines that may contain jobs of a list."""

    by: str
    prefixes: list[Key]
    """Key prefixes of lines, each in the order of creation."""
    ids: list[bytes]
    """Ids of further jobs, in no order."""


def list_jobs(reading: Reading, wanted: JobFilter, before: bytes | None, limit: int) -> JobPage:
    """The newest matching jobs before an id."""
    lines = _lines(reading, wanted)
    if lines is None:
        return _scanned(reading, wanted, before, limit)
    now_ms, found = reading.now.expiry_ms, list[JobRow]()
    for job in _merged(reading, lines, before, limit + 1):
        if wanted.holds(job, now_ms):
            found.append(job)
            if len(found) > limit:
                return JobPage(found[:limit], found[limit - 1].id, now_ms, reading.now.steady_ms)
    return JobPage(found, None, now_ms, reading.now.steady_ms)


def _lines(reading: Reading, wanted: JobFilter) -> _Lines | None:
    """The lines that match a filter; None if there are more than MAX_LISTED_LINES."""
    if wanted == _EVERYTHING:
        return _Lines("", [()], [])
    lines = _Lines("listed" if wanted.principal is None else "owner", [], _others(reading, wanted))
    owner = () if wanted.principal is None else (wanted.principal,)
    for listed in _LISTED[wanted.state]:
        for head in _of_kinds(reading, lines, (*owner, listed), wanted):
            for prefix in _of_queues(reading, lines, head, wanted):
                lines.prefixes.append(prefix)
                if len(lines.prefixes) > MAX_LISTED_LINES:
                    return None
    return lines


def _of_kinds(reading: Reading, lines: _Lines, head: Key, wanted: JobFilter) -> Iterator[Key]:
    if wanted.kind is not None:
        yield (*head, wanted.kind)
    elif wanted.queue is not None or not _took_few(reading, lines, head):
        yield from ((*head, kind) for kind in reading.distinct(Range(JOB, lines.by, head, MAX_LISTED_LINES + 1)))


def _of_queues(reading: Reading, lines: _Lines, head: Key, wanted: JobFilter) -> Iterator[Key]:
    if wanted.queue is not None:
        yield (*head, wanted.queue)
    elif not _took_few(reading, lines, head):
        yield from ((*head, queue) for queue in reading.distinct(Range(JOB, lines.by, head, MAX_LISTED_LINES + 1)))


def _took_few(reading: Reading, lines: _Lines, head: Key) -> bool:
    """Add the ids of all lines with this key prefix if there are at most FEW; returns whether it did."""
    keys = reading.keys(Range(JOB, lines.by, head, FEW + 1))
    if len(keys) <= FEW:
        lines.ids.extend(key[0] for key in keys)
    return len(keys) <= FEW


def _others(reading: Reading, wanted: JobFilter) -> list[bytes]:
    """Ids of jobs in other lines than those of their state: leased jobs, and ready jobs that are not promoted yet."""
    ranges: Sequence[Range] = ()
    if wanted.state == JobState.LEASED.value:
        leased = (reading.get(JOB_TOTALS, ALONE) or NO_TOTALS).leased
        ranges = (Range(JOB, "due", (LEASED,), max(1, leased), stop=(NEVER,)),)
    elif wanted.state == JobState.QUEUED.value:
        ranges = to_promote(reading.now.expiry_ms, MAX_LISTED_ROWS)
    return [key[0] for keys in reading.keys_each(ranges) for key in keys]


def _merged(reading: Reading, lines: _Lines, before: bytes | None, size: int) -> Iterator[JobRow]:
    """The jobs of the lines, newest first, read in portions."""
    while True:
        ids = _newest(reading, lines, before, size)
        jobs = reading.find(JOB, [(job_id,) for job_id in ids])
        yield from (jobs[job_id,] for job_id in ids)
        if len(ids) < size:
            return
        before = ids[-1]
        size = max(size, ROWS_AT_ONCE)


def _newest(reading: Reading, lines: _Lines, before: bytes | None, size: int) -> list[bytes]:
    """The newest ids before an id; no line is read further back than the page needs."""
    best = nlargest(size, (job_id for job_id in lines.ids if before is None or job_id < before))
    prefixes = iter(lines.prefixes)
    while some := list(islice(prefixes, LINES_AT_ONCE)):
        start = (best[-1],) if len(best) == size else ()
        stop = () if before is None else (before,)
        wanted = [Range(JOB, lines.by, prefix, size, start, stop, reverse=True) for prefix in some]
        best = nlargest(size, [*best, *(key[0] for keys in reading.keys_each(wanted) for key in keys)])
    return best


def _scanned(reading: Reading, wanted: JobFilter, before: bytes | None, limit: int) -> JobPage:
    """A page from a scan of all jobs; it ends after MAX_LISTED_ROWS rows with the id to continue after."""
    now_ms, steady_ms, found = reading.now.expiry_ms, reading.now.steady_ms, list[JobRow]()
    for _ in range(MAX_LISTED_ROWS // ROWS_AT_ONCE):
        stop = (before,) if before else ()
        rows = reading.range(Range(JOB, "", (), ROWS_AT_ONCE, stop=stop, reverse=True))
        for job in rows:
            before = job.id
            if wanted.holds(job, now_ms):
                found.append(job)
                if len(found) == limit:
                    return JobPage(found, before, now_ms, steady_ms)
        if len(rows) < ROWS_AT_ONCE:
            return JobPage(found, None, now_ms, steady_ms)
    return JobPage(found, before, now_ms, steady_ms)
