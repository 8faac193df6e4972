"""Counts and audit log lines of job decisions, written after the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from semel.contracts.jobs.commands import Note
from semel.contracts.jobs.rules.ends import FINISHED
from semel.server.audit import AuditLog
from semel.server.meter import Meter


class Pace(Enum):
    """When an audit log line is written."""

    FIRST = "before the answer leaves"
    SOON = "within a second"
    RARELY = "the first at once, then one in ten seconds"


class Entry(NamedTuple):
    """The count and the audit log event of one kind of note."""

    pace: Pace = Pace.SOON
    counted_as: str = ""
    has_address: bool = False
    has_path: bool = False
    is_paced: bool = False
    """Whether lines are paced by their remote address, though they do not contain it."""


ENTRIES: Mapping[str, Entry] = {
    "IDEMPOTENCY_HIT": Entry(is_paced=True),
    "IDEMPOTENCY_KEY_COLLISION": Entry(Pace.FIRST, "idempotent_collisions", has_address=True),
    "LEASE_FENCED": Entry(Pace.FIRST, "lease_fenced", has_address=True),
    "RESULT_CONFLICT": Entry(Pace.FIRST, has_address=True),
    "RESULT_INTEGRITY_FAIL": Entry(Pace.FIRST, has_address=True),
    "LEASE_REAP": Entry(counted_as="reaped_leases"),
    "JOB_TIMEOUT": Entry(counted_as="timeouts"),
    "OFFER_LAPSED": Entry(counted_as="offers_lapsed"),
    "RETRY_SCHEDULED": Entry(counted_as="retry_scheduled"),
    "RETRY_EXHAUSTED": Entry(),
    "DLQ_ENQUEUE": Entry(),
    "DLQ_EVICT": Entry(),
    "JOB_REVIVED": Entry(),
    "JOB_CANCELLED": Entry(),
    "SCHEDULE_SKIPPED": Entry(),
    "IDEMPOTENCY_EVICT": Entry(counted_as="idempotency_evicted"),
    "IDEMPOTENCY_KEY_RELEASED": Entry(),
    "BACKPRESSURE_DROP": Entry(Pace.RARELY, "queue_drop", has_address=True, has_path=True),
    "INFLIGHT_SATURATED": Entry(Pace.RARELY, "inflight_saturated"),
    "IDEMPOTENCY_STORE_FULL": Entry(Pace.RARELY, "idempotency_store_full"),
}


class Journal:
    """Counts notes and writes them to the audit log."""

    def __init__(self, audit: AuditLog, meter: Meter) -> None:
        self._audit = audit
        self._meter = meter

    async def keep(self, notes: Iterable[Note], where: Callable[[], Mapping[str, str]] = dict) -> None:
        """Count and write; returns when what must be in the file before the answer is in it."""
        is_awaited = False
        for note in notes:
            if note.event == FINISHED:
                self._meter.add(note.details["status"])
                continue
            entry = ENTRIES[note.event]
            if entry.counted_as:
                self._meter.add(entry.counted_as)
            details = _with_origin(note.details, entry, where)
            if entry.pace is Pace.RARELY:
                self._audit.note_rarely(note.event, details)
            else:
                self._audit.note(note.event, details, where().get("remote_addr", "") if entry.is_paced else "")
            is_awaited = is_awaited or entry.pace is Pace.FIRST
        if is_awaited:
            await self._audit.written()

    def count(self, name: str, number: int = 1) -> None:
        """Something that is counted and leaves no line."""
        self._meter.add(name, number)


def _with_origin(details: Mapping[str, Any], entry: Entry, where: Callable[[], Mapping[str, str]]) -> Mapping[str, Any]:
    if not entry.has_address and not entry.has_path:
        return details
    origin, added = where(), {}
    if entry.has_address:
        added["remote_addr"] = origin.get("remote_addr", "")
    if entry.has_path:
        added["path"] = origin.get("path", "")
    return {**details, **added}
