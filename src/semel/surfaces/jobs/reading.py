"""Queries over a snapshot: one job, the dead letter queue, queues, schedules, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.kernel.verdict import NEVER
from semel.store.protocol import Range
from semel.surfaces.jobs.commands import RateLimit
from semel.surfaces.jobs.limits import MAX_LISTED_ROWS
from semel.surfaces.jobs.lists import JobFilter, list_jobs
from semel.surfaces.jobs.rules.claim import MAX_LINES
from semel.surfaces.jobs.rules.idempotency import key_end
from semel.surfaces.jobs.rules.rate_limit import token_wait_ms, tokens
from semel.surfaces.jobs.rules.schedules import to_promote
from semel.surfaces.jobs.rules.states import JobState, state_of
from semel.surfaces.jobs.schedule_table import JOB_SCHEDULE, JobScheduleRow
from semel.surfaces.jobs.tables import (
    ALONE,
    INLINE_BYTES,
    JOB,
    JOB_DEAD,
    JOB_EXPIRY,
    JOB_GROUP,
    JOB_KIND,
    JOB_LINE,
    JOB_MEMBER,
    JOB_PART,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_TOTALS,
    LEASED,
    NO_TOTALS,
    PARAMS,
    RESULT,
    WAITING,
    JobGroupRow,
    JobMemberRow,
    JobQueueRow,
    JobRecordRow,
    JobRow,
)

MAX_COUNTED = 10_000
"""Counting stops here, because a gauge is not worth a scan of a million rows."""
MAX_QUEUES, MAX_SCHEDULES = 1_000, 1_000


class JobDetails(NamedTuple):
    """One job with its large parts, in one snapshot."""

    job: JobRow
    params: bytes
    result: bytes | None
    expires_at: int | None
    now_ms: int
    steady_ms: int
    group: JobGroupRow | None = None
    """The jobs that it waits for, or has waited for."""


class MembersPage(NamedTuple):
    """Members of a group in the order of their submission, each with its job if that is kept."""

    members: list[tuple[JobMemberRow, JobRow | None]]
    next: bytes | None
    now_ms: int


def members_page(reading: Reading, group: bytes, after: bytes | None, limit: int) -> MembersPage:
    """A page of the members of a group, or of the children of a job."""
    start = () if after is None else (after + b"\0",)
    rows: Sequence[JobMemberRow] = reading.range(Range(JOB_MEMBER, "", (group,), limit + 1, start=start))
    jobs = reading.find(JOB, [(row.id,) for row in rows[:limit]])
    found = [(row, jobs.get((row.id,))) for row in rows[:limit]]
    return MembersPage(found, found[-1][0].id if len(rows) > limit else None, reading.now.expiry_ms)


def unsettled_groups(reading: Reading, limit: int) -> list[bytes]:
    """The groups whose members have to be cancelled."""
    return [key[0] for key in reading.keys(Range(JOB_GROUP, "unsettled", (0,), limit))]


def job_details(reading: Reading, job_id: bytes, *, with_params: bool = True) -> JobDetails | None:
    """A job by its id."""
    job = reading.get(JOB, (job_id,))
    if job is None:
        return None
    params = _part(reading, job, PARAMS, job.params, job.params_bytes) if with_params else b""
    result = _part(reading, job, RESULT, job.result, job.result_bytes) if job.result_bytes else None
    now = reading.now
    group = reading.get(JOB_GROUP, (job_id,)) if job.links else None
    return JobDetails(job, params, result, _expiry(job, now.expiry_ms), now.expiry_ms, now.steady_ms, group)


def large_params(reading: Reading, jobs: Sequence[JobRow]) -> dict[bytes, bytes]:
    """The params that are stored in separate rows, by job id."""
    keys = [(job.id, PARAMS) for job in jobs if job.params_bytes > INLINE_BYTES]
    return {key[0]: row.data for key, row in reading.find(JOB_PART, keys).items()} if keys else {}


def record_of(reading: Reading, principal: bytes, key: bytes) -> JobRecordRow | None:
    """The record of a key, if it has not expired."""
    record = reading.get(JOB_RECORD, (principal, key))
    job = None if record is None else reading.get(JOB, (record.job,))
    return record if record and job is not None and reading.now.expiry_ms < key_end(record, job) else None


class JobDeadLetter(NamedTuple):
    """A dead letter and its error."""

    job: JobRow
    error: bytes | None


def dead_letters(reading: Reading, before: tuple[int, bytes] | None, limit: int) -> list[JobDeadLetter]:
    """The newest dead letters before a position."""
    places = reading.range(Range(JOB_DEAD, "", (), limit, stop=before or (), reverse=True))
    jobs = reading.find(JOB, [(place.id,) for place in places])
    letters = []
    for place in places:
        job = jobs.get((place.id,))
        if job is not None:
            letters.append(JobDeadLetter(job, _part(reading, job, RESULT, job.result, job.result_bytes)))
    return letters


class QueueFacts(NamedTuple):
    """A queue: its limit, its leases, and its waiting jobs."""

    name: bytes
    max_inflight: int
    inflight: int
    waiting: int
    default_timeout_ms: int
    rate: RateLimit
    starts_left: int
    """The number of jobs that the rate limit allows to start now."""


def queues(reading: Reading) -> list[QueueFacts]:
    """Every queue that has jobs or a limit."""
    waiting: Counter[bytes] = Counter()
    for line in reading.range(Range(JOB_LINE, "", (), MAX_LINES)):
        waiting[line.queue] += line.waiting
    rows = {row.queue: row for row in reading.range(Range(JOB_QUEUE, "", (), MAX_QUEUES))}
    names = sorted({*waiting, *rows})[:MAX_QUEUES]
    return [_facts(reading, name, rows.get(name), waiting[name]) for name in names]


def queue_of(reading: Reading, name: bytes) -> QueueFacts:
    """One queue, with or without jobs."""
    row = reading.get(JOB_QUEUE, (name,))
    lines = reading.find(JOB_LINE, [(priority, name) for priority in range(10)])
    return _facts(reading, name, row, sum(line.waiting for line in lines.values()))


def _facts(reading: Reading, name: bytes, row: JobQueueRow | None, waiting: int) -> QueueFacts:
    row = row or JobQueueRow(name, 0, 0, 0, 0, 0)
    rate, left = RateLimit(row.rate_count, row.rate_ms), tokens(row, reading.now.steady_ms)
    return QueueFacts(name, row.max_inflight, row.leased, waiting, row.default_timeout_ms, rate, left)


def schedules(reading: Reading) -> list[JobScheduleRow]:
    """Every schedule, by name."""
    return list(reading.range(Range(JOB_SCHEDULE, "", (), MAX_SCHEDULES)))


def schedule_of(reading: Reading, name: bytes) -> JobScheduleRow | None:
    """One schedule."""
    return reading.get(JOB_SCHEDULE, (name,))


def due_schedules(reading: Reading, limit: int) -> list[bytes]:
    """The names of schedules that are due."""
    now_ms = reading.now.expiry_ms
    rows = reading.range(Range(JOB_SCHEDULE, "next", (), limit, stop=(now_ms + 1,)))
    return [row.name for row in rows]


class WaitingJobs(NamedTuple):
    """Waiting jobs by kind and queue, each with a time before which none can be claimed; None if there are too many."""

    lines: list[tuple[bytes, bytes, int]] | None
    now_ms: int


def waiting_lines(reading: Reading) -> WaitingJobs:
    """The waiting jobs, and the time to compare them with."""
    totals = reading.get(JOB_TOTALS, ALONE) or NO_TOTALS
    rows = reading.range(Range(JOB_KIND, "", (), MAX_LINES))
    now_ms = max(reading.now.expiry_ms, totals.updated_at)
    if len(rows) == MAX_LINES:
        return WaitingJobs(None, now_ms)
    waits = _token_waits(reading, {row.queue for row in rows})
    lines = [(row.kind, row.queue, max(row.ready_at, waits.get(row.queue, 0) + now_ms)) for row in rows]
    return WaitingJobs(lines, now_ms)


def _token_waits(reading: Reading, queues: Iterable[bytes]) -> dict[bytes, int]:
    """The milliseconds until the rate limit of each queue allows a start."""
    rows = reading.find(JOB_QUEUE, [(queue,) for queue in queues]).values()
    return {row.queue: token_wait_ms(row, reading.now.steady_ms) for row in rows}


def leased_ids(reading: Reading, behind: tuple[int, bytes] | None, limit: int) -> list[tuple[int, bytes]]:
    """The leased jobs in the order in which their leases end: end and id."""
    start = () if behind is None else (behind[0], behind[1] + b"\0")
    return [(job.due_at, job.id) for job in reading.stored(Range(JOB, "due", (LEASED,), limit, start, (NEVER,)))]


class JobGauges(NamedTuple):
    """The counts of all queues."""

    scheduled: int
    queued: int
    leased: int
    dead: int
    records: int
    oldest_ready_ms: int

    @property
    def waiting(self) -> int:
        """All waiting jobs: scheduled and queued."""
        return self.scheduled + self.queued


def gauges(reading: Reading) -> JobGauges:
    """Current counts. Jobs that have just become ready, and expired rows not swept yet, are counted up to a limit."""
    totals = reading.get(JOB_TOTALS, ALONE) or NO_TOTALS
    now = reading.now
    oldest = now.expiry_ms
    for line in reading.range(Range(JOB_LINE, "", (), MAX_LINES)):
        first = reading.range(Range(JOB, "ready", (WAITING, line.queue, line.priority), 1))
        if first:
            oldest = min(oldest, first[0].ready_at)
    stale = reading.keys(Range(JOB_EXPIRY, "", (), MAX_COUNTED, stop=(now.expiry_ms + 1,)))
    got_ready = reading.keys(to_promote(now.expiry_ms, MAX_COUNTED)[0])
    scheduled = totals.scheduled - len(got_ready)
    return JobGauges(
        scheduled,
        totals.waiting - scheduled,
        totals.leased,
        totals.dead,
        totals.records - len(stale),
        now.expiry_ms - oldest,
    )


class JobCensus(NamedTuple):
    """The jobs part of a diagnosis: counts, and the oldest ready and leased jobs; no params, no keys."""

    by_state: dict[str, int]
    by_queue: dict[str, int]
    by_kind: dict[str, int]
    oldest_ready: list[JobRow]
    oldest_leased: list[JobRow]
    oldest_record_at: int | None
    records: int
    is_complete: bool
    """Whether all jobs were counted; only the newest are, up to a limit."""
    now_ms: int


def census(reading: Reading, oldest: int) -> JobCensus:
    """Counts over the newest jobs, and the oldest of those that are ready and leased."""
    now_ms = reading.now.expiry_ms
    states: Counter[str] = Counter({state.value: 0 for state in JobState if state is not JobState.NONE})
    in_queues: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    page = list_jobs(reading, JobFilter(None, None, None, None), None, MAX_LISTED_ROWS)
    for job in page.jobs:
        states[state_of(job, now_ms).value] += 1
        in_queues[job.queue.decode()] += 1
        kinds[job.kind.decode()] += 1
    ready: list[JobRow] = []
    for line in reading.range(Range(JOB_LINE, "", (), MAX_LINES)):
        wanted = Range(JOB, "ready", (WAITING, line.queue, line.priority), oldest, stop=(now_ms + 1,))
        ready = sorted([*ready, *reading.range(wanted)], key=lambda job: job.ready_at)[:oldest]
    leased = reading.range(Range(JOB, "due", (LEASED,), oldest, stop=(NEVER,)))
    first = reading.range(Range(JOB_EXPIRY, "", (), 1))
    records = reading.find(JOB_RECORD, [(row.principal, row.key) for row in first]).values()
    # No record has an expiry: then each belongs to a job that has not ended.
    kept_since = [row.created_at for row in records] or [job.created_at for job in page.jobs if job.key]
    totals = reading.get(JOB_TOTALS, ALONE) or NO_TOTALS
    return JobCensus(
        dict(states),
        dict(in_queues.most_common(100)),
        dict(kinds.most_common(100)),
        ready,
        list(leased),
        min(kept_since, default=None),
        totals.records,
        page.next is None,
        now_ms,
    )


def _part(reading: Reading, job: JobRow, part: int, inline: bytes, size: int) -> bytes:
    if size <= INLINE_BYTES:
        return inline
    row = reading.get(JOB_PART, (job.id, part))
    return b"" if row is None else row.data


def _expiry(job: JobRow, now_ms: int) -> int | None:
    until = abs(job.key_until)
    return until if now_ms < until < NEVER else None
