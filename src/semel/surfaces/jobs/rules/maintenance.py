"""Maintenance: remove expired rows (retention)."""

from __future__ import annotations

from collections.abc import Generator

from semel.engine.contract import DecisionResult, Stage, View
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobsAffected
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.maintenance_commands import (
    ForgetClaims,
    ForgetJobs,
    ForgetRecords,
    JobRemains,
)
from semel.surfaces.jobs.rules.claim import epochs_of
from semel.surfaces.jobs.rules.counters import JobCounters, expiry_keys
from semel.surfaces.jobs.rules.groups import group_of
from semel.surfaces.jobs.rules.idempotency import expiry_table
from semel.surfaces.jobs.rules.uniqueness import unique_key
from semel.surfaces.jobs.tables import (
    ALONE,
    DONE,
    INLINE_BYTES,
    JOB,
    JOB_CHILD,
    JOB_CLAIM,
    JOB_DEAD,
    JOB_GROUP,
    JOB_MEMBER,
    JOB_PART,
    JOB_RECORD,
    JOB_STEP,
    JOB_TENANT,
    JOB_TOTALS,
    JOB_UNIQUE,
    LEASED,
    PARAMS,
    RESULT,
    JobRow,
)

KEPT_ON_MS = 3_600_000
"""A member whose join or parent has not ended is kept on for this time, and looked at again then."""


def record_needs(command: ForgetRecords) -> Generator[Stage, View, None]:
    """The records and their principals."""
    table = expiry_table(is_generated=command.are_generated)
    yield Stage(keys=[(JOB_TOTALS, ALONE), *(pair for row in command.keys for pair in expiry_keys(table, row))])


def forget_records(view: View, command: ForgetRecords, policy: JobPolicy, now: Now) -> DecisionResult:
    """Delete the keys that have expired."""
    counters = JobCounters(view, policy, now)
    number, table = 0, expiry_table(is_generated=command.are_generated)
    for row in command.keys:
        is_there = view.get(table, (row.expires_at, row.id)) is not None
        if is_there and row.expires_at <= now.expiry_ms and counters.drop_key(table, row):
            number += 1
    counters.store()
    return DecisionResult(JobsAffected(number))


def job_needs(command: ForgetJobs) -> Generator[Stage, View, None]:
    """The jobs and their aliases; then their entries in the dead letter queue and their unique keys."""
    keys: list[tuple[AnyTable, Key]] = [(JOB, (one.id,)) for one in command.jobs]
    for alias in (alias for one in command.jobs for alias in one.aliases):
        keys += [(JOB_RECORD, alias), (JOB_TENANT, alias[:1])]
    view = yield Stage(keys=[*keys, (JOB_TOTALS, ALONE)])
    found = [view.get(JOB, (one.id,)) for one in command.jobs]
    jobs = [job for job in found if job is not None]
    dead: list[tuple[AnyTable, Key]] = [(JOB_DEAD, (job.finished_at, job.id)) for job in jobs]
    if dead:
        waiters = [(JOB, (group,)) for job in jobs if (group := group_of(job))]
        yield Stage(keys=[*dead, *waiters, *((JOB_UNIQUE, unique) for job in jobs if (unique := unique_key(job)))])


def forget_jobs(view: View, command: ForgetJobs, policy: JobPolicy, now: Now) -> DecisionResult:
    """Delete the jobs whose retention has ended; their keys and results are no longer visible."""
    counters = JobCounters(view, policy, now)
    number = 0
    for one in command.jobs:
        job = view.get(JOB, (one.id,))
        if job is None or job.phase != DONE or job.due_at > now.expiry_ms:
            continue
        group = group_of(job)
        waiter = view.get(JOB, (group,)) if group else None
        if waiter is not None and waiter.phase != DONE:
            view.put(JOB, job._replace(due_at=now.expiry_ms + KEPT_ON_MS))
            continue
        _drop_rows(counters, one)
        if one.is_last:
            _drop_job(counters, job)
            number += 1
    counters.store()
    return DecisionResult(JobsAffected(number))


def _drop_rows(counters: JobCounters, one: JobRemains) -> None:
    """Delete the rows that belong to a job."""
    view = counters.view
    for alias in one.aliases:
        counters.drop_alias(one.id, *alias)
    for member in one.members:
        view.forget(JOB_MEMBER, (one.id, member))
    for child in one.children:
        view.forget(JOB_CHILD, (one.id, child))
    for step in one.steps:
        view.forget(JOB_STEP, (one.id, step))


def _drop_job(counters: JobCounters, job: JobRow) -> None:
    view = counters.view
    unique = unique_key(job)
    row = view.get(JOB_UNIQUE, unique) if unique else None
    if unique and row is not None and row.job == job.id:
        view.delete(JOB_UNIQUE, unique)
    if job.links:
        view.forget(JOB_GROUP, (job.id,))
    if job.params_bytes > INLINE_BYTES:
        view.forget(JOB_PART, (job.id, PARAMS))
    if job.result_bytes > INLINE_BYTES:
        view.forget(JOB_PART, (job.id, RESULT))
    counters.unbury((job.finished_at, job.id))
    counters.remove(job)


def claim_row_needs(command: ForgetClaims) -> Generator[Stage, View, None]:
    """The claims, then their jobs."""
    view = yield Stage(keys=[(JOB_CLAIM, key) for key in command.keys])
    rows = [view.get(JOB_CLAIM, key) for key in command.keys]
    jobs = [(JOB, (job_id,)) for row in rows if row is not None for job_id, _ in epochs_of(row)]
    if jobs:
        yield Stage(keys=jobs)


def forget_claims(view: View, command: ForgetClaims, now: Now) -> DecisionResult:
    """Delete named claims, unless one of their leases was extended: then they are checked again when it ends."""
    for key in command.keys:
        row = view.get(JOB_CLAIM, key)
        if row is None:
            continue
        jobs = [(view.get(JOB, (job_id,)), epoch) for job_id, epoch in epochs_of(row)]
        ends = [job.due_at for job, epoch in jobs if job is not None and job.phase == LEASED and job.epoch == epoch]
        if ends:
            view.put(JOB_CLAIM, row._replace(until=max(*ends, now.steady_ms + 1_000)))
        else:
            view.delete(JOB_CLAIM, key)
    return DecisionResult(JobsAffected(len(command.keys)))
