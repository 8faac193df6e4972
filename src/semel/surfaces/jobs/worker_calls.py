"""Calls of workers: claim, heartbeat, report, defer, and steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semel.kernel.errors import Refused
from semel.server.auth.principals import Role
from semel.server.http.answer import Answer
from semel.server.thread_pool import apart, is_small
from semel.surfaces.jobs.commands import ClaimJobs, JobRefused, JobReport, JobReported, JobsClaimed
from semel.surfaces.jobs.completion_tally import CompletionTally
from semel.surfaces.jobs.ids import parse_job
from semel.surfaces.jobs.limits import Reach
from semel.surfaces.jobs.reading import large_params
from semel.surfaces.jobs.rules.completion import MISSING
from semel.surfaces.jobs.rules.plain_claim import is_plain_claim
from semel.surfaces.jobs.rules.plain_completion import COMPLETED_NOTES
from semel.surfaces.jobs.service import SURFACE, JobCall, JobService, answer_json, needs_role
from semel.surfaces.jobs.shaped_calls import ClaimShape, ReportShape, may_be_shaped
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
COMPLETE_PREFIX = b"POST /v1/jobs/job_"
"""The first bytes of a completion; the name of its job follows."""
_PLAIN_REPORT = frozenset({"lease_token", "result"})


class WorkerCalls:
    """The HTTP handlers of worker calls."""

    def __init__(self, service: JobService) -> None:
        self._service = service
        self.secret = service.context.world.random_bytes(SECRET_BYTES)
        """Becomes the secret of the lease tokens, if the store has none yet."""
        self._tally = CompletionTally(service.audit_trail)
        self._run_seconds, self._wait_seconds = service.metrics.seconds["run"], service.metrics.seconds["wait"]

    async def claim(self, request: JobCall) -> Answer:
        """Lease jobs; a long poll on request."""
        needs_role(request.principal, Role.WORK)
        asker = ClaimCaller(request.owner, _reach(request), self._service.context.world.wall_ms(), self.secret)
        asked = parse_claim(await self._service.members(request), asker)
        for queue in asked.claim.queues:
            needs_role(request.principal, Role.WORK, queue)
        if is_plain_claim(asked.claim) and not asked.wait_ms:
            self._learn(request, ClaimShape)
        request.http.is_live = bool(asked.wait_ms)
        with self._service.context.live_reader(request.caller.principal if asked.wait_ms else ""):
            claimed, has_waited = await self._service.long_polls.claim(asked.claim, request.caller, asked.wait_ms)
        return await self._claimed(claimed, has_waited=has_waited)

    async def answer_claim(self, request: JobCall, claim: ClaimJobs, claimed: JobsClaimed) -> Answer:
        """Note and answer a claim that was decided before it came here."""
        await self._service.long_polls.settle(claim, request.caller, claimed)
        return await self._claimed(claimed, has_waited=False)

    async def _claimed(self, claimed: JobsClaimed, *, has_waited: bool) -> Answer:
        self.observe(claimed)
        large = [lease.job for lease in claimed.leases if lease.job.params_bytes > INLINE_BYTES]
        params = await self._service.context.engine.read(lambda reading: large_params(reading, large)) if large else {}
        facts = answers.claimed(claimed, params, has_waited=has_waited)
        return await apart(sum(map(len, params.values())), answer_json, facts)

    def observe(self, claimed: JobsClaimed) -> None:
        """Measure how long the jobs have waited."""
        waited, now_ms = self._wait_seconds, claimed.now_ms
        for job, _ in claimed.leases:
            waited.observe(max(0, now_ms - job.ready_at) / 1_000)

    async def heartbeat(self, job_id: bytes, request: JobCall) -> Answer:
        """Extend a lease."""
        members = await self._worker(request)
        command = await self._service.apart(request.body, parse_heartbeat, job_id, members)
        return answer_json(answers.held(await self._service.carry_out(request, command)))

    async def complete(self, job_id: bytes, request: JobCall) -> Answer:
        """Report the result of a run."""
        members = await self._worker(request)
        if members.names <= _PLAIN_REPORT:
            self._learn(request, ReportShape, COMPLETE_PREFIX)
        return await self._report(request, members, self._parsed(parse_completion, job_id))

    async def fail(self, job_id: bytes, request: JobCall) -> Answer:
        """Report the error of a run."""
        return await self._report(request, await self._worker(request), self._parsed(parse_failure, job_id))

    async def mesh_result(self, request: JobCall) -> Answer:
        """Report the end of a run in the mesh dialect, which names the job in the body."""
        members = await self._worker(request)
        name = members.text("job_id", 128)
        if name is None:
            raise members.refuse("job_id", "must be given")
        job_id = parse_job(name)
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
        answer = await self._service.decided(request, command)
        return await self.answer_report(request, command, answer, has_proof=members.raw("integrity") is not None)

    async def answer_report(
        self, request: JobCall, command: JobReport, answer: JobReported | JobRefused, *, has_proof: bool
    ) -> Answer:
        """Count, note and answer a report that was decided."""
        try:
            done: JobReported = await self._service.noted(request, answer)
        except Refused as refused:
            if refused.refusal.code in ("jobs:result_integrity_fail", "jobs:integrity_missing"):
                self._service.audit_trail.count("integrity_missing" if command.flaw == MISSING else "integrity_fail")
            raise
        self.count_report(done, has_proof=has_proof)
        return answer_json(answers.reported(done, self._service.context.world.wall_ms()))

    def count_report(self, done: JobReported, *, has_proof: bool) -> None:
        """Count an accepted report."""
        if not done.dedup:
            self._service.audit_trail.count("integrity_verified" if has_proof else "integrity_missing")
        if done.ran_ms is not None:
            self._service.metrics.seconds["run"].observe(done.ran_ms / 1_000)

    def count_plain(self, done: JobReported) -> None:
        """As the notes and `count_report`, for an accepted completion without a checksum."""
        if done.notes is COMPLETED_NOTES:
            self._tally.complete()
            self._run_seconds.observe((done.ran_ms or 0) / 1_000)
        else:
            self._service.audit_trail.note(done.notes)
            self.count_report(done, has_proof=False)

    def _learn(self, request: JobCall, shape: type[ClaimShape | ReportShape], prefix: bytes = b"") -> None:
        """Recognize calls like this one by their heads."""
        service, size = self._service, len(request.body)
        has_proofs = bool(prefix) and (service.signing.needs_proof or bool(service.signing.hmac_key))
        if not is_small(size) or has_proofs or not may_be_shaped(request):
            return
        begin = prefix and prefix.replace(b" ", b" " + service.context.prefix, 1)
        request.http.exchange.learn(
            lambda key: shape(self, service, request) if bool(key) == bool(prefix) else None, size, begin
        )


def _reach(request: JobCall) -> Reach | None:
    return None if request.principal.scopes is None else tuple(request.principal.reach(SURFACE))
