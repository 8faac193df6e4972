"""Counts and audit log lines of deltas calls."""

from __future__ import annotations

from collections.abc import Mapping

from semel.contracts.deltas.commands import Pushed
from semel.contracts.deltas.refusals import Refusal
from semel.server.audit import AuditLog
from semel.surfaces.deltas.metrics import DeltasMetrics


class Journal:
    """Counts calls and writes audit log lines for one process."""

    def __init__(self, audit: AuditLog, metrics: DeltasMetrics) -> None:
        self._audit = audit
        self.metrics = metrics
        self.sockets = 0
        """Open WebSockets."""
        metrics.sockets = lambda: self.sockets

    def pushed(self, answer: Pushed) -> None:
        """A push is on disk."""
        self.metrics.counts["new"] += answer.accepted - answer.duplicates
        self.metrics.counts["duplicate"] += answer.duplicates

    def given(self, entries: int) -> None:
        """Entries leave for a client."""
        self.metrics.counts["given"] += entries

    def refused(self, refusal: Refusal) -> None:
        """A call was refused."""
        self.metrics.refused[refusal.code] += 1

    def no_access(self, where: Mapping[str, str]) -> None:
        """An authenticated caller was refused for lack of rights."""
        self._audit.note("AUTH_FAILURE", {"reason": "missing_role", **where})
