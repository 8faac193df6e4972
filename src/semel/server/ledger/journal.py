"""Counts and audit log lines of ledger calls.

A key that is used for something else than before is a client fault that an operator must see: its line is in the
file before the answer leaves. Gaps are told rarely. Of a key a line has only the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from semel.contracts.ledger.commands import Code, Declined, Refusal, Replayed, WriteCommand, Written
from semel.kernel.prefixes import key_prefix
from semel.server.audit import AuditLog
from semel.surfaces.ledger.metrics import LedgerMetrics

COLLISION, GAP = "LEDGER_KEY_COLLISION", "LEDGER_SEQUENCE_GAP"


class Journal:
    """Counts calls and writes audit log lines for one process."""

    def __init__(self, audit: AuditLog, metrics: LedgerMetrics) -> None:
        self._audit = audit
        self.metrics = metrics
        self.watchers = 0
        metrics.watchers = lambda: self.watchers

    async def judged(
        self, command: WriteCommand, answer: Written | Replayed | Declined, where: Mapping[str, str]
    ) -> None:
        """A write was decided."""
        counts = self.metrics.counts
        if isinstance(answer, Written):
            counts["committed"] += 1
            counts["operations"] += len(command.write.operations)
        elif isinstance(answer, Replayed):
            counts["replayed"] += 1
        else:
            counts["declined"] += 1
            self.metrics.declined[answer.code.name] += 1
            await self._declined(command, answer, where)

    async def _declined(self, command: WriteCommand, answer: Declined, where: Mapping[str, str]) -> None:
        if answer.code is Code.IDEMPOTENCY_KEY_REUSED:
            self._audit.note(COLLISION, _facts(command, answer, where))
            await self._audit.written()
        elif answer.code is Code.SEQUENCE_GAP:
            self._audit.note_rarely(GAP, _facts(command, answer, where))

    def refused(self, refusal: Refusal) -> None:
        """A call was refused before any rule."""
        self.metrics.refused[refusal.code] += 1

    def no_access(self, where: Mapping[str, str]) -> None:
        """An authenticated caller was refused for lack of rights."""
        self._audit.note("AUTH_FAILURE", {"reason": "missing_role", **where})

    def cut_off(self) -> None:
        """A watcher did not read."""
        self.metrics.counts["slow_watchers"] += 1


def _facts(command: WriteCommand, answer: Declined, where: Mapping[str, str]) -> Mapping[str, object]:
    return {
        "organization": str(command.write.place.org),
        "vault": str(command.write.place.vault),
        "client_id": command.write.client.decode(),
        "sequence": command.write.sequence,
        "key_prefix": key_prefix(str(UUID(bytes=command.write.key))) if command.write.key else "",
        "rule": answer.row,
        "remote_addr": where.get("remote_addr", ""),
    }
