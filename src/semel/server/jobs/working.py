"""Worker calls of jobs: claim, heartbeat, report, defer, and steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.contracts.jobs.commands import Claimed, Report, Reported
from semel.contracts.jobs.reading import large_params
from semel.contracts.jobs.rules.integrity import MISSING
from semel.contracts.jobs.rules.reach import Reach
from semel.contracts.jobs.tables import INLINE_BYTES
from semel.contracts.jobs.wire import answers
from semel.contracts.jobs.wire.fields import Members
from semel.contracts.jobs.wire.refusals import RefusedJob
from semel.contracts.jobs.wire.reports import (
    Asker,
    parse_claim,
    parse_completion,
    parse_deferral,
    parse_failure,
    parse_heartbeat,
    parse_mesh_result,
    parse_step,
)
from semel.server.http.answer import Answer
from semel.server.jobs.desk import SURFACE, Desk, Request, answer_json, needs_role
from semel.server.principals import Role
from semel.server.threads import apart

SECRET_BYTES = 32


class Working:
    """The HTTP handlers of worker calls."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._secret = desk.context.world.random_bytes(SECRET_BYTES)
        """The secret of lease tokens, if the store has none yet."""

    async def claim(self, request: Request) -> Answer:
        """Lease jobs, as a long poll on request."""
        needs_role(request.principal, Role.WORK)
        asker = Asker(request.owner, _reach(request), self._desk.context.world.wall_ms(), self._secret)
        asked = parse_claim(await self._desk.members(request), asker)
        for queue in asked.claim.queues:
            needs_role(request.principal, Role.WORK, queue)
        claimed, has_waited = await self._desk.waiters.claim(asked.claim, request.caller, asked.wait_ms)
        self._observe(claimed)
        large = [lease.job for lease in claimed.leases if lease.job.params_bytes > INLINE_BYTES]
        params = await self._desk.context.engine.read(lambda reading: large_params(reading, large)) if large else {}
        facts = answers.claimed(claimed, params, has_waited=has_waited)
        return await apart(sum(map(len, params.values())), answer_json, facts)

    def _observe(self, claimed: Claimed) -> None:
        waited = self._desk.metrics.seconds["wait"]
        for job, _ in claimed.leases:
            waited.observe(max(0, claimed.now_ms - job.ready_at) / 1_000)

    async def heartbeat(self, job_id: bytes, request: Request) -> Answer:
        """Hold on to a lease."""
        members = await self._worker(request)
        command = await self._desk.apart(request.body, parse_heartbeat, job_id, members)
        return answer_json(answers.held(await self._desk.carry_out(request, command)))

    async def complete(self, job_id: bytes, request: Request) -> Answer:
        """A result."""
        return await self._report(request, await self._worker(request), self._parsed(parse_completion, job_id))

    async def fail(self, job_id: bytes, request: Request) -> Answer:
        """An error."""
        return await self._report(request, await self._worker(request), self._parsed(parse_failure, job_id))

    async def mesh_result(self, request: Request) -> Answer:
        """The end of a run, in the mesh dialect: the job is named in the body."""
        members = await self._worker(request)
        name = members.text("job_id", 128)
        if name is None:
            raise members.refuse("job_id", "must be given")
        job_id = await self._desk.job_id(name)
        if job_id is None:
            raise RefusedJob("not_found", "There is no such job here.")
        return await self._report(request, members, self._parsed(parse_mesh_result, job_id, reach=_reach(request)))

    async def defer(self, job_id: bytes, request: Request) -> Answer:
        """Put a job off."""
        members = await self._worker(request)
        done = await self._desk.carry_out(request, parse_deferral(job_id, members))
        return answer_json(answers.reported(done, self._desk.context.world.wall_ms(), is_deferral=True))

    async def step(self, job_id: bytes, request: Request) -> Answer:
        """Ask for a step, or store it."""
        members = await self._worker(request)
        command = await self._desk.apart(request.body, parse_step, job_id, members, self._desk.policy)
        return answer_json(answers.stepped(await self._desk.carry_out(request, command)))

    def _parsed(self, parse: Callable[..., Report], job_id: bytes, **more: Any) -> Callable[[Members], Report]:
        return lambda members: parse(job_id, members, self._desk.policy, self._desk.signing, **more)

    async def _worker(self, request: Request) -> Members:
        needs_role(request.principal, Role.WORK)
        return await self._desk.members(request)

    async def _report(self, request: Request, members: Members, parse: Callable[[Members], Report]) -> Answer:
        command: Report = await self._desk.apart(request.body, parse, members)
        try:
            done: Reported = await self._desk.carry_out(request, command)
        except RefusedJob as refused:
            if refused.refusal.code in ("jobs:result_integrity_fail", "jobs:integrity_missing"):
                self._desk.journal.count("integrity_missing" if command.flaw == MISSING else "integrity_fail")
            raise
        if not done.dedup:
            self._desk.journal.count(
                "integrity_verified" if members.raw("integrity") is not None else "integrity_missing"
            )
        if done.ran_ms is not None:
            self._desk.metrics.seconds["run"].observe(done.ran_ms / 1_000)
        return answer_json(answers.reported(done, self._desk.context.world.wall_ms()))


def _reach(request: Request) -> Reach | None:
    return None if request.principal.scopes is None else tuple(request.principal.reach(SURFACE))
