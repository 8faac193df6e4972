"""Calls of workers: claim, heartbeat, report, defer, and steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.kernel.errors import Refused
from semel.server.auth.principals import Role
from semel.server.http.answer import Answer
from semel.server.thread_pool import apart
from semel.surfaces.jobs.commands import JobReport, JobReported, JobsClaimed
from semel.surfaces.jobs.limits import Reach
from semel.surfaces.jobs.reading import large_params
from semel.surfaces.jobs.rules.completion import MISSING
from semel.surfaces.jobs.service import SURFACE, JobCall, JobService, answer_json, needs_role
from semel.surfaces.jobs.tables import INLINE_BYTES
from semel.surfaces.jobs.wire import answers
from semel.surfaces.jobs.wire.fields import Members
from semel.surfaces.jobs.wire.worker_calls import (
    ClaimCaller,
    parse_claim,
    parse_completion,
    parse_deferral,
    parse_failure,
    parse_heartbeat,
    parse_mesh_result,
    parse_step,
)

SECRET_BYTES = 32


class WorkerCalls:
    """The HTTP handlers of worker calls."""

    def __init__(self, service: JobService) -> None:
        self._service = service
        self._secret = service.context.world.random_bytes(SECRET_BYTES)
        """Becomes the secret of the lease tokens, if the store has none yet."""

    async def claim(self, request: JobCall) -> Answer:
        """Lease jobs; a long poll on request."""
        needs_role(request.principal, Role.WORK)
        asker = ClaimCaller(request.owner, _reach(request), self._service.context.world.wall_ms(), self._secret)
        asked = parse_claim(await self._service.members(request), asker)
        for queue in asked.claim.queues:
            needs_role(request.principal, Role.WORK, queue)
        claimed, has_waited = await self._service.long_polls.claim(asked.claim, request.caller, asked.wait_ms)
        self._observe(claimed)
        large = [lease.job for lease in claimed.leases if lease.job.params_bytes > INLINE_BYTES]
        params = await self._service.context.engine.read(lambda reading: large_params(reading, large)) if large else {}
        facts = answers.claimed(claimed, params, has_waited=has_waited)
        return await apart(sum(map(len, params.values())), answer_json, facts)

    def _observe(self, claimed: JobsClaimed) -> None:
        waited = self._service.metrics.seconds["wait"]
        for job, _ in claimed.leases:
            waited.observe(max(0, claimed.now_ms - job.ready_at) / 1_000)

    async def heartbeat(self, job_id: bytes, request: JobCall) -> Answer:
        """Extend a lease."""
        members = await self._worker(request)
        command = await self._service.apart(request.body, parse_heartbeat, job_id, members)
        return answer_json(answers.held(await self._service.carry_out(request, command)))

    async def complete(self, job_id: bytes, request: JobCall) -> Answer:
        """Report the result of a run."""
        return await self._report(request, await self._worker(request), self._parsed(parse_completion, job_id))

    async def fail(self, job_id: bytes, request: JobCall) -> Answer:
        """Report the error of a run."""
        return await self._report(request, await self._worker(request), self._parsed(parse_failure, job_id))

    async def mesh_result(self, request: JobCall) -> Answer:
        """Report the end of a run in the mesh dialect, which names the job in the body."""
        members = await self._worker(request)
        name = members.text("job_id", 128)
        if name is None:
            raise members.refuse("job_id", "must be given")
        job_id = await self._service.job_id(name)
        if job_id is None:
            raise Refused("jobs:not_found", "There is no such job here.")
        return await self._report(request, members, self._parsed(parse_mesh_result, job_id, reach=_reach(request)))

    async def defer(self, job_id: bytes, request: JobCall) -> Answer:
        """Return a job to its queue for a delay."""
        members = await self._worker(request)
        done = await self._service.carry_out(request, parse_deferral(job_id, members))
        return answer_json(answers.reported(done, self._service.context.world.wall_ms(), is_deferral=True))

    async def step(self, job_id: bytes, request: JobCall) -> Answer:
        """Read or store the result of a step."""
        members = await self._worker(request)
        command = await self._service.apart(request.body, parse_step, job_id, members, self._service.policy)
        return answer_json(answers.stepped(await self._service.carry_out(request, command)))

    def _parsed(self, parse: Callable[..., JobReport], job_id: bytes, **more: Any) -> Callable[[Members], JobReport]:
        return lambda members: parse(job_id, members, self._service.policy, self._service.signing, **more)

    async def _worker(self, request: JobCall) -> Members:
        needs_role(request.principal, Role.WORK)
        return await self._service.members(request)

    async def _report(self, request: JobCall, members: Members, parse: Callable[[Members], JobReport]) -> Answer:
        command: JobReport = await self._service.apart(request.body, parse, members)
        try:
            done: JobReported = await self._service.carry_out(request, command)
        except Refused as refused:
            if refused.refusal.code in ("jobs:result_integrity_fail", "jobs:integrity_missing"):
                self._service.audit_trail.count("integrity_missing" if command.flaw == MISSING else "integrity_fail")
            raise
        if not done.dedup:
            self._service.audit_trail.count(
                "integrity_verified" if members.raw("integrity") is not None else "integrity_missing"
            )
        if done.ran_ms is not None:
            self._service.metrics.seconds["run"].observe(done.ran_ms / 1_000)
        return answer_json(answers.reported(done, self._service.context.world.wall_ms()))


def _reach(request: JobCall) -> Reach | None:
    return None if request.principal.scopes is None else tuple(request.principal.reach(SURFACE))
