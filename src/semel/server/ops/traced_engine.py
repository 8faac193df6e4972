"""The engine of a traced server: a span for each write of a traced call, from its admission until it is on disk.

Writes of other calls, chores and follow-ups have none. Whatever the engine schedules runs outside of the call that
admitted the write, so that the next batch is not taken for a part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from semel.engine.caller import WaitingCaller
from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine
from semel.engine.group_commit import BatchResult
from semel.engine.plain_write import PlainWrite
from semel.kernel.verdict import Verdict
from semel.server.ops.traces import CURRENT, CommitSpan, ServerTracing

VerdictOf = Callable[[Any], Verdict | None]


@contextmanager
def outside_of_calls() -> Iterator[None]:
    """What is scheduled in the block belongs to no call."""
    token = CURRENT.set(None)
    try:
        yield
    finally:
        CURRENT.reset(token)


class TracedEngine(Engine):
    """An engine with spans. Spans are kept by the write, and by the caller of a plain write."""

    tracing: ServerTracing
    verdicts: Mapping[str, VerdictOf]
    """By the name of the contract."""

    def trace(self, tracing: ServerTracing, verdicts: Mapping[str, VerdictOf]) -> None:
        """Begin to trace; called once, before the first write."""
        self.tracing = tracing
        self.verdicts = verdicts
        self._spans: dict[int, tuple[CommitSpan, object]] = {}
        """By the identity of the write, which is kept so that its identity is not given away."""
        self.batch_size = 0
        """The number of writes in the batch that is being answered."""
        self.batch_commit = ""

    def admit(self, write: Write, caller: WaitingCaller | None = None) -> asyncio.Future[Any]:
        """As `Engine.admit`."""
        span = self.tracing.begin_commit()
        if span is None:
            with outside_of_calls():
                return super().admit(write, caller)
        self._spans[id(write)] = span, write
        try:
            with outside_of_calls():
                return super().admit(write, caller)
        except EngineError as error:
            self._fail(id(write), error)
            raise

    def admit_plain(self, write: PlainWrite) -> None:
        """As `Engine.admit_plain`."""
        self._keep(write)
        try:
            with outside_of_calls():
                super().admit_plain(write)
        except EngineError as error:
            self._fail(id(write), error)
            raise

    def offer_plain(self, write: PlainWrite) -> bool:
        """As `Engine.offer_plain`."""
        self._keep(write)
        with outside_of_calls():
            is_taken = super().offer_plain(write)
        kept = None if is_taken else self._spans.pop(id(write), None)
        if kept is not None:
            kept[0].drop()
        return is_taken

    def _keep(self, write: PlainWrite) -> None:
        span = self.tracing.begin_commit()
        if span is not None:
            self._spans[id(write)] = span, write

    def _fail(self, name: int, error: BaseException) -> None:
        kept = self._spans.pop(name, None)
        if kept is not None:
            kept[0].end(self.tracing, 0, "", "", error)

    def _resolve(self, result: BatchResult) -> None:
        self.batch_size = len(result.plain) + len(result.decided) + len(result.failed)
        self.batch_commit = result.commit.value
        if self._spans:
            for write, answer in result.plain:
                self._end(id(write), write.contract.name, answer)
            for submission, outcome in result.decided:
                self._end(id(submission.write), submission.write.contract.name, outcome.answer)
                self._end(id(submission.sender), submission.write.contract.name, outcome.answer)
            for submission, error in result.failed:
                self._fail(id(submission.write), error)
                self._fail(id(submission.sender), error)
        super()._resolve(result)

    def _end(self, name: int, contract: str, answer: Any) -> None:
        kept = self._spans.pop(name, None)
        if kept is not None:
            self.end_commit(kept[0], contract, answer)

    def end_commit(self, span: CommitSpan, contract: str, answer: Any) -> None:
        """End the span of a write of the batch that is being answered."""
        verdict_of = self.verdicts.get(contract)
        verdict = None if verdict_of is None else verdict_of(answer)
        span.end(self.tracing, self.batch_size, self.batch_commit, verdict.value if verdict else "", None)
