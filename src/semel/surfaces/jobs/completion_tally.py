"""Counts of plain completions, once for all answers of one pass of the event loop.

The answers of a batch leave in one pass, and a count takes four steps. A crash loses what it loses anyway: counts begin
at 0.
"""

from __future__ import annotations

import asyncio

from semel.surfaces.jobs.audit_trail import JobAuditTrail


class CompletionTally:
    """Collects the completions of one pass. Used on the event loop only."""

    def __init__(self, audit_trail: JobAuditTrail) -> None:
        self._audit_trail = audit_trail
        self._completed = 0

    def complete(self) -> None:
        """Count a completion without a checksum."""
        if not self._completed:
            asyncio.get_running_loop().call_soon(self._pass_on)
        self._completed += 1

    def _pass_on(self) -> None:
        """Pass the counts on to the meter."""
        completed, self._completed = self._completed, 0
        self._audit_trail.count("completed", completed)
        self._audit_trail.count("integrity_missing", completed)
