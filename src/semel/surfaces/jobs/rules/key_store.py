"""The store of idempotency keys: room for one more record, and what goes when there is none.

Keys that callers named and generated keys have limits of their own. A store that is full of named keys refuses the
next, or evicts one, as the settings say. One that is full of generated keys evicts the one of an ended job that expires
first: nobody has kept it. The key of a job that has not ended is never evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from semel.engine.contract import View, demand
from semel.kernel.errors import Refusal
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobNote, JobRefused, SubmitJobs
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.counters import JobCounters, expiry_keys
from semel.surfaces.jobs.rules.idempotency import expiry_table
from semel.surfaces.jobs.tables import ALONE, JOB, JOB_TENANT, JOB_TOTALS, JobExpiryRow

FREED_AT_ONCE = 16
"""The number of expired keys that a submission deletes when the store of keys is full."""

COMING = 1_000
"""The number of further records that the same batch may add; used to decide whether to load expired ones."""


def expiring(most: int, *, is_generated: bool) -> Range:
    """The keys of a kind that expire first; keys of unfinished jobs do not expire."""
    return Range(expiry_table(is_generated=is_generated), "", (), most)


def freed_keys(rows: Sequence[JobExpiryRow], policy: JobPolicy, *, is_generated: bool) -> list[tuple[AnyTable, Key]]:
    """The rows that are read to delete these keys; an eviction also changes the job."""
    may_evict = is_generated or policy.evicts
    jobs: list[tuple[AnyTable, Key]] = [(JOB, (row.id,)) for row in rows] if may_evict else []
    table = expiry_table(is_generated=is_generated)
    return [*jobs, *(pair for row in rows for pair in expiry_keys(table, row))]


def is_nearly_full(view: View, command: SubmitJobs, policy: JobPolicy, *, is_generated: bool) -> bool:
    """Whether space for records of this kind may be needed, counting other submissions in the same batch."""
    keyed = [draft for draft in command.drafts if draft.key and policy.is_idempotent]
    coming = sum(draft.is_generated == is_generated for draft in keyed)
    if is_generated:
        everyone = view.get(JOB_TENANT, ALONE) if coming else None
        held, most = everyone.generated if everyone else 0, policy.max_generated
    else:
        totals = view.get(JOB_TOTALS, ALONE)
        held, most = totals.records if totals else 0, policy.max_records
    return bool(coming and most) and held + coming + COMING > most


def make_room(
    counters: JobCounters, principal: bytes, notes: list[JobNote], *, is_generated: bool
) -> JobRefused | None:
    """Make room for one more record: expired ones are deleted first, then the full policy decides."""
    full = _reached_limit(counters, principal, is_generated)
    if full is None:
        return None
    view, now_ms = counters.view, counters.now.expiry_ms
    rows = view.range(expiring(FREED_AT_ONCE, is_generated=is_generated))
    demand(view, freed_keys(rows, counters.policy, is_generated=is_generated))
    for row in rows:
        if row.expires_at <= now_ms:
            counters.drop_key(expiry_table(is_generated=is_generated), row)
    full = _reached_limit(counters, principal, is_generated)
    if full is None:
        return None
    left = [row for row in rows if now_ms < row.expires_at]
    if full.may_evict and left:
        _evict(counters, left[0], is_generated)
        notes.append(JobNote("IDEMPOTENCY_EVICT", {"job_id": job_name(left[0].id), "reason": "full"}))
        return None
    soonest = left[0].expires_at - now_ms if left else 60_000
    message = "The store of idempotency keys is full. Nothing was stored; send the same request again later."
    wait_ms = min(60_000, max(1_000, soonest))
    facts = {"size": full.held, "max": full.most}
    refusal = Refusal("jobs:idempotency_store_full", message, facts, retry_after_ms=wait_ms)
    return JobRefused(refusal, (JobNote("IDEMPOTENCY_STORE_FULL", facts),))


class _KeyLimit(NamedTuple):
    """A limit that was reached: the number of keys, the limit, and whether a key of an ended job may be evicted."""

    held: int
    most: int
    may_evict: bool


def _reached_limit(counters: JobCounters, principal: bytes, is_generated: bool) -> _KeyLimit | None:
    """The limit that allows no further key of this kind; None if there is room."""
    policy, mine = counters.policy, counters.keys_of(principal).records
    limits = [
        _KeyLimit(mine, policy.max_records_each, may_evict=False),
        _KeyLimit(counters.totals.records, policy.max_records, policy.evicts),
    ]
    if is_generated:
        limits = [_KeyLimit(counters.keys_of(*ALONE).generated, policy.max_generated, may_evict=True)]
    return next((limit for limit in limits if limit.most and limit.held >= limit.most), None)


def _evict(counters: JobCounters, row: JobExpiryRow, is_generated: bool) -> None:
    """Delete the record of a key that has not expired; its job must not take the key for its own again."""
    job = counters.view.get(JOB, (row.id,))
    if job is not None:
        counters.view.put(JOB, job._replace(key_until=0))
    counters.drop_key(expiry_table(is_generated=is_generated), row)
