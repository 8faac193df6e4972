"""Claims: the most urgent ready jobs, leased in the commit that selects them.

The order is strict: priority, then the time at which a job became ready, then its creation. A line is the jobs that
wait in one queue at one priority, or those of one kind there. Each line has a count, and a time before which no job in
it is ready. A claim therefore reads only lines that may have a ready job, and takes from the front of each: its cost
does not grow with the length of the queue. A queue at its limit, or without tokens of its rate limit, is skipped.

The worker of a waiting claim may have died or been disconnected meanwhile, so the claim gets an offer: the offer
becomes a lease with the next request of the worker, and lapses soon without one.

A crash after the commit and before the answer leaves leases that expire; a named claim gets them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from semel.engine.contract import DecisionResult, MissingRowsError, Stage, View, demand, demand_ranges
from semel.kernel.clock import Now
from semel.kernel.keys import pack
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.jobs.commands import ClaimJobs, JobLease, JobNote, JobsClaimed
from semel.surfaces.jobs.limits import LEAST_URGENT, JobPolicy, reaches
from semel.surfaces.jobs.rules.counters import JobCounters, counted_keys
from semel.surfaces.jobs.rules.leases import token
from semel.surfaces.jobs.rules.rate_limit import UNBOUNDED, settled, take_tokens, token_wait_ms, tokens
from semel.surfaces.jobs.rules.reaper import ReapResult, in_time, leases_until, offer_ms, reap_first
from semel.surfaces.jobs.tables import (
    ALONE,
    JOB,
    JOB_CLAIM,
    JOB_KIND,
    JOB_LINE,
    JOB_QUEUE,
    JOB_SEAL,
    JOB_TOTALS,
    LEASED,
    WAITING,
    JobClaimRow,
    JobKindRow,
    JobLineRow,
    JobQueueRow,
    JobRow,
    JobSealRow,
)

MAX_LINES = 4_096
"""Limit on the lines that one claim reads; lines that have been ready for longest come first."""

MAX_FRONTS = 512
"""Limit on the lines whose first job one claim reads."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Limit on the bytes of params in one claim; a single larger job is still returned."""

ENOUGH = 1_000
"""Lines are loaded ahead until they hold this many jobs, because other claims in the same batch take from them too."""

_ID_BYTES, _LEASE_BYTES = 16, 24


class JobLine(NamedTuple):
    """Jobs of one priority in one queue, or only those of one kind."""

    priority: int
    queue: bytes
    kind: bytes | None
    waiting: int
    ready_at: int

    def front(self, most: int) -> Range:
        """The first jobs of the line."""
        if self.kind is None:
            return Range(JOB, "ready", (WAITING, self.queue, self.priority), most)
        return Range(JOB, "kind", (WAITING, self.kind, self.queue, self.priority), most)


def claim_needs(command: ClaimJobs) -> Generator[Stage, View, None]:
    """Counts and lines; then the fronts of the most urgent lines."""
    keys: list[tuple[AnyTable, Key]] = [(JOB_TOTALS, ALONE), (JOB_SEAL, ALONE), *_line_keys(command)]
    if command.claim:
        keys.append((JOB_CLAIM, _claim_key(command)))
    view = yield Stage(keys=keys, ranges=[*_line_ranges(command), leases_until(command.reap_until, 1)])
    # This clock is the caller's: exact enough to choose what to load; the decision compares again.
    lines = _lines(view, command, command.asked_at)
    keys = [(JOB_QUEUE, (line.queue,)) for line in lines]
    known = view.get(JOB_CLAIM, _claim_key(command)) if command.claim else None
    if known is not None:
        keys += [(JOB, (job_id,)) for job_id, _ in epochs_of(known)]
    if keys:
        view = yield Stage(keys=keys)
    found = 0
    open_lines = [line for line in lines if free_slots(view, line.queue, command.asked_at) > 0]
    for some in _by_priority(open_lines[:MAX_FRONTS]):
        view = yield Stage(ranges=[line.front(command.most) for line in some])
        fronts = [view.range(line.front(command.most)) for line in some]
        yield Stage(keys={pair: None for front in fronts for job in front for pair in counted_keys(job)})
        found += sum(
            min(line.waiting, free_slots(view, line.queue, command.asked_at))
            if front[-1].ready_at <= command.asked_at
            else len(front)
            for line, front in zip(some, fronts, strict=True)
            if front
        )
        if found >= ENOUGH:
            return


def claim(view: View, command: ClaimJobs, policy: JobPolicy, now: Now) -> DecisionResult:
    """Select, lease and count jobs."""
    counters = JobCounters(view, policy, now)
    secret = _secret(view, command)
    reaped = reap_first(counters, command.reap_until) if counters.now.steady_ms <= command.reap_until else ReapResult()
    notes, topics = reaped.notes, tuple(reaped.topics)
    now_ms, steady_ms = counters.now.ms, counters.now.steady_ms
    again = _repeated(counters, command, secret)
    is_silenced = command.waits and (command.principal, command.worker) in reaped.silent
    if again or is_silenced:
        counters.store()
        answer = JobsClaimed(again, now_ms, steady_ms, notes=tuple(notes), is_silenced=is_silenced and not again)
        return DecisionResult(answer, signals=topics)
    choice = _choose(counters, command)
    leases = tuple(_lease(counters, command, job, secret) for job in choice.jobs)
    if command.claim and leases:
        _remember(counters, command, leases)
    counters.store()
    if choice.full is not None:
        notes.append(JobNote("RATE_LIMITED" if choice.wait_ms else "INFLIGHT_SATURATED", choice.full))
    is_saturated = choice.full is not None and not choice.wait_ms
    answer = JobsClaimed(leases, now_ms, steady_ms, is_saturated, tuple(notes), token_wait_ms=choice.wait_ms)
    return DecisionResult(answer, signals=topics)


def epochs_of(row: JobClaimRow) -> Iterator[tuple[bytes, int]]:
    """The jobs and epochs of a named claim."""
    for start in range(0, len(row.leases), _LEASE_BYTES):
        lease = row.leases[start : start + _LEASE_BYTES]
        yield lease[:_ID_BYTES], int.from_bytes(lease[_ID_BYTES:], "big")


def _packed(job: JobRow) -> bytes:
    """For each job the 16 bytes of its id, and eight bytes of its epoch."""
    return job.id + job.epoch.to_bytes(8, "big")


class _Choice(NamedTuple):
    jobs: list[JobRow]
    full: Mapping[str, Any] | None = None
    """The limit that was reached, if jobs wait but none may be leased."""
    wait_ms: int = 0
    """If that is a rate limit: the time until a queue has a token."""


def _choose(counters: JobCounters, command: ClaimJobs) -> _Choice:
    """The jobs to lease, or the limit that prevents it."""
    policy, now_ms = counters.policy, counters.now.ms
    room = command.most
    if policy.max_inflight:
        room = min(room, policy.max_inflight - counters.totals.leased)
    if room <= 0:
        return _Choice([], {"inflight": counters.totals.leased, "max": policy.max_inflight})
    pick = _Pick(counters, room)
    pick.take_all(_lines(counters.view, command, now_ms))
    demand(counters.view, [pair for job in pick.jobs for pair in counted_keys(job)])
    if pick.shut is None:
        return _Choice(pick.jobs)
    row = counters.queue(pick.shut)
    if pick.wait_ms:
        return _Choice([], {"queue": row.queue.decode(), "count": row.rate_count, "per_ms": row.rate_ms}, pick.wait_ms)
    return _Choice([], {"inflight": row.leased, "max": row.max_inflight, "queue": row.queue.decode()})


class _Pick:
    """The jobs selected so far, and the limits on further ones."""

    def __init__(self, counters: JobCounters, room: int) -> None:
        self._counters = counters
        self._room = room
        self._taken: Counter[bytes] = Counter()
        self._bytes = 0
        self.jobs: list[JobRow] = []
        self.is_full = False
        self.shut: bytes | None = None
        """A queue at its limit, if all waiting jobs are in such queues."""
        self.wait_ms = 0
        """The time until `shut` has a token, if it waits for one alone."""

    def take_all(self, lines: Sequence[JobLine]) -> None:
        """Take jobs from the lines until there are enough."""
        view = self._counters.view
        demand(view, [(JOB_QUEUE, (line.queue,)) for line in lines])
        for queue in dict.fromkeys(line.queue for line in lines):
            self._settle(queue)
        free = [line for line in lines if self._free(line.queue) > 0]
        if lines and not free:
            self._shut(lines)
        free = free[:MAX_FRONTS]
        for group in _by_priority(free):
            try:
                self._offer(group)
            except MissingRowsError:
                # Request all further lines now: otherwise the decision would run again for each line.
                demand_ranges(view, [line.front(self._room - len(self.jobs)) for line in free])
                raise
            if self.is_full:
                return

    def _settle(self, queue: bytes) -> None:
        row = self._counters.queue(queue)
        now = settled(row, self._counters.now.steady_ms)
        if now is not row:
            self._counters.keep_queue(now)

    def _shut(self, lines: Sequence[JobLine]) -> None:
        """No queue may give a job: find the one that has a token first, if a rate limit alone keeps one from it."""
        rows = [self._counters.queue(queue) for queue in dict.fromkeys(line.queue for line in lines)]
        waits = [(token_wait_ms(row, self._counters.now.steady_ms), row.queue) for row in rows if _has_slot(row)]
        self.wait_ms, self.shut = min(waits, default=(0, lines[0].queue))

    def _offer(self, lines: Sequence[JobLine]) -> None:
        """Take as many jobs as allowed from the fronts of lines of one priority."""
        now_ms = self._counters.now.ms
        most = self._room - len(self.jobs)
        rows: list[JobRow] = []
        for line in lines:
            front: Sequence[JobRow] = self._counters.view.range(line.front(most))
            rows += [job for job in front if job.ready_at <= now_ms]
            if front and front[0].ready_at > now_ms:
                self._tighten(line, front[0].ready_at)
        for job in sorted(rows, key=_place):
            if self._free(job.queue) > 0 and not self.is_full:
                self._take(job)

    def _tighten(self, line: JobLine, ready_at: int) -> None:
        """Store that no job in this line is ready before `ready_at`, so that the next claim can skip it."""
        place = (line.priority, line.queue)
        if line.kind is None:
            self._counters.view.put(JOB_LINE, JobLineRow(*place, line.waiting, ready_at))
        else:
            self._counters.view.put(JOB_KIND, JobKindRow(line.kind, *place, line.waiting, ready_at))

    def _take(self, job: JobRow) -> None:
        self._bytes += job.params_bytes
        if self.jobs and self._bytes > MAX_ANSWER_BYTES:
            self.is_full = True
            return
        self.jobs.append(job)
        self._taken[job.queue] += 1
        self.is_full = len(self.jobs) >= self._room

    def _free(self, queue: bytes) -> int:
        return free_slots(self._counters.view, queue, self._counters.now.steady_ms) - self._taken[queue]


def _place(job: JobRow) -> tuple[int, bytes]:
    return job.ready_at, job.id


def _lease(counters: JobCounters, command: ClaimJobs, job: JobRow, secret: bytes) -> JobLease:
    held_ms = min(job.lease_ms, command.lease_ms or job.lease_ms)
    timeout_ms = job.timeout_ms if job.timeout_ms >= 0 else counters.queue(job.queue).default_timeout_ms
    leased = job._replace(
        phase=LEASED,
        attempt=job.attempt + 1,
        epoch=job.epoch + 1,
        held_ms=held_ms,
        claimed_at=counters.now.steady_ms,
        worker=command.worker,
        holder=command.principal,
        ended_by=0,
        progress=b"",
        offered=int(command.waits and counters.policy.offer_ms > 0),
        timeout_at=counters.now.steady_ms + timeout_ms if timeout_ms else 0,
        lease=(job.epoch + 1).to_bytes(8, "big"),
    )
    leased = leased._replace(due_at=in_time(leased, counters.now.steady_ms + offer_ms(leased, counters.policy)))
    counters.move(job, leased)
    queue = counters.queue(job.queue)
    if queue.rate_count:
        counters.keep_queue(take_tokens(queue, 1, counters.now.steady_ms))
    return JobLease(leased, token(secret, job.id, leased.epoch))


def _secret(view: View, command: ClaimJobs) -> bytes:
    row = view.get(JOB_SEAL, ALONE)
    if row is not None:
        return row.secret
    view.insert(JOB_SEAL, JobSealRow(b"", command.secret))
    return command.secret


def _repeated(counters: JobCounters, command: ClaimJobs, secret: bytes) -> tuple[JobLease, ...]:
    """The leases that this named claim got before, if they are still held."""
    known = counters.view.get(JOB_CLAIM, _claim_key(command)) if command.claim else None
    if known is None:
        return ()
    jobs = [(counters.view.get(JOB, (job_id,)), epoch) for job_id, epoch in epochs_of(known)]
    return tuple(
        JobLease(job, token(secret, job.id, epoch))
        for job, epoch in jobs
        if job is not None and job.phase == LEASED and job.epoch == epoch
    )


def _remember(counters: JobCounters, command: ClaimJobs, leases: tuple[JobLease, ...]) -> None:
    packed = b"".join(_packed(lease.job) for lease in leases)
    until = max(lease.job.due_at for lease in leases)
    counters.view.put(JOB_CLAIM, JobClaimRow(*_claim_key(command), until, packed))


def _claim_key(command: ClaimJobs) -> tuple[bytes, bytes]:
    """The key of a named claim: it belongs to a worker, and the name of a worker to a principal."""
    return pack(len(command.principal).to_bytes(2, "big") + command.principal + command.worker), command.claim


def _line_keys(command: ClaimJobs) -> list[tuple[AnyTable, Key]]:
    """The keys of the lines of named queues, which are known in advance."""
    if command.kinds:
        return []
    return [(JOB_LINE, (priority, queue)) for queue in command.queues for priority in range(LEAST_URGENT + 1)]


def _line_ranges(command: ClaimJobs) -> list[Range]:
    """The ranges of the lines of named kinds, or of all lines."""
    if command.kinds:
        return [Range(JOB_KIND, "ready", (kind,), MAX_LINES) for kind in command.kinds]
    return [] if command.queues else [Range(JOB_LINE, "ready", (), MAX_LINES)]


def _lines(view: View, command: ClaimJobs, now_ms: int) -> list[JobLine]:
    """The lines that the claim may take from and that may have a ready job, most urgent first."""
    found = [view.get(table, key) for table, key in _line_keys(command)]
    rows = [row for row in found if row is not None]
    rows += [row for wanted in _line_ranges(command) for row in view.range(wanted)]
    lines = [
        JobLine(row.priority, row.queue, row.kind if command.kinds else None, row.waiting, row.ready_at)
        for row in rows
        if row.ready_at <= now_ms and _is_wanted(row.queue, command)
    ]
    return sorted(lines)


def _by_priority(lines: Sequence[JobLine]) -> Iterator[list[JobLine]]:
    for _, some in groupby(lines, key=lambda line: line.priority):
        yield list(some)


def _is_wanted(queue: bytes, command: ClaimJobs) -> bool:
    if command.queues and queue not in command.queues:
        return False
    return command.reach is None or reaches(command.reach, queue)


def free_slots(view: View, queue: bytes, steady_ms: int) -> int:
    """The number of further jobs of a queue that may be leased now."""
    row = view.get(JOB_QUEUE, (queue,))
    if row is None:
        return UNBOUNDED
    slots = row.max_inflight - row.leased if row.max_inflight else UNBOUNDED
    return min(slots, tokens(row, steady_ms))


def _has_slot(row: JobQueueRow) -> bool:
    return not row.max_inflight or row.leased < row.max_inflight
