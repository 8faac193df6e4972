"""The service of jobs: the engine, the policy, and the request and answer types that all calls share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import orjson

from semel.contracts.fields import Fields
from semel.contracts.jobs.commands import Command, Note, Refusal
from semel.contracts.jobs.contract import Jobs
from semel.contracts.jobs.ids import job_name, parse_own
from semel.contracts.jobs.limits import Policy
from semel.contracts.jobs.reading import Look, job_of_name, look
from semel.contracts.jobs.rules.ends import topic_of
from semel.contracts.jobs.rules.integrity import Signing
from semel.contracts.jobs.rules.states import is_done
from semel.contracts.jobs.wire.answers import Ending
from semel.contracts.jobs.wire.fields import Members, parse_members
from semel.contracts.jobs.wire.refusals import RefusedJob, invalid, refusal_body
from semel.engine.contract import Write
from semel.engine.engine import Caller
from semel.kernel.errors import REGISTRY
from semel.server.context import Context
from semel.server.http.answer import JSON, NO_STORE, Answer, Header
from semel.server.http.request import Request as HttpRequest
from semel.server.jobs.journal import Journal
from semel.server.jobs.waiters import Waiters
from semel.server.jobs_metrics import JobsMetrics
from semel.server.principals import DEVELOPER, Principal, Role
from semel.server.threads import apart

T = TypeVar("T")

SURFACE = "jobs"
REPLAYED: Header = (b"idempotency-replayed", b"true")
LOOK_AGAIN_SECONDS = 1.0


class Request(NamedTuple):
    """An HTTP call: the principal, the path and the input."""

    principal: Principal
    fields: Fields
    body: bytes
    query: bytes
    caller: Caller
    http: HttpRequest

    @property
    def owner(self) -> bytes:
        """The principal as stored in rows: the name of a token, or the subject of a JWT; the two never collide."""
        principal = self.principal
        return (principal.name if principal.kind == DEVELOPER.kind else principal.actor).encode()

    def where(self) -> Mapping[str, str]:
        """What was asked for and from where, for audit lines: few of them tell it, so it is made when one does."""
        return self.http.where


@dataclass(frozen=True, slots=True)
class Desk:
    """The shared dependencies of all job calls; made once."""

    context: Context
    jobs: Jobs
    policy: Policy
    metrics: JobsMetrics
    signing: Signing
    refused_status: int
    """429 or 503, as the operator wants it, for what is refused for want of room."""
    journal: Journal
    waiters: Waiters

    async def members(self, request: Request) -> Members:
        """The members of a body."""
        needs_no_query(request)
        return await self.apart(request.body, parse_members, request.body)

    async def apart(self, body: bytes, work: Callable[..., T], *arguments: Any) -> T:
        """Run work on a large body in a thread."""
        return await apart(len(body), work, *arguments)

    async def carry_out(self, request: Request, command: Command, cost: int = 1) -> Any:
        """Have a command decided and keep its notes; a refusal is raised."""
        write = Write(self.jobs, command, len(request.body), cost)
        answer = await self.context.engine.submit(write, request.caller)
        notes = getattr(answer, "notes", ())
        if notes:
            await self.journal.keep(notes, request.where)
        if isinstance(answer, Refusal):
            raise RefusedJob.of(answer)
        return answer

    async def job_id(self, name: str) -> bytes | None:
        """The bytes of a job id; None for an impossible name. Only ids from other stores need a look-up."""
        own = parse_own(name)
        return own if own is not None else await self.context.engine.read(lambda reading: job_of_name(reading, name))

    async def look(self, job_id: bytes, *, with_params: bool = True) -> Look | None:
        """One job as it is now."""
        return await self.context.engine.read(lambda reading: look(reading, job_id, with_params=with_params))

    async def look_until_done(self, job_id: bytes, wait_ms: int, caller: Caller, *, with_params: bool) -> Look | None:
        """One job at its end, or as it is when the time is up."""
        watch = self.context.engine.signals.watch(topic_of(job_id))
        deadline = time.monotonic() + wait_ms / 1_000
        try:
            while True:
                watch.arm()
                seen = await self.look(job_id, with_params=with_params)
                left = deadline - time.monotonic()
                if seen is None or is_done(seen.job) or left <= 0 or caller.gone or self.context.is_stopping:
                    return seen
                await watch.wait(min(left, LOOK_AGAIN_SECONDS))
        finally:
            watch.close()

    async def check(self, ending: Ending | None, job_id: bytes, request: Request) -> None:
        """Write to the audit log that a stored result fails its hash."""
        if ending is not None and not ending.is_sound:
            await self.unsound(job_id, request)

    async def unsound(self, job_id: bytes, request: Request) -> None:
        """Write a damaged result to the audit log; it is not served and not computed again."""
        self.journal.count("integrity_fail")
        details = {"job_id": job_name(job_id), "mode": "sha256", "reason": "stored_mismatch"}
        await self.journal.keep((Note("RESULT_INTEGRITY_FAIL", details),), request.where)


def answer_json(facts: Mapping[str, Any], status: int = 200, *more: Header) -> Answer:
    """A JSON answer."""
    return Answer(status, [JSON, NO_STORE, *more], orjson.dumps(facts))


def refuse(refusal: Refusal, status: int | None = None) -> Answer:
    """A refusal as an answer, with Retry-After if it has one."""
    headers = [JSON, NO_STORE]
    kind = REGISTRY[refusal.code]
    told = kind.status if status is None else status
    if told in (429, 503):
        wait_ms = refusal.facts.get("retry_after_ms", 1_000)
        headers.append((b"retry-after", b"%d" % max(1, -(-wait_ms // 1_000))))
    return Answer(told, headers, refusal_body(refusal))


def needs_no_query(request: Request) -> None:
    """Refuse a query string that would be ignored: a key in it would be lost in silence."""
    if request.query:
        raise invalid("query", "This call takes no query: what it is to know stands in its path and its body.")


def needs_role(principal: Principal, role: Role, queue: bytes | None = None) -> None:
    """Refuse a caller without the role, or whose scopes do not reach the queue."""
    if not principal.has(role):
        raise RefusedJob("forbidden", f"This needs the role {role.value}.", {"role": role.value})
    if queue is not None and not principal.may(role, SURFACE, queue):
        raise RefusedJob("forbidden", "This credential does not reach that queue.", {"queue": queue.decode()})
