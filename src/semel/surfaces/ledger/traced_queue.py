"""The write queue of a traced server: a span for each transaction, because those of several calls share a group."""

from __future__ import annotations

from typing import Any

from semel.engine.caller import RequestOrigin
from semel.server.ops.traced_engine import TracedEngine, outside_of_calls
from semel.server.ops.traces import CommitSpan
from semel.surfaces.ledger.commands import WriteCommand
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.write_queue import Verdicts, WriteQueue


class TracedWriteQueue(WriteQueue):
    """A queue with spans: from the arrival of a transaction in the queue until it is on disk."""

    def __init__(self, engine: TracedEngine, ledger: LedgerContract) -> None:
        super().__init__(engine, ledger)
        self._traced = engine

    def add(
        self,
        command: WriteCommand,
        principal: str,
        verdicts: Verdicts,
        number: int = 0,
        origin: RequestOrigin | None = None,
    ) -> None:
        """As `WriteQueue.add`."""
        span = self._traced.tracing.begin_commit()
        if span is not None:
            verdicts = _TracedVerdict(self._traced, self.ledger.name, span, verdicts)
        with outside_of_calls():  # the group that is scheduled here may have transactions of other calls
            super().add(command, principal, verdicts, number, origin)


class _TracedVerdict:
    """Ends the span of a transaction, and passes its verdict on."""

    def __init__(self, engine: TracedEngine, contract: str, span: CommitSpan, verdicts: Verdicts) -> None:
        self._engine = engine
        self._contract = contract
        self._span = span
        self._verdicts = verdicts

    def settle(self, number: int, answer: Any) -> None:
        """The transaction was decided, and its commit is on disk."""
        self._engine.end_commit(self._span, self._contract, answer)
        self._verdicts.settle(number, answer)

    def fail(self, number: int, error: BaseException) -> None:
        """The transaction was not stored, or its outcome is unknown."""
        self._span.end(self._engine.tracing, self._engine.batch_size, "", "", error)
        self._verdicts.fail(number, error)
