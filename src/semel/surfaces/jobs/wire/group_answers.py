"""What answers tell of the links of a job: its unique key, its group or parent, and the jobs that it waits for."""

from __future__ import annotations

from typing import Any

from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.reading import MembersPage
from semel.surfaces.jobs.rules.groups import FAILED, NOT_ENDED, ON_FAILURE_WAIT
from semel.surfaces.jobs.rules.links import links_of
from semel.surfaces.jobs.rules.states import JobState, state_of
from semel.surfaces.jobs.tables import JobGroupRow, JobRow
from semel.surfaces.jobs.wire.admin import list_cursor


def links_facts(job: JobRow, group: JobGroupRow | None) -> dict[str, Any]:
    """The members of a job that tell what binds it to others; none for most jobs."""
    links = links_of(job.links)
    facts: dict[str, Any] = {}
    if links.single:
        facts["debounce" if links.is_debounced else "unique"] = {"key": links.key or None}
    if links.child:
        facts["parent"] = {"job_id": job_name(bytes.fromhex(links.group)), "name": links.child}
    elif links.group:
        facts["group"] = job_name(bytes.fromhex(links.group))
    if group is not None:
        facts["join" if links.joins else "children"] = group_facts(group, is_join=links.joins)
    return facts


def group_facts(group: JobGroupRow, *, is_join: bool) -> dict[str, Any]:
    """The counts of the jobs that a job waits for."""
    facts: dict[str, Any] = {}
    if is_join:
        facts["size"] = group.size or None
        facts["on_failure"] = "wait" if group.on_failure == ON_FAILURE_WAIT else "cancel"
        facts["closed"] = bool(group.is_closed)
    counts = {"members": group.members, "ended": group.ended, "failed": group.failed}
    return {**facts, **counts, "waits": bool(group.is_held)}


def members(page: MembersPage) -> dict[str, Any]:
    """A page of members."""
    told = []
    for row, job in page.members:
        if job is not None:
            state = state_of(job, page.now_ms)
        else:
            state = JobState.FAILED if row.outcome == FAILED else JobState.COMPLETED
        assert job is not None or row.outcome != NOT_ENDED
        reason = None if job is None else job.reason.decode() or None
        told.append(
            {"job_id": job_name(row.id), "name": row.name.decode() or None, "state": state.value, "reason": reason}
        )
    return {"ok": True, "members": told, "next": None if page.next is None else list_cursor(page.next)}
