"""The reaper of expired leases, and the retry delays (exponential backoff with a reproducible jitter).

An expired lease goes back to the queue under the same job id, and its attempt is counted. Its token is void after the
reap. A job that kills its workers uses up its attempts here and ends, so no job loops forever. An offer that lapses is
not an attempt: its worker has not answered, and the job keeps its place in the queue. A job that waited longer than
allowed without a claim ends here too.

A run that has reached its time limit fails here: its lease is never extended beyond the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from semel.engine.contract import DecisionResult, Stage, View, demand
from semel.kernel.clock import Now
from semel.kernel.verdict import NEVER
from semel.store.protocol import Range
from semel.surfaces.jobs.commands import JobNote, JobsAffected
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import MAX_DEFER_MS, JobPolicy
from semel.surfaces.jobs.maintenance_commands import ReapLeases, RenewLeases
from semel.surfaces.jobs.rules.completion import (
    CANCELLED,
    TOPIC_READY,
    JobOutcome,
    conclude,
    end_keys,
    failure,
    topic_of,
    topic_of_worker,
    with_error,
)
from semel.surfaces.jobs.rules.counters import JobCounters, counted_keys
from semel.surfaces.jobs.rules.groups import waiter_keys
from semel.surfaces.jobs.rules.states import FailureReason, JobEvent, LeaseEnd, transition
from semel.surfaces.jobs.tables import JOB, LEASED, WAITING, JobRow


def delay_ms(policy: JobPolicy, job_id: bytes, attempt: int, asked_ms: int | None) -> int:
    """The delay after this run in milliseconds; a delay that the worker requests wins."""
    if asked_ms is not None:
        return min(asked_ms, MAX_DEFER_MS)
    cap = policy.backoff_cap_ms
    plain = min(cap, policy.backoff_base_ms << min(max(0, attempt - 1), 40))
    return max(0, min(cap, round(plain * (1 + policy.jitter * _between(job_id, attempt)))))


def _between(job_id: bytes, attempt: int) -> float:
    """A number from -1 to 1 that is fixed for this job and attempt."""
    drawn = int.from_bytes(sha256(job_id + attempt.to_bytes(8, "big")).digest()[:4], "big")
    return 2 * drawn / (2**32 - 1) - 1


REAPED_BEFORE_A_CLAIM = 32
TIMEOUT = "timeout"
"""The error code of a run that exceeded its time limit."""
_TOO_LONG = "The run took longer than allowed."
_MESSAGES = {
    FailureReason.CANCELLED: CANCELLED,
    FailureReason.EXHAUSTED: _TOO_LONG,
    FailureReason.LEASE_EXHAUSTED: "The lease of the last attempt ran out, and it is unknown how far it came.",
}
_ENDS = {
    JobEvent.OFFER_ENDED: LeaseEnd.LAPSED,
    JobEvent.LEASE_ENDED: LeaseEnd.REAPED,
    JobEvent.TIMED_OUT: LeaseEnd.REAPED,
}


@dataclass(slots=True)
class ReapResult:
    """What a reap has done: notes, topics to signal, and workers."""

    notes: list[JobNote] = field(default_factory=list)
    topics: dict[bytes, None] = field(default_factory=dict)
    silent: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Pairs of principal and worker that let a lease or an offer expire."""


def reap_stage(command: ReapLeases) -> Stage:
    """The leases and waiting jobs that expire first."""
    return Stage(ranges=[leases_until(command.until, command.most), _old(command.most)])


def leases_until(until: int, most: int) -> Range:
    """The leases that end first, up to a time.

    The limit excludes leases that a heartbeat may be extending now: a row that moves within a loaded range would cause
    the range to be loaded again.
    """
    return Range(JOB, "due", (LEASED,), most, stop=(until + 1,))


def _old(most: int) -> Range:
    return Range(JOB, "due", (WAITING,), most, stop=(NEVER,))


def reap(view: View, command: ReapLeases, policy: JobPolicy, now: Now) -> DecisionResult:
    """End expired leases and jobs that waited too long."""
    counters = JobCounters(view, policy, now)
    if now.steady_ms > command.until:
        return DecisionResult(JobsAffected(0))
    leased = _ended(counters, leases_until(command.until, command.most))
    old = [job for job in view.range(_old(command.most)) if job.due_at <= counters.now.expiry_ms]
    _demand_ends(counters, [*leased, *old])
    reaped = ReapResult()
    for job in leased:
        _end_lease(counters, job, reaped)
    for job in old:
        _end_wait(counters, job, reaped)
    counters.store()
    return DecisionResult(JobsAffected(len(leased) + len(old), tuple(reaped.notes)), signals=tuple(reaped.topics))


def reap_first(counters: JobCounters, until: int) -> ReapResult:
    """Reap before a claim selects jobs; usually nothing is due."""
    reaped = ReapResult()
    if _ended(counters, leases_until(until, 1)):
        due = _ended(counters, leases_until(until, REAPED_BEFORE_A_CLAIM))
        _demand_ends(counters, due)
        for job in due:
            _end_lease(counters, job, reaped)
    return reaped


def offer_ms(job: JobRow, policy: JobPolicy) -> int:
    """How long a job may be held from now without a further request of its worker, in milliseconds."""
    return min(job.held_ms, policy.offer_ms) if job.offered and policy.offer_ms else job.held_ms


def in_time(job: JobRow, due_at: int) -> int:
    """The end of a lease, at most the time limit of the run."""
    return min(due_at, job.timeout_at) if job.timeout_at else due_at


def confirmed(job: JobRow, now: Now) -> JobRow:
    """A lease of full length from now, never shorter than before, because its worker is alive."""
    return job._replace(offered=0, due_at=max(job.due_at, in_time(job, now.steady_ms + job.held_ms)))


def renew(view: View, command: RenewLeases, policy: JobPolicy, now: Now) -> DecisionResult:
    """Extend the leases and offers of these jobs."""
    count = 0
    for job_id in command.ids:
        job = view.get(JOB, (job_id,))
        if job is not None and job.phase == LEASED:
            due_at = now.steady_ms + offer_ms(job, policy)
            if command.since is not None:
                due_at = max(job.due_at, min(due_at, job.due_at + now.steady_ms - command.since))
            view.put(JOB, job._replace(due_at=due_at))
            count += 1
    return DecisionResult(JobsAffected(count))


def _ended(counters: JobCounters, wanted: Range) -> list[JobRow]:
    rows: Sequence[JobRow] = counters.view.range(wanted)
    return [job for job in rows if has_ended(job, counters.policy, counters.now)]


def has_ended(job: JobRow, policy: JobPolicy, now: Now) -> bool:
    """Whether a lease has ended. An offer has no grace period, because soft changes do not extend it."""
    return job.due_at + (0 if job.offered else policy.reap_grace_ms) <= now.steady_ms


def _demand_ends(counters: JobCounters, jobs: Sequence[JobRow]) -> None:
    demand(counters.view, [pair for job in jobs for pair in (*counted_keys(job), *end_keys(job))])
    demand(counters.view, waiter_keys(counters.view, jobs))


def _end_lease(counters: JobCounters, job: JobRow, reaped: ReapResult) -> None:
    event = _event(counters, job)
    row = transition(job, event, counters.now.ms)
    assert row is not None
    reaped.topics[topic_of_worker(job.holder, job.worker)] = None
    reaped.silent.add((job.holder, job.worker))
    reaped.notes += _told(job, event)
    if event is JobEvent.TIMED_OUT:
        job = job._replace(errors=with_error(counters, job, TIMEOUT, _TOO_LONG))
    if row.reason is None:
        counters.move(job, _waiting_again(counters, job, event, reaped))
        reaped.topics[TOPIC_READY] = None
        return
    facts: dict[str, Any] = {"code": TIMEOUT} if row.reason is FailureReason.EXHAUSTED else {}
    ending = failure(job, _ENDS[event], row.reason, _MESSAGES[row.reason], outcome="unknown", **facts)
    _conclude(counters, job, ending, reaped)


def _conclude(counters: JobCounters, job: JobRow, ending: JobOutcome, reaped: ReapResult) -> None:
    reaped.topics[topic_of(job.id)] = None
    if job.links:
        reaped.topics[TOPIC_READY] = None  # a job that waited for this one may be ready
    reaped.notes += conclude(counters, job, ending)[1]


def _event(counters: JobCounters, job: JobRow) -> JobEvent:
    if job.offered:
        return JobEvent.OFFER_ENDED
    return JobEvent.TIMED_OUT if 0 < job.timeout_at <= counters.now.steady_ms else JobEvent.LEASE_ENDED


def _told(job: JobRow, event: JobEvent) -> list[JobNote]:
    facts: dict[str, Any] = {"job_id": job_name(job.id), "attempt": job.attempt, "worker_id": job.worker.decode()}
    if event is JobEvent.OFFER_ENDED:
        return [JobNote("OFFER_LAPSED", {**facts, "reason": "not_confirmed"})]
    if event is JobEvent.LEASE_ENDED:
        return [JobNote("LEASE_REAP", {**facts, "reason": "lease_expired"})]
    limit = {"timeout_ms": job.timeout_at - job.claimed_at}
    return [JobNote("JOB_TIMEOUT", {**facts, **limit}), JobNote("LEASE_REAP", {**facts, "reason": TIMEOUT})]


def _waiting_again(counters: JobCounters, job: JobRow, event: JobEvent, reaped: ReapResult) -> JobRow:
    """The waiting job: after a lapsed offer in its old place, after an expired lease ready at once, after a timeout
    delayed.
    """
    again = job._replace(phase=WAITING, due_at=NEVER, ended_by=_ENDS[event].value)
    if event is JobEvent.OFFER_ENDED:
        return again._replace(attempt=job.attempt - 1)
    rest_ms = delay_ms(counters.policy, job.id, job.attempt, None) if event is JobEvent.TIMED_OUT else 0
    if event is JobEvent.TIMED_OUT:
        facts = {"job_id": job_name(job.id), "attempt": job.attempt, "reason": TIMEOUT, "delay_ms": rest_ms}
        reaped.notes.append(JobNote("RETRY_SCHEDULED", facts))
    return again._replace(ready_at=counters.now.ms + rest_ms)


def _end_wait(counters: JobCounters, job: JobRow, reaped: ReapResult) -> None:
    row = transition(job, JobEvent.TOO_OLD, counters.now.ms)
    if row is None or row.reason is None:
        counters.view.put(JOB, job._replace(due_at=NEVER))  # claimed meanwhile: it may wait on
        return
    ending = failure(job, LeaseEnd.CANCELLED, row.reason, "The job waited in its queue for longer than allowed.")
    _conclude(counters, job, ending, reaped)
