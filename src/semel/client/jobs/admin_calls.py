"""Lists of jobs, and the calls of administrators: dead letters, keys, queues and schedules.

Each change is named, so it is repeated after a lost answer without a second effect; a requeue compares the job's
revision, which it raises.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from semel.client.errors import CallError, InvalidArgumentError
from semel.client.identity import NamedCall
from semel.client.jobs import answers
from semel.client.jobs.integrity import canonical_bytes
from semel.client.jobs.requests import PATH, JobRequests, job_path, queried, queue_path, schedule_path
from semel.client.jobs.submission import milliseconds, spliced
from semel.client.jobs.texts import checked_params
from semel.client.jobs.values import (
    CatchUp,
    DeadJob,
    JobListing,
    JobMember,
    JobSummary,
    QueueInfo,
    QueueRate,
    ScheduleInfo,
    State,
)
from semel.client.json_answer import facts_of, read
from semel.client.list_walk import ListWalk
from semel.client.retry import json_request
from semel.client.transport.http_transport import ClientRequest

PAGE_JOBS = 100
MOST_PAGE_JOBS = 1_000
J = TypeVar("J")


def _jobs(page: JobListing[J]) -> list[J]:
    return page.jobs


class AsyncJobAdmin(JobRequests):
    """Lists, and the calls of administrators, from asyncio code."""

    async def list(
        self,
        *,
        state: State | None = None,
        queue: str | None = None,
        kind: str | None = None,
        after: str | None = None,
        limit: int = PAGE_JOBS,
    ) -> JobListing[JobSummary]:
        """A page of the caller's jobs (of all, for an administrator), newest first; `limit` is at most 1,000."""
        fields = {"state": state, "queue": queue, "kind": kind, "after": after, "limit": limit}
        return await self._get(answers.listing, queried(PATH, fields))

    def walk(
        self,
        *,
        state: State | None = None,
        queue: str | None = None,
        kind: str | None = None,
        page: int = MOST_PAGE_JOBS,
    ) -> ListWalk[JobSummary]:
        """All jobs of `list`, in pages of at most `page` jobs."""
        fields: dict[str, Any] = {"state": state, "queue": queue, "kind": kind, "limit": page}
        return ListWalk(lambda after: self.list(**fields, after=after), _jobs, None)

    async def dead(self, *, after: str | None = None, limit: int = PAGE_JOBS) -> JobListing[DeadJob]:
        """A page of the dead letters: jobs that failed for good, newest first."""
        return await self._get(answers.dead_listing, queried(f"{PATH}/dead", {"after": after, "limit": limit}))

    def walk_dead(self, *, page: int = MOST_PAGE_JOBS) -> ListWalk[DeadJob]:
        """All dead letters, in pages of at most `page` jobs."""
        return ListWalk(lambda after: self.dead(after=after, limit=page), _jobs, None)

    async def members(self, job_id: str, *, after: str | None = None, limit: int = PAGE_JOBS) -> JobListing[JobMember]:
        """A page of the members of a group, by the id of its join, or of the children of a job, oldest first."""
        path = queried(job_path(job_id, "members"), {"after": after, "limit": limit})
        return await self._get(answers.member_listing, path)

    def walk_members(self, job_id: str) -> ListWalk[JobMember]:
        """All of `members`, page by page."""
        return ListWalk(lambda after: self.members(job_id, after=after, limit=MOST_PAGE_JOBS), _jobs, None)

    async def close_group(self, job_id: str) -> JobSummary:
        """Close a group, by the id of its join: no more members. Closing it again changes nothing."""
        return await self._post(answers.job_summary, job_path(job_id, "close"), b"{}")

    async def requeue(self, job_id: str, *, revision: int | None = None) -> JobSummary:
        """Run a failed job again: same id, same key, attempts counted from 0, the revision one higher.

        `revision` is the job's current one, read from the server by default. Raises `ConflictError` if it has not
        failed.
        """
        path, known = job_path(job_id), revision
        if known is None:
            known = (await self._read_summary(path)).revision
        is_unsettled = False

        async def once(answer_seconds: float) -> JobSummary:
            if is_unsettled:
                job = await self._read_summary(path)
                if job.revision > known:
                    return job
            request = json_request("POST", f"{path}/requeue", b"{}")
            answer = self._caller.checked(await self._caller.transport.request(request, answer_seconds))
            return read(lambda: answers.job_summary(facts_of(answer.body)))

        def again(error: CallError) -> None:
            nonlocal is_unsettled
            is_unsettled = is_unsettled or error.is_unsettled

        return await self._caller.insist(once, again, NamedCall("POST", f"{path}/requeue"))

    async def _read_summary(self, path: str) -> JobSummary:
        return await self._get(answers.job_summary, path)

    async def release_key(self, key: str, *, principal: str = "default", force: bool = False) -> None:
        """Forget a key of a caller, so that the next submission with it makes a new job.

        `force` also if its job has not ended. Raises `NotFoundError` if there is no such key.
        """
        fields = {"principal": principal, "idempotency_key": key, "force": force}
        await self._forget(json_request("POST", f"{PATH}/keys/release", spliced(fields)))

    async def queues(self) -> builtins.list[QueueInfo]:
        """All queues with their limits and counts."""
        return await self._get(lambda facts: [answers.queue_info(one) for one in facts["queues"]], f"{PATH}/queues")

    async def queue(self, name: str) -> QueueInfo:
        """A queue with its limits and counts."""
        return await self._get(answers.queue_info, queue_path(name))

    async def set_queue(
        self,
        name: str,
        *,
        max_inflight: int | None = None,
        default_timeout: float | None = None,
        rate_limit: QueueRate | Literal[0] | None = None,
    ) -> QueueInfo:
        """Limit the concurrent jobs of a queue, the seconds of a run, or how many jobs start in a time.

        0 removes a limit; a limit that is not passed does not change.
        """
        if max_inflight is None and default_timeout is None and rate_limit is None:
            raise InvalidArgumentError("Pass max_inflight, default_timeout or rate_limit.")
        rate: Any = rate_limit
        if isinstance(rate_limit, QueueRate):
            rate = {"count": rate_limit.count, "per_ms": milliseconds(rate_limit.per)}
        fields = {
            "max_inflight": max_inflight,
            "default_timeout_ms": milliseconds(default_timeout),
            "rate_limit": rate,
        }
        return await self._put(answers.queue_info, queue_path(name), spliced(fields))

    async def reset_queue(self, name: str) -> QueueInfo:
        """Remove the limits of a queue."""
        path = queue_path(name)
        request = ClientRequest("DELETE", path)
        return await self._caller.facts_as(answers.queue_info, request, NamedCall("DELETE", path))

    async def schedules(self) -> builtins.list[ScheduleInfo]:
        """All schedules, with their last and next time."""
        return await self._get(
            lambda facts: [answers.schedule_info(one) for one in facts["schedules"]], f"{PATH}/schedules"
        )

    async def schedule(self, name: str) -> ScheduleInfo:
        """A schedule."""
        return await self._get(answers.schedule_info, schedule_path(name))

    async def set_schedule(
        self,
        name: str,
        cron: str,
        kind: str,
        params: Mapping[str, Any] | bytes | None = None,
        *,
        time_zone: str | None = None,
        queue: str | None = None,
        priority: int | str | None = None,
        max_attempts: int | None = None,
        catch_up: CatchUp | None = None,
        paused: bool = False,
    ) -> ScheduleInfo:
        """Create a schedule, or replace all its members; the same again changes nothing.

        `cron` is `minute hour day month weekday`, or @hourly, @daily, @weekly or @monthly. `params` may be
        the JSON text of an object.
        """
        fields = {
            "cron": cron,
            "time_zone": time_zone,
            "kind": kind,
            "queue": queue,
            "priority": priority,
            "max_attempts": max_attempts,
            "catch_up": catch_up,
            "paused": paused,
        }
        text = checked_params(params) if isinstance(params, bytes) else canonical_bytes(dict(params or {}))
        body = spliced(fields, params=text)
        return await self._put(answers.schedule_info, schedule_path(name), body)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule; its jobs stay. Raises `NotFoundError` if there is none."""
        await self._forget(ClientRequest("DELETE", schedule_path(name)))
