"""The contract of jobs for the engine: one lock serializes all decisions on keys, counts and leases.

A command is atomic across a crash: record and job, lease and count, outcome and key are in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.plain_write import LoadPlain, PlainResult, PlainWrite, StagedPlainContract
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock, Range
from semel.surfaces.jobs.commands import (
    CancelJob,
    ClaimJobs,
    CloseGroup,
    DeferJob,
    DropSchedule,
    FireSchedule,
    JobCommand,
    JobHeartbeat,
    JobReport,
    JobStep,
    LimitQueue,
    PutSchedule,
    ReleaseKey,
    RequeueJob,
    SubmitJobs,
)
from semel.surfaces.jobs.limits import MAX_STEPS, JobPolicy
from semel.surfaces.jobs.maintenance_commands import (
    CancelMembers,
    ForgetClaims,
    ForgetJobs,
    ForgetRecords,
    JobRemains,
    PromoteJobs,
    ReapLeases,
    RenewLeases,
)
from semel.surfaces.jobs.rules.admin import (
    cancel,
    close,
    limit_needs,
    limit_queue,
    order_needs,
    release,
    release_needs,
    requeue,
)
from semel.surfaces.jobs.rules.claim import claim, claim_needs
from semel.surfaces.jobs.rules.group_cancel import cancel_members, members_needs
from semel.surfaces.jobs.rules.idempotency import expiry_table
from semel.surfaces.jobs.rules.leases import defer, heartbeat, lease_needs, report, step, step_needs
from semel.surfaces.jobs.rules.links import links_of
from semel.surfaces.jobs.rules.maintenance import (
    claim_row_needs,
    forget_claims,
    forget_jobs,
    forget_records,
    job_needs,
    record_needs,
)
from semel.surfaces.jobs.rules.plain_batch import PlainJobs, decide_plain, load_plain
from semel.surfaces.jobs.rules.plain_submission import LOCK_NAME
from semel.surfaces.jobs.rules.reaper import reap, reap_stage, renew
from semel.surfaces.jobs.rules.schedules import (
    drop_schedule,
    promote,
    promote_needs,
    put_schedule,
    schedule_needs,
    tick,
    tick_needs,
)
from semel.surfaces.jobs.rules.submission import submit, submit_needs
from semel.surfaces.jobs.tables import (
    ALONE,
    DONE,
    JOB,
    JOB_ALIAS,
    JOB_CHILD,
    JOB_CLAIM,
    JOB_MEMBER,
    JOB_STEP,
    JOB_TOTALS,
    JobRow,
)

JOBS_LOCK = Lock(LOCK_NAME)
FREED_RECORDS, FREED_JOBS, FREED_CLAIMS = 500, 500, 500

Needs = Generator[Stage, View, None]


class JobContract(StagedPlainContract):
    """The contract of jobs, under one policy."""

    name = "jobs"

    def __init__(self, policy: JobPolicy | None = None) -> None:
        self.policy = policy or JobPolicy()

    def locks(self, command: JobCommand) -> Sequence[Lock]:
        """The same lock for every command."""
        return (JOBS_LOCK,)

    def needs(self, command: JobCommand) -> Needs:
        """The rows that the command reads."""
        return _NEEDS[type(command)](command, self.policy)

    def order(self, command: JobCommand) -> Order | None:
        """No order but that of arrival."""
        return None

    def decide(self, view: View, command: JobCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        return _DECISIONS[type(command)](view, command, self.policy, now)

    def load_plain(self, load: LoadPlain, writes: Sequence[PlainWrite]) -> PlainJobs:
        """The rows that plain writes need."""
        return load_plain(load, writes)

    def decide_plain(self, rows: Any, writes: Sequence[PlainWrite], now: Now) -> PlainResult:
        """Decide plain writes, and leave the others."""
        return decide_plain(rows, self.policy, now)

    def chores(self, reading: Reading) -> Sequence[JobCommand]:
        """Commands that delete expired keys, jobs past their retention, and named claims whose leases have ended."""
        now = reading.now
        jobs = reading.range(Range(JOB, "due", (DONE,), FREED_JOBS, stop=(now.expiry_ms + 1,)))
        claims = reading.keys(Range(JOB_CLAIM, "until", (), FREED_CLAIMS, stop=(now.steady_ms + 1,)))
        found: list[JobCommand] = []
        for is_generated in (False, True):
            expired = Range(expiry_table(is_generated=is_generated), "", (), FREED_RECORDS, stop=(now.expiry_ms + 1,))
            if keys := reading.range(expired):
                found.append(ForgetRecords(tuple(keys), is_generated))
        if jobs:
            found.append(ForgetJobs(tuple(remains_of(reading, job) for job in jobs)))
        if claims:
            found.append(ForgetClaims(tuple((key[0], key[1]) for key in claims)))
        return found


def remains_of(reading: Reading, job: JobRow) -> JobRemains:
    """What is deleted with a job; a part of it if much belongs to the job, and the rest in the next sweep."""
    steps = reading.keys(Range(JOB_STEP, "", (job.id,), MAX_STEPS)) if job.steps else ()
    links = links_of(job.links)
    aliases = reading.keys(Range(JOB_ALIAS, "", (job.id,), FREED_RECORDS)) if links.has_aliases else ()
    is_waiter = links.joins or links.has_children
    members = reading.keys(Range(JOB_MEMBER, "", (job.id,), FREED_RECORDS)) if is_waiter else ()
    children = reading.keys(Range(JOB_CHILD, "", (job.id,), FREED_RECORDS)) if links.has_children else ()
    return JobRemains(
        job.id,
        tuple(key[1] for key in steps),
        tuple((key[1], key[2]) for key in aliases),
        tuple(key[1] for key in members),
        tuple(key[1] for key in children),
        max(len(aliases), len(members), len(children)) < FREED_RECORDS,
    )


def _reap_needs(command: ReapLeases, policy: JobPolicy) -> Needs:
    yield Stage(keys=[(JOB_TOTALS, ALONE)])
    yield reap_stage(command)


def _renew_needs(command: RenewLeases, policy: JobPolicy) -> Needs:
    yield Stage(keys=[(JOB, (job_id,)) for job_id in command.ids])


_NEEDS: Mapping[type, Callable[[Any, JobPolicy], Needs]] = {
    SubmitJobs: submit_needs,
    ClaimJobs: lambda command, policy: claim_needs(command),
    JobHeartbeat: lambda command, policy: lease_needs(command.id),
    JobReport: lambda command, policy: lease_needs(command.id),
    DeferJob: lambda command, policy: lease_needs(command.id),
    JobStep: lambda command, policy: step_needs(command),
    CancelJob: lambda command, policy: order_needs(command.id),
    CloseGroup: lambda command, policy: order_needs(command.id),
    CancelMembers: lambda command, policy: members_needs(command),
    RequeueJob: lambda command, policy: order_needs(command.id),
    ReleaseKey: lambda command, policy: release_needs(command),
    LimitQueue: lambda command, policy: limit_needs(command),
    PutSchedule: lambda command, policy: schedule_needs(command),
    DropSchedule: lambda command, policy: schedule_needs(command),
    FireSchedule: lambda command, policy: tick_needs(command),
    PromoteJobs: lambda command, policy: promote_needs(command),
    ReapLeases: _reap_needs,
    RenewLeases: _renew_needs,
    ForgetRecords: lambda command, policy: record_needs(command),
    ForgetJobs: lambda command, policy: job_needs(command),
    ForgetClaims: lambda command, policy: claim_row_needs(command),
}

_DECISIONS: Mapping[type, Callable[[View, Any, JobPolicy, Now], DecisionResult]] = {
    SubmitJobs: submit,
    ClaimJobs: claim,
    JobHeartbeat: lambda view, command, policy, now: heartbeat(view, command, now),
    JobReport: report,
    DeferJob: defer,
    JobStep: lambda view, command, policy, now: step(view, command, now),
    CancelJob: cancel,
    CloseGroup: close,
    CancelMembers: cancel_members,
    RequeueJob: requeue,
    ReleaseKey: release,
    LimitQueue: limit_queue,
    PutSchedule: lambda view, command, policy, now: put_schedule(view, command, now),
    DropSchedule: lambda view, command, policy, now: drop_schedule(view, command),
    FireSchedule: tick,
    PromoteJobs: promote,
    ReapLeases: reap,
    RenewLeases: renew,
    ForgetRecords: forget_records,
    ForgetJobs: forget_jobs,
    ForgetClaims: lambda view, command, policy, now: forget_claims(view, command, now),
}
