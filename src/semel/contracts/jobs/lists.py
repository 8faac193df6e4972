"""Lists of jobs (pagination): a page is full unless the list ends, and its cost follows its size.

The indexes "listed" and "owner" hold a *line* for each kind and queue, of all jobs or of one owner's: its jobs in the
order of their creation, apart by where lists find them (`listed` of a job). A page is merged from the lines that a
filter leaves, which are as many as there are kinds and queues and not as many as there are jobs. Jobs that are leased
are in no line of their own, because every claim would have to move them: they are few, and found by their leases. What
was found is judged again by the row itself, so that a line may hold more than the state that is asked for: queued jobs
stand with leased ones, and those that have just become ready with scheduled ones, until they are promoted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice
from typing import NamedTuple

from semel.contracts.jobs.limits import MAX_LISTED_LINES, MAX_LISTED_ROWS
from semel.contracts.jobs.rules.promote import to_promote
from semel.contracts.jobs.rules.states import State, state_of
from semel.contracts.jobs.tables import (
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
from semel.engine.reading import Reading
from semel.store.protocol import Range
from semel.store.table import Key

FEW = 128
"""Lines that have no more jobs than this together are read whole, without asking which lines they are."""
LINES_AT_ONCE = 64
ROWS_AT_ONCE = 500

_LISTED = {
    None: (LISTED_SCHEDULED, LISTED_ACTIVE, LISTED_COMPLETED, LISTED_FAILED),
    State.SCHEDULED.value: (LISTED_SCHEDULED,),
    State.QUEUED.value: (LISTED_ACTIVE,),
    State.LEASED.value: (),
    State.COMPLETED.value: (LISTED_COMPLETED,),
    State.FAILED.value: (LISTED_FAILED,),
}
"""The index values of the jobs in a state, besides those that are found otherwise; None is any state."""


class Filter(NamedTuple):
    """The filter of a list; None matches anything."""

    principal: bytes | None
    state: str | None
    queue: bytes | None
    kind: bytes | None

    def holds(self, job: JobRow, now_ms: int) -> bool:
        """Whether a job belongs in it."""
        return (
            (self.principal is None or job.principal == self.principal)
            and (self.state is None or state_of(job, now_ms).value == self.state)
            and (self.queue is None or job.queue == self.queue)
            and (self.kind is None or job.kind == self.kind)
        )


_EVERYTHING = Filter(None, None, None, None)


class Page(NamedTuple):
    """Jobs, newest first, and where to go on; None at the end of the list."""

    jobs: list[JobRow]
    next: bytes | None
    now_ms: int
    steady_ms: int


class _Lines(NamedTuple):
    """The index lines that may have jobs of a list."""

    by: str
    prefixes: list[Key]
    """Key prefixes of lines, each in the order of creation."""
    ids: list[bytes]
    """Ids of further jobs, in no order."""


def list_jobs(reading: Reading, wanted: Filter, before: bytes | None, limit: int) -> Page:
    """The newest jobs before an id that fit."""
    lines = _lines(reading, wanted)
    if lines is None:
        return _scanned(reading, wanted, before, limit)
    now_ms, found = reading.now.expiry_ms, list[JobRow]()
    for job in _merged(reading, lines, before, limit + 1):
        if wanted.holds(job, now_ms):
            found.append(job)
            if len(found) > limit:
                return Page(found[:limit], found[limit - 1].id, now_ms, reading.now.steady_ms)
    return Page(found, None, now_ms, reading.now.steady_ms)


def _lines(reading: Reading, wanted: Filter) -> _Lines | None:
    """Every line that a filter leaves; None if they are too many."""
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


def _of_kinds(reading: Reading, lines: _Lines, head: Key, wanted: Filter) -> Iterator[Key]:
    if wanted.kind is not None:
        yield (*head, wanted.kind)
    elif wanted.queue is not None or not _took_few(reading, lines, head):
        yield from ((*head, kind) for kind in reading.distinct(Range(JOB, lines.by, head, MAX_LISTED_LINES + 1)))


def _of_queues(reading: Reading, lines: _Lines, head: Key, wanted: Filter) -> Iterator[Key]:
    if wanted.queue is not None:
        yield (*head, wanted.queue)
    elif not _took_few(reading, lines, head):
        yield from ((*head, queue) for queue in reading.distinct(Range(JOB, lines.by, head, MAX_LISTED_LINES + 1)))


def _took_few(reading: Reading, lines: _Lines, head: Key) -> bool:
    """Take the ids of all lines that begin so, if they are few."""
    keys = reading.keys(Range(JOB, lines.by, head, FEW + 1))
    if len(keys) <= FEW:
        lines.ids.extend(key[0] for key in keys)
    return len(keys) <= FEW


def _others(reading: Reading, wanted: Filter) -> list[bytes]:
    """Jobs of a state with another index value: leased ones, and those that are ready and not promoted yet."""
    ranges: Sequence[Range] = ()
    if wanted.state == State.LEASED.value:
        leased = (reading.get(JOB_TOTALS, ALONE) or NO_TOTALS).leased
        ranges = (Range(JOB, "due", (LEASED,), max(1, leased)),)
    elif wanted.state == State.QUEUED.value:
        ranges = to_promote(reading.now.expiry_ms, MAX_LISTED_ROWS)
    return [key[0] for keys in reading.keys_each(ranges) for key in keys]


def _merged(reading: Reading, lines: _Lines, before: bytes | None, size: int) -> Iterator[JobRow]:
    """The jobs of the lines, newest first, a portion at a time."""
    while True:
        ids = _newest(reading, lines, before, size)
        jobs = reading.find(JOB, [(job_id,) for job_id in ids])
        yield from (jobs[job_id,] for job_id in ids)
        if len(ids) < size:
            return
        before = ids[-1]
        size = max(size, ROWS_AT_ONCE)


def _newest(reading: Reading, lines: _Lines, before: bytes | None, size: int) -> list[bytes]:
    """The newest ids before one: no line is read further back than the page needs it."""
    best = nlargest(size, (job_id for job_id in lines.ids if before is None or job_id < before))
    prefixes = iter(lines.prefixes)
    while some := list(islice(prefixes, LINES_AT_ONCE)):
        start = (best[-1],) if len(best) == size else ()
        stop = () if before is None else (before,)
        wanted = [Range(JOB, lines.by, prefix, size, start, stop, reverse=True) for prefix in some]
        best = nlargest(size, [*best, *(key[0] for keys in reading.keys_each(wanted) for key in keys)])
    return best


def _scanned(reading: Reading, wanted: Filter, before: bytes | None, limit: int) -> Page:
    """A page by reading every job: it ends after MAX_LISTED_ROWS rows, with the position to go on from."""
    now_ms, steady_ms, found = reading.now.expiry_ms, reading.now.steady_ms, list[JobRow]()
    for _ in range(MAX_LISTED_ROWS // ROWS_AT_ONCE):
        stop = (before,) if before else ()
        rows = reading.range(Range(JOB, "", (), ROWS_AT_ONCE, stop=stop, reverse=True))
        for job in rows:
            before = job.id
            if wanted.holds(job, now_ms):
                found.append(job)
                if len(found) == limit:
                    return Page(found, before, now_ms, steady_ms)
        if len(rows) < ROWS_AT_ONCE:
            return Page(found, None, now_ms, steady_ms)
    return Page(found, before, now_ms, steady_ms)
