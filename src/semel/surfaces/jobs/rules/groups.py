"""Groups and children: a job that waits until other jobs have ended.

| the job that waits | is | begins to wait | its members |
|---|---|---|---|
| a join | submitted with `join` | when it is submitted | jobs submitted with its id as `group` |
| a parent | any job that runs | when it defers with `wait_children` | jobs submitted under its lease, each by a name |

One row counts the members of the job and how many have ended. It is changed in the commit that ends a member, and the
commit that ends the last one makes the waiting job ready: so it becomes ready once, whatever crashes. A join waits
until its group is closed too: by its declared size, by a call, or by the first failure if that cancels the others.

A waiting job has no time at which it is ready (`NEVER`), so no claim and no promotion finds it. A member that failed
and is queued again counts as not ended. The cancellation of other members is a mark on the group, which maintenance
carries out in small commits; a start finds the mark again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from semel.engine.contract import View
from semel.kernel.errors import Refusal
from semel.kernel.keys import pack
from semel.kernel.verdict import NEVER
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobDraft, JobRefused
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import MAX_MEMBERS, MAX_NESTING
from semel.surfaces.jobs.rules.counters import JobCounters, counted_keys
from semel.surfaces.jobs.rules.links import links_of, pack_links
from semel.surfaces.jobs.tables import (
    DONE,
    JOB,
    JOB_CHILD,
    JOB_GROUP,
    JOB_MEMBER,
    WAITING,
    JobChildRow,
    JobGroupRow,
    JobMemberRow,
    JobRow,
)

NOT_ENDED, COMPLETED, FAILED = 0, 1, 2
"""The outcomes of a member."""
ON_FAILURE_WAIT, ON_FAILURE_CANCEL, ON_FAILURE_CANCELLED = 0, 1, 2
"""What the first failure of a member does: nothing, cancel the others; the last value once it has done so."""

_CLOSED = "This group takes no further members: it is closed, full, or its join has ended."
_NO_GROUP = JobRefused(Refusal("jobs:not_found", "There is no such group here."))


def group_of(job: JobRow) -> bytes:
    """The id of the job that waits for this one; empty if none does."""
    return bytes.fromhex(links_of(job.links).group) if job.links else b""


def group_keys(job: JobRow) -> Iterator[tuple[AnyTable, Key]]:
    """The rows that the end of a job or its revival changes in its group, but for the counts of the waiting job."""
    group = group_of(job)
    if group:
        yield from ((JOB_GROUP, (group,)), (JOB_MEMBER, (group, job.id)), (JOB, (group,)))
    if job.links and job.phase == DONE and links_of(job.links).joins:
        yield JOB_GROUP, (job.id,)


def waiter_keys(view: View, jobs: Iterable[JobRow]) -> list[tuple[AnyTable, Key]]:
    """The counts of the jobs that wait for these; their rows must be loaded."""
    waiters = [view.get(JOB, (group,)) for group in {group_of(job): None for job in jobs} if group]
    return [pair for waiter in waiters if waiter is not None for pair in counted_keys(waiter)]


# -- Submissions -------------------------------------------------------------------------------------------------------


def place_keys(draft: JobDraft) -> Iterator[tuple[AnyTable, Key]]:
    """The rows of the group that a draft is a member of."""
    place = draft.place
    if place is not None and place.of:
        yield from ((JOB, (place.of,)), (JOB_GROUP, (place.of,)))
        if place.child:
            yield JOB_CHILD, child_key(draft)


def child_key(draft: JobDraft) -> Key:
    """The key of the row of a child."""
    assert draft.place is not None
    return draft.place.of, pack(draft.place.child.encode())


def known_child(view: View, draft: JobDraft) -> JobChildRow | None:
    """The child that has this name already."""
    return view.get(JOB_CHILD, child_key(draft)) if draft.place is not None and draft.place.child else None


def group_refusal(view: View, draft: JobDraft) -> JobRefused | None:
    """Why a draft cannot be a member of its group; None if it can. The lease of a parent is checked before."""
    place = draft.place
    if place is None or not place.of:
        return None
    waiter, group = view.get(JOB, (place.of,)), view.get(JOB_GROUP, (place.of,))
    if waiter is None:
        return _NO_GROUP
    if not place.child:
        if group is None or waiter.principal != draft.principal or not links_of(waiter.links).joins:
            return _NO_GROUP
        if group.is_closed or not group.is_held or waiter.phase == DONE:
            return JobRefused(Refusal("jobs:group_closed", _CLOSED, {"group": job_name(place.of)}))
    if group is not None and group.members >= MAX_MEMBERS:
        return _too_large(f"A group, or a parent, may have at most {MAX_MEMBERS} members.", waiter)
    if links_of(waiter.links).depth >= MAX_NESTING:
        return _too_large(f"Groups and children may be nested at most {MAX_NESTING} levels deep.", waiter)
    return None


def _too_large(message: str, waiter: JobRow) -> JobRefused:
    return JobRefused(Refusal("jobs:too_large", message, {"job_id": job_name(waiter.id)}))


def place_links(view: View, draft: JobDraft, packed: bytes) -> bytes:
    """The links of a new job, with those to its group."""
    place = draft.place
    if place is None:
        return packed
    links = links_of(packed)._replace(joins=place.joins, child=place.child)
    if place.of:
        waiter = view.get(JOB, (place.of,))
        assert waiter is not None
        links = links._replace(group=place.of.hex(), depth=links_of(waiter.links).depth + 1)
    return pack_links(links)


def enter(counters: JobCounters, draft: JobDraft, job: JobRow) -> None:
    """Add a new job to its group, and make the group of a join."""
    view, place = counters.view, draft.place
    if place is None:
        return
    if place.joins:
        rule = ON_FAILURE_CANCEL if place.cancels else ON_FAILURE_WAIT
        view.insert(JOB_GROUP, JobGroupRow(job.id, place.size, 0, 0, 0, 0, 1, rule, 1))
    if not place.of:
        return
    group = view.get(JOB_GROUP, (place.of,)) or JobGroupRow(place.of, 0, 1, 0, 0, 0, 0, ON_FAILURE_WAIT, 1)
    members = group.members + 1
    is_closed = group.is_closed or int(members == group.size)
    view.put(JOB_GROUP, group._replace(members=members, is_closed=is_closed))
    view.insert(JOB_MEMBER, JobMemberRow(place.of, job.id, NOT_ENDED, place.child.encode()))
    if place.child:
        _, name = child_key(draft)
        view.put(JOB_CHILD, JobChildRow(place.of, name, draft.payload_hash, job.id))
        parent = view.get(JOB, (place.of,))
        assert parent is not None
        links = links_of(parent.links)
        if not links.has_children:
            view.put(JOB, parent._replace(links=pack_links(links._replace(has_children=True))))


# -- The ends of members -----------------------------------------------------------------------------------------------


def count_end(counters: JobCounters, job: JobRow) -> None:
    """Count the end of a member; the last one makes the waiting job ready."""
    group = _counted(counters, job, FAILED if job.reason else COMPLETED)
    if group is None:
        return
    if job.reason and group.on_failure == ON_FAILURE_CANCEL and group.is_held:
        group = group._replace(on_failure=ON_FAILURE_CANCELLED, is_closed=1, is_settled=0)
    release_if_ended(counters, group)


def count_revival(counters: JobCounters, job: JobRow) -> None:
    """A member that had failed is queued again: it has not ended."""
    group = _counted(counters, job, NOT_ENDED)
    if group is not None:
        counters.view.put(JOB_GROUP, group)


def _counted(counters: JobCounters, job: JobRow, outcome: int) -> JobGroupRow | None:
    """The group of a job with the new outcome; None if it has none, or if the group is gone."""
    view, group_id = counters.view, group_of(job)
    group = view.get(JOB_GROUP, (group_id,)) if group_id else None
    member = view.get(JOB_MEMBER, (group_id, job.id)) if group_id else None
    if group is None or member is None:
        return None
    view.put(JOB_MEMBER, member._replace(outcome=outcome))
    ended = group.ended + bool(outcome) - bool(member.outcome)
    failed = group.failed + (outcome == FAILED) - (member.outcome == FAILED)
    return group._replace(ended=ended, failed=failed)


def release_if_ended(counters: JobCounters, group: JobGroupRow) -> JobGroupRow:
    """Store a group, and make its waiting job ready if the group is closed and all members have ended."""
    if group.is_held and _is_complete(group):
        group = group._replace(is_held=0)
        waiter = counters.view.get(JOB, (group.id,))
        if waiter is not None and waiter.phase == WAITING and waiter.ready_at == NEVER:
            counters.rearrange(waiter, waiter._replace(ready_at=counters.now.ms))
    counters.view.put(JOB_GROUP, group)
    return group


def hold_for_children(counters: JobCounters, job: JobRow) -> bool:
    """Let a parent wait for its children; returns whether any of them has not ended."""
    group = counters.view.get(JOB_GROUP, (job.id,)) if links_of(job.links).has_children else None
    if group is None or group.ended == group.members:
        return False
    counters.view.put(JOB_GROUP, group._replace(is_held=1))
    return True


def waits_again(counters: JobCounters, job: JobRow) -> bool:
    """Whether a job that is queued again is a join whose members have not all ended."""
    if not links_of(job.links).joins:
        return False
    group = counters.view.get(JOB_GROUP, (job.id,))
    return group is not None and bool(group.is_held) and not _is_complete(group)


def _is_complete(group: JobGroupRow) -> bool:
    """Whether no member can come, and all have ended."""
    return bool(group.is_closed) and group.ended == group.members
