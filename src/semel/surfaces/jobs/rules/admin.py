"""Commands of owners and administrators: cancel a job, requeue it, release a key, limit a queue."""

from __future__ import annotations

from collections.abc import Generator

from semel.engine.contract import DecisionResult, Stage, View
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.jobs.commands import (
    CancelJob,
    CloseGroup,
    GroupClosed,
    JobChanged,
    JobNote,
    JobRefused,
    JobsAffected,
    LimitQueue,
    ReleaseKey,
    RequeueJob,
)
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.completion import CANCELLED, TOPIC_READY, conclude, end_keys, failure, revive, topic_of
from semel.surfaces.jobs.rules.counters import JobCounters, capacity_refusal, counted_keys
from semel.surfaces.jobs.rules.group_cancel import unsettle
from semel.surfaces.jobs.rules.groups import release_if_ended, waiter_keys
from semel.surfaces.jobs.rules.idempotency import expiry_place, is_alias, key_end
from semel.surfaces.jobs.rules.leases import NO_JOB
from semel.surfaces.jobs.rules.links import links_of
from semel.surfaces.jobs.rules.rate_limit import with_rate
from semel.surfaces.jobs.rules.states import JobEvent, JobState, LeaseEnd, state_of, transition
from semel.surfaces.jobs.tables import (
    ALONE,
    DONE,
    JOB,
    JOB_ALIAS,
    JOB_GROUP,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_TENANT,
    JOB_TOTALS,
    JobRow,
)

_NOT_FAILED = "Only a job that has failed can be queued again."
_NO_GROUP = "This job is not the join of a group."
_NO_KEY = "There is no live record of this key."
_ACTIVE = "The job of this key is not finished; releasing the key now needs `force`."


def order_needs(job_id: bytes) -> Generator[Stage, View, None]:
    """The job; then the rows that its end or its revival would change."""
    view = yield Stage(keys=[(JOB, (job_id,))])
    job = view.get(JOB, (job_id,))
    if job is not None:
        own: list[tuple[AnyTable, Key]] = [(JOB_GROUP, (job_id,))] if job.links else []
        view = yield Stage(keys=[*counted_keys(job), *end_keys(job), *own])
        if job.links:
            yield Stage(keys=waiter_keys(view, [job]))


def cancel(view: View, command: CancelJob, policy: JobPolicy, now: Now) -> DecisionResult:
    """Cancel a waiting job; ask the worker of a running one to stop, unless forced. A finished job is not changed."""
    job = view.get(JOB, (command.id,))
    if job is None or not (command.is_admin or command.principal == job.principal):
        return DecisionResult(NO_JOB)
    if command.with_members and job.links:
        unsettle(view, job)
    if job.phase == DONE:
        return DecisionResult(JobChanged(job, now))
    counters = JobCounters(view, policy, now)
    row = transition(job, JobEvent.FORCE if command.forces else JobEvent.CANCEL, counters.now.ms)
    assert row is not None
    facts = {"job_id": job_name(job.id), "attempt": job.attempt, "by": _by(command, job)}
    note = JobNote("JOB_CANCELLED", facts | {"principal": command.principal.decode()})
    if row.target is JobState.LEASED:
        if job.cancel:
            return DecisionResult(JobChanged(job, counters.now))
        flagged = counters.move(job, job._replace(cancel=1))
        return DecisionResult(JobChanged(flagged, counters.now, (note,)))
    assert row.reason is not None
    ending = failure(job, LeaseEnd.CANCELLED, row.reason, CANCELLED)
    done, notes = conclude(counters, job, ending)
    counters.store()
    return DecisionResult(JobChanged(done, counters.now, (note, *notes)), signals=(topic_of(job.id), TOPIC_READY))


def close(view: View, command: CloseGroup, policy: JobPolicy, now: Now) -> DecisionResult:
    """Close a group; its join is ready at once if all members have ended. A closed group is not changed."""
    job = view.get(JOB, (command.id,))
    if job is None or not (command.is_admin or command.principal == job.principal):
        return DecisionResult(NO_JOB)
    group = view.get(JOB_GROUP, (command.id,)) if links_of(job.links).joins else None
    if group is None:
        return DecisionResult(JobRefused(Refusal("jobs:not_found", _NO_GROUP)))
    counters = JobCounters(view, policy, now)
    if group.is_held:
        group = release_if_ended(counters, group._replace(is_closed=1))
        counters.store()
    return DecisionResult(GroupClosed(view.get(JOB, (command.id,)) or job, group, counters.now), signals=(TOPIC_READY,))


def requeue(view: View, command: RequeueJob, policy: JobPolicy, now: Now) -> DecisionResult:
    """Run a failed job again under its own id."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return DecisionResult(NO_JOB)
    counters = JobCounters(view, policy, now)
    if transition(job, JobEvent.REVIVE, counters.now.ms) is None:
        facts = {"job_id": job_name(job.id), "state": state_of(job, counters.now.ms).value}
        return DecisionResult(JobRefused(Refusal("jobs:job_active", _NOT_FAILED, facts)))
    full = capacity_refusal(counters, job.principal, job.queue, is_scheduled=False)
    if full is not None:
        return DecisionResult(full)
    again = revive(counters, job)
    counters.store()
    note = JobNote("JOB_REVIVED", {"job_id": job_name(job.id), "attempt": job.attempt, "by": command.by})
    return DecisionResult(JobChanged(again, counters.now, (note,)), signals=(TOPIC_READY, topic_of(job.id)))


def release_needs(command: ReleaseKey) -> Generator[Stage, View, None]:
    """The record, then its job."""
    mine = (command.principal, command.key)
    tenants = [(JOB_TENANT, (command.principal,)), (JOB_TENANT, ALONE)]
    view = yield Stage(keys=[(JOB_RECORD, mine), *tenants, (JOB_TOTALS, ALONE)])
    record = view.get(JOB_RECORD, (command.principal, command.key))
    if record is not None:
        yield Stage(keys=[(JOB, (record.job,))])


def release(view: View, command: ReleaseKey, policy: JobPolicy, now: Now) -> DecisionResult:
    """Release a key; its job continues, but its end no longer changes the record."""
    record = view.get(JOB_RECORD, (command.principal, command.key))
    job: JobRow | None = None if record is None else view.get(JOB, (record.job,))
    if record is None or job is None or now.expiry_ms >= key_end(record, job):
        return DecisionResult(JobRefused(Refusal("jobs:not_found", _NO_KEY)))
    is_active = job.phase != DONE
    if is_active and not command.forces:
        return DecisionResult(JobRefused(Refusal("jobs:job_active", _ACTIVE, {"job_id": job_name(record.job)})))
    counters = JobCounters(view, policy, now)
    view.delete(JOB_RECORD, (command.principal, command.key))
    if is_alias(record):
        view.forget(JOB_ALIAS, (job.id, command.principal, command.key))
    else:
        if not is_active:
            view.forget(*expiry_place(job))
        view.put(JOB, job._replace(key_until=0))
    counters.count_record(record, -1)
    counters.store()
    facts = {"key_prefix": command.key_prefix, "job_id": job_name(record.job), "by": "admin"}
    reason = "forced" if is_active else "finished"
    return DecisionResult(JobsAffected(1, (JobNote("IDEMPOTENCY_KEY_RELEASED", {**facts, "reason": reason}),)))


def limit_needs(command: LimitQueue) -> Generator[Stage, View, None]:
    """The row of the queue."""
    yield Stage(keys=[(JOB_QUEUE, (command.queue,)), (JOB_TOTALS, ALONE)])


def limit_queue(view: View, command: LimitQueue, policy: JobPolicy, now: Now) -> DecisionResult:
    """Set the limits of a queue; current leases are not affected."""
    counters = JobCounters(view, policy, now)
    row = counters.queue(command.queue)
    if command.max_inflight is not None:
        row = row._replace(max_inflight=command.max_inflight)
    if command.default_timeout_ms is not None:
        row = row._replace(default_timeout_ms=command.default_timeout_ms)
    if command.rate is not None:
        row = with_rate(row, *command.rate, counters.now.steady_ms)
    counters.keep_queue(row)
    return DecisionResult(JobsAffected(row.max_inflight), signals=(TOPIC_READY,))


def _by(command: CancelJob, job: JobRow) -> str:
    return "owner" if command.principal == job.principal else "admin"
