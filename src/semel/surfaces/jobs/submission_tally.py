"""Counts and audit log lines of plain submissions, once for all answers of one pass of the event loop.

The answers of a batch leave in one pass, most of them to clients behind one address. A count has four steps and a line
of the audit log ten; for one submission that takes as long as its decision. A crash loses what it loses anyway: counts
begin at 0, and lines of retries wait in memory for up to half a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from semel.surfaces.jobs.audit_trail import JobAuditTrail
from semel.surfaces.jobs.commands import JobNote


class SubmissionTally:
    """Collects the outcomes of one pass. Used on the event loop only."""

    def __init__(self, audit_trail: JobAuditTrail) -> None:
        self._audit_trail = audit_trail
        self._accepted = 0
        self._hits: dict[str, list[Mapping[str, Any]]] = {}
        """The details of retries, by the address that caused them."""
        self._is_due = False

    def accept(self) -> None:
        """Count a new job."""
        self._accepted += 1
        if not self._is_due:
            self._schedule()

    def hit(self, note: JobNote, address: str) -> None:
        """Count and note a retry whose job has not ended."""
        self._hits.setdefault(address, []).append(note.details)
        if not self._is_due:
            self._schedule()

    def _schedule(self) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_soon(self._pass_on)

    def _pass_on(self) -> None:
        """Pass everything on to the meter and the audit log."""
        self._is_due = False
        accepted, hits = self._accepted, self._hits
        self._accepted, self._hits = 0, {}
        if accepted:
            self._audit_trail.count("accepted", accepted)
        for address, details in hits.items():
            self._audit_trail.count("idempotent_in_progress", len(details))
            self._audit_trail.note_hits(details, address)
