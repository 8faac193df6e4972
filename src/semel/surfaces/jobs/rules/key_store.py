"""The store of idempotency keys: room for one more record, and what goes when there is none."""

from __future__ import annotations

from collections.abc import Sequence

from semel.engine.contract import View, demand
from semel.kernel.errors import Refusal
from semel.store.protocol import AnyTable, Range
from semel.store.table import Key
from semel.surfaces.jobs.commands import JobNote, JobRefused, SubmitJobs
from semel.surfaces.jobs.ids import job_name
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.rules.counters import JobCounters, expiry_keys
from semel.surfaces.jobs.tables import ALONE, JOB, JOB_EXPIRY, JOB_TOTALS, JobExpiryRow

FREED_AT_ONCE = 16
"""The number of expired keys that a submission deletes when the store of keys is full."""

COMING = 1_000
"""The number of further records that the same batch may add; used to decide whether to load expired ones."""


def expiring(most: int) -> Range:
    """The keys that expire first; keys of unfinished jobs do not expire."""
    return Range(JOB_EXPIRY, "", (), most)


def freed_keys(rows: Sequence[JobExpiryRow], policy: JobPolicy) -> list[tuple[AnyTable, Key]]:
    """The rows that are read to delete these keys; an eviction also changes the job."""
    jobs: list[tuple[AnyTable, Key]] = [(JOB, (row.id,)) for row in rows] if policy.evicts else []
    return [*jobs, *(pair for row in rows for pair in expiry_keys(row))]


def is_nearly_full(view: View, command: SubmitJobs, policy: JobPolicy) -> bool:
    """Whether space for records may be needed, counting other submissions in the same batch."""
    totals = view.get(JOB_TOTALS, ALONE)
    coming = len(command.drafts) + COMING
    return bool(policy.max_records) and (totals.records if totals else 0) + coming > policy.max_records


def make_room(counters: JobCounters, principal: bytes, notes: list[JobNote]) -> JobRefused | None:
    """Make room for one more record: expired ones are deleted first, then the full policy decides."""
    policy = counters.policy
    if _has_room(counters, principal):
        return None
    view, now_ms = counters.view, counters.now.expiry_ms
    rows = view.range(expiring(FREED_AT_ONCE))
    demand(view, freed_keys(rows, policy))
    for row in rows:
        if row.expires_at <= now_ms:
            counters.drop_key(row)
    if _has_room(counters, principal):
        return None
    left = [row for row in rows if now_ms < row.expires_at]
    if policy.evicts and left and not _is_tenant_full(counters, principal):
        _evict(counters, left[0])
        notes.append(JobNote("IDEMPOTENCY_EVICT", {"job_id": job_name(left[0].id), "reason": "full"}))
        return None
    facts = {"size": counters.totals.records, "max": policy.max_records}
    if _is_tenant_full(counters, principal):
        facts = {"size": counters.records_of(principal), "max": policy.max_records_each}
    soonest = left[0].expires_at - now_ms if left else 60_000
    message = "The store of idempotency keys is full. Nothing was stored; send the same request again later."
    wait_ms = min(60_000, max(1_000, soonest))
    refusal = Refusal("jobs:idempotency_store_full", message, facts, retry_after_ms=wait_ms)
    return JobRefused(refusal, (JobNote("IDEMPOTENCY_STORE_FULL", facts),))


def _has_room(counters: JobCounters, principal: bytes) -> bool:
    most = counters.policy.max_records
    return not (most and counters.totals.records >= most) and not _is_tenant_full(counters, principal)


def _is_tenant_full(counters: JobCounters, principal: bytes) -> bool:
    each = counters.policy.max_records_each
    return bool(each) and counters.records_of(principal) >= each


def _evict(counters: JobCounters, row: JobExpiryRow) -> None:
    """Delete the record of a key that has not expired; its job must not take the key for its own again."""
    job = counters.view.get(JOB, (row.id,))
    if job is not None:
        counters.view.put(JOB, job._replace(key_until=0))
    counters.drop_key(row)
