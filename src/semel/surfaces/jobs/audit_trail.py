"""Audit trail of jobs: turns the notes of committed decisions into counts and audit log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from semel.server.ops.audit_log import AuditLog
from semel.server.ops.meter import Meter
from semel.surfaces.jobs.commands import JobNote
from semel.surfaces.jobs.rules.completion import FINISHED


class JobAuditPace(Enum):
    """When an audit log line is written."""

    FIRST = "before the answer leaves"
    SOON = "within a second"
    RARELY = "the first at once, then one in ten seconds"


class JobAuditRule(NamedTuple):
    """The count and the audit log event of one kind of note."""

    pace: JobAuditPace = JobAuditPace.SOON
    counted_as: str = ""
    has_address: bool = False
    has_path: bool = False
    is_paced: bool = False
    """Whether the rate limit is that of the remote address, although the line does not contain the address."""


HIT = "IDEMPOTENCY_HIT"
ENTRIES: Mapping[str, JobAuditRule] = {
    HIT: JobAuditRule(is_paced=True),
    "IDEMPOTENCY_KEY_COLLISION": JobAuditRule(JobAuditPace.FIRST, "idempotent_collisions", has_address=True),
    "LEASE_FENCED": JobAuditRule(JobAuditPace.FIRST, "lease_fenced", has_address=True),
    "RESULT_CONFLICT": JobAuditRule(JobAuditPace.FIRST, has_address=True),
    "RESULT_INTEGRITY_FAIL": JobAuditRule(JobAuditPace.FIRST, has_address=True),
    "LEASE_REAP": JobAuditRule(counted_as="reaped_leases"),
    "JOB_TIMEOUT": JobAuditRule(counted_as="timeouts"),
    "OFFER_LAPSED": JobAuditRule(counted_as="offers_lapsed"),
    "RETRY_SCHEDULED": JobAuditRule(counted_as="retry_scheduled"),
    "RETRY_EXHAUSTED": JobAuditRule(),
    "DLQ_ENQUEUE": JobAuditRule(),
    "DLQ_EVICT": JobAuditRule(),
    "JOB_REVIVED": JobAuditRule(),
    "JOB_CANCELLED": JobAuditRule(),
    "SCHEDULE_SKIPPED": JobAuditRule(),
    "IDEMPOTENCY_EVICT": JobAuditRule(counted_as="idempotency_evicted"),
    "IDEMPOTENCY_KEY_RELEASED": JobAuditRule(),
    "BACKPRESSURE_DROP": JobAuditRule(JobAuditPace.RARELY, "queue_drop", has_address=True, has_path=True),
    "INFLIGHT_SATURATED": JobAuditRule(JobAuditPace.RARELY, "inflight_saturated"),
    "RATE_LIMITED": JobAuditRule(JobAuditPace.RARELY, "rate_limited"),
    "IDEMPOTENCY_STORE_FULL": JobAuditRule(JobAuditPace.RARELY, "idempotency_store_full"),
}


class JobAuditTrail:
    """Counts notes and writes them to the audit log."""

    def __init__(self, audit: AuditLog, meter: Meter) -> None:
        self._audit = audit
        self._meter = meter

    async def keep(self, notes: Iterable[JobNote], where: Callable[[], Mapping[str, str]] = dict) -> None:
        """Count and write notes; returns once the lines that must precede the answer are in the file."""
        if self.note(notes, where):
            await self._audit.written()

    def note(self, notes: Iterable[JobNote], where: Callable[[], Mapping[str, str]] = dict) -> bool:
        """Count and queue notes; returns whether one of them must be in the file before the answer leaves."""
        is_awaited = False
        for note in notes:
            if note.event == FINISHED:
                self._meter.add(note.details["status"])
                continue
            entry = ENTRIES[note.event]
            if entry.counted_as:
                self._meter.add(entry.counted_as)
            details = _with_origin(note.details, entry, where)
            if entry.pace is JobAuditPace.RARELY:
                self._audit.note_rarely(note.event, details)
            else:
                self._audit.note(note.event, details, where().get("remote_addr", "") if entry.is_paced else "")
            is_awaited = is_awaited or entry.pace is JobAuditPace.FIRST
        return is_awaited

    def note_hits(self, details: Sequence[Mapping[str, Any]], address: str) -> None:
        """Queue notes of retries that one address has caused; as `note` for each of them, in order."""
        self._audit.note_all(HIT, details, address)

    def count(self, name: str, number: int = 1) -> None:
        """Count without a line in the audit log."""
        self._meter.add(name, number)


def _with_origin(
    details: Mapping[str, Any], entry: JobAuditRule, where: Callable[[], Mapping[str, str]]
) -> Mapping[str, Any]:
    if not entry.has_address and not entry.has_path:
        return details
    origin, added = where(), {}
    if entry.has_address:
        added["remote_addr"] = origin.get("remote_addr", "")
    if entry.has_path:
        added["path"] = origin.get("path", "")
    return {**details, **added}
