"""Claims: the most urgent jobs that are ready, leased in the commit that selects them.

Order is strict: priority, then the instant a job became ready, then its order of creation. A line is the index of the
jobs that wait in one queue at one priority, or of one kind there; lines are counted, and have an instant before which
nothing in them is ready. So a claim reads only lines that may have a ready job, from the front of each: its cost does
not grow with the number of waiting jobs. A queue at its limit is skipped.

A claim that waited may be that of a worker that died or disconnected meanwhile. Its jobs are an offer, which becomes
a lease with the first call of the worker, and lapses soon without one.

A crash after the commit and before the answer leaves leases that expire; a named claim gets them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from semel.contracts.jobs.commands import Claim, Claimed, Lease, Note
from semel.contracts.jobs.ids import REQUEST_BYTES, foreign_name
from semel.contracts.jobs.limits import LEAST_URGENT, Policy
from semel.contracts.jobs.rules.reach import reaches
from semel.contracts.jobs.rules.reap import Toll, in_time, leases_until, offer_ms, reap_first
from semel.contracts.jobs.rules.tally import Tally, counted_keys
from semel.contracts.jobs.rules.tokens import token
from semel.contracts.jobs.tables import (
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
    JobRow,
    JobSealRow,
)
from semel.engine.contract import MissingRowsError, Outcome, Stage, View
from semel.engine.demand import demand, demand_ranges
from semel.kernel.clock import Now
from semel.kernel.keys import pack
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key

MAX_LINES = 4_096
"""Limit of lines that are read for one claim, those first that have been ready for longest."""

MAX_FRONTS = 512
"""Limit of lines whose first job a claim looks at."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""A claim takes no more params than this together, unless its first job has more alone."""

ENOUGH = 1_000
"""Lines are loaded ahead until they hold this number of jobs: others in the same batch claim from them too."""

UNBOUNDED = 2**31
_LEASE_BYTES = REQUEST_BYTES + 8


class Line(NamedTuple):
    """Jobs of one priority in one queue, perhaps of one kind only."""

    priority: int
    queue: bytes
    kind: bytes | None
    waiting: int
    ready_at: int

    def front(self, most: int) -> Range:
        """Its first jobs."""
        if self.kind is None:
            return Range(JOB, "ready", (WAITING, self.queue, self.priority), most)
        return Range(JOB, "kind", (WAITING, self.kind, self.queue, self.priority), most)


def claim_needs(command: Claim) -> Generator[Stage, View, None]:
    """Counts and lines; then the fronts of the most urgent ones."""
    keys: list[tuple[AnyTable, Key]] = [(JOB_TOTALS, ALONE), (JOB_SEAL, ALONE), *_line_keys(command)]
    if command.claim:
        keys.append((JOB_CLAIM, _claim_key(command)))
    view = yield Stage(keys=keys, ranges=[*_line_ranges(command), leases_until(command.reap_until, 1)])
    # The clock here is the caller's: exact enough to choose what to load, and the decision checks again.
    lines = _lines(view, command, command.asked_at)
    keys = [(JOB_QUEUE, (line.queue,)) for line in lines]
    known = view.get(JOB_CLAIM, _claim_key(command)) if command.claim else None
    if known is not None:
        keys += [(JOB, (job_id,)) for job_id, _ in epochs_of(known)]
    if keys:
        view = yield Stage(keys=keys)
    found = 0
    for some in _by_priority([line for line in lines if free_slots(view, line.queue) > 0][:MAX_FRONTS]):
        view = yield Stage(ranges=[line.front(command.most) for line in some])
        fronts = [view.range(line.front(command.most)) for line in some]
        yield Stage(keys={pair: None for front in fronts for job in front for pair in counted_keys(job)})
        found += sum(
            min(line.waiting, free_slots(view, line.queue)) if front[-1].ready_at <= command.asked_at else len(front)
            for line, front in zip(some, fronts, strict=True)
            if front
        )
        if found >= ENOUGH:
            return


def claim(view: View, command: Claim, policy: Policy, now: Now) -> Outcome:
    """Choose, lease and count."""
    tally = Tally(view, policy, now)
    secret = _secret(view, command)
    toll = reap_first(tally, command.reap_until) if tally.now.steady_ms <= command.reap_until else Toll()
    notes, topics = toll.notes, tuple(toll.topics)
    now_ms, steady_ms = tally.now.ms, tally.now.steady_ms
    again = _repeated(tally, command, secret)
    is_silenced = command.waits and (command.principal, command.worker) in toll.silent
    if again or is_silenced:
        tally.store()
        answer = Claimed(again, now_ms, steady_ms, notes=tuple(notes), is_silenced=is_silenced and not again)
        return Outcome(answer, signals=topics)
    choice = _choose(tally, command)
    leases = tuple(_lease(tally, command, job, secret) for job in choice.jobs)
    if command.claim and leases:
        _remember(tally, command, leases)
    tally.store()
    if choice.full is not None:
        notes.append(Note("INFLIGHT_SATURATED", choice.full))
    return Outcome(Claimed(leases, now_ms, steady_ms, choice.full is not None, tuple(notes)), signals=topics)


def epochs_of(row: JobClaimRow) -> Iterator[tuple[bytes, int]]:
    """The jobs and epochs of a named claim."""
    left = row.leases
    while left:
        name_bytes, epoch = left[REQUEST_BYTES], int.from_bytes(left[REQUEST_BYTES + 1 : _LEASE_BYTES], "big")
        name, rest = left[_LEASE_BYTES : _LEASE_BYTES + name_bytes], left[_LEASE_BYTES + name_bytes :]
        yield left[:REQUEST_BYTES] + name, epoch
        left = rest


def _packed(job: JobRow) -> bytes:
    """Sixteen bytes of the job, one that counts those of its foreign name, seven of its epoch; then that name."""
    name = foreign_name(job.id)
    return b"%b%c%b%b" % (job.id[:REQUEST_BYTES], len(name), job.epoch.to_bytes(7, "big"), name)


class _Choice(NamedTuple):
    jobs: list[JobRow]
    full: Mapping[str, Any] | None = None
    """The limit that was met, when something waits and no slot is free for any of it."""


def _choose(tally: Tally, command: Claim) -> _Choice:
    """The jobs to lease, or the limit that left none."""
    policy, now_ms = tally.policy, tally.now.ms
    room = command.most
    if policy.max_inflight:
        room = min(room, policy.max_inflight - tally.totals.leased)
    if room <= 0:
        return _Choice([], {"inflight": tally.totals.leased, "max": policy.max_inflight})
    pick = _Pick(tally, room)
    pick.take_all(_lines(tally.view, command, now_ms))
    demand(tally.view, [pair for job in pick.jobs for pair in counted_keys(job)])
    return _Choice(pick.jobs, None if pick.shut is None else _queue_full(tally.view, pick.shut))


def _queue_full(view: View, queue: bytes) -> Mapping[str, Any]:
    row = view.get(JOB_QUEUE, (queue,))
    assert row is not None
    return {"inflight": row.leased, "max": row.max_inflight, "queue": queue.decode()}


class _Pick:
    """The jobs selected so far, and what was read for it."""

    def __init__(self, tally: Tally, room: int) -> None:
        self._tally = tally
        self._room = room
        self._taken: Counter[bytes] = Counter()
        self._bytes = 0
        self.jobs: list[JobRow] = []
        self.is_full = False
        self.shut: bytes | None = None
        """A queue at its bound, if all that waits is in such queues."""

    def take_all(self, lines: Sequence[Line]) -> None:
        """Go through the lines until there are jobs enough."""
        view = self._tally.view
        demand(view, [(JOB_QUEUE, (line.queue,)) for line in lines])
        free = [line for line in lines if self._free(line.queue) > 0]
        self.shut = lines[0].queue if lines and not free else None
        free = free[:MAX_FRONTS]
        for group in _by_priority(free):
            try:
                self._offer(group)
            except MissingRowsError:
                # Whatever else is behind may be asked for next: all of it now, or this would go on line by line.
                demand_ranges(view, [line.front(self._room - len(self.jobs)) for line in free])
                raise
            if self.is_full:
                return

    def _offer(self, lines: Sequence[Line]) -> None:
        """Take what fits from the fronts of lines of one priority."""
        now_ms = self._tally.now.ms
        most = self._room - len(self.jobs)
        rows: list[JobRow] = []
        for line in lines:
            front: Sequence[JobRow] = self._tally.view.range(line.front(most))
            rows += [job for job in front if job.ready_at <= now_ms]
            if front and front[0].ready_at > now_ms:
                self._tighten(line, front[0].ready_at)
        for job in sorted(rows, key=_place):
            if self._free(job.queue) > 0 and not self.is_full:
                self._take(job)

    def _tighten(self, line: Line, ready_at: int) -> None:
        """Nothing in this line is ready before `ready_at`: the next claim need not look."""
        place = (line.priority, line.queue)
        if line.kind is None:
            self._tally.view.put(JOB_LINE, JobLineRow(*place, line.waiting, ready_at))
        else:
            self._tally.view.put(JOB_KIND, JobKindRow(line.kind, *place, line.waiting, ready_at))

    def _take(self, job: JobRow) -> None:
        self._bytes += job.params_bytes
        if self.jobs and self._bytes > MAX_ANSWER_BYTES:
            self.is_full = True
            return
        self.jobs.append(job)
        self._taken[job.queue] += 1
        self.is_full = len(self.jobs) >= self._room

    def _free(self, queue: bytes) -> int:
        return free_slots(self._tally.view, queue) - self._taken[queue]


def _place(job: JobRow) -> tuple[int, bytes]:
    return job.ready_at, job.id


def _lease(tally: Tally, command: Claim, job: JobRow, secret: bytes) -> Lease:
    held_ms = min(job.lease_ms, command.lease_ms or job.lease_ms)
    timeout_ms = job.timeout_ms if job.timeout_ms >= 0 else tally.queue(job.queue).default_timeout_ms
    leased = job._replace(
        phase=LEASED,
        attempt=job.attempt + 1,
        epoch=job.epoch + 1,
        held_ms=held_ms,
        claimed_at=tally.now.steady_ms,
        worker=command.worker,
        holder=command.principal,
        ended_by=0,
        progress=b"",
        offered=int(command.waits and tally.policy.offer_ms > 0),
        timeout_at=tally.now.steady_ms + timeout_ms if timeout_ms else 0,
        lease=(job.epoch + 1).to_bytes(8, "big"),
    )
    leased = leased._replace(due_at=in_time(leased, tally.now.steady_ms + offer_ms(leased, tally.policy)))
    tally.move(job, leased)
    return Lease(leased, token(secret, job.id, leased.epoch))


def _secret(view: View, command: Claim) -> bytes:
    row = view.get(JOB_SEAL, ALONE)
    if row is not None:
        return row.secret
    view.insert(JOB_SEAL, JobSealRow(b"", command.secret))
    return command.secret


def _repeated(tally: Tally, command: Claim, secret: bytes) -> tuple[Lease, ...]:
    """The leases that this claim got before, as far as they are alive."""
    known = tally.view.get(JOB_CLAIM, _claim_key(command)) if command.claim else None
    if known is None:
        return ()
    jobs = [(tally.view.get(JOB, (job_id,)), epoch) for job_id, epoch in epochs_of(known)]
    return tuple(
        Lease(job, token(secret, job.id, epoch))
        for job, epoch in jobs
        if job is not None and job.phase == LEASED and job.epoch == epoch
    )


def _remember(tally: Tally, command: Claim, leases: tuple[Lease, ...]) -> None:
    packed = b"".join(_packed(lease.job) for lease in leases)
    until = max(lease.job.due_at for lease in leases)
    tally.view.put(JOB_CLAIM, JobClaimRow(*_claim_key(command), until, packed))


def _claim_key(command: Claim) -> tuple[bytes, bytes]:
    """Names of claims belong to a worker, and names of workers to a principal."""
    return pack(len(command.principal).to_bytes(2, "big") + command.principal + command.worker), command.claim


def _line_keys(command: Claim) -> list[tuple[AnyTable, Key]]:
    """The lines of named queues, which are known in advance."""
    if command.kinds:
        return []
    return [(JOB_LINE, (priority, queue)) for queue in command.queues for priority in range(LEAST_URGENT + 1)]


def _line_ranges(command: Claim) -> list[Range]:
    """The lines of named kinds, or all of them."""
    if command.kinds:
        return [Range(JOB_KIND, "ready", (kind,), MAX_LINES) for kind in command.kinds]
    return [] if command.queues else [Range(JOB_LINE, "ready", (), MAX_LINES)]


def _lines(view: View, command: Claim, now_ms: int) -> list[Line]:
    """The lines that the claim may take from and that may have something by now, most urgent first."""
    found = [view.get(table, key) for table, key in _line_keys(command)]
    rows = [row for row in found if row is not None]
    rows += [row for wanted in _line_ranges(command) for row in view.range(wanted)]
    lines = [
        Line(row.priority, row.queue, row.kind if command.kinds else None, row.waiting, row.ready_at)
        for row in rows
        if row.ready_at <= now_ms and _is_wanted(row.queue, command)
    ]
    return sorted(lines)


def _by_priority(lines: Sequence[Line]) -> Iterator[list[Line]]:
    for _, some in groupby(lines, key=lambda line: line.priority):
        yield list(some)


def _is_wanted(queue: bytes, command: Claim) -> bool:
    if command.queues and queue not in command.queues:
        return False
    return command.reach is None or reaches(command.reach, queue)


def free_slots(view: View, queue: bytes) -> int:
    """How many more jobs of a queue may be leased."""
    row = view.get(JOB_QUEUE, (queue,))
    return row.max_inflight - row.leased if row is not None and row.max_inflight else UNBOUNDED
