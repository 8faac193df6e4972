"""Cancellation of the members of a group that have not ended, in small commits.

A mark on the group says that it has to be done; maintenance walks through the members in the order of their ids and
removes the mark with the last portion. A crash leaves the mark, and the next walk starts anew: to cancel a member again
changes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from semel.engine.contract import DecisionResult, Stage, View, demand
from semel.kernel.clock import Now
from semel.store.protocol import Range
from semel.surfaces.jobs.commands import JobNote
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.maintenance_commands import CancelMembers, MembersCancelled
from semel.surfaces.jobs.rules.completion import CANCELLED, TOPIC_READY, conclude, end_keys, failure, topic_of
from semel.surfaces.jobs.rules.counters import JobCounters, counted_keys
from semel.surfaces.jobs.rules.groups import NOT_ENDED, ON_FAILURE_CANCELLED, waiter_keys
from semel.surfaces.jobs.rules.states import FailureReason, LeaseEnd
from semel.surfaces.jobs.tables import DONE, JOB, JOB_GROUP, JOB_MEMBER, LEASED, JobMemberRow, JobRow


def unsettle(view: View, job: JobRow) -> None:
    """Mark the group that a job waits for: its members are to be cancelled, and no further ones admitted."""
    group = view.get(JOB_GROUP, (job.id,))
    if group is not None:
        view.put(JOB_GROUP, group._replace(is_closed=1, is_settled=0, on_failure=ON_FAILURE_CANCELLED))


def members_needs(command: CancelMembers) -> Generator[Stage, View, None]:
    """The group and some of its members; then their jobs, and what their ends change."""
    wanted = open_members(command)
    view = yield Stage(keys=[(JOB_GROUP, (command.group,))], ranges=[wanted])
    members: Sequence[JobMemberRow] = view.range(wanted)
    view = yield Stage(keys=[(JOB, (row.id,)) for row in members])
    jobs = [job for row in members if (job := view.get(JOB, (row.id,))) is not None]
    view = yield Stage(keys=[pair for job in jobs for pair in (*counted_keys(job), *end_keys(job))])
    yield Stage(keys=waiter_keys(view, jobs))


def open_members(command: CancelMembers) -> Range:
    """The next members of a group that have not ended."""
    start = (command.behind + b"\0",) if command.behind else ()
    return Range(JOB_MEMBER, "outcome", (command.group, NOT_ENDED), command.most, start=start)


def cancel_members(view: View, command: CancelMembers, policy: JobPolicy, now: Now) -> DecisionResult:
    """Cancel those that wait, and ask the workers of those that run to stop."""
    group = view.get(JOB_GROUP, (command.group,))
    if group is None or group.is_settled:
        return DecisionResult(MembersCancelled(None))
    counters = JobCounters(view, policy, now)
    members: list[JobMemberRow] = list(view.range(open_members(command)))
    demand(view, [(JOB, (row.id,)) for row in members])
    notes: list[JobNote] = []
    topics: dict[bytes, None] = {TOPIC_READY: None}
    for row in members:
        job = view.get(JOB, (row.id,))
        if job is None or job.phase == DONE or (job.phase == LEASED and job.cancel):
            continue
        notes.append(JobNote("JOB_CANCELLED", {"job_id": job_name(job.id), "attempt": job.attempt, "by": "group"}))
        if job.phase == LEASED:
            counters.move(job, job._replace(cancel=1))
            continue
        notes += conclude(counters, job, failure(job, LeaseEnd.CANCELLED, FailureReason.CANCELLED, CANCELLED))[1]
        topics[topic_of(job.id)] = None
    is_over = len(members) < command.most
    if is_over:
        group = view.get(JOB_GROUP, (command.group,))
        assert group is not None
        view.put(JOB_GROUP, group._replace(is_settled=1))
    counters.store()
    return DecisionResult(MembersCancelled(None if is_over else members[-1].id, tuple(notes)), signals=tuple(topics))
