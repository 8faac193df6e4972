"""Lease tokens: unguessable, new with every claim, and derived from stored data instead of being kept."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest, digest

from semel.contracts.jobs.tables import JobRow

TOKEN_BYTES = 16
REMEMBERED_EPOCHS = 64
"""How many earlier leases a token is recognised as one of; only for the record of late workers."""


def token(secret: bytes, job_id: bytes, epoch: int) -> bytes:
    """The token of one lease."""
    return digest(secret, job_id + epoch.to_bytes(8, "big"), sha256)[:TOKEN_BYTES]


def is_current(secret: bytes, job: JobRow, given: bytes | None) -> bool:
    """Whether a token is that of the job's latest lease."""
    return bool(given) and job.epoch > 0 and compare_digest(token(secret, job.id, job.epoch), given or b"")


def epoch_of(secret: bytes, job: JobRow, given: bytes | None) -> int | None:
    """The lease that a token belonged to, None for an unknown or too old one."""
    if given is None:
        return None
    for epoch in range(job.epoch, max(0, job.epoch - REMEMBERED_EPOCHS), -1):
        if compare_digest(token(secret, job.id, epoch), given):
            return epoch
    return None
