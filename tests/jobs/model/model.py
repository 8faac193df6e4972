"""What jobs promise, as a plain program: dictionaries, lists and one clock, without a store, an index or a count.

Written from the published rules, and slow on purpose: everything is looked for by going through everything. Jobs are
known by the serial number of the request that made them, leases by job and epoch. Every method is one decision at
`now`; it answers with a plain value that the simulation compares with what the real rules said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from semel.kernel.verdict import NEVER
from semel.surfaces.jobs.limits import JobPolicy

WAITING, LEASED, DONE = "waiting", "leased", "done"
DEAD_REASONS = ("exhausted", "permanent", "lease_exhausted")
DAY_MS = 86_400_000


class Single(NamedTuple):
    """One job is to stand for several submissions: a unique job, or a debounced one."""

    key: str
    states: frozenset[str] = frozenset()
    for_ms: int = 0
    debounces: bool = False
    delay_ms: int = 0
    max_ms: int = 0


class Place(NamedTuple):
    """Where a job stands in groups: by the serial number of the job that waits for it, and as one that waits."""

    of: int = 0
    epoch: int = 0
    """The lease of a parent; 0 for a member of a group."""
    name: str = ""
    joins: bool = False
    size: int = 0
    cancels: bool = False


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
    single: Single | None = None
    place: Place | None = None
    generated: bool = False
    """Whether the client has made up the key for this one call."""


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
    window_until: int = 0
    """It is kept until then, because it is unique for so long."""
    aliased: bool = False
    """Whether further keys were pointed to it."""
    group: Job | None = None
    """The job that waits for it."""
    members: list[Job] = field(default_factory=list)
    """Those that it waits for, and those of them that were forgotten since."""
    names: dict[str, Job] = field(default_factory=dict)
    closed: bool = False
    held: bool = False
    """Whether it waits for its members now."""
    cancelling: bool = False
    """Whether members are still to be cancelled."""
    cancelled_once: bool = False

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
    def waits_for_others(self) -> bool:
        """Whether it is a join, or has children."""
        return bool(self.names) or (self.ask.place is not None and self.ask.place.joins)

    @property
    def is_complete(self) -> bool:
        """Whether no member is missing, and all have ended."""
        return self.closed and all(member.phase == DONE for member in self.members)

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
    alias: int = 0
    """1 or 2 if another submission made the job, which was unique or debounced."""
    generated: bool = False

    @property
    def ends(self) -> int | None:
        """When it no longer counts; an alias when its job may be forgotten."""
        if not self.alias:
            return self.expires
        return self.job.kept_until if self.job.phase == DONE else None


@dataclass(eq=False, slots=True)
class Bucket:
    """The tokens of a queue: `held` at the instant `at`, and as many as come back."""

    count: int
    per_ms: int
    held: Fraction
    at: int

    def tokens(self, now: int) -> Fraction:
        """What it holds now."""
        return min(Fraction(self.count), self.held + Fraction((now - self.at) * self.count, self.per_ms))

    def take(self, now: int) -> None:
        self.held, self.at = self.tokens(now) - 1, now


class Admitted(NamedTuple):
    """A submission that has a job."""

    rule: str
    serial: int
    state: str
    attempt: int
    revision: int
    expires: int | None
    ignored: tuple[str, ...]
    alias: int = 0


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
        self.latest: dict[tuple[str, str], Job] = {}
        """The latest job of each unique or debounce key."""
        self.limits: dict[str, int] = {}
        self.timeouts: dict[str, int] = {}
        self.buckets: dict[str, Bucket] = {}
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
            if (record.ends is None or self.now < record.ends) and principal in (None, name[0])
        ]

    def record_of(self, job: Job) -> Record | None:
        """The job's own live record."""
        record = self.records.get((job.ask.principal, job.ask.key)) if job.ask.key else None
        is_live = record is not None and (record.expires is None or self.now < record.expires)
        return record if is_live and record is not None and record.job is job and not record.alias else None

    # -- Submitting ---------------------------------------------------------------------------------------------------

    def submit(self, ask: Ask) -> Admitted | Refused:
        """The rule table, from its first row to its last."""
        self.events = []
        known = self._child(ask)
        if not isinstance(known, Ask):
            return known
        ask = known
        keyed = bool(ask.key) and self.policy.is_idempotent
        live = dict(self.live_records())
        record = live.get((ask.principal, ask.key)) if keyed else None
        if record is not None:
            return self._known(ask, record)
        found = self._found(ask)
        if found is not None:
            return self._joined(ask, found, keyed=keyed)
        if (refused := self._outside(ask)) is not None:
            return refused
        joins = ask.place is not None and ask.place.joins
        ready = NEVER if joins else max(self.now + ask.delay_ms, ask.run_at or 0, self.now)
        if self._is_full(ask.principal, ask.queue, later=ready > self.now):
            self.events = ["BACKPRESSURE_DROP"]
            return Refused("backpressure")
        if keyed and not self._make_room(ask.principal, ask.key, generated=ask.generated):
            self.events = ["IDEMPOTENCY_STORE_FULL"]
            return Refused("idempotency_store_full")
        job = self.jobs[ask.serial] = Job(ask, ready, self.now, later=ready > self.now)
        if ask.single is not None:
            self.latest[ask.principal, ask.single.key] = job
            job.window_until = self.now + ask.single.for_ms if ask.single.for_ms else 0
        self._enter(ask, job)
        if keyed:
            self.records[ask.principal, ask.key] = Record(ask.payload, job, generated=ask.generated)
        rule = "J2" if keyed else "J1" if self.policy.is_idempotent else "J0"
        return self._admitted(rule, job, ())

    def _child(self, ask: Ask) -> Ask | Admitted | Refused:
        """A child that is known, why it cannot be made, or how it is asked for: by the owner of its parent."""
        if ask.place is None or not ask.place.name:
            return ask
        parent = self.jobs.get(ask.place.of)
        known = None if parent is None else parent.names.get(ask.place.name)
        if known is not None and known.serial in self.jobs:
            return self._known(ask, Record(known.ask.payload, known))
        if parent is None:
            return Refused("not_found")
        if not self._holds(parent.serial, ask.place.epoch):
            return self._lost(parent)
        if parent.offered:
            self._confirm(parent)
        return ask._replace(principal=parent.ask.principal)

    def _outside(self, ask: Ask) -> Refused | None:
        """Why it cannot be a member."""
        if ask.place is None or not ask.place.of:
            return None
        waiter = self.jobs.get(ask.place.of)
        if waiter is None:
            return Refused("not_found")
        if ask.place.name:
            return None
        joins = waiter.ask.place is not None and waiter.ask.place.joins
        if not joins or waiter.ask.principal != ask.principal:
            return Refused("not_found")
        return Refused("group_closed") if waiter.closed or not waiter.held or waiter.phase == DONE else None

    def _enter(self, ask: Ask, job: Job) -> None:
        if ask.place is None:
            return
        job.held = ask.place.joins
        if ask.place.of:
            waiter = job.group = self.jobs[ask.place.of]
            waiter.members.append(job)
            if ask.place.name:
                waiter.names[ask.place.name], waiter.closed = job, True
            elif waiter.ask.place is not None and len(waiter.members) == waiter.ask.place.size:
                waiter.closed = True

    def close(self, serial: int) -> bool | Refused:
        """Whether the group is closed now: it is."""
        self.events = []
        job = self.jobs.get(serial)
        if job is None or job.ask.place is None or not job.ask.place.joins:
            return Refused("not_found")
        job.closed = True
        self._release(job)
        return True

    def _release(self, waiter: Job) -> None:
        """Nothing is left to wait for."""
        if waiter.held and waiter.is_complete:
            waiter.held = False
            if waiter.phase == WAITING and waiter.ready == NEVER:
                waiter.ready, waiter.later = self.now, False

    def cancel_members(self, serial: int) -> None:
        """Everything that is still to be cancelled, at once."""
        self.events = []
        waiter = self.jobs.get(serial)
        if waiter is None or not waiter.cancelling:
            return
        waiter.cancelling = False
        for job in waiter.members:
            if job.phase == WAITING:
                job.said = None
                self.events.append("JOB_CANCELLED")
                self._end(job, "cancelled", "")
            elif job.phase == LEASED and not job.cancelled:
                self.events.append("JOB_CANCELLED")
                job.cancelled = True

    def _found(self, ask: Ask) -> Job | None:
        """The job of an earlier submission that stands for this one."""
        single = ask.single
        job = None if single is None else self.latest.get((ask.principal, single.key))
        if single is None or job is None or (job.phase == DONE and self.now >= job.kept_until):
            return None
        if single.debounces:
            return job if job.phase == WAITING and job.epoch == job.revision == 0 else None
        if single.for_ms and self.now - job.created >= single.for_ms:
            return None
        return job if job.state(self.now) in single.states else None

    def _joined(self, ask: Ask, job: Job, *, keyed: bool) -> Admitted | Refused:
        assert ask.single is not None
        if keyed and not self._make_room(ask.principal, ask.key, generated=False):
            self.events = ["IDEMPOTENCY_STORE_FULL"]
            return Refused("idempotency_store_full")
        if ask.single.debounces:
            last = job.created + ask.single.max_ms if ask.single.max_ms else None
            job.ready = self.now + ask.single.delay_ms if last is None else min(self.now + ask.single.delay_ms, last)
            job.later = job.ready > self.now
            job.ask = job.ask._replace(payload=ask.payload, delay_ms=ask.delay_ms, run_at=ask.run_at)
        alias = 2 if ask.single.debounces else 1
        expires = None
        if keyed:
            record = self.records[ask.principal, ask.key] = Record(ask.payload, job, alias=alias)
            job.aliased = True
            if job.phase == DONE:
                job.kept_until = max(job.kept_until, self.now + self.policy.key_ttl_ms)
            expires = record.ends
        told = self._admitted("J11" if ask.single.debounces else "J10", job, self._ignored(ask, job))
        return told._replace(expires=expires, alias=alias)

    def _known(self, ask: Ask, record: Record) -> Admitted | Refused:
        job = record.job
        if record.payload != ask.payload:
            self.events = ["IDEMPOTENCY_KEY_COLLISION"]
            return Refused("IDEMPOTENCY_KEY_COLLISION", job.serial)
        ignored = self._ignored(ask, job, record)
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
        return self._admitted(rule, job, ignored)._replace(expires=record.ends, alias=record.alias)

    def _admitted(self, rule: str, job: Job, ignored: tuple[str, ...]) -> Admitted:
        record = self.record_of(job)
        expires = None if record is None else record.expires
        return Admitted(rule, job.serial, job.state(self.now), job.attempt, job.revision, expires, ignored)

    @staticmethod
    def _ignored(ask: Ask, job: Job, record: Record | None = None) -> tuple[str, ...]:
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
            "generated_key": record is not None and ask.generated != record.generated,
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

    def _kept(self, but: tuple[str, str], principal: str | None = None) -> int:
        """How many named keys take up room: those that count, and aliases until they are swept."""
        live = {name for name, record in self.live_records(principal) if not record.generated}
        live |= {name for name, record in self.records.items() if record.alias and principal in (None, name[0])}
        return len(live - {but})

    def _made_up(self, but: tuple[str, str]) -> int:
        """How many generated keys count."""
        return sum(record.generated and name != but for name, record in self.live_records())

    def _make_room(self, principal: str, key: str, *, generated: bool) -> bool:
        """Whether one more record fits, after that of a finished job nearest its end has gone if that is the policy.

        A generated key of a finished job may always go.
        """
        most, each = self.policy.max_records, self.policy.max_records_each
        if generated:
            bounds = (self.policy.queued.all, self.policy.scheduled.all, self.policy.max_inflight)
            most, each = (sum(bounds) + self.policy.max_generated_ended if all(bounds) else 0), 0
        if each and self._kept((principal, key), principal) >= each:
            return False
        while most and (self._made_up((principal, key)) if generated else self._kept((principal, key))) >= most:
            own = [(name, record) for name, record in self.live_records() if not record.alias]
            own = [(name, record) for name, record in own if record.generated == generated]
            ended = [(record.expires, record.job.serial, name) for name, record in own if record.expires is not None]
            if not (generated or self.policy.evicts) or not ended:
                return False
            del self.records[min(ended)[2]]
            self.events.append("IDEMPOTENCY_EVICT")
        return True

    def _revive(self, job: Job) -> None:
        record = self.record_of(job)
        if record is not None:
            record.expires = None
        waits = job.held and not job.is_complete and job.ask.place is not None and job.ask.place.joins
        job.phase, job.ready, job.later, job.reason, job.value = WAITING, NEVER if waits else self.now, waits, "", ""
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
            if len(leases) < asked.most and not self._is_saturated() and self._may_start(job.ask.queue):
                self._lease(job, asked)
                leases.append(job)
        if asked.claim and leases:
            self.claims[asked.worker, asked.claim] = [(job.serial, job.epoch) for job in leases]
        return Given(tuple(map(_lease_of, leases)), None if leases else self._is_refused(asked, matching))

    def _is_refused(self, asked: Filter, matching: list[Job]) -> bool | None:
        """Whether an empty claim is empty because every slot is taken."""
        all_full = bool(asked.queues) and all(map(self._is_queue_full, asked.queues))
        if self._is_saturated() or (matching and all_full and not self.buckets):
            return True
        return None if any(self.limits.values()) or self.buckets else False

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

    def _may_start(self, queue: str) -> bool:
        """Whether the queue has a slot, and a token if its rate is limited."""
        bucket = self.buckets.get(queue)
        return not self._is_queue_full(queue) and (bucket is None or bucket.tokens(self.steady) >= 1)

    def _lease(self, job: Job, asked: Filter) -> None:
        if job.ask.queue in self.buckets:
            self.buckets[job.ask.queue].take(self.steady)
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

    def defer(self, serial: int, epoch: int, delay_ms: int, *, waits: bool = False) -> Taken | Refused:
        """Given back, uncharged; perhaps until its children have ended."""
        said = f"{delay_ms} {waits}"
        verdict = self._judge(serial, epoch, "defer", said)
        if verdict is not None:
            return verdict
        job = self.jobs[serial]
        if job.cancelled:
            job.said = epoch, "defer", ""
            self._end(job, "cancelled", "")
            return Taken(False, "failed")
        job.said = epoch, "defer", said
        job.attempt -= 1
        job.deferrals += 1
        self._put_back(job, delay_ms)
        if waits and not job.is_complete and job.names:
            job.held, job.ready, job.later = True, NEVER, True
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
            record.expires = self.now + (self.policy.generated_ttl_ms if record.generated else self.policy.key_ttl_ms)
            job.kept_until = max(job.kept_until, record.expires)
        job.kept_until = max(job.kept_until, job.window_until, self.now + self.policy.key_ttl_ms if job.aliased else 0)
        self._tell_group(job)
        if reason in ("exhausted", "lease_exhausted"):
            self.events.append("RETRY_EXHAUSTED")
        if reason in DEAD_REASONS and self.policy.lists_dead:
            self.events.append("DLQ_ENQUEUE")
            job.dead = True
            while len(self.dead()) > self.policy.max_dead:
                self.dead()[0].dead = False
                self.events.append("DLQ_EVICT")

    def _tell_group(self, job: Job) -> None:
        """Whoever waits for it may be ready; or the others are to be cancelled."""
        waiter = job.group
        if waiter is None:
            return
        cancels = waiter.ask.place is not None and waiter.ask.place.cancels and not waiter.cancelled_once
        if job.reason and cancels and waiter.held:
            waiter.closed = waiter.cancelling = waiter.cancelled_once = True
        self._release(waiter)

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
        joins = job.ask.place is not None and job.ask.place.joins
        return bool(most) and not joins and not job.epoch and not job.revision and self.now >= job.created + most

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

    def cancel(self, serial: int, principal: str | None, *, force: bool, with_members: bool = False) -> str | Refused:
        """The state after it."""
        self.events = []
        job = self.jobs.get(serial)
        if job is None or principal not in (None, job.ask.principal):
            return Refused("not_found")
        if with_members and job.waits_for_others:
            job.closed = job.cancelling = job.cancelled_once = True
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

    def limit(self, queue: str, most: int | None, timeout_ms: int | None, rate: tuple[int, int] | None) -> int:
        """So many leases of a queue at once, so long a run, and so many starts in a period; 0 is no limit."""
        if rate is not None:
            self._limit_rate(queue, *rate)
        if most is not None:
            self.limits[queue] = most
        if timeout_ms is not None:
            self.timeouts[queue] = timeout_ms
        return self.limits.get(queue, 0)

    def _limit_rate(self, queue: str, count: int, per_ms: int) -> None:
        """Another rate: whole tokens that were taken stay taken."""
        before = self.buckets.pop(queue, None)
        if not count:
            return
        if before is not None and (before.count, before.per_ms) == (count, per_ms):
            self.buckets[queue] = before
            return
        taken = 0 if before is None else min(count, ceil(before.count - before.tokens(self.steady)))
        self.buckets[queue] = Bucket(count, per_ms, Fraction(count - taken), self.steady)

    def sweep(self) -> None:
        """What has been kept long enough goes; nobody can tell, but for the job's own id."""
        self.records = dict(self.live_records())
        for job in self.jobs.values():
            waits = job.group is not None and job.group.serial in self.jobs and job.group.phase != DONE
            if job.phase == DONE and self.now >= job.kept_until and waits:
                job.kept_until = self.now + 3_600_000
        self.jobs = {serial: job for serial, job in self.jobs.items() if job.phase != DONE or self.now < job.kept_until}
        self.latest = {name: job for name, job in self.latest.items() if job.serial in self.jobs}


def _matches(ask: Ask, asked: Filter) -> bool:
    is_wanted = (not asked.kinds or ask.kind in asked.kinds) and (not asked.queues or ask.queue in asked.queues)
    return is_wanted and (asked.reach is None or ask.queue in asked.reach)


def _lease_of(job: Job) -> tuple[int, int, int, int]:
    return job.serial, job.epoch, job.attempt, job.held_ms
