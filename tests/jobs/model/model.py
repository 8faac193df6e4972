"""What jobs promise, as a plain program: dictionaries, lists and one clock, without a store, an index or a count.

Written from the published rules, and slow on purpose: everything is looked for by going through everything. Jobs are
known by the serial number of the request that made them, leases by job and epoch. Every method is one decision at
`now`; it answers with a plain value that the simulation compares with what the real rules said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from semel.surfaces.jobs.limits import JobPolicy

WAITING, LEASED, DONE = "waiting", "leased", "done"
DEAD_REASONS = ("exhausted", "permanent", "lease_exhausted")
DAY_MS = 86_400_000


class Ask(NamedTuple):
    """One submission. `serial` is unique to the request; the payload is what the hash covers."""

    serial: int
    principal: str
    key: str
    payload: str
    kind: str
    queue: str = "default"
    priority: int = 4
    delay_ms: int = 0
    run_at: int | None = None
    max_attempts: int = 5
    lease_ms: int = 300_000
    timeout_ms: int | None = None
    revives: bool = False
    given: frozenset[str] = frozenset()


class Filter(NamedTuple):
    """What a claim asks for."""

    worker: str
    most: int = 1
    kinds: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    lease_ms: int | None = None
    claim: str = ""
    reach: tuple[str, ...] | None = None
    """The queues that the worker may see; None for all."""
    waits: bool = False
    """Whether it is a long poll."""


class Said(NamedTuple):
    """A report."""

    ok: bool
    value: str
    retryable: bool = True
    after_ms: int | None = None
    is_flawed: bool = False

    @property
    def call(self) -> str:
        return "complete" if self.ok else "fail"


@dataclass(eq=False, slots=True)
class Job:
    """One job, whole."""

    ask: Ask
    ready: int
    created: int
    phase: str = WAITING
    attempt: int = 0
    epoch: int = 0
    revision: int = 0
    deferrals: int = 0
    until: int = 0
    held_ms: int = 0
    later: bool = False
    """Whether it is counted as scheduled."""
    ends: int | None = None
    """When this run has taken too long."""
    offered: bool = False
    """Leased to a long poll, and nothing was heard under its token yet."""
    worker: str = ""
    cancelled: bool = False
    finished: int = 0
    kept_until: int = 0
    """When the job itself may be forgotten."""
    reason: str = ""
    """How it failed; empty when it completed."""
    value: str = ""
    said: tuple[int, str, str] | None = None
    """The lease, the call and the content of the last report: what a worker that repeats itself is known by."""
    errors: list[str] = field(default_factory=list)
    steps: dict[str, str] = field(default_factory=dict)
    dead: bool = False
    """Whether it is in the listing of dead letters."""

    @property
    def serial(self) -> int:
        return self.ask.serial

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands in the queue: priority, ready instant, order of submission."""
        return self.ask.priority, self.ready, self.serial

    def state(self, now: int) -> str:
        """As the wire tells it."""
        if self.phase == WAITING:
            return "queued" if self.ready <= now else "scheduled"
        if self.phase == LEASED:
            return "leased"
        return "failed" if self.reason else "completed"

    @property
    def status(self) -> str:
        """As its key tells it."""
        if self.phase == DONE:
            return "failed" if self.reason else "completed"
        return "in_progress" if self.epoch or self.revision else "accepted"


@dataclass(eq=False, slots=True)
class Record:
    """One key."""

    payload: str
    job: Job
    expires: int | None = None
    """None while it is pinned."""


class Admitted(NamedTuple):
    """A submission that has a job."""

    rule: str
    serial: int
    state: str
    attempt: int
    revision: int
    expires: int | None
    ignored: tuple[str, ...]


class Refused(NamedTuple):
    """Anything that was refused, by its code; `about` is the job that stands in the way, or its state."""

    code: str
    about: object = None


class Given(NamedTuple):
    """What a claim got: job, epoch, attempt and length of each lease."""

    leases: tuple[tuple[int, int, int, int], ...]
    is_saturated: bool | None = False
    """None where the rules leave it open."""


class Taken(NamedTuple):
    """A report that stands."""

    dedup: bool
    state: str
    ready: int | None = None
    """When it runs again."""


class Model:
    """Everything there is."""

    def __init__(self, policy: JobPolicy, vary: Callable[[Job, int], int] = lambda job, delay_ms: delay_ms) -> None:
        self.policy = policy
        self._vary = vary
        """What jitter makes of a delay."""
        self.now = 0
        self.steady = 0
        """What leases run on."""
        self.jobs: dict[int, Job] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.limits: dict[str, int] = {}
        self.timeouts: dict[str, int] = {}
        self.claims: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self.events: list[str] = []

    @property
    def noted(self) -> tuple[str, ...]:
        """What an audit would tell of the last decision, in the order of the alphabet."""
        return tuple(sorted(self.events))

    # -- Looking ------------------------------------------------------------------------------------------------------

    def all(self, phase: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.phase == phase]

    def waiting(self, *, later: bool) -> list[Job]:
        """Those that are counted as scheduled, or as queued."""
        return [job for job in self.all(WAITING) if job.later is later]

    def promote(self) -> int:
        """Count those as queued whose time has come; how many."""
        self.events = []
        ready = [job for job in self.waiting(later=True) if job.ready <= self.now]
        for job in ready:
            job.later = False
        return len(ready)

    def live_records(self, principal: str | None = None) -> list[tuple[tuple[str, str], Record]]:
        """Keys that count now."""
        return [
            (name, record)
            for name, record in self.records.items()
            if (record.expires is None or self.now < record.expires) and principal in (None, name[0])
        ]

    def record_of(self, job: Job) -> Record | None:
        """The job's own live record."""
        record = self.records.get((job.ask.principal, job.ask.key)) if job.ask.key else None
        is_live = record is not None and (record.expires is None or self.now < record.expires)
        return record if is_live and record is not None and record.job is job else None

    # -- Submitting ---------------------------------------------------------------------------------------------------

    def submit(self, ask: Ask) -> Admitted | Refused:
        """The rule table, from its first row to its last."""
        self.events = []
        keyed = bool(ask.key) and self.policy.is_idempotent
        live = dict(self.live_records())
        record = live.get((ask.principal, ask.key)) if keyed else None
        if record is not None:
            return self._known(ask, record)
        ready = max(self.now + ask.delay_ms, ask.run_at or 0, self.now)
        if self._is_full(ask.principal, ask.queue, later=ready > self.now):
            self.events = ["BACKPRESSURE_DROP"]
            return Refused("backpressure")
        if keyed and not self._make_room(ask.principal):
            self.events = ["IDEMPOTENCY_STORE_FULL"]
            return Refused("idempotency_store_full")
        job = self.jobs[ask.serial] = Job(ask, ready, self.now, later=ready > self.now)
        if keyed:
            self.records[ask.principal, ask.key] = Record(ask.payload, job)
        rule = "J2" if keyed else "J1" if self.policy.is_idempotent else "J0"
        return self._admitted(rule, job, ())

    def _known(self, ask: Ask, record: Record) -> Admitted | Refused:
        job = record.job
        if record.payload != ask.payload:
            self.events = ["IDEMPOTENCY_KEY_COLLISION"]
            return Refused("IDEMPOTENCY_KEY_COLLISION", job.serial)
        ignored = self._ignored(ask, job)
        if job.phase != DONE:
            rule = "J3"
        elif not job.reason:
            rule = "J4"
        elif ask.revives and job.reason != "cancelled":
            if self._is_full(job.ask.principal, job.ask.queue, later=False):
                self.events = ["BACKPRESSURE_DROP"]
                return Refused("backpressure")
            self._revive(job)
            rule = "J6"
        else:
            rule = "J5"
        self.events.append("IDEMPOTENCY_HIT")
        return self._admitted(rule, job, ignored)

    def _admitted(self, rule: str, job: Job, ignored: tuple[str, ...]) -> Admitted:
        record = self.record_of(job)
        expires = None if record is None else record.expires
        return Admitted(rule, job.serial, job.state(self.now), job.attempt, job.revision, expires, ignored)

    @staticmethod
    def _ignored(ask: Ask, job: Job) -> tuple[str, ...]:
        """The fields outside the hash that were given and are not those of the first submission."""
        first = job.ask
        differs = {
            "queue": ask.queue != first.queue,
            "priority": ask.priority != first.priority,
            "delay_ms": (ask.delay_ms, ask.run_at) != (first.delay_ms, first.run_at),
            "run_at": (ask.delay_ms, ask.run_at) != (first.delay_ms, first.run_at),
            "max_attempts": ask.max_attempts != first.max_attempts,
            "lease_sec": ask.lease_ms != first.lease_ms,
            "timeout_ms": ask.timeout_ms != first.timeout_ms,
        }
        return tuple(sorted(name for name, differ in differs.items() if differ and name in ask.given))

    def _is_full(self, principal: str, queue: str, *, later: bool) -> bool:
        """No room for one more job that is queued, or scheduled: in all, of this caller, in this queue."""
        bounds = self.policy.scheduled if later else self.policy.queued
        jobs = self.waiting(later=later)
        holders = Counter(job.ask.principal for job in jobs)
        mine, there = holders.pop(principal, 0), sum(job.ask.queue == queue for job in jobs)
        if (bounds.each_principal and mine >= bounds.each_principal) or (
            bounds.each_queue and there >= bounds.each_queue
        ):
            return True
        if not bounds.all:
            return False
        share = max(1, int(bounds.all * self.policy.principal_share))
        if holders and mine >= share:
            return True
        beyond = max(0, max(holders.values(), default=0) - share) if self.policy.principal_share < 1 else 0
        return len(jobs) - beyond >= bounds.all

    def _make_room(self, principal: str) -> bool:
        """Whether one more record fits, after that of a finished job nearest its end has gone if that is the policy."""
        most, each = self.policy.max_records, self.policy.max_records_each
        if each and len(self.live_records(principal)) >= each:
            return False
        while most and len(self.live_records()) >= most:
            ended = [(record.expires, name) for name, record in self.live_records() if record.expires is not None]
            if not self.policy.evicts or not ended:
                return False
            del self.records[min(ended)[1]]
            self.events.append("IDEMPOTENCY_EVICT")
        return True

    def _revive(self, job: Job) -> None:
        record = self.record_of(job)
        if record is not None:
            record.expires = None
        job.phase, job.ready, job.later, job.reason, job.value = WAITING, self.now, False, "", ""
        job.revision += 1
        job.attempt, job.cancelled, job.said, job.dead = 0, False, None, False
        self.events.append("JOB_REVIVED")

    # -- Claiming -----------------------------------------------------------------------------------------------------

    def claim(self, asked: Filter) -> Given:
        """Take back what ran out, then lease what is ready."""
        self.events = []
        silent = {job.worker for job in self.all(LEASED) if self.steady >= job.until}
        self._reap()
        repeated = self._repeated(asked)
        if repeated or (asked.waits and asked.worker in silent):
            return Given(repeated)
        leases: list[Job] = []
        ready = sorted((job for job in self.all(WAITING) if job.ready <= self.now), key=lambda job: job.place)
        matching = [job for job in ready if _matches(job.ask, asked)]
        for job in matching:
            if len(leases) < asked.most and not self._is_saturated() and not self._is_queue_full(job.ask.queue):
                self._lease(job, asked)
                leases.append(job)
        if asked.claim and leases:
            self.claims[asked.worker, asked.claim] = [(job.serial, job.epoch) for job in leases]
        return Given(tuple(map(_lease_of, leases)), None if leases else self._is_refused(asked, matching))

    def _is_refused(self, asked: Filter, matching: list[Job]) -> bool | None:
        """Whether an empty claim is empty because every slot is taken."""
        all_full = bool(asked.queues) and all(map(self._is_queue_full, asked.queues))
        if self._is_saturated() or (matching and all_full):
            return True
        return None if any(self.limits.values()) else False

    def _repeated(self, asked: Filter) -> tuple[tuple[int, int, int, int], ...]:
        """The leases of a named claim that still live."""
        given = self.claims.get((asked.worker, asked.claim), []) if asked.claim else []
        held = [self.jobs[serial] for serial, epoch in given if self._holds(serial, epoch)]
        return tuple(map(_lease_of, held))

    def _holds(self, serial: int, epoch: int) -> bool:
        job = self.jobs.get(serial)
        return job is not None and job.phase == LEASED and job.epoch == epoch

    def _is_saturated(self) -> bool:
        return bool(self.policy.max_inflight) and len(self.all(LEASED)) >= self.policy.max_inflight

    def _is_queue_full(self, queue: str) -> bool:
        most = self.limits.get(queue, 0)
        return bool(most) and sum(job.ask.queue == queue for job in self.all(LEASED)) >= most

    def _lease(self, job: Job, asked: Filter) -> None:
        job.phase, job.worker = LEASED, asked.worker
        job.epoch += 1
        job.attempt += 1
        job.held_ms = min(job.ask.lease_ms, asked.lease_ms or job.ask.lease_ms)
        job.offered = asked.waits and self.policy.offer_ms > 0
        longest = self.timeouts.get(job.ask.queue, 0) if job.ask.timeout_ms is None else job.ask.timeout_ms
        job.ends = self.steady + longest if longest else None
        job.until = self._in_time(job, self._period(job))
        job.said = None

    def _in_time(self, job: Job, period: int) -> int:
        """So long from now, but not beyond the time limit of the run."""
        return min(self.steady + period, self.steady + period if job.ends is None else job.ends)

    def _period(self, job: Job) -> int:
        """How long it may be held without a word: a lease for its length, an offer for less."""
        return min(self.policy.offer_ms, job.held_ms) if job.offered else job.held_ms

    def _confirm(self, job: Job) -> None:
        """Something was heard under its token."""
        job.offered = False
        job.until = max(job.until, self._in_time(job, job.held_ms))

    # -- Reporting ----------------------------------------------------------------------------------------------------

    def report(self, serial: int, epoch: int, said: Said) -> Taken | Refused:
        """Done, or failed; epoch 0 is a report from outside, without a token."""
        verdict = self._judge(serial, epoch, said.call, said.value)
        if verdict is not None:
            return verdict
        job = self.jobs[serial]
        if said.is_flawed:
            self.events.append("RESULT_INTEGRITY_FAIL")
            return Refused("result_integrity_fail")
        job.said = epoch, said.call, said.value
        if said.ok:
            self._end(job, "", said.value)
            return Taken(False, "completed")
        job.errors = [*job.errors, said.value][-10:]
        if job.cancelled:
            self._end(job, "cancelled", said.value)
            return Taken(False, "failed")
        if said.retryable and job.attempt < job.ask.max_attempts and epoch:
            self._rest(job, said.after_ms)
            return Taken(False, job.state(self.now), job.ready)
        self._end(job, "exhausted" if said.retryable and epoch else "permanent", said.value)
        return Taken(False, "failed")

    def _rest(self, job: Job, after_ms: int | None) -> None:
        """A failed run is tried again, after a while."""
        delay = min(self.policy.backoff_cap_ms, self.policy.backoff_base_ms * 2 ** (job.attempt - 1))
        self._put_back(job, self._vary(job, delay) if after_ms is None else min(after_ms, DAY_MS))
        self.events.append("RETRY_SCHEDULED")

    def defer(self, serial: int, epoch: int, delay_ms: int) -> Taken | Refused:
        """Given back, uncharged."""
        verdict = self._judge(serial, epoch, "defer", str(delay_ms))
        if verdict is not None:
            return verdict
        job = self.jobs[serial]
        if job.cancelled:
            job.said = epoch, "defer", ""
            self._end(job, "cancelled", "")
            return Taken(False, "failed")
        job.said = epoch, "defer", str(delay_ms)
        job.attempt -= 1
        job.deferrals += 1
        self._put_back(job, delay_ms)
        return Taken(False, job.state(self.now), job.ready)

    def heartbeat(self, serial: int, epoch: int) -> tuple[int, bool] | Refused:
        """How long the lease goes on, and whether somebody wants the job to end."""
        self.events = []
        job = self.jobs.get(serial)
        if job is None:
            return Refused("not_found")
        if not self._holds(serial, epoch):
            return self._lost(job)
        self._confirm(job)
        return job.until - self.steady, job.cancelled

    def step(self, serial: int, epoch: int, key: str, result: str | None) -> tuple[str | None, bool] | Refused:
        """What is stored of a step, and whether it was stored before."""
        self.events = []
        job = self.jobs.get(serial)
        if job is None:
            return Refused("not_found")
        if not self._holds(serial, epoch):
            return self._lost(job)
        if job.offered:
            self._confirm(job)
        known = job.steps.get(key)
        if known is None and result is not None:
            job.steps[key] = result
        return job.steps.get(key), known is not None and result is not None

    def _judge(self, serial: int, epoch: int, call: str, value: str) -> Taken | Refused | None:
        """None: the report counts. Otherwise it was heard before, or comes from somebody whose lease is over."""
        self.events = []
        job = self.jobs.get(serial)
        if job is None:
            return Refused("not_found")
        if self._holds(serial, epoch) or (epoch == job.epoch == 0 and job.phase == WAITING):
            return None
        if epoch == 0 and job.epoch:
            return Refused("lease_required", job.status)
        said = job.said
        if said == (epoch, call, value) or (said == (epoch, "defer", "") and call == "defer"):
            return Taken(True, job.state(self.now), job.ready if job.phase == WAITING else None)
        is_own_end = job.phase == DONE and said is not None and said[0] == epoch and said[1] != "defer"
        if is_own_end and call != "defer":
            self.events.append("RESULT_CONFLICT")
            return Refused("result_conflict", job.status)
        return self._lost(job)

    def _lost(self, job: Job) -> Refused:
        self.events.append("LEASE_FENCED")
        return Refused("lease_lost", job.status)

    def _put_back(self, job: Job, delay_ms: int) -> None:
        job.phase, job.ready, job.later = WAITING, self.now + delay_ms, delay_ms > 0

    def _end(self, job: Job, reason: str, value: str) -> None:
        job.phase, job.reason, job.value, job.finished = DONE, reason, value, self.now
        job.kept_until = self.now + self.policy.retention_ms
        record = self.record_of(job)
        if record is not None:
            record.expires = self.now + self.policy.key_ttl_ms
            job.kept_until = max(job.kept_until, record.expires)
        if reason in ("exhausted", "lease_exhausted"):
            self.events.append("RETRY_EXHAUSTED")
        if reason in DEAD_REASONS and self.policy.lists_dead:
            self.events.append("DLQ_ENQUEUE")
            job.dead = True
            while len(self.dead()) > self.policy.max_dead:
                self.dead()[0].dead = False
                self.events.append("DLQ_EVICT")

    def dead(self) -> list[Job]:
        """Dead letters, oldest first."""
        listed = [job for job in self.jobs.values() if job.dead]
        return sorted(listed, key=lambda job: (job.finished, job.serial))

    # -- Time ---------------------------------------------------------------------------------------------------------

    def reap(self) -> int:
        """Everything that time does to jobs; to how many."""
        self.events = []
        old = [job for job in self.all(WAITING) if self._is_too_old(job)]
        count = len(old) + self._reap()
        for job in old:
            self._end(job, "queue_ttl", "")
        return count

    def _is_too_old(self, job: Job) -> bool:
        """Waited for too long, and was never claimed nor ended before."""
        most = self.policy.waiting_ttl_ms
        return bool(most) and not job.epoch and not job.revision and self.now >= job.created + most

    def _reap(self) -> int:
        ended = [job for job in self.all(LEASED) if self.steady >= job.until]
        for job in sorted(ended, key=lambda job: job.until):
            job.said = None
            self.events.append("OFFER_LAPSED" if job.offered else "LEASE_REAP")
            is_late = not job.offered and job.ends is not None and self.steady >= job.ends
            if is_late:
                self.events.append("JOB_TIMEOUT")
                job.errors = [*job.errors, "timeout"][-10:]
            if job.cancelled:
                self._end(job, "cancelled", "")
            elif job.offered:
                job.phase, job.later = WAITING, job.ready > self.now
                job.attempt -= 1
            elif is_late and job.attempt < job.ask.max_attempts:
                self._rest(job, None)
            elif is_late:
                self._end(job, "exhausted", "timeout")
            elif job.attempt < job.ask.max_attempts:
                job.phase, job.ready, job.later = WAITING, self.now, False
            else:
                self._end(job, "lease_exhausted", "")
        return len(ended)

    def restart(self, wall: int) -> None:
        """The server was away: every lease gets its full time again, counted from where the clock stands now."""
        self.steady = wall
        for job in self.all(LEASED):
            job.until = self.steady + self._period(job)

    # -- Orders from outside -------------------------------------------------------------------------------------------

    def cancel(self, serial: int, principal: str | None, *, force: bool) -> str | Refused:
        """The state after it."""
        self.events = []
        job = self.jobs.get(serial)
        if job is None or principal not in (None, job.ask.principal):
            return Refused("not_found")
        if job.phase == WAITING or (job.phase == LEASED and force):
            job.said = None
            self._end(job, "cancelled", "")
            self.events.append("JOB_CANCELLED")
        elif job.phase == LEASED and not job.cancelled:
            job.cancelled = True
            self.events.append("JOB_CANCELLED")
        return job.state(self.now)

    def requeue(self, serial: int) -> str | Refused:
        """An administrator runs a failed job again, cancelled or not."""
        self.events = []
        job = self.jobs.get(serial)
        if job is None:
            return Refused("not_found")
        if job.phase != DONE or not job.reason:
            return Refused("job_active")
        if self._is_full(job.ask.principal, job.ask.queue, later=False):
            self.events = ["BACKPRESSURE_DROP"]
            return Refused("backpressure")
        self._revive(job)
        return job.state(self.now)

    def release(self, principal: str, key: str, *, force: bool) -> int | Refused:
        """A key is forgotten."""
        self.events = []
        record = dict(self.live_records()).get((principal, key))
        if record is None:
            return Refused("not_found")
        if record.job.phase != DONE and not force:
            return Refused("job_active")
        del self.records[principal, key]
        self.events.append("IDEMPOTENCY_KEY_RELEASED")
        return 1

    def limit(self, queue: str, most: int | None, timeout_ms: int | None) -> int:
        """So many leases of a queue at once, and so long a run; 0 is no limit."""
        if most is not None:
            self.limits[queue] = most
        if timeout_ms is not None:
            self.timeouts[queue] = timeout_ms
        return self.limits.get(queue, 0)

    def sweep(self) -> None:
        """What has been kept long enough goes; nobody can tell, but for the job's own id."""
        self.records = dict(self.live_records())
        self.jobs = {serial: job for serial, job in self.jobs.items() if job.phase != DONE or self.now < job.kept_until}


def _matches(ask: Ask, asked: Filter) -> bool:
    is_wanted = (not asked.kinds or ask.kind in asked.kinds) and (not asked.queues or ask.queue in asked.queues)
    return is_wanted and (asked.reach is None or ask.queue in asked.reach)


def _lease_of(job: Job) -> tuple[int, int, int, int]:
    return job.serial, job.epoch, job.attempt, job.held_ms
