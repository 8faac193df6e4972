"""The decision table of submissions: what a request with a key finds, and its answer.

The order of judgement is part of it: the key is looked up before the capacity, so that a full queue never turns the
retry of an admitted job away.
"""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from semel.contracts.jobs.rules.states import Reason
from semel.contracts.jobs.tables import DONE, JobRow
from semel.kernel.verdict import Verdict


class Effect(Enum):
    """The rows that a submission stores."""

    NOTHING = "nothing"
    JOB = "a job"
    RECORD_AND_JOB = "a record and a job, in one commit"
    REVIVAL = "the same job is queued again, its revision one higher, its attempts fresh"


class Rule(NamedTuple):
    """One row of the table."""

    name: str
    situation: str
    http: int
    status: str | None
    dedup: bool | None
    effect: Effect


_N, _J, _R, _V = Effect.NOTHING, Effect.JOB, Effect.RECORD_AND_JOB, Effect.REVIVAL

RULES = (
    Rule("J0", "idempotency is switched off", 200, "accepted", False, _J),
    Rule("J1", "no key", 200, "accepted", False, _J),
    Rule("J2", "the key is unknown, or its record has expired", 200, "accepted", False, _R),
    Rule("J3", "same payload, the job is not finished", 200, "in_progress", True, _N),
    Rule("J4", "same payload, the job is completed", 200, "completed", True, _N),
    Rule("J5", "same payload, the job failed or was cancelled, and `on_failed` is `return`", 200, "failed", True, _N),
    Rule("J6", "same payload, the job failed, and `on_failed` is `retry`", 200, "in_progress", True, _V),
    Rule("J7", "another payload under a live key", 409, None, None, _N),
    Rule("J8", "a slot in the queue is needed and none is free", 429, None, None, _N),
    Rule("J9", "a record is needed and the store of keys is full", 429, None, None, _N),
)

RULE = {rule.name: rule for rule in RULES}
HITS = frozenset({"J3", "J4", "J5", "J6"})


def known(verdict: Verdict, job: JobRow, *, retries_failed: bool) -> Rule:
    """The row for a key that is live."""
    if verdict is Verdict.MISMATCH:
        return RULE["J7"]
    if job.phase != DONE:
        return RULE["J3"]
    if not job.reason:
        return RULE["J4"]
    is_cancelled = job.reason == Reason.CANCELLED.value.encode()
    return RULE["J6"] if retries_failed and not is_cancelled else RULE["J5"]


def unknown(*, is_idempotent: bool, has_key: bool) -> Rule:
    """The row for a key that is not there, as far as its capacity allows."""
    if not is_idempotent:
        return RULE["J0"]
    return RULE["J2"] if has_key else RULE["J1"]


def payload_hash(kind: bytes, params: bytes) -> bytes:
    """The hash over kind and params; the letters of a kind need no escapes, and the params are canonical already."""
    return sha256(b'{"kind":"%s","params":%s}' % (kind, params)).digest()
