"""Counts and audit log lines of deltas calls."""

from __future__ import annotations

from collections.abc import Mapping

from semel.contracts.deltas.commands import Pushed
from semel.contracts.deltas.refusals import Refusal
from semel.server.audit import AuditLog
from semel.server.metrics import Metrics


class Journal:
    """Counts calls and writes audit log lines for one process."""

    def __init__(self, audit: AuditLog, metrics: Metrics) -> None:
        self._audit = audit
        self._metrics = metrics
        self.sockets = 0
        """Open WebSockets."""
        metrics.deltas_sockets = lambda: self.sockets

    def pushed(self, answer: Pushed) -> None:
        """A push is on disk."""
        self._metrics.deltas_counts["new"] += answer.accepted - answer.duplicates
        self._metrics.deltas_counts["duplicate"] += answer.duplicates

    def given(self, entries: int) -> None:
        """Entries leave for a client."""
        self._metrics.deltas_counts["given"] += entries

    def refused(self, refusal: Refusal) -> None:
        """A call was refused."""
        self._metrics.deltas_refused[refusal.code] += 1

    def no_access(self, where: Mapping[str, str]) -> None:
        """An authenticated caller was refused for lack of rights."""
        self._audit.note("AUTH_FAILURE", {"reason": "missing_role", **where})
