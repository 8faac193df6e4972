"""The policy of jobs, made from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from semel.contracts.jobs.contract import Jobs
from semel.contracts.jobs.limits import Bounds, Policy
from semel.contracts.jobs.reading import gauges
from semel.contracts.jobs.rules.integrity import Signing
from semel.engine.engine import Engine
from semel.server.context import Context
from semel.server.jobs.desk import Desk
from semel.server.jobs.journal import Journal
from semel.server.jobs.waiters import Waiters
from semel.server.jobs_metrics import JobsMetrics
from semel.server.settings import ServerSettings, settings_of
from semel.surfaces.jobs.settings import JobsSettings

REAP_GRACE_MS = 2_000
"""Over several nodes: longer than a heartbeat takes until every node can see it, which is about a second."""


def policy_of(server: ServerSettings, *, is_shared: bool = False) -> Policy:
    """What the rules need of the settings, and of the store."""
    settings = settings_of(server, JobsSettings)
    return Policy(
        is_idempotent=settings.jobs_idempotency_enabled,
        key_ttl_ms=settings.jobs_idempotency_ttl_sec * 1_000,
        max_cached_bytes=settings.jobs_idempotency_max_cached_bytes,
        max_records=settings.jobs_idempotency_store_max_items,
        max_records_each=settings.jobs_idempotency_store_max_items_per_principal,
        evicts=settings.jobs_idempotency_full_policy == "evict_terminal",
        max_result_bytes=settings.jobs_max_result_bytes,
        retention_ms=settings.jobs_retention_sec * 1_000,
        queued=Bounds(
            settings.jobs_max_queue_depth,
            settings.jobs_max_queue_depth_per_principal,
            settings.jobs_max_queue_depth_per_queue,
        ),
        scheduled=Bounds(
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


def signing_of(settings: JobsSettings) -> Signing:
    """What a report must be signed with."""
    is_hmac = settings.jobs_result_integrity_mode == "hmac"
    key = settings.jobs_result_hmac_key.encode() if is_hmac else b""
    return Signing(settings.jobs_result_integrity_required or is_hmac, key)


def make_desk(context: Context) -> Desk:
    """Everything that the calls share."""
    settings = settings_of(context.settings, JobsSettings)
    journal = Journal(context.audit, context.meter)
    jobs = Jobs(policy_of(context.settings, is_shared=context.engine.is_shared))
    metrics = JobsMetrics(context.meter, context.metrics.registry, partial(_gauges, context.engine, jobs.policy))
    return Desk(
        context=context,
        jobs=jobs,
        policy=jobs.policy,
        metrics=metrics,
        signing=signing_of(settings),
        refused_status=settings.jobs_refusal_status,
        journal=journal,
        waiters=Waiters(context.engine, jobs, context.world, journal),
    )


async def _gauges(engine: Engine, policy: Policy) -> Mapping[str, float]:
    """The state of the queue."""
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
