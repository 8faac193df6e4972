"""Submission of jobs: one or many in one request, and the wait for the end on request."""

from __future__ import annotations

import time
from typing import Any

from semel.contracts.jobs.commands import Admitted, Collision, Draft, Refusal, Submit
from semel.contracts.jobs.ids import CHANCE_BYTES
from semel.contracts.jobs.limits import MAX_BATCH_JOBS
from semel.contracts.jobs.rules.states import is_done
from semel.contracts.jobs.rules.submission import HITS
from semel.contracts.jobs.tables import INLINE_BYTES
from semel.contracts.jobs.wire.answers import collided, needs_part, submitted
from semel.contracts.jobs.wire.drafts import Submission, header_key, parse_draft, wait_of
from semel.contracts.jobs.wire.fields import Members, not_json, parse_members
from semel.contracts.jobs.wire.refusals import RefusedJob, invalid
from semel.engine.contract import Write
from semel.kernel.errors import REGISTRY
from semel.kernel.json_error import JsonError
from semel.server.http.answer import Answer
from semel.server.jobs.desk import REPLAYED, Desk, Request, answer_json, needs_no_query, needs_role
from semel.server.principals import Role

DRAWN_AT_ONCE = 256

_COUNTED = {
    "J3": ("idempotent_in_progress",),
    "J4": ("idempotent_completed",),
    "J5": ("idempotent_failed",),
    "J6": ("idempotent_in_progress", "idempotent_revived"),
}


class Submissions:
    """The HTTP handlers of submissions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._chances = b""

    async def submit(self, request: Request) -> Answer:
        """One job."""
        began = time.monotonic()
        needs_role(request.principal, Role.WRITE)
        needs_no_query(request)
        draft, wait_ms = await self._desk.apart(request.body, self._read, request, self._chance())
        [answer] = await self._admit(request, (draft,))
        if isinstance(answer, Collision):
            answer = collided(answer, draft)
        if isinstance(answer, Refusal):
            raise RefusedJob.of(answer)
        facts = await self._facts(answer, request, wait_ms)
        self._desk.metrics.seconds["submit"].observe(time.monotonic() - began)
        replayed = (REPLAYED,) if answer.rule in HITS else ()
        return answer_json(facts, 200, *replayed)

    async def submit_many(self, request: Request) -> Answer:
        """Many jobs, each decided by itself; the answers are in the order of the requests."""
        needs_role(request.principal, Role.WRITE)
        needs_no_query(request)
        items: list[Draft | Refusal] = await self._desk.apart(request.body, self._read_many, request)
        drafts = tuple(item for item in items if isinstance(item, Draft))
        answers = iter(await self._admit(request, drafts) if drafts else ())
        told = [
            self._refusal(item) if isinstance(item, Refusal) else await self._told(next(answers), item, request)
            for item in items
        ]
        return answer_json({"ok": True, "jobs": told})

    def _chance(self) -> bytes:
        """Randomness for one id. It is drawn for many at once: asking the system gives up the interpreter each time."""
        if not self._chances:
            self._chances = self._desk.context.world.random_bytes(DRAWN_AT_ONCE * CHANCE_BYTES)
        chance, self._chances = self._chances[:CHANCE_BYTES], self._chances[CHANCE_BYTES:]
        return chance

    def _read(self, request: Request, chance: bytes) -> Submission:
        members = parse_members(request.body)
        wait_ms = wait_of(members, request.fields)
        return Submission(self._draft(members, request, header_key(request.fields), chance), wait_ms)

    def _read_many(self, request: Request) -> list[Draft | Refusal]:
        members = parse_members(request.body)
        if request.fields.get(b"idempotency-key") is not None:
            raise invalid("Idempotency-Key", "Many jobs need a key each: put it into every item.")
        items = members.items("jobs", MAX_BATCH_JOBS)
        drawn = self._desk.context.world.random_bytes(MAX_BATCH_JOBS * CHANCE_BYTES)
        chances = (drawn[at : at + CHANCE_BYTES] for at in range(0, len(drawn), CHANCE_BYTES))
        try:
            return [self._read_item(item, request, next(chances)) for item in items]
        except JsonError as error:
            raise not_json(error) from None

    def _read_item(self, item: Members | RefusedJob, request: Request, chance: bytes) -> Draft | Refusal:
        """One of many; a flaw of its own is its own answer."""
        if isinstance(item, RefusedJob):
            return item.refusal
        try:
            return self._draft(item, request, None, chance)
        except RefusedJob as refused:
            return refused.refusal

    def _draft(self, members: Members, request: Request, key: str | None, chance: bytes) -> Draft:
        draft = parse_draft(members, key, request.owner, self._desk.policy, chance)
        needs_role(request.principal, Role.WRITE, draft.queue)
        return draft

    async def _admit(self, request: Request, drafts: tuple[Draft, ...]) -> tuple[Admitted | Collision | Refusal, ...]:
        write = Write(self._desk.jobs, Submit(drafts), len(request.body), len(drafts))
        answers: tuple[Admitted | Collision | Refusal, ...] = await self._desk.context.engine.submit(
            write, request.caller
        )
        for answer in answers:
            if isinstance(answer, Admitted):
                for name in _COUNTED.get(answer.rule, ("accepted",)):
                    self._desk.journal.count(name)
            if answer.notes:
                await self._desk.journal.keep(answer.notes, request.where)
        return answers

    async def _facts(self, answer: Admitted, request: Request, wait_ms: int) -> dict[str, Any]:
        job, value = answer.job, answer.job.result
        now_ms = self._desk.context.world.wall_ms()
        if wait_ms and not is_done(job):
            seen = await self._desk.look_until_done(job.id, wait_ms, request.caller, with_params=False)
            if seen is not None:
                answer = answer._replace(job=seen.job, expires_at=seen.expires_at)
                job, value, now_ms = seen.job, seen.result or b"", seen.now_ms
        elif job.result_bytes > INLINE_BYTES and needs_part(job, self._desk.policy):
            seen = await self._desk.look(job.id, with_params=False)
            value = seen.result or b"" if seen is not None else b""
        facts, ending = submitted(answer, value, self._desk.policy, max(now_ms, job.created_at))
        await self._desk.check(ending, job.id, request)
        return facts

    async def _told(self, answer: Admitted | Collision | Refusal, draft: Draft, request: Request) -> dict[str, Any]:
        if isinstance(answer, Collision):
            answer = collided(answer, draft)
        if isinstance(answer, Refusal):
            return self._refusal(answer)
        return {"http": 200, **await self._facts(answer, request, 0)}

    def _refusal(self, refusal: Refusal) -> dict[str, Any]:
        kind = REGISTRY[refusal.code]
        status = self._desk.refused_status if kind.status == 429 else kind.status
        return {"http": status, "ok": False, "error": kind.name, "message": refusal.message, **refusal.facts}
