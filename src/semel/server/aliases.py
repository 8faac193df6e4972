"""Aliases of settings: environment variables of an earlier system that still work.

Pure. The variable with our own prefix wins over every alias, and an earlier alias over a later one. Two that are set
and do not mean the same are told as a warning that names the variables and never shows a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ALIASES: Mapping[str, tuple[str, ...]] = {
    "jobs_idempotency_enabled": ("SHERATAN_IDEMPOTENCY_ENABLED",),
    "jobs_idempotency_ttl_sec": ("SHERATAN_IDEMPOTENCY_TTL_SEC",),
    "jobs_idempotency_max_cached_bytes": ("SHERATAN_IDEMPOTENCY_MAX_CACHED_BYTES",),
    "jobs_idempotency_store_max_items": ("SHERATAN_IDEMPOTENCY_STORE_MAX_ITEMS",),
    "jobs_idempotency_store_max_items_per_principal": ("SHERATAN_IDEMPOTENCY_STORE_MAX_ITEMS_PER_PRINCIPAL",),
    "jobs_idempotency_full_policy": ("SHERATAN_IDEMPOTENCY_FULL_POLICY",),
    "jobs_max_result_bytes": ("SHERATAN_MAX_RESULT_BYTES",),
    "jobs_retention_sec": ("SHERATAN_RETENTION_SEC",),
    "jobs_max_queue_depth": ("SHERATAN_MAX_QUEUE_DEPTH",),
    "jobs_max_queue_depth_per_principal": ("SHERATAN_MAX_QUEUE_DEPTH_PER_PRINCIPAL",),
    "jobs_max_queue_depth_per_queue": ("SHERATAN_MAX_QUEUE_DEPTH_PER_QUEUE",),
    "jobs_max_scheduled": ("SHERATAN_MAX_SCHEDULED",),
    "jobs_max_scheduled_per_principal": ("SHERATAN_MAX_SCHEDULED_PER_PRINCIPAL",),
    "jobs_max_scheduled_per_queue": ("SHERATAN_MAX_SCHEDULED_PER_QUEUE",),
    "jobs_principal_share": ("SHERATAN_PRINCIPAL_SHARE",),
    "jobs_max_inflight": ("SHERATAN_MAX_INFLIGHT",),
    "jobs_lease_timeout_sec": ("SHERATAN_LEASE_TIMEOUT_SEC", "SHERATAN_LEASE_TIMEOUT"),
    "jobs_offer_sec": ("SHERATAN_OFFER_SEC",),
    "jobs_queue_item_ttl_sec": ("SHERATAN_QUEUE_ITEM_TTL_SEC",),
    "jobs_retry_max_attempts": ("SHERATAN_RETRY_MAX_ATTEMPTS",),
    "jobs_retry_backoff_base_ms": ("SHERATAN_RETRY_BACKOFF_BASE_MS", "SHERATAN_RETRY_BASE_DELAY_MS"),
    "jobs_retry_backoff_cap_ms": ("SHERATAN_RETRY_BACKOFF_CAP_MS",),
    "jobs_retry_jitter": ("SHERATAN_RETRY_JITTER",),
    "jobs_backpressure_mode": ("SHERATAN_BACKPRESSURE_MODE",),
    "jobs_dlq_enabled": ("SHERATAN_DLQ_ENABLED",),
    "jobs_dlq_max_items": ("SHERATAN_DLQ_MAX_ITEMS",),
    "jobs_result_integrity_mode": ("SHERATAN_RESULT_INTEGRITY_MODE", "SHERATAN_RESULT_INTEGRITY"),
    "jobs_result_integrity_required": ("SHERATAN_RESULT_INTEGRITY_REQUIRED",),
    "jobs_result_hmac_key": ("SHERATAN_RESULT_HMAC_KEY",),
    "token_active": ("SHERATAN_HUB_TOKEN_ACTIVE", "SHERATAN_HUB_TOKEN"),
    "token_next": ("SHERATAN_HUB_TOKEN_NEXT",),
    "token_rotation_until": ("SHERATAN_HUB_TOKEN_ROTATION_UNTIL",),
    "token_required": ("SHERATAN_HUB_TOKEN_REQUIRED",),
}
"""Settings by name, each with its aliases, the stronger first."""


class Named(NamedTuple):
    """An environment variable that is set."""

    variable: str
    value: str


def set_for(name: str, own: str, environment: Mapping[str, str]) -> list[Named]:
    """The variables of one setting that are set, the one that wins first; `own` is the Semel name."""
    variables = (own, *ALIASES.get(name, ()))
    return [Named(variable, environment[variable]) for variable in variables if variable in environment]
