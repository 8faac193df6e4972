"""The reaper: leases that ran out go back to the queue under the same id, their attempt counted.

A token dies with the reap. A job that kills its workers uses up its attempts here and ends, so nothing loops for ever.
An offer that lapses is no attempt: its worker was not heard of, and the job stands where it stood before. Jobs that
waited longer than allowed without ever being claimed end here too.
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
)
from semel.contracts.jobs.rules.states import End, Event, Reason, State, transition
from semel.contracts.jobs.rules.tally import Tally, counted_keys
from semel.contracts.jobs.tables import JOB, LEASED, WAITING, JobRow
from semel.engine.contract import Outcome, Stage, View
from semel.engine.demand import demand
from semel.kernel.clock import Now
from semel.kernel.retention import NEVER
from semel.store.protocol import Range

REAPED_BEFORE_A_CLAIM = 32
_VANISHED = "The lease of the last attempt ran out, and nobody knows how far it came."


@dataclass(slots=True)
class Toll:
    """What a reap did."""

    notes: list[Note] = field(default_factory=list)
    topics: dict[bytes, None] = field(default_factory=dict)
    silent: set[tuple[bytes, bytes]] = field(default_factory=set)
    """The workers, each under its principal, that have let something run out."""


def reap_stage(command: Reap) -> Stage:
    """The leases and the waiting jobs that come to their end first."""
    return Stage(ranges=[Range(JOB, "due", (phase,), command.most) for phase in (LEASED, WAITING)])


def reap(view: View, command: Reap, policy: Policy, now: Now) -> Outcome:
    """End what is due."""
    tally = Tally(view, policy, now)
    if now.steady_ms > command.until:
        return Outcome(Done(0))
    leased = _due(tally, LEASED, command.most, tally.now.steady_ms)
    old = _due(tally, WAITING, command.most, tally.now.expiry_ms)
    _demand_ends(tally, [*leased, *old])
    toll = Toll()
    for job in leased:
        _end_lease(tally, job, toll)
    for job in old:
        _end_wait(tally, job, toll)
    tally.store()
    return Outcome(Done(len(leased) + len(old), tuple(toll.notes)), signals=tuple(toll.topics))


def reap_first(tally: Tally) -> Toll:
    """What a claim does before it chooses; usually it only sees that nothing is due."""
    toll = Toll()
    if _due(tally, LEASED, 1, tally.now.steady_ms):
        due = _due(tally, LEASED, REAPED_BEFORE_A_CLAIM, tally.now.steady_ms)
        _demand_ends(tally, due)
        for job in due:
            _end_lease(tally, job, toll)
    return toll


def offer_ms(job: JobRow, policy: Policy) -> int:
    """How long a job may be held from now without another word of its worker."""
    return min(job.held_ms, policy.offer_ms) if job.offered and policy.offer_ms else job.held_ms


def confirmed(job: JobRow, now: Now) -> JobRow:
    """A lease of full length from now, never less than there was: its worker has been heard of."""
    return job._replace(offered=0, due_at=max(job.due_at, now.steady_ms + job.held_ms))


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


def _due(tally: Tally, phase: int, most: int, until: int) -> list[JobRow]:
    rows: Sequence[JobRow] = tally.view.range(Range(JOB, "due", (phase,), most))
    return [job for job in rows if job.due_at <= until]


def _demand_ends(tally: Tally, jobs: Sequence[JobRow]) -> None:
    demand(tally.view, [pair for job in jobs for pair in (*counted_keys(job), *end_keys(job))])


def _end_lease(tally: Tally, job: JobRow, toll: Toll) -> None:
    event = Event.OFFER_ENDED if job.offered else Event.LEASE_ENDED
    row = transition(job, event, tally.now.ms)
    assert row is not None
    facts: dict[str, Any] = {"job_id": job_name(job.id), "attempt": job.attempt, "worker_id": job.worker.decode()}
    toll.topics[topic_of_worker(job.holder, job.worker)] = None
    toll.silent.add((job.holder, job.worker))
    toll.notes.append(
        Note("OFFER_LAPSED", {**facts, "reason": "not_confirmed"})
        if job.offered
        else Note("LEASE_REAP", {**facts, "reason": "lease_expired"})
    )
    if row.target is State.QUEUED:
        tally.move(job, _waiting_again(tally, job))
        toll.topics[TOPIC_READY] = None
        return
    assert row.reason is not None
    message = CANCELLED if row.reason is Reason.CANCELLED else _VANISHED
    ending = failure(job, End.LAPSED if job.offered else End.REAPED, row.reason, message, outcome="unknown")
    toll.topics[topic_of(job.id)] = None
    toll.notes += conclude(tally, job, ending)[1]


def _waiting_again(tally: Tally, job: JobRow) -> JobRow:
    """Ready at once: after a lost lease behind those that are ready, after a lapsed offer in its old place."""
    if job.offered:
        return job._replace(phase=WAITING, due_at=NEVER, attempt=job.attempt - 1, ended_by=End.LAPSED.value)
    return job._replace(phase=WAITING, ready_at=tally.now.ms, due_at=NEVER, ended_by=End.REAPED.value)


def _end_wait(tally: Tally, job: JobRow, toll: Toll) -> None:
    row = transition(job, Event.TOO_OLD, tally.now.ms)
    if row is None or row.reason is None:
        tally.view.put(JOB, job._replace(due_at=NEVER))  # it has been claimed meanwhile, and so may wait
        return
    ending = failure(job, End.CANCELLED, row.reason, "The job waited in its queue for longer than allowed.")
    toll.topics[topic_of(job.id)] = None
    toll.notes += conclude(tally, job, ending)[1]
