"""The answers and rows of the real rules in the words of the model, and where the two differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from semel.kernel.verdict import NEVER
from semel.store.memory import MemoryStore
from semel.store.protocol import AnyTable
from semel.surfaces.jobs import commands as real
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.maintenance_commands import MembersCancelled
from semel.surfaces.jobs.rules.idempotency import key_end
from semel.surfaces.jobs.rules.reaper import delay_ms
from semel.surfaces.jobs.tables import (
    ALONE,
    AS_QUEUED,
    AS_SCHEDULED,
    DONE,
    GENERATED,
    JOB,
    JOB_ALIAS,
    JOB_BRIEF,
    JOB_DEAD,
    JOB_EXPIRY,
    JOB_GROUP,
    JOB_LINE,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_SHARE,
    JOB_STEP,
    JOB_TENANT,
    JOB_TOTALS,
    JOB_UNIQUE,
    LEASED,
    NO_TOTALS,
    WAITING,
    JobRow,
)
from tests.jobs.model.model import Admitted, Given, Job, Model, Refused, Taken

ROWS = 100_000
AUDITED = frozenset(
    {
        *("IDEMPOTENCY_HIT", "IDEMPOTENCY_KEY_COLLISION", "IDEMPOTENCY_EVICT", "IDEMPOTENCY_KEY_RELEASED"),
        *(
            "LEASE_FENCED",
            "LEASE_REAP",
            "OFFER_LAPSED",
            "JOB_TIMEOUT",
            "RESULT_CONFLICT",
            "RESULT_INTEGRITY_FAIL",
            "RETRY_SCHEDULED",
        ),
        *("RETRY_EXHAUSTED", "DLQ_ENQUEUE", "DLQ_EVICT", "JOB_REVIVED", "JOB_CANCELLED"),
        *("BACKPRESSURE_DROP", "IDEMPOTENCY_STORE_FULL"),
    }
)
"""What is published; other notes are the server's own."""
PHASES = {WAITING: "waiting", LEASED: "leased", DONE: "done"}


def serial_of(job_id: bytes) -> int:
    """The serial number of the request that made a job: chance was made from it."""
    return int.from_bytes(job_id, "big") & (2**42 - 1)


def jitter_of(policy: JobPolicy, job_id: bytes, attempt: int) -> int:
    """The delay after a failed attempt."""
    return delay_ms(policy, job_id, attempt, None)


def told_of(answer: Any, now: int, expected: Any) -> Any:
    """An answer as the model would give it; `expected` tells where the rules leave something open."""
    if isinstance(answer, tuple) and not hasattr(answer, "_fields"):
        return tuple((_told(one, now), _events(one)) for one in answer)
    told = _told(answer, now)
    if isinstance(told, Given) and expected[0].is_saturated is None:
        told = told._replace(is_saturated=None)
    return told, _events(answer)


def _events(answer: Any) -> tuple[str, ...]:
    return tuple(sorted(note.event for note in getattr(answer, "notes", ()) if note.event in AUDITED))


def _told(answer: Any, now: int) -> Any:
    match answer:
        case real.JobAdmitted():
            job = answer.job
            ignored = tuple(sorted(answer.ignored))
            state = state_of(job, now)
            return Admitted(
                answer.rule,
                serial_of(job.id),
                state,
                job.attempt,
                job.revision,
                answer.expires_at,
                ignored,
                answer.alias,
            )
        case real.JobKeyCollision():
            return Refused("IDEMPOTENCY_KEY_COLLISION", serial_of(answer.id))
        case real.JobRefused(refusal):
            return Refused(refusal.name, refusal.facts.get("status"))
        case real.JobsClaimed():
            leases = [lease.job for lease in answer.leases]
            given = tuple((serial_of(job.id), job.epoch, job.attempt, job.held_ms) for job in leases)
            return Given(given, answer.is_saturated)
        case real.JobReported():
            job = answer.job
            return Taken(answer.dedup, state_of(job, now), job.ready_at if job.phase == WAITING else None)
        case real.LeaseExtended():
            return answer.until_ms - now, answer.is_cancelled
        case real.JobStepResult():
            return None if answer.result is None else answer.result.decode(), answer.dedup
        case real.JobChanged():
            return state_of(answer.job, now)
        case real.JobsAffected():
            return answer.number
    return _told_group(answer)


def _told_group(answer: Any) -> Any:
    if isinstance(answer, real.GroupClosed):
        return bool(answer.group.is_closed)
    return answer.last if isinstance(answer, MembersCancelled) else answer


def state_of(job: JobRow, now: int) -> str:
    """The state of a row, as the wire tells it."""
    if job.phase == WAITING:
        return "queued" if job.ready_at <= now else "scheduled"
    if job.phase == LEASED:
        return "leased"
    return "failed" if job.reason else "completed"


def differences(store: MemoryStore, model: Model) -> Iterator[str]:
    """Where rows and model say different things, and where counts are not those of the rows."""
    books = _Books(store)
    there = {serial_of(row.id): _job_facts(row) for row in books.rows(JOB)}
    wanted = {serial: _model_facts(job) for serial, job in model.jobs.items()}
    for serial in sorted(there.keys() | wanted.keys()):
        if there.get(serial) != wanted.get(serial):
            yield f"job {serial} is {there.get(serial)}, expected {wanted.get(serial)}"
    yield from _record_differences(books, model)
    dead = [serial_of(row.id) for row in books.rows(JOB_DEAD)]
    if dead != [job.serial for job in model.dead()]:
        yield f"dead letters {dead}, expected {[job.serial for job in model.dead()]}"
    steps = {(serial_of(row.id), row.key.decode(), row.result.decode()) for row in books.rows(JOB_STEP)}
    known = {(job.serial, key, result) for job in model.jobs.values() for key, result in job.steps.items()}
    if steps != known:
        yield f"steps {steps}, expected {known}"
    groups = {serial_of(row.id): tuple(map(int, (*row[2:7], not row.is_settled))) for row in books.rows(JOB_GROUP)}
    expected = {serial: _group_facts(job) for serial, job in model.jobs.items() if job.waits_for_others}
    if groups != expected:
        yield f"groups {groups}, expected {expected}"
    yield from books.miscounts()


def _group_facts(job: Job) -> tuple[int, ...]:
    """Closed, members, ended, failed, whether the job waits, and whether members are to be cancelled."""
    ended = [member for member in job.members if member.phase == "done"]
    failed = sum(bool(member.reason) for member in ended)
    return int(job.closed), len(job.members), len(ended), failed, int(job.held), int(job.cancelling)


def _record_differences(books: _Books, model: Model) -> Iterator[str]:
    there = {row.id: row for row in books.rows(JOB)}
    kept = [row for row in books.rows(JOB_RECORD) if row.job in there]
    until = {(row.principal, row.key): key_end(row, there[row.job]) for row in kept}
    live = {
        (row.principal.decode(), row.key.decode()): (
            row.fingerprint.decode().strip(),
            serial_of(row.job),
            None if until[row.principal, row.key] == NEVER else until[row.principal, row.key],
            max(0, row.alias),
            row.alias == GENERATED,
        )
        for row in kept
        if until[row.principal, row.key] > model.now
    }
    for table, sign in ((JOB_EXPIRY, 1), (JOB_BRIEF, -1)):
        ended = {row[:4] for row in books.rows(table) if row.expires_at > model.now}
        jobs = [row for row in books.rows(JOB) if model.now < sign * row.key_until < NEVER]
        if ended != {(sign * row.key_until, row.id, row.principal, row.key) for row in jobs}:
            yield f"keys that expire {ended}, by their jobs {jobs}"
    wanted = {
        name: (record.payload, record.job.serial, record.ends, record.alias, record.generated)
        for name, record in model.live_records()
    }
    if live != wanted:
        yield f"keys {live}, expected {wanted}"
    pointers = {(row.principal, row.key) for row in kept if row.alias > 0}
    aliases = {(row.principal, row.key) for row in books.rows(JOB_ALIAS)}
    if aliases != pointers:
        yield f"aliases {aliases}, records {pointers}"
    latest = {(row.principal.decode(), row.name.decode()): serial_of(row.job) for row in books.rows(JOB_UNIQUE)}
    if latest != {name: job.serial for name, job in model.latest.items()}:
        yield f"latest {latest}, expected {model.latest}"


def _job_facts(row: JobRow) -> tuple[object, ...]:
    is_waiting, is_done = row.phase == WAITING, row.phase == DONE
    counts = (PHASES[row.phase], row.attempt, row.epoch, row.revision, row.deferrals, bool(row.cancel))
    facts = (*counts, is_waiting and row.counted == AS_SCHEDULED)
    ready, finished = row.ready_at if is_waiting else None, row.finished_at if is_done else None
    held = (row.held_ms, bool(row.offered)) if row.phase == LEASED else None
    return (*facts, ready, finished, row.reason.decode(), held, row.params.decode())


def _model_facts(job: Job) -> tuple[object, ...]:
    counts = (job.phase, job.attempt, job.epoch, job.revision, job.deferrals, job.cancelled)
    facts = (*counts, job.phase == "waiting" and job.later)
    ready, finished = job.ready if job.phase == "waiting" else None, job.finished if job.phase == "done" else None
    held = (job.held_ms, job.offered) if job.phase == "leased" else None
    return (*facts, ready, finished, job.reason, held, params_of(job.ask.payload))


def params_of(payload: str) -> str:
    """The params of a job with this payload."""
    return f'{{"p":"{payload}"}}'


class _Books:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def rows(self, table: AnyTable) -> list[Any]:
        with self._store.read() as snapshot:
            return list(snapshot.page(table, 0, None, ROWS, 2**40))

    def miscounts(self) -> Iterator[str]:
        """Counts that are not what one gets by counting."""
        jobs = self.rows(JOB)
        records = [row for row in self.rows(JOB_RECORD) if row.alias != GENERATED]
        with self._store.read() as snapshot:
            totals = snapshot.get(JOB_TOTALS, ALONE) or NO_TOTALS
        phases = Counter(row.phase for row in jobs)
        later = sum(row.phase == WAITING and row.counted == AS_SCHEDULED for row in jobs)
        counted = (phases[WAITING], phases[LEASED], len(records), len(self.rows(JOB_DEAD)), later)
        if (totals.waiting, totals.leased, totals.records, totals.dead, totals.scheduled) != counted:
            yield f"totals {totals}, counted {counted}"
        lines = Counter((row.priority, row.queue) for row in jobs if row.phase == WAITING)
        if {(row.priority, row.queue): row.waiting for row in self.rows(JOB_LINE)} != lines:
            yield f"lines {self.rows(JOB_LINE)}, counted {lines}"
        queues = Counter(row.queue for row in jobs if row.phase == LEASED)
        if {row.queue: row.leased for row in self.rows(JOB_QUEUE) if row.leased} != queues:
            yield f"queues {self.rows(JOB_QUEUE)}, counted {queues}"
        waiting = [row for row in jobs if row.phase == WAITING]
        shares = Counter((row.principal, row.counted) for row in waiting)
        shared = {(row.principal, AS_QUEUED): row.queued for row in self.rows(JOB_SHARE) if row.queued}
        shared |= {(row.principal, AS_SCHEDULED): row.scheduled for row in self.rows(JOB_SHARE) if row.scheduled}
        if shared != shares:
            yield f"shares {self.rows(JOB_SHARE)}, counted {shares}"
        places = Counter((row.queue, row.counted) for row in waiting)
        placed = {(row.queue, AS_QUEUED): row.queued for row in self.rows(JOB_QUEUE) if row.queued}
        placed |= {(row.queue, AS_SCHEDULED): row.scheduled for row in self.rows(JOB_QUEUE) if row.scheduled}
        if placed != places:
            yield f"queues {self.rows(JOB_QUEUE)}, counted {places}"
        tenants = Counter(row.principal for row in records)
        if {row.principal: row.records for row in self.rows(JOB_TENANT) if row.records} != tenants:
            yield f"tenants {self.rows(JOB_TENANT)}, counted {tenants}"
        generated = Counter(row.principal for row in self.rows(JOB_RECORD) if row.alias == GENERATED)
        if generated:
            generated[b""] = generated.total()
        if {row.principal: row.generated for row in self.rows(JOB_TENANT) if row.generated} != generated:
            yield f"tenants {self.rows(JOB_TENANT)}, counted {generated} generated keys"
