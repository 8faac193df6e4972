"""Calls that submit one job or a batch of jobs; the call for one job can wait for its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from semel.kernel.errors import Refusal, Refused
from semel.kernel.json.text import JsonError
from semel.server.auth.principals import Role
from semel.server.http.answer import JSON, NO_STORE, Answer
from semel.server.quotas.accounts import QuotaExceededError
from semel.server.thread_pool import is_small
from semel.surfaces.jobs.commands import JobAdmitted, JobDraft, JobKeyCollision, JobRefused, SubmitJobs
from semel.surfaces.jobs.ids import CHANCE_BYTES
from semel.surfaces.jobs.limits import MAX_BATCH_JOBS
from semel.surfaces.jobs.plain_calls import submit
from semel.surfaces.jobs.reading import JobDetails
from semel.surfaces.jobs.rules.idempotency import HITS, RETRIED
from semel.surfaces.jobs.rules.plain_submission import is_plain_draft
from semel.surfaces.jobs.rules.states import is_done
from semel.surfaces.jobs.service import (
    REPLAYED,
    SURFACE,
    JobCall,
    JobService,
    answer_json,
    needs_no_query,
    needs_role,
)
from semel.surfaces.jobs.shaped_calls import may_be_shaped
from semel.surfaces.jobs.shaped_submission import SubmitShape
from semel.surfaces.jobs.submission_tally import SubmissionTally
from semel.surfaces.jobs.tables import INLINE_BYTES
from semel.surfaces.jobs.wire.answers import collided, many_submitted_bytes, needs_part, submitted
from semel.surfaces.jobs.wire.fields import Members, invalid, not_json, parse_members, refusal_members
from semel.surfaces.jobs.wire.quick import quick_drafts
from semel.surfaces.jobs.wire.submission import JobSubmission, header_key, parse_draft, wait_of

DRAWN_AT_ONCE = 256
QUICK_BYTES = 64 * 1024
"""A body of many plain jobs up to this many bytes is read on the loop, which takes at most a millisecond."""

Answers = tuple[JobAdmitted | JobKeyCollision | JobRefused, ...]

_COUNTED = {
    "J3": ("idempotent_in_progress",),
    "J4": ("idempotent_completed",),
    "J5": ("idempotent_failed",),
    "J6": ("idempotent_in_progress", "idempotent_revived"),
    "J10": ("unique",),
    "J11": ("debounced",),
}


class JobSubmissions:
    """The HTTP handlers of submissions."""

    def __init__(self, service: JobService) -> None:
        self._service = service
        self._tally = SubmissionTally(service.audit_trail)
        self._chances: Iterator[bytes] = iter(())

    async def submit(self, request: JobCall) -> Answer:
        """Submit one job."""
        began = time.monotonic()
        needs_role(request.principal, Role.WRITE)
        needs_no_query(request)
        draft, wait_ms = await self._service.apart(request.body, self._read, request, self.chance())
        self._learn(request, draft, wait_ms)
        answers = await self._admit(request, (draft,))
        return await self.answer(request, draft, answers, began, wait_ms)

    async def answer(
        self, request: JobCall, draft: JobDraft, answers: Answers, began: float, wait_ms: int = 0
    ) -> Answer:
        """Count and note the outcome of one submission, and render its answer."""
        [answer] = await self._noted(request, answers)
        if isinstance(answer, JobKeyCollision):
            raise Refused.of(collided(answer, draft))
        if isinstance(answer, JobRefused):
            raise Refused.of(answer.refusal)
        facts = await self._facts(answer, request, wait_ms)
        self._service.metrics.seconds["submit"].observe(time.monotonic() - began)
        replayed = (REPLAYED,) if answer.rule in HITS else ()
        return answer_json(facts, 200, *replayed)

    async def submit_many(self, request: JobCall) -> Answer:
        """Submit many jobs; each is decided separately, and the answers have the order of the items."""
        needs_role(request.principal, Role.WRITE)
        needs_no_query(request)
        quick = self._quick_drafts(request)
        if quick is not None:
            answers = await self._noted(request, await self._admit(request, quick))
            body = many_submitted_bytes(answers)
            if body is not None:
                return Answer(200, [JSON, NO_STORE], body)
            return await self._answer_many(request, quick, answers)
        items: list[JobDraft | Refusal] = await self._service.apart(request.body, self._read_many, request)
        drafts = tuple(item for item in items if isinstance(item, JobDraft))
        answers = await self._noted(request, await self._admit(request, drafts)) if drafts else ()
        return await self._answer_many(request, items, answers)

    async def _answer_many(self, request: JobCall, items: Sequence[JobDraft | Refusal], answers: Answers) -> Answer:
        """The answers to the drafts and refusals of a request, in their order."""
        left = iter(answers)
        told = [
            self._refusal(item) if isinstance(item, Refusal) else await self._told(next(left), item, request)
            for item in items
        ]
        return answer_json({"ok": True, "jobs": told})

    def _quick_drafts(self, request: JobCall) -> tuple[JobDraft, ...] | None:
        """The drafts of a request of many jobs, if all of them are plain and may be submitted by the caller."""
        if not is_small(len(request.body), QUICK_BYTES) or request.fields.get(b"idempotency-key") is not None:
            return None
        drafts = quick_drafts(request.body, request.owner, self._service.policy, self.chance)
        principal = request.principal
        if drafts is None or all(principal.may(Role.WRITE, SURFACE, queue) for queue in {one.queue for one in drafts}):
            return drafts
        return None

    def _learn(self, request: JobCall, draft: JobDraft, wait_ms: int) -> None:
        """Recognize submissions like this one by their heads."""
        service, size = self._service, len(request.body)
        if not wait_ms and is_small(size) and is_plain_draft(draft):
            make = partial(SubmitShape, self, service, self._tally, request)
            request.http.exchange.learn(lambda key: None if key or not may_be_shaped(request) else make(), size)

    def chance(self) -> bytes:
        """Random bytes for one id, drawn for 256 ids at once: each system call releases the interpreter lock."""
        chance = next(self._chances, None)
        if chance is None:
            drawn = self._service.context.world.random_bytes(DRAWN_AT_ONCE * CHANCE_BYTES)
            self._chances = iter([drawn[at : at + CHANCE_BYTES] for at in range(0, len(drawn), CHANCE_BYTES)])
            chance = next(self._chances)
        return chance

    def _read(self, request: JobCall, chance: bytes) -> JobSubmission:
        members = parse_members(request.body)
        wait_ms = wait_of(members, request.fields)
        return JobSubmission(self._draft(members, request, header_key(request.fields), chance), wait_ms)

    def _read_many(self, request: JobCall) -> list[JobDraft | Refusal]:
        members = parse_members(request.body)
        if request.fields.get(b"idempotency-key") is not None:
            raise invalid("Idempotency-Key", "Many jobs need a key each: put it into every item.")
        items = members.items("jobs", MAX_BATCH_JOBS)
        drawn = self._service.context.world.random_bytes(MAX_BATCH_JOBS * CHANCE_BYTES)
        chances = (drawn[at : at + CHANCE_BYTES] for at in range(0, len(drawn), CHANCE_BYTES))
        try:
            return [self._read_item(item, request, next(chances)) for item in items]
        except JsonError as error:
            raise not_json(error) from None

    def _read_item(self, item: Members | Refused, request: JobCall, chance: bytes) -> JobDraft | Refusal:
        """The draft of one item; an invalid item is refused without the others."""
        if isinstance(item, Refused):
            return item.refusal
        try:
            return self._draft(item, request, None, chance)
        except Refused as refused:
            return refused.refusal

    def _draft(self, members: Members, request: JobCall, key: str | None, chance: bytes) -> JobDraft:
        draft = parse_draft(members, key, request.owner, self._service.policy, chance)
        needs_role(request.principal, Role.WRITE, draft.queue)
        return draft

    async def _admit(self, request: JobCall, drafts: tuple[JobDraft, ...]) -> Answers:
        service = self._service
        command, size = SubmitJobs(drafts), len(request.body)
        answers: Answers = await submit(
            service.context.engine, service.jobs, command, size, len(drafts), request.caller
        )
        return answers

    async def _noted(self, request: JobCall, answers: Answers) -> Answers:
        """Count the outcomes and write their notes."""
        admitted = Counter(answer.rule for answer in answers if isinstance(answer, JobAdmitted))
        for rule, number in admitted.items():
            for name in _COUNTED.get(rule, ("accepted",)):
                self._service.audit_trail.count(name, number)
        for answer in answers:
            if isinstance(answer, JobAdmitted) and answer.rule in RETRIED:
                retries, http = self._service.context.retries, request.http
                retries.note(SURFACE, answer.job.id, http.began_at, http.principal, http.remote)
            if answer.notes:
                await self._service.audit_trail.keep(answer.notes, request.where)
        return answers

    async def _wait(self, job_id: bytes, wait_ms: int, request: JobCall) -> JobDetails | None:
        """Wait for the end of a job that is on disk; a caller with too many live readers is answered at once."""
        try:
            seat = self._service.context.live_reader(request.caller.principal)
        except QuotaExceededError:
            return await self._service.look(job_id, with_params=False)
        with seat:
            return await self._service.look_until_done(job_id, wait_ms, request, with_params=False)

    async def _facts(self, answer: JobAdmitted, request: JobCall, wait_ms: int) -> dict[str, Any]:
        job, value = answer.job, answer.job.result
        now_ms = self._service.context.world.wall_ms()
        if wait_ms and not is_done(job):
            seen = await self._wait(job.id, wait_ms, request)
            if seen is not None:
                answer = answer._replace(job=seen.job, expires_at=seen.expires_at)
                job, value, now_ms = seen.job, seen.result or b"", seen.now_ms
        elif job.result_bytes > INLINE_BYTES and needs_part(job, self._service.policy):
            seen = await self._service.look(job.id, with_params=False)
            value = seen.result or b"" if seen is not None else b""
        facts, ending = submitted(answer, value, self._service.policy, max(now_ms, job.created_at))
        await self._service.check(ending, job.id, request)
        return facts

    async def _told(
        self, answer: JobAdmitted | JobKeyCollision | JobRefused, draft: JobDraft, request: JobCall
    ) -> dict[str, Any]:
        if isinstance(answer, JobKeyCollision):
            return self._refusal(collided(answer, draft))
        if isinstance(answer, JobRefused):
            return self._refusal(answer.refusal)
        return {"http": 200, **await self._facts(answer, request, 0)}

    def _refusal(self, refusal: Refusal) -> dict[str, Any]:
        status = self._service.refused_status if refusal.status == 429 else refusal.status
        return {"http": status, **refusal_members(refusal)}
