"""The idempotency table of submissions: what is stored under the key of a request, and the answer.

The order is part of the rule: the key is looked up before the capacity is checked, so a full queue never rejects the
retry of an admitted job.
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from semel.kernel.verdict import NEVER, PinnedThenWindow, Verdict
from semel.store.protocol import AnyTable
from semel.store.table import Key
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.states import FailureReason
from semel.surfaces.jobs.tables import DONE, JOB_BRIEF, JOB_EXPIRY, JobRecordRow, JobRow


class SubmissionEffect(Enum):
    """The rows that a submission stores."""

    NOTHING = "nothing"
    JOB = "a job"
    RECORD_AND_JOB = "a record and a job, in one commit"
    REVIVAL = "the same job is queued again, its revision one higher, its attempts fresh"
    POINTER = "a record that points to that job, if there is a key"
    REPLACEMENT = "that job's params and start; a record that points to it, if there is a key"


class SubmissionRule(NamedTuple):
    """One row of the table."""

    name: str
    situation: str
    http: int
    status: str | None
    dedup: bool | None
    effect: SubmissionEffect


_N, _J, _R, _V, _P, _D = (
    SubmissionEffect.NOTHING,
    SubmissionEffect.JOB,
    SubmissionEffect.RECORD_AND_JOB,
    SubmissionEffect.REVIVAL,
    SubmissionEffect.POINTER,
    SubmissionEffect.REPLACEMENT,
)

RULES = (
    SubmissionRule("J0", "idempotency is switched off", 200, "accepted", False, _J),
    SubmissionRule("J1", "no key", 200, "accepted", False, _J),
    SubmissionRule("J2", "the key is unknown, or its record has expired", 200, "accepted", False, _R),
    SubmissionRule("J3", "same payload, the job is not finished", 200, "in_progress", True, _N),
    SubmissionRule("J4", "same payload, the job is completed", 200, "completed", True, _N),
    SubmissionRule(
        "J5", "same payload, the job failed or was cancelled, and `on_failed` is `return`", 200, "failed", True, _N
    ),
    SubmissionRule("J6", "same payload, the job failed, and `on_failed` is `retry`", 200, "in_progress", True, _V),
    SubmissionRule("J7", "another payload under a live key", 409, None, None, _N),
    SubmissionRule("J8", "a slot in the queue is needed and none is free", 429, None, None, _N),
    SubmissionRule("J9", "a record is needed and the store of keys is full", 429, None, None, _N),
    SubmissionRule("J10", "no live key, and `unique` finds a job", 200, "in_progress", True, _P),
    SubmissionRule("J11", "no live key, and `debounce` finds a job that still waits", 200, "in_progress", True, _D),
)

RULE = {rule.name: rule for rule in RULES}
RETRIED = frozenset({"J3", "J4", "J5", "J6"})
"""Rows of a retry under a key that is known; in the other hits another request has made the job."""
HITS = frozenset({"J3", "J4", "J5", "J6", "J10", "J11"})


def is_alias(record: JobRecordRow) -> bool:
    """Whether a key points to a job that it has not made."""
    return record.alias > 0


def key_until_of(job: JobRow, policy: JobPolicy, now_ms: int) -> int:
    """`key_until` of a job that ends now: a generated key is kept for its own time, and stays below 0."""
    if job.key_until > 0:
        return PinnedThenWindow(policy.key_ttl_ms).expires_at(now_ms)
    return -PinnedThenWindow(policy.generated_ttl_ms).expires_at(now_ms) if job.key_until else 0


def expiry_table(*, is_generated: bool) -> AnyTable:
    """The table that has the keys of this kind in the order of their expiry."""
    return JOB_BRIEF if is_generated else JOB_EXPIRY


def expiry_place(job: JobRow) -> tuple[AnyTable, Key]:
    """The row for the expiry of the key of an ended job."""
    return expiry_table(is_generated=job.key_until < 0), (abs(job.key_until), job.id)


def key_end(record: JobRecordRow, job: JobRow) -> int:
    """When the record of a key expires: with the key of its job; an alias with the row of its job."""
    if not is_alias(record):
        return abs(job.key_until)
    return job.due_at if job.phase == DONE else NEVER


def verdict_on(record: JobRecordRow | None, job: JobRow | None, fingerprint: bytes, now: int) -> Verdict:
    """Judge a submission by the record of its key and the job of the record, which knows when the key expires."""
    if record is None or job is None or now >= key_end(record, job):
        return Verdict.FRESH
    return Verdict.REPLAY if record.fingerprint == fingerprint else Verdict.MISMATCH


def known(verdict: Verdict, job: JobRow, *, retries_failed: bool) -> SubmissionRule:
    """The row of the table for a key that has not expired."""
    if verdict is Verdict.MISMATCH:
        return RULE["J7"]
    if job.phase != DONE:
        return RULE["J3"]
    if not job.reason:
        return RULE["J4"]
    is_cancelled = job.reason == FailureReason.CANCELLED.value.encode()
    return RULE["J6"] if retries_failed and not is_cancelled else RULE["J5"]


def unknown(*, is_idempotent: bool, has_key: bool) -> SubmissionRule:
    """The row of the table for an unknown key, by the free capacity."""
    if not is_idempotent:
        return RULE["J0"]
    return RULE["J2"] if has_key else RULE["J1"]


def payload_hash(kind: bytes, params: bytes) -> bytes:
    """The hash over kind and params; a kind needs no escapes, and the params are canonical already."""
    return sha256(b'{"kind":"%s","params":%s}' % (kind, params)).digest()
