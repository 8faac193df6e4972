"""The job service: dependencies and helpers that all calls share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import orjson

from semel.engine.caller import WaitingCaller
from semel.engine.engine import Engine
from semel.engine.follow import FollowedPage, LogFollower
from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.server.auth.principals import DEVELOPER, Principal, Role
from semel.server.context import Context
from semel.server.http.answer import JSON, NO_STORE, Answer, Header
from semel.server.http.request import Request as HttpRequest
from semel.server.settings import ServerSettings, settings_of
from semel.server.thread_pool import apart
from semel.surfaces.jobs.audit_trail import JobAuditTrail
from semel.surfaces.jobs.commands import JobCommand, JobNote, JobRefused
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import JobBounds, JobPolicy
from semel.surfaces.jobs.long_poll import LongPolls
from semel.surfaces.jobs.metrics import JobsMetrics
from semel.surfaces.jobs.plain_calls import submit
from semel.surfaces.jobs.reading import JobDetails, gauges, job_details
from semel.surfaces.jobs.rules.completion import JobSigning, topic_of
from semel.surfaces.jobs.rules.states import is_done
from semel.surfaces.jobs.settings import JobsSettings
from semel.surfaces.jobs.wire.answers import OutcomeAnswer
from semel.surfaces.jobs.wire.fields import Members, invalid, parse_members

T = TypeVar("T")

SURFACE = "jobs"
REPLAYED: Header = (b"idempotency-replayed", b"true")
LOOK_AGAIN_SECONDS = 1.0


def owner_of(principal: Principal) -> bytes:
    """A principal as stored in rows: the name of a token, or the subject of a JWT; the two never collide."""
    return (principal.name if principal.kind == DEVELOPER.kind else principal.actor).encode()


class JobCall(NamedTuple):
    """An HTTP call: the principal and the input."""

    principal: Principal
    fields: HeaderFields
    body: bytes
    query: bytes
    caller: WaitingCaller
    http: HttpRequest

    @property
    def owner(self) -> bytes:
        """The principal as stored in rows."""
        return owner_of(self.principal)

    def where(self) -> Mapping[str, str]:
        """Path and remote address for audit log lines; computed on demand, because few lines have them."""
        return self.http.where


@dataclass(frozen=True, slots=True)
class JobService:
    """The shared dependencies of all job calls."""

    context: Context
    jobs: JobContract
    policy: JobPolicy
    metrics: JobsMetrics
    signing: JobSigning
    refused_status: int
    """The status for refusals at a capacity limit: 429 or 503, by a setting."""
    audit_trail: JobAuditTrail
    long_polls: LongPolls

    async def members(self, request: JobCall) -> Members:
        """The members of a body."""
        needs_no_query(request)
        return await self.apart(request.body, parse_members, request.body)

    async def apart(self, body: bytes, work: Callable[..., T], *arguments: Any) -> T:
        """Run work in a thread if the body is large."""
        return await apart(len(body), work, *arguments)

    async def carry_out(self, request: JobCall, command: JobCommand, cost: int = 1) -> Any:
        """Submit a command to the engine and record its notes; raises a refusal."""
        return await self.noted(request, await self.decided(request, command, cost))

    async def decided(self, request: JobCall, command: JobCommand, cost: int = 1) -> Any:
        """Submit a command to the engine; returns its answer, which may be a refusal."""
        return await submit(self.context.engine, self.jobs, command, len(request.body), cost, request.caller)

    async def noted(self, request: JobCall, answer: Any) -> Any:
        """Record the notes of an answer; raises a refusal."""
        notes = getattr(answer, "notes", ())
        if notes:
            await self.audit_trail.keep(notes, request.where)
        if isinstance(answer, JobRefused):
            raise Refused.of(answer.refusal)
        return answer

    async def look(self, job_id: bytes, *, with_params: bool = True) -> JobDetails | None:
        """The current state of a job; None if it does not exist."""
        return await self.context.engine.read(lambda reading: job_details(reading, job_id, with_params=with_params))

    async def look_until_done(
        self, job_id: bytes, wait_ms: int, request: JobCall, *, with_params: bool
    ) -> JobDetails | None:
        """Wait at most `wait_ms` for the end of a job; returns its state then."""

        async def look() -> FollowedPage[JobDetails | None]:
            seen = await self.look(job_id, with_params=with_params)
            return FollowedPage(seen, seen is None or is_done(seen.job), LOOK_AGAIN_SECONDS)

        end = self.context.end_of(request.caller, request.principal)
        with LogFollower(self.context.engine.signals, topic_of(job_id), end) as follower:
            return await follower.follow(look, wait_ms / 1_000)

    async def check(self, ending: OutcomeAnswer | None, job_id: bytes, request: JobCall) -> None:
        """Write to the audit log if a stored result does not match its hash."""
        if ending is not None and not ending.is_sound:
            await self.unsound(job_id, request)

    async def unsound(self, job_id: bytes, request: JobCall) -> None:
        """Write a damaged result to the audit log; the result is not served and the job does not run again."""
        self.audit_trail.count("integrity_fail")
        details = {"job_id": job_name(job_id), "mode": "sha256", "reason": "stored_mismatch"}
        await self.audit_trail.keep((JobNote("RESULT_INTEGRITY_FAIL", details),), request.where)


def answer_json(facts: Mapping[str, Any], status: int = 200, *more: Header) -> Answer:
    """A JSON answer."""
    return Answer(status, [JSON, NO_STORE, *more], orjson.dumps(facts))


def needs_no_query(request: JobCall) -> None:
    """Refuse a query string, because a key in it would be ignored without notice."""
    if request.query:
        raise invalid("query", "This call takes no query: put its arguments into the path and the body.")


def needs_role(principal: Principal, role: Role, queue: bytes | None = None) -> None:
    """Refuse a caller without the role, or whose scopes do not reach the queue."""
    if not principal.has(role):
        raise Refused("jobs:forbidden", f"This needs the role {role.value}.", {"role": role.value})
    if queue is not None and not principal.may(role, SURFACE, queue):
        raise Refused("jobs:forbidden", "This credential does not reach that queue.", {"queue": queue.decode()})


REAP_GRACE_MS = 2_000
"""With several nodes: more than the time until every node can read a heartbeat, which is about 1 second."""


def policy_of(server: ServerSettings, *, is_shared: bool = False) -> JobPolicy:
    """The policy of the rules, from the settings and the kind of store."""
    settings = settings_of(server, JobsSettings)
    return JobPolicy(
        is_idempotent=settings.jobs_idempotency_enabled,
        key_ttl_ms=settings.jobs_idempotency_ttl_sec * 1_000,
        max_cached_bytes=settings.jobs_idempotency_max_cached_bytes,
        max_records=settings.jobs_idempotency_store_max_items,
        max_records_each=settings.jobs_idempotency_store_max_items_per_principal,
        evicts=settings.jobs_idempotency_full_policy == "evict_terminal",
        max_result_bytes=settings.jobs_max_result_bytes,
        retention_ms=settings.jobs_retention_sec * 1_000,
        queued=JobBounds(
            settings.jobs_max_queue_depth,
            settings.jobs_max_queue_depth_per_principal,
            settings.jobs_max_queue_depth_per_queue,
        ),
        scheduled=JobBounds(
            settings.jobs_max_scheduled,
            settings.jobs_max_scheduled_per_principal,
            settings.jobs_max_scheduled_per_queue,
        ),
        principal_share=settings.jobs_principal_share if server.has_credentials else 1.0,
        max_inflight=settings.jobs_max_inflight,
        lease_ms=settings.jobs_lease_timeout_sec * 1_000,
        offer_ms=settings.jobs_offer_sec * 1_000,
        reap_grace_ms=REAP_GRACE_MS if is_shared else 0,
        waiting_ttl_ms=settings.jobs_queue_item_ttl_sec * 1_000,
        max_attempts=settings.jobs_retry_max_attempts,
        backoff_base_ms=settings.jobs_retry_backoff_base_ms,
        backoff_cap_ms=settings.jobs_retry_backoff_cap_ms,
        jitter=settings.jobs_retry_jitter,
        lists_dead=settings.jobs_dlq_enabled,
        max_dead=settings.jobs_dlq_max_items,
    )


def signing_of(settings: JobsSettings) -> JobSigning:
    """The checksum that a report must have."""
    is_hmac = settings.jobs_result_integrity_mode == "hmac"
    key = settings.jobs_result_hmac_key.encode() if is_hmac else b""
    return JobSigning(settings.jobs_result_integrity_required or is_hmac, key)


def make_service(context: Context) -> JobService:
    """Create the service."""
    settings = settings_of(context.settings, JobsSettings)
    audit_trail = JobAuditTrail(context.audit, context.meter)
    jobs = JobContract(policy_of(context.settings, is_shared=context.engine.is_shared))
    metrics = JobsMetrics(context.meter, partial(_gauges, context.engine, jobs.policy))
    return JobService(
        context=context,
        jobs=jobs,
        policy=jobs.policy,
        metrics=metrics,
        signing=signing_of(settings),
        refused_status=settings.jobs_refusal_status,
        audit_trail=audit_trail,
        long_polls=LongPolls(context.engine, jobs, context.world, audit_trail),
    )


async def _gauges(engine: Engine, policy: JobPolicy) -> Mapping[str, float]:
    """The gauges of the metrics."""
    found = await engine.read(gauges)
    most = policy.queued.all
    return {
        "idempotency_store_size": found.records,
        "queue_depth": found.queued,
        "scheduled": found.scheduled,
        "inflight": found.leased,
        "ready_to_dispatch": found.queued,
        "dlq_size": found.dead,
        "backpressure_active": int(bool(most) and found.queued >= most),
        "oldest_ready_age_sec": found.oldest_ready_ms / 1_000,
    }
