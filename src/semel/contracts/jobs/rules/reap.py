"""The reaper: leases that ran out go back to the queue under the same id, their attempt counted.

A token dies with the reap. A job that kills its workers uses up its attempts here and ends, so nothing loops for ever.
Jobs that waited longer than allowed without ever being claimed end here too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semel.contracts.jobs.commands import Done, Note, Reap, Renew
from semel.contracts.jobs.ids import job_name
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.rules.ends import CANCELLED, TOPIC_READY, conclude, end_keys, failure, topic_of
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
    topics: dict[bytes, None] = {}
    notes = [note for job in leased for note in _end_lease(tally, job, topics)]
    for job in old:
        notes += _end_wait(tally, job, topics)
    tally.store()
    return Outcome(Done(len(leased) + len(old), tuple(notes)), signals=tuple(topics))


def reap_first(tally: Tally, topics: dict[bytes, None]) -> list[Note]:
    """What a claim does before it chooses; usually it only sees that nothing is due."""
    if not _due(tally, LEASED, 1, tally.now.steady_ms):
        return []
    due = _due(tally, LEASED, REAPED_BEFORE_A_CLAIM, tally.now.steady_ms)
    _demand_ends(tally, due)
    return [note for job in due for note in _end_lease(tally, job, topics)]


def renew(view: View, command: Renew, now: Now) -> Outcome:
    """More time for those that still hold a lease."""
    count = 0
    for job_id in command.ids:
        job = view.get(JOB, (job_id,))
        if job is not None and job.phase == LEASED:
            due_at = now.steady_ms + job.held_ms
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


def _end_lease(tally: Tally, job: JobRow, topics: dict[bytes, None]) -> list[Note]:
    facts: dict[str, Any] = {
        "job_id": job_name(job.id),
        "attempt": job.attempt,
        "worker_id": job.worker.decode(),
        "reason": "lease_expired",
    }
    notes = [Note("LEASE_REAP", facts)]
    row = transition(job, Event.LEASE_ENDED, tally.now.ms)
    assert row is not None
    if row.target is State.QUEUED:
        waiting = job._replace(phase=WAITING, ready_at=tally.now.ms, due_at=NEVER, ended_by=End.REAPED.value)
        tally.move(job, waiting)
        topics[TOPIC_READY] = None
        return notes
    assert row.reason is not None
    message = CANCELLED if row.reason is Reason.CANCELLED else _VANISHED
    ending = failure(job, End.REAPED, row.reason, message, outcome="unknown")
    topics[topic_of(job.id)] = None
    return [*notes, *conclude(tally, job, ending)[1]]


def _end_wait(tally: Tally, job: JobRow, topics: dict[bytes, None]) -> list[Note]:
    row = transition(job, Event.TOO_OLD, tally.now.ms)
    if row is None or row.reason is None:
        tally.view.put(JOB, job._replace(due_at=NEVER))  # it has been claimed meanwhile, and so may wait
        return []
    ending = failure(job, End.CANCELLED, row.reason, "The job waited in its queue for longer than allowed.")
    topics[topic_of(job.id)] = None
    return conclude(tally, job, ending)[1]
