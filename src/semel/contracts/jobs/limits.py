"""Limits of jobs: the policy of one server, and constants of the wire that no setting changes."""

from __future__ import annotations

from typing import NamedTuple

MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_PARAMS_BYTES = 1024 * 1024
MAX_CLIENT_BYTES = 4_096
MAX_KEY_CHARACTERS = 256
MAX_NAME_CHARACTERS = 128
MAX_QUEUE_CHARACTERS = 64
MAX_CLAIM_ID_CHARACTERS = 64
MAX_DELAY_MS = 31_536_000_000
MAX_DEFER_MS = 86_400_000
MAX_ATTEMPTS = 100
MAX_LEASE_SEC = 86_400
MAX_TIMEOUT_MS = 604_800_000
MAX_WAIT_MS = 30_000
MAX_CLAIM_JOBS = 100
MAX_CLAIM_NAMES = 100
MAX_BATCH_JOBS = 100
MAX_STEPS = 1_000
MAX_PROGRESS_BYTES = 1_024
MAX_ERROR_BYTES = 16 * 1024
MAX_MESSAGE_BYTES = 1_024
MAX_REASON_CHARACTERS = 256
MAX_LIST_JOBS = 1_000
DEFAULT_LIST_JOBS = 100
MAX_LISTED_ROWS = 10_000
"""Limit of rows read for a page of a list with too many lines; the page may be short and still have a next one."""
MAX_LISTED_LINES = 10_000
"""Limit of lines, each of one kind in one queue, that are merged for a page of a filtered list."""
MAX_QUEUE_LIMIT = 1_000_000
MAX_CATCH_UP = 1_000
ERRORS_KEPT = 10
LEVELS = {"critical": 0, "high": 2, "normal": 4, "low": 7}
DEFAULT_PRIORITY = 4
LEAST_URGENT = 9


class Bounds(NamedTuple):
    """Limits of jobs in a state: in all, of each principal, in each queue."""

    all: int
    each_principal: int = 0
    each_queue: int = 0


class Policy(NamedTuple):
    """The settings that decisions depend on; 0 is no limit where a limit is meant."""

    is_idempotent: bool = True
    key_ttl_ms: int = 86_400_000
    max_cached_bytes: int = 16_384
    max_records: int = 200_000
    max_records_each: int = 0
    evicts: bool = False
    """Whether a full store lets the oldest key of a finished job go instead of refusing a new one."""
    max_result_bytes: int = 1_048_576
    retention_ms: int = 604_800_000
    queued: Bounds = Bounds(1_000)
    scheduled: Bounds = Bounds(100_000)
    principal_share: float = 1.0
    """The share of a global limit that one principal may use, while others have jobs."""
    max_inflight: int = 100
    lease_ms: int = 300_000
    offer_ms: int = 5_000
    """Time for the first call of a worker whose claim waited; 0 makes the offer a lease at once."""
    reap_grace_ms: int = 0
    """Delay of the reaper after the end of a lease: another node may have an extension that is not stored yet."""
    waiting_ttl_ms: int = 0
    max_attempts: int = 5
    backoff_base_ms: int = 500
    backoff_cap_ms: int = 15_000
    jitter: float = 0.1
    lists_dead: bool = True
    max_dead: int = 1_000
