"""Calls of owners and administrators: read, cancel and requeue jobs; dead letters, keys, queues and schedules."""

from __future__ import annotations

from collections.abc import Callable

from semel.engine.reading import Reading
from semel.kernel.errors import Refused
from semel.server.auth.principals import Principal, Role
from semel.server.http.answer import Answer
from semel.server.thread_pool import APART_BYTES, apart
from semel.surfaces.jobs.access import is_admin, may_see
from semel.surfaces.jobs.commands import (
    CancelJob,
    CloseGroup,
    DropSchedule,
    GroupClosed,
    JobChanged,
    LimitQueue,
    RateLimit,
    RequeueJob,
    ScheduleSaved,
)
from semel.surfaces.jobs.lists import list_jobs
from semel.surfaces.jobs.reading import (
    JobDetails,
    dead_letters,
    members_page,
    queue_of,
    queues,
    record_of,
    schedule_of,
    schedules,
)
from semel.surfaces.jobs.rules.states import is_done
from semel.surfaces.jobs.service import JobCall, JobService, answer_json, needs_no_query, needs_role
from semel.surfaces.jobs.wire import answers
from semel.surfaces.jobs.wire.admin import (
    JobLookup,
    checked_queue,
    parse_dead,
    parse_limit,
    parse_list,
    parse_lookup,
    parse_members_page,
    parse_release,
    parse_schedule,
    parse_wait,
)
from semel.surfaces.jobs.wire.fields import KIND_RULE, invalid
from semel.surfaces.jobs.wire.group_answers import group_facts
from semel.surfaces.jobs.wire.group_answers import members as members_facts

_NO_JOB = "There is no such job here."


class JobAdmin:
    """The HTTP handlers of admin calls."""

    def __init__(self, service: JobService) -> None:
        self._service = service

    async def read(self, job_id: bytes, request: JobCall) -> Answer:
        """Read one job; wait for its end on request."""
        _needs_sight(request.principal)
        wait_ms = parse_wait(request.query)
        seen = _visible(await self._service.look(job_id), request)
        if wait_ms and not is_done(seen.job):
            with self._service.context.live_reader(request.caller.principal):
                late = await self._service.look_until_done(job_id, wait_ms, request, with_params=True)
            seen = _visible(late, request)
        return await self._seen(seen, request)

    async def result(self, job_id: bytes, request: JobCall) -> Answer:
        """Read the whole result of a job, with its checksum."""
        _needs_sight(request.principal)
        needs_no_query(request)
        seen = _visible(await self._service.look(job_id, with_params=False), request)
        if not is_done(seen.job):
            raise Refused("jobs:not_found", "This job has no result yet.")
        facts = await apart(len(seen.result or b""), answers.result, seen, self._service.signing)
        if facts is None:
            await self._service.unsound(job_id, request)
            message = "The stored result does not fit its checksum; it is not served."
            raise Refused("jobs:result_integrity_fail", message, own_status=500)
        return await apart(len(seen.result or b""), answer_json, facts)

    async def list(self, request: JobCall) -> Answer:
        """List jobs, newest first: the caller's own jobs, or all jobs for an administrator."""
        needs_role(request.principal, Role.READ)
        asked = parse_list(request.query, None if is_admin(request.principal) else request.owner)
        page = await self._service.context.engine.read(
            lambda reading: list_jobs(reading, asked.wanted, asked.before, asked.limit)
        )
        return await apart_from_loop(lambda: answer_json(answers.listed(page)))

    async def lookup(self, request: JobCall) -> Answer:
        """Find a job by its key or request id; an administrator may name the principal of the key."""
        needs_role(request.principal, Role.READ)
        asked = parse_lookup(await self._service.members(request))
        if asked.principal is not None:
            _needs_admin(request.principal)
        job_id = await self._service.context.engine.read(lambda reading: _found(reading, asked, request.owner))
        if job_id is None:
            raise Refused("jobs:not_found", _NO_JOB)
        return await self._seen(_visible(await self._service.look(job_id), request), request)

    async def cancel(self, job_id: bytes, request: JobCall) -> Answer:
        """Cancel a job."""
        needs_role(request.principal, Role.WRITE)
        members = await self._service.members(request)
        by_admin = is_admin(request.principal)
        forces, with_members = members.flag("force") or False, members.flag("members") or False
        command = CancelJob(job_id, request.owner, by_admin, forces, with_members)
        changed: JobChanged = await self._service.carry_out(request, command)
        return await self._changed(changed)

    async def close(self, job_id: bytes, request: JobCall) -> Answer:
        """Close the group of a join."""
        needs_role(request.principal, Role.WRITE)
        await self._service.members(request)
        command = CloseGroup(job_id, request.owner, is_admin(request.principal))
        closed: GroupClosed = await self._service.carry_out(request, command)
        facts = answers.brief(closed.job, closed.now.ms, closed.now.steady_ms)
        return answer_json({"ok": True, **facts, "join": group_facts(closed.group, is_join=True)})

    async def group_members(self, job_id: bytes, request: JobCall) -> Answer:
        """List the members of a group, or the children of a job, in the order of their submission."""
        _needs_sight(request.principal)
        after, limit = parse_members_page(request.query)
        _visible(await self._service.look(job_id, with_params=False), request)
        page = await self._service.context.engine.read(lambda reading: members_page(reading, job_id, after, limit))
        return await apart_from_loop(lambda: answer_json(members_facts(page)))

    async def dead(self, request: JobCall) -> Answer:
        """List dead letters, newest first."""
        _needs_admin(request.principal)
        asked = parse_dead(request.query)

        def page(reading: Reading) -> dict[str, object]:
            letters = dead_letters(reading, asked.before, asked.limit)
            return answers.dead(letters, asked.limit, reading.now.expiry_ms, reading.now.steady_ms)

        facts = await self._service.context.engine.read(page)
        return await apart_from_loop(lambda: answer_json(facts))

    async def requeue(self, job_id: bytes, request: JobCall) -> Answer:
        """Run a failed job again."""
        _needs_admin(request.principal)
        await self._service.members(request)
        changed: JobChanged = await self._service.carry_out(request, RequeueJob(job_id, request.principal.actor))
        return await self._changed(changed)

    async def release(self, request: JobCall) -> Answer:
        """Release a key."""
        _needs_admin(request.principal)
        await self._service.carry_out(request, parse_release(await self._service.members(request)))
        return answer_json({"ok": True, "released": True})

    async def queues(self, request: JobCall) -> Answer:
        """List all queues."""
        _needs_admin(request.principal)
        needs_no_query(request)
        found = await self._service.context.engine.read(queues)
        return await apart_from_loop(
            lambda: answer_json({"ok": True, "queues": [answers.queue(facts) for facts in found]})
        )

    async def queue(self, method: str, name: str, request: JobCall) -> Answer:
        """Show a queue, set its limits, or remove them."""
        _needs_admin(request.principal)
        needs_no_query(request)
        queue = checked_queue(name)
        if method != "GET":
            order = LimitQueue(queue, 0, 0, RateLimit(0, 0))
            if method == "PUT":
                order = parse_limit(queue, await self._service.members(request))
            await self._service.carry_out(request, order)
        facts = await self._service.context.engine.read(lambda reading: queue_of(reading, queue))
        return answer_json({"ok": True, **answers.queue(facts)})

    async def schedules(self, request: JobCall) -> Answer:
        """List all schedules."""
        _needs_admin(request.principal)
        needs_no_query(request)
        rows = await self._service.context.engine.read(schedules)
        return await apart_from_loop(
            lambda: answer_json({"ok": True, "schedules": [answers.schedule(row) for row in rows]})
        )

    async def schedule(self, method: str, name: str, request: JobCall) -> Answer:
        """Show, set or delete a schedule."""
        _needs_admin(request.principal)
        needs_no_query(request)
        if KIND_RULE.fullmatch(name) is None:
            raise invalid("name", "name must have 1 to 128 characters of A-Za-z0-9_.:-.")
        if method == "DELETE":
            await self._service.carry_out(request, DropSchedule(name.encode()))
            return answer_json({"ok": True, "name": name})
        if method == "GET":
            row = await self._service.context.engine.read(lambda reading: schedule_of(reading, name.encode()))
            if row is None:
                raise Refused("jobs:not_found", "There is no schedule of this name.")
            return await apart(len(row.params), lambda: answer_json({"ok": True, **answers.schedule(row)}))
        members = await self._service.members(request)
        command = await self._service.apart(request.body, parse_schedule, name.encode(), request.owner, members)
        put: ScheduleSaved = await self._service.carry_out(request, command)
        status = 201 if put.is_new else 200
        return await apart(len(put.row.params), lambda: answer_json({"ok": True, **answers.schedule(put.row)}, status))

    async def _seen(self, seen: JobDetails, request: JobCall) -> Answer:
        facts, ending = await apart(len(seen.result or b""), answers.seen, seen, self._service.policy)
        await self._service.check(ending, seen.job.id, request)
        return await apart(len(seen.params) + len(seen.result or b""), answer_json, facts)

    async def _changed(self, changed: JobChanged) -> Answer:
        return answer_json({"ok": True, **answers.brief(changed.job, changed.now.ms, changed.now.steady_ms)})


def _found(reading: Reading, asked: JobLookup, owner: bytes) -> bytes | None:
    if asked.request is not None:
        return asked.request
    record = None if asked.key is None else record_of(reading, asked.principal or owner, asked.key)
    return None if record is None else record.job


def _visible(seen: JobDetails | None, request: JobCall) -> JobDetails:
    """Refuse unless the caller owns the job, holds its lease, or is an administrator."""
    if seen is not None and may_see(request.principal, seen.job):
        return seen
    raise Refused("jobs:not_found", _NO_JOB)


def _needs_sight(principal: Principal) -> None:
    if not principal.has(Role.READ) and not principal.has(Role.WORK):
        raise Refused("jobs:forbidden", "This needs the role read.", {"role": "read"})


def _needs_admin(principal: Principal) -> None:
    if not is_admin(principal):
        raise Refused("jobs:forbidden", "This needs the role admin over all queues.", {"role": "admin"})


async def apart_from_loop(make: Callable[[], Answer]) -> Answer:
    """Render a list answer in a thread, always, because its size is not known in advance."""
    return await apart(APART_BYTES + 1, make)
