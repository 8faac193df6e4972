"""Admin commands of jobs: cancel, requeue, release a key, limit a queue."""

from __future__ import annotations

from collections.abc import Generator

from semel.contracts.jobs.commands import Cancel, Changed, Done, LimitQueue, Note, Refusal, Release, Requeue
from semel.contracts.jobs.ids import job_name
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.rules.capacity import refused
from semel.contracts.jobs.rules.ends import CANCELLED, TOPIC_READY, conclude, end_keys, failure, revive, topic_of
from semel.contracts.jobs.rules.report import NO_JOB
from semel.contracts.jobs.rules.states import End, Event, State, state_of, transition
from semel.contracts.jobs.rules.tally import Tally, counted_keys
from semel.contracts.jobs.tables import (
    ALONE,
    DONE,
    IMPORTED,
    JOB,
    JOB_QUEUE,
    JOB_RECORD,
    JOB_TENANT,
    JOB_TOTALS,
    JobRow,
)
from semel.engine.contract import Outcome, Stage, View
from semel.kernel.clock import Now

_NOT_FAILED = "Only a job that has failed can be queued again."
_FOREIGN = "Only the hash of this job came over from another store: submit it again with on_failed retry."
_NO_KEY = "There is no live record of this key."
_ACTIVE = "The job of this key is not finished; releasing the key now needs `force`."


def order_needs(job_id: bytes) -> Generator[Stage, View, None]:
    """The job; then what its end or its revival would change."""
    view = yield Stage(keys=[(JOB, (job_id,))])
    job = view.get(JOB, (job_id,))
    if job is not None:
        yield Stage(keys=[*counted_keys(job), *end_keys(job)])


def cancel(view: View, command: Cancel, policy: Policy, now: Now) -> Outcome:
    """Cancel a waiting job; ask the worker of a running one, unless forced. A finished job stays as it is."""
    job = view.get(JOB, (command.id,))
    if job is None or not (command.is_admin or command.principal == job.principal):
        return Outcome(NO_JOB)
    if job.phase == DONE:
        return Outcome(Changed(job, now))
    tally = Tally(view, policy, now)
    row = transition(job, Event.FORCE if command.forces else Event.CANCEL, tally.now.ms)
    assert row is not None
    note = Note("JOB_CANCELLED", {"job_id": job_name(job.id), "attempt": job.attempt, "by": _by(command, job)})
    if row.target is State.LEASED:
        if job.cancel:
            return Outcome(Changed(job, tally.now))
        flagged = tally.move(job, job._replace(cancel=1))
        return Outcome(Changed(flagged, tally.now, (note,)))
    assert row.reason is not None
    ending = failure(job, End.CANCELLED, row.reason, CANCELLED)
    done, notes = conclude(tally, job, ending)
    tally.store()
    return Outcome(Changed(done, tally.now, (note, *notes)), signals=(topic_of(job.id), TOPIC_READY))


def requeue(view: View, command: Requeue, policy: Policy, now: Now) -> Outcome:
    """Run a failed job again under its own id."""
    job = view.get(JOB, (command.id,))
    if job is None:
        return Outcome(NO_JOB)
    tally = Tally(view, policy, now)
    if transition(job, Event.REVIVE, tally.now.ms) is None or job.kind == IMPORTED:
        facts = {"job_id": job_name(job.id), "state": state_of(job, tally.now.ms).value}
        return Outcome(Refusal("jobs:job_active", _FOREIGN if job.kind == IMPORTED else _NOT_FAILED, facts))
    full = refused(tally, job.principal, job.queue, is_scheduled=False)
    if full is not None:
        return Outcome(full)
    again = revive(tally, job)
    tally.store()
    note = Note("JOB_REVIVED", {"job_id": job_name(job.id), "attempt": job.attempt, "by": command.by})
    return Outcome(Changed(again, tally.now, (note,)), signals=(TOPIC_READY, topic_of(job.id)))


def release_needs(command: Release) -> Generator[Stage, View, None]:
    """The record, then its job."""
    mine = (command.principal, command.key)
    view = yield Stage(keys=[(JOB_RECORD, mine), (JOB_TENANT, (command.principal,)), (JOB_TOTALS, ALONE)])
    record = view.get(JOB_RECORD, (command.principal, command.key))
    if record is not None:
        yield Stage(keys=[(JOB, (record.job,))])


def release(view: View, command: Release, policy: Policy, now: Now) -> Outcome:
    """Release a key; its job continues, and its end changes no record."""
    record = view.get(JOB_RECORD, (command.principal, command.key))
    if record is None or now.expiry_ms >= record.expires_at:
        return Outcome(Refusal("jobs:not_found", _NO_KEY, {}))
    job: JobRow | None = view.get(JOB, (record.job,))
    is_active = job is not None and job.phase != DONE
    if is_active and not command.forces:
        return Outcome(Refusal("jobs:job_active", _ACTIVE, {"job_id": job_name(record.job)}))
    tally = Tally(view, policy, now)
    view.delete(JOB_RECORD, (command.principal, command.key))
    tally.count_records(command.principal, -1)
    tally.store()
    facts = {"key_prefix": command.key_prefix, "job_id": job_name(record.job), "by": "admin"}
    reason = "forced" if is_active else "finished"
    return Outcome(Done(1, (Note("IDEMPOTENCY_KEY_RELEASED", {**facts, "reason": reason}),)))


def limit_needs(command: LimitQueue) -> Generator[Stage, View, None]:
    """The row of the queue."""
    yield Stage(keys=[(JOB_QUEUE, (command.queue,)), (JOB_TOTALS, ALONE)])


def limit_queue(view: View, command: LimitQueue, policy: Policy, now: Now) -> Outcome:
    """Bound a queue; leases that are out are left alone."""
    tally = Tally(view, policy, now)
    row = tally.queue(command.queue)
    if command.max_inflight is not None:
        row = row._replace(max_inflight=command.max_inflight)
    if command.default_timeout_ms is not None:
        row = row._replace(default_timeout_ms=command.default_timeout_ms)
    tally.keep_queue(row)
    return Outcome(Done(row.max_inflight), signals=(TOPIC_READY,))


def _by(command: Cancel, job: JobRow) -> str:
    return "owner" if command.principal == job.principal else "admin"
