"""Jobs as a contract of the engine: one lock, so that keys, counts and leases are decided one after another.

A crash leaves every command done whole or not at all: record and job, lease and count, outcome and key are one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from semel.contracts.jobs.commands import (
    Cancel,
    Claim,
    Command,
    Defer,
    DropSchedule,
    ForgetClaims,
    ForgetJobs,
    ForgetRecords,
    Heartbeat,
    Import,
    LimitQueue,
    Promote,
    PutSchedule,
    Reap,
    Release,
    Renew,
    Report,
    Requeue,
    Step,
    Submit,
    Tick,
)
from semel.contracts.jobs.limits import MAX_STEPS, Policy
from semel.contracts.jobs.rules.claim import claim, claim_needs
from semel.contracts.jobs.rules.orders import (
    cancel,
    limit_needs,
    limit_queue,
    order_needs,
    release,
    release_needs,
    requeue,
)
from semel.contracts.jobs.rules.promote import promote, promote_needs
from semel.contracts.jobs.rules.reap import reap, reap_stage, renew
from semel.contracts.jobs.rules.report import defer, heartbeat, lease_needs, report
from semel.contracts.jobs.rules.schedules import (
    drop_schedule,
    put_schedule,
    schedule_needs,
    tick,
    tick_needs,
)
from semel.contracts.jobs.rules.steps import step, step_needs
from semel.contracts.jobs.rules.submit import submit, submit_needs
from semel.contracts.jobs.rules.upkeep import (
    claim_row_needs,
    forget_claims,
    forget_jobs,
    forget_records,
    import_needs,
    job_needs,
    record_needs,
    take_over,
)
from semel.contracts.jobs.tables import ALONE, DONE, JOB, JOB_CLAIM, JOB_RECORD, JOB_STEP, JOB_TOTALS
from semel.engine.contract import Order, Outcome, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock, Range

JOBS = Lock(b"jobs")
FREED_RECORDS, FREED_JOBS, FREED_CLAIMS = 500, 500, 500

Needs = Generator[Stage, View, None]


class Jobs:
    """The contract of jobs, under one policy."""

    name = "jobs"

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()

    def locks(self, command: Command) -> Sequence[Lock]:
        """One lock, whatever the command."""
        return (JOBS,)

    def needs(self, command: Command) -> Needs:
        """The rows that each command reads."""
        return _NEEDS[type(command)](command, self.policy)

    def order(self, command: Command) -> Order | None:
        """Arrival is the order."""
        return None

    def decide(self, view: View, command: Command, now: Now) -> Outcome:
        """Judge one command."""
        return _DECISIONS[type(command)](view, command, self.policy, now)

    def chores(self, reading: Reading) -> Sequence[Command]:
        """Expired keys, finished jobs past their retention, and named claims whose leases are over."""
        now = reading.now
        keys = reading.keys(Range(JOB_RECORD, "expires", (), FREED_RECORDS, stop=(now.expiry_ms + 1,)))
        jobs = reading.keys(Range(JOB, "due", (DONE,), FREED_JOBS, stop=(now.expiry_ms + 1,)))
        claims = reading.keys(Range(JOB_CLAIM, "until", (), FREED_CLAIMS, stop=(now.steady_ms + 1,)))
        found: list[Command] = []
        if keys:
            found.append(ForgetRecords(tuple((key[0], key[1]) for key in keys)))
        if jobs:
            found.append(ForgetJobs(tuple((key[0], _step_keys(reading, key[0])) for key in jobs)))
        if claims:
            found.append(ForgetClaims(tuple((key[0], key[1]) for key in claims)))
        return found


def _step_keys(reading: Reading, job_id: bytes) -> tuple[bytes, ...]:
    return tuple(key[1] for key in reading.keys(Range(JOB_STEP, "", (job_id,), MAX_STEPS)))


def _reap_needs(command: Reap, policy: Policy) -> Needs:
    yield Stage(keys=[(JOB_TOTALS, ALONE)])
    yield reap_stage(command)


def _renew_needs(command: Renew, policy: Policy) -> Needs:
    yield Stage(keys=[(JOB, (job_id,)) for job_id in command.ids])


_NEEDS: Mapping[type, Callable[[Any, Policy], Needs]] = {
    Submit: submit_needs,
    Claim: lambda command, policy: claim_needs(command),
    Heartbeat: lambda command, policy: lease_needs(command.id),
    Report: lambda command, policy: lease_needs(command.id),
    Defer: lambda command, policy: lease_needs(command.id),
    Step: lambda command, policy: step_needs(command),
    Cancel: lambda command, policy: order_needs(command.id),
    Requeue: lambda command, policy: order_needs(command.id),
    Release: lambda command, policy: release_needs(command),
    LimitQueue: lambda command, policy: limit_needs(command),
    PutSchedule: lambda command, policy: schedule_needs(command),
    DropSchedule: lambda command, policy: schedule_needs(command),
    Tick: lambda command, policy: tick_needs(command),
    Promote: lambda command, policy: promote_needs(command),
    Reap: _reap_needs,
    Renew: _renew_needs,
    ForgetRecords: lambda command, policy: record_needs(command),
    ForgetJobs: lambda command, policy: job_needs(command),
    ForgetClaims: lambda command, policy: claim_row_needs(command),
    Import: lambda command, policy: import_needs(command),
}

_DECISIONS: Mapping[type, Callable[[View, Any, Policy, Now], Outcome]] = {
    Submit: submit,
    Claim: claim,
    Heartbeat: lambda view, command, policy, now: heartbeat(view, command, now),
    Report: report,
    Defer: defer,
    Step: lambda view, command, policy, now: step(view, command, now),
    Cancel: cancel,
    Requeue: requeue,
    Release: release,
    LimitQueue: limit_queue,
    PutSchedule: lambda view, command, policy, now: put_schedule(view, command, now),
    DropSchedule: lambda view, command, policy, now: drop_schedule(view, command),
    Tick: tick,
    Promote: promote,
    Reap: reap,
    Renew: renew,
    ForgetRecords: forget_records,
    ForgetJobs: forget_jobs,
    ForgetClaims: lambda view, command, policy, now: forget_claims(view, command, now),
    Import: take_over,
}
