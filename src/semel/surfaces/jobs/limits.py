"""Limits of jobs: fixed limits of the wire, the policy from the settings, and the queues that a caller may reach."""

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
MAX_UNIQUE_MS = 2_678_400_000
MAX_ATTEMPTS = 100
MAX_LEASE_SEC = 86_400
MAX_TIMEOUT_MS = 604_800_000
MAX_WAIT_MS = 30_000
MAX_CLAIM_JOBS = 100
MAX_CLAIM_NAMES = 100
MAX_BATCH_JOBS = 100
MAX_STEPS = 1_000
MAX_MEMBERS = 10_000
MAX_NESTING = 10
MAX_PROGRESS_BYTES = 1_024
MAX_ERROR_BYTES = 16 * 1024
MAX_MESSAGE_BYTES = 1_024
MAX_REASON_CHARACTERS = 256
MAX_LIST_JOBS = 1_000
DEFAULT_LIST_JOBS = 100
MAX_LISTED_ROWS = 10_000
"""Limit of rows read for a page of a list with too many lines; a short page may still have a next page."""
MAX_LISTED_LINES = 10_000
"""Limit of lines, each of one kind in one queue, that are merged for a page of a filtered list."""
MAX_QUEUE_LIMIT = 1_000_000
MAX_RATE_COUNT = 1_000_000
MAX_RATE_MS = 86_400_000
MAX_CATCH_UP = 1_000
ERRORS_KEPT = 10
LEVELS = {"critical": 0, "high": 2, "normal": 4, "low": 7}
DEFAULT_PRIORITY = 4
LEAST_URGENT = 9


class JobBounds(NamedTuple):
    """Limits of jobs in one state: in total, per principal, per queue."""

    all: int
    each_principal: int = 0
    each_queue: int = 0


class JobPolicy(NamedTuple):
    """The settings that decisions depend on; a limit of 0 means no limit."""

    is_idempotent: bool = True
    key_ttl_ms: int = 86_400_000
    max_cached_bytes: int = 16_384
    generated_ttl_ms: int = 600_000
    """How long a generated key is kept after the end of its job: twice the longest call that the clients mark so."""
    max_generated_ended: int = 1_000_000
    """The number of ended jobs whose generated keys are kept, even if all jobs that may wait or run do so. It is what
    1,600 jobs a second end in ten minutes.
    """
    max_records: int = 200_000
    """Limit of keys that callers named."""
    max_records_each: int = 0
    evicts: bool = False
    """Whether a full store evicts the oldest key of a finished job instead of refusing a new key."""
    max_result_bytes: int = 1_048_576
    retention_ms: int = 604_800_000
    queued: JobBounds = JobBounds(1_000_000)
    scheduled: JobBounds = JobBounds(100_000)
    principal_share: float = 1.0
    """The share of a global limit that one principal may use while others have jobs."""
    max_inflight: int = 10_000
    lease_ms: int = 300_000
    offer_ms: int = 5_000
    """Time until the first call of a worker that was answered after a long poll; 0 makes the offer a lease at once."""
    reap_grace_ms: int = 0
    """Delay of the reaper after the end of a lease, because another node may not have stored an extension yet."""
    waiting_ttl_ms: int = 0
    max_attempts: int = 5
    backoff_base_ms: int = 500
    backoff_cap_ms: int = 15_000
    jitter: float = 0.1
    lists_dead: bool = True
    max_dead: int = 1_000

    @property
    def max_generated(self) -> int:
        """Limit of generated keys: all jobs that may be unfinished, and a number of ended ones. Without a limit of
        unfinished jobs there is none.
        """
        unfinished = (self.queued.all, self.scheduled.all, self.max_inflight)
        return sum(unfinished) + self.max_generated_ended if all(unfinished) else 0


Reach = tuple[tuple[bytes, bool], ...]
"""Queues, each with whether its name is a prefix."""


def reaches(reach: Reach, queue: bytes) -> bool:
    """Whether the queue is within reach."""
    return any(queue.startswith(name) if is_prefix else queue == name for name, is_prefix in reach)
