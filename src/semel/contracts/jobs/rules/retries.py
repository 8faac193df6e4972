"""Retry backoff: doubling delays with a jitter that can be computed again."""

from __future__ import annotations

from hashlib import sha256

from semel.contracts.jobs.limits import MAX_DEFER_MS, Policy


def delay_ms(policy: Policy, job_id: bytes, attempt: int, asked_ms: int | None) -> int:
    """The delay after this run; a delay that the worker asks for wins."""
    if asked_ms is not None:
        return min(asked_ms, MAX_DEFER_MS)
    cap = policy.backoff_cap_ms
    plain = min(cap, policy.backoff_base_ms << min(max(0, attempt - 1), 40))
    return max(0, min(cap, round(plain * (1 + policy.jitter * _between(job_id, attempt)))))


def _between(job_id: bytes, attempt: int) -> float:
    """A number from -1 to 1 that belongs to this job and attempt."""
    drawn = int.from_bytes(sha256(job_id + attempt.to_bytes(8, "big")).digest()[:4], "big")
    return 2 * drawn / (2**32 - 1) - 1
