"""The reaper: jobs of expired leases go back to the queue under the same id, their attempt counted.

A token dies with the reap. A job that kills its workers uses up its attempts here and ends, so nothing loops for ever.
An offer that lapses is no attempt: its worker was not heard of, and the job stands where it stood before. Jobs that
waited longer than allowed without ever being claimed end here too.

A run that has reached its time limit fails here: its lease was not extended beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from semel.contracts.jobs.commands import Done, Note, Reap, Renew
from semel.contracts.jobs.ids import job_name
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.rules.ends import (
    CANCELLED,
    TOPIC_READY,
    conclude,
    end_keys,
    failure,
    topic_of,
    topic_of_worker,
    with_error,
)
from semel.contracts.jobs.rules.retries import delay_ms
from semel.contracts.jobs.rules.states import End, Event, Reason, transition
from semel.contracts.jobs.rules.tally import Tally, counted_keys
from semel.contracts.jobs.tables import JOB, LEASED, WAITING, JobRow
from semel.engine.contract import Outcome, Stage, View
from semel.engine.demand import demand
from semel.kernel.clock import Now
from semel.kernel.retention import NEVER
from semel.store.protocol import Range

REAPED_BEFORE_A_CLAIM = 32
TIMEOUT = "timeout"
"""The code of the error of a run that took too long."""
_TOO_LONG = "The run took longer than allowed."
_MESSAGES = {
    Reason.CANCELLED: CANCELLED,
    Reason.EXHAUSTED: _TOO_LONG,
    Reason.LEASE_EXHAUSTED: "The lease of the last attempt ran out, and it is unknown how far it came.",
}
_ENDS = {Event.OFFER_ENDED: End.LAPSED, Event.LEASE_ENDED: End.REAPED, Event.TIMED_OUT: End.REAPED}


@dataclass(slots=True)
class Toll:
    """The numbers of a reap."""

    notes: list[Note] = field(default_factory=list)
    topics: dict[bytes, None] = field(default_factory=dict)
    silent: set[tuple[bytes, bytes]] = field(default_factory=set)
    """The workers, each under its principal, that have let something run out."""


def reap_stage(command: Reap) -> Stage:
    """The leases and waiting jobs that expire first."""
    return Stage(ranges=[leases_until(command.until, command.most), _old(command.most)])


def leases_until(until: int, most: int) -> Range:
    """The leases that end first, as far as they end by then.

    The bound keeps those out that a heartbeat may be moving at this moment: a row that moves within a loaded range
    would have it loaded again.
    """
    return Range(JOB, "due", (LEASED,), most, stop=(until + 1,))


def _old(most: int) -> Range:
    return Range(JOB, "due", (WAITING,), most)


def reap(view: View, command: Reap, policy: Policy, now: Now) -> Outcome:
    """End what has expired."""
    tally = Tally(view, policy, now)
    if now.steady_ms > command.until:
        return Outcome(Done(0))
    leased = _ended(tally, leases_until(command.until, command.most))
    old = [job for job in view.range(_old(command.most)) if job.due_at <= tally.now.expiry_ms]
    _demand_ends(tally, [*leased, *old])
    toll = Toll()
    for job in leased:
        _end_lease(tally, job, toll)
    for job in old:
        _end_wait(tally, job, toll)
    tally.store()
    return Outcome(Done(len(leased) + len(old), tuple(toll.notes)), signals=tuple(toll.topics))


def reap_first(tally: Tally, until: int) -> Toll:
    """Reap before a claim selects jobs; usually nothing is due."""
    toll = Toll()
    if _ended(tally, leases_until(until, 1)):
        due = _ended(tally, leases_until(until, REAPED_BEFORE_A_CLAIM))
        _demand_ends(tally, due)
        for job in due:
            _end_lease(tally, job, toll)
    return toll


def offer_ms(job: JobRow, policy: Policy) -> int:
    """How long a job may be held from now without another word of its worker."""
    return min(job.held_ms, policy.offer_ms) if job.offered and policy.offer_ms else job.held_ms


def in_time(job: JobRow, due_at: int) -> int:
    """The end of a lease, no later than the time limit of the run."""
    return min(due_at, job.timeout_at) if job.timeout_at else due_at


def confirmed(job: JobRow, now: Now) -> JobRow:
    """A lease of full length from now, never shorter than before: its worker is alive."""
    return job._replace(offered=0, due_at=max(job.due_at, in_time(job, now.steady_ms + job.held_ms)))


def renew(view: View, command: Renew, policy: Policy, now: Now) -> Outcome:
    """More time for those that still hold a lease, or have been offered one."""
    count = 0
    for job_id in command.ids:
        job = view.get(JOB, (job_id,))
        if job is not None and job.phase == LEASED:
            due_at = now.steady_ms + offer_ms(job, policy)
            if command.since is not None:
                due_at = max(job.due_at, min(due_at, job.due_at + now.steady_ms - command.since))
            view.put(JOB, job._replace(due_at=due_at))
            count += 1
    return Outcome(Done(count))


def _ended(tally: Tally, wanted: Range) -> list[JobRow]:
    rows: Sequence[JobRow] = tally.view.range(wanted)
    return [job for job in rows if has_ended(job, tally.policy, tally.now)]


def has_ended(job: JobRow, policy: Policy, now: Now) -> bool:
    """Whether a lease is to be taken back. An offer is not extended softly, so that nothing is waited for there."""
    return job.due_at + (0 if job.offered else policy.reap_grace_ms) <= now.steady_ms


def _demand_ends(tally: Tally, jobs: Sequence[JobRow]) -> None:
    demand(tally.view, [pair for job in jobs for pair in (*counted_keys(job), *end_keys(job))])


def _end_lease(tally: Tally, job: JobRow, toll: Toll) -> None:
    event = _event(tally, job)
    row = transition(job, event, tally.now.ms)
    assert row is not None
    toll.topics[topic_of_worker(job.holder, job.worker)] = None
    toll.silent.add((job.holder, job.worker))
    toll.notes += _told(job, event)
    if event is Event.TIMED_OUT:
        job = job._replace(errors=with_error(tally, job, TIMEOUT, _TOO_LONG))
    if row.reason is None:
        tally.move(job, _waiting_again(tally, job, event, toll))
        toll.topics[TOPIC_READY] = None
        return
    facts: dict[str, Any] = {"code": TIMEOUT} if row.reason is Reason.EXHAUSTED else {}
    ending = failure(job, _ENDS[event], row.reason, _MESSAGES[row.reason], outcome="unknown", **facts)
    toll.topics[topic_of(job.id)] = None
    toll.notes += conclude(tally, job, ending)[1]


def _event(tally: Tally, job: JobRow) -> Event:
    if job.offered:
        return Event.OFFER_ENDED
    return Event.TIMED_OUT if 0 < job.timeout_at <= tally.now.steady_ms else Event.LEASE_ENDED


def _told(job: JobRow, event: Event) -> list[Note]:
    facts: dict[str, Any] = {"job_id": job_name(job.id), "attempt": job.attempt, "worker_id": job.worker.decode()}
    if event is Event.OFFER_ENDED:
        return [Note("OFFER_LAPSED", {**facts, "reason": "not_confirmed"})]
    if event is Event.LEASE_ENDED:
        return [Note("LEASE_REAP", {**facts, "reason": "lease_expired"})]
    limit = {"timeout_ms": job.timeout_at - job.claimed_at}
    return [Note("JOB_TIMEOUT", {**facts, **limit}), Note("LEASE_REAP", {**facts, "reason": TIMEOUT})]


def _waiting_again(tally: Tally, job: JobRow, event: Event, toll: Toll) -> JobRow:
    """After a lapsed offer in its old place, after a lost lease ready at once, after a timeout when it has rested."""
    again = job._replace(phase=WAITING, due_at=NEVER, ended_by=_ENDS[event].value)
    if event is Event.OFFER_ENDED:
        return again._replace(attempt=job.attempt - 1)
    rest_ms = delay_ms(tally.policy, job.id, job.attempt, None) if event is Event.TIMED_OUT else 0
    if event is Event.TIMED_OUT:
        facts = {"job_id": job_name(job.id), "attempt": job.attempt, "reason": TIMEOUT, "delay_ms": rest_ms}
        toll.notes.append(Note("RETRY_SCHEDULED", facts))
    return again._replace(ready_at=tally.now.ms + rest_ms)


def _end_wait(tally: Tally, job: JobRow, toll: Toll) -> None:
    row = transition(job, Event.TOO_OLD, tally.now.ms)
    if row is None or row.reason is None:
        tally.view.put(JOB, job._replace(due_at=NEVER))  # it has been claimed meanwhile, and so may wait
        return
    ending = failure(job, End.CANCELLED, row.reason, "The job waited in its queue for longer than allowed.")
    toll.topics[topic_of(job.id)] = None
    toll.notes += conclude(tally, job, ending)[1]
