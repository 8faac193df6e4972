"""Settings of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from semel.server.setting_values import CENTURY, LARGE, MANY, SettingsError, choice, secret, setting
from semel.server.settings import ServerSettings, SurfaceSettings

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class JobsSettings(SurfaceSettings):
    """The settings of jobs."""

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "jobs_idempotency_enabled": ("SHERATAN_IDEMPOTENCY_ENABLED",),
        "jobs_idempotency_ttl_sec": ("SHERATAN_IDEMPOTENCY_TTL_SEC",),
        "jobs_idempotency_max_cached_bytes": ("SHERATAN_IDEMPOTENCY_MAX_CACHED_BYTES",),
        "jobs_idempotency_store_max_items": ("SHERATAN_IDEMPOTENCY_STORE_MAX_ITEMS",),
        "jobs_max_queue_depth": ("SHERATAN_MAX_QUEUE_DEPTH",),
        "jobs_max_inflight": ("SHERATAN_MAX_INFLIGHT",),
        "jobs_lease_timeout_sec": ("SHERATAN_LEASE_TIMEOUT_SEC", "SHERATAN_LEASE_TIMEOUT"),
        "jobs_queue_item_ttl_sec": ("SHERATAN_QUEUE_ITEM_TTL_SEC",),
        "jobs_retry_max_attempts": ("SHERATAN_RETRY_MAX_ATTEMPTS",),
        "jobs_retry_backoff_base_ms": ("SHERATAN_RETRY_BACKOFF_BASE_MS", "SHERATAN_RETRY_BASE_DELAY_MS"),
        "jobs_retry_backoff_cap_ms": ("SHERATAN_RETRY_BACKOFF_CAP_MS",),
        "jobs_backpressure_mode": ("SHERATAN_BACKPRESSURE_MODE",),
        "jobs_dlq_enabled": ("SHERATAN_DLQ_ENABLED",),
        "jobs_dlq_max_items": ("SHERATAN_DLQ_MAX_ITEMS",),
        "jobs_result_integrity_mode": ("SHERATAN_RESULT_INTEGRITY_MODE", "SHERATAN_RESULT_INTEGRITY"),
        "jobs_result_integrity_required": ("SHERATAN_RESULT_INTEGRITY_REQUIRED",),
        "jobs_result_hmac_key": ("SHERATAN_RESULT_HMAC_KEY",),
    }
    jobs_idempotency_enabled: bool = setting(True, "honour the keys of jobs; if off, every submission is a new job")
    jobs_idempotency_ttl_sec: int = setting(86_400, "seconds that a key is kept after the end of its job", 1, CENTURY)
    jobs_idempotency_max_cached_bytes: int = setting(
        16_384, "max bytes of a result in the answer to a repeated submission; 0 sends none", 0, LARGE
    )
    jobs_idempotency_store_max_items: int = setting(
        200_000, "max keys that callers named and that are kept; 0 is no limit", 0, MANY
    )
    jobs_idempotency_store_max_items_per_principal: int = setting(0, "max keys of one caller; 0 is no limit", 0, MANY)
    jobs_idempotency_full_policy: str = choice(
        "refuse", "at the limit of keys: refuse new ones, or evict_terminal: drop keys of ended jobs", "evict_terminal"
    )
    jobs_max_result_bytes: int = setting(
        1024 * 1024, "largest result of a job in bytes; a larger one gets 413", 1, LARGE
    )
    jobs_retention_sec: int = setting(604_800, "seconds that ended jobs are kept; at least as long as keys", 0, CENTURY)
    jobs_max_queue_depth: int = setting(
        1_000_000, "max jobs that wait for a worker; more are refused; 0 is no limit", 0, MANY
    )
    jobs_max_queue_depth_per_principal: int = setting(0, "max waiting jobs of one caller; 0 is no limit", 0, MANY)
    jobs_max_queue_depth_per_queue: int = setting(0, "max waiting jobs in one queue; 0 is no limit", 0, MANY)
    jobs_max_scheduled: int = setting(
        100_000, "max jobs that wait for their time; more are refused; 0 is no limit", 0, MANY
    )
    jobs_max_scheduled_per_principal: int = setting(0, "max scheduled jobs of one caller; 0 is no limit", 0, MANY)
    jobs_max_scheduled_per_queue: int = setting(0, "max scheduled jobs in one queue; 0 is no limit", 0, MANY)
    jobs_principal_share: float = setting(
        0.5, "share of these limits for one caller while others have jobs; 1 is all", 0, 1
    )
    jobs_max_inflight: int = setting(
        10_000, "max jobs that run at once; at the limit a claim gets none; 0 is no limit", 0, MANY
    )
    jobs_lease_timeout_sec: int = setting(300, "end a lease without a heartbeat for this time in seconds", 1, 86_400)
    jobs_offer_sec: int = setting(
        5, "time in seconds to confirm jobs of a claim that waited; 0 needs no confirmation", 0, 60
    )
    jobs_queue_item_ttl_sec: int = setting(
        0, "seconds after which a job fails that no worker has taken; 0 is never", 0, CENTURY
    )
    jobs_retry_max_attempts: int = setting(5, "max runs of a job, the first included", 1, 100)
    jobs_retry_backoff_base_ms: int = setting(500, "wait in ms after the first failure; doubled each time", 0, _DAY_MS)
    jobs_retry_backoff_cap_ms: int = setting(15_000, "longest wait between two runs in ms", 0, _DAY_MS)
    jobs_retry_jitter: float = setting(0.1, "fraction from 0 to 1 by which a wait varies; 0 is no variation", 0, 1)
    jobs_backpressure_mode: str = choice(
        "429",
        "HTTP status at a limit (back pressure): 429 (drop and defer mean the same) or 503",
        "drop",
        "defer",
        "503",
    )
    jobs_dlq_enabled: bool = setting(True, "list failed jobs in the dead letter queue")
    jobs_dlq_max_items: int = setting(1_000, "max jobs in the dead letter queue; the oldest leave it", 1, MANY)
    jobs_result_integrity_mode: str = choice("sha256", "proof of results: sha256 (hash) or hmac (signed)", "hmac")
    jobs_result_integrity_required: bool = setting(False, "refuse results without a hash or signature; hmac implies it")
    jobs_result_hmac_key: str = secret("the key that workers sign results with, for hmac")

    def __post_init__(self) -> None:
        """The mode hmac implies that a proof is required."""
        if self.jobs_result_integrity_mode == "hmac":
            object.__setattr__(self, "jobs_result_integrity_required", True)

    @property
    def jobs_refusal_status(self) -> int:
        """The HTTP status of a refusal at a limit."""
        return 503 if self.jobs_backpressure_mode == "503" else 429

    def check(self, server: ServerSettings) -> None:
        """Check that the mode hmac has a key, and that the key is not also a token."""
        if self.jobs_result_integrity_mode == "hmac" and not self.jobs_result_hmac_key:
            raise SettingsError("jobs_result_integrity_mode is hmac: give the key with jobs_result_hmac_key.")
        if self.jobs_result_hmac_key and self.jobs_result_hmac_key in (server.token_active, server.token_next):
            raise SettingsError(
                "jobs_result_hmac_key is also a token, so every writer could sign; give it a value of its own."
            )


SETTINGS = JobsSettings
