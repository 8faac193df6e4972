"""Group commit: the writes that go into a batch, what became of each, and the report to observers.

Many writes share one transaction and one sync. `lane` gathers them, `batch` decides and commits them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

from semel.engine.contract import DecisionResult, EngineError, Order, Write
from semel.store.protocol import Lock


class Commit(Enum):
    """The outcome of a batch."""

    DURABLE = "durable"
    SOFT = "soft"
    NOTHING = "nothing"
    """Every write of it was a hit or a refusal: no sync."""
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"


class BatchReport(NamedTuple):
    """The figures of one batch."""

    commit: Commit
    writes: int
    faults: int
    reruns: int
    deferred: int
    dropped: int
    seconds: float


class Observer(Protocol):
    """Receives engine events. Called from the writing threads; must be quick and must not raise."""

    def batch(self, report: BatchReport) -> None:
        """A batch has ended."""

    def fault(self, error_id: str, error: BaseException) -> None:
        """A decision raised; its write alone was rolled back."""

    def store_failure(self, error: BaseException) -> None:
        """The store failed under a batch."""

    def clock_jump(self, ahead_ms: int) -> None:
        """The wall clock jumped; expiry waits."""


class SilentObserver:
    """Ignores all events."""

    def batch(self, report: BatchReport) -> None:
        """Ignored."""

    def fault(self, error_id: str, error: BaseException) -> None:
        """Ignored."""

    def store_failure(self, error: BaseException) -> None:
        """Ignored."""

    def clock_jump(self, ahead_ms: int) -> None:
        """Ignored."""


class QueuedWrite:
    """A write on its way through the engine, with the data that its sender needs to recognise it."""

    __slots__ = ("deferrals", "locks", "order", "sender", "write")

    def __init__(self, write: Write, sender: Any = None) -> None:
        self.write = write
        self.sender = sender
        self.locks: Sequence[Lock] = write.contract.locks(write.command)
        self.order: Order | None = write.contract.order(write.command)
        self.deferrals = 0

    def part(self, command: Any) -> QueuedWrite:
        """A part of it, under the same locks."""
        part = QueuedWrite(self.write._replace(command=command))
        part.locks, part.deferrals = self.locks, self.deferrals
        return part


@dataclass(slots=True)
class BatchResult:
    """The outcome of each write; those in neither list go to the next batch."""

    commit: Commit
    decided: list[tuple[QueuedWrite, DecisionResult]] = field(default_factory=list)
    failed: list[tuple[QueuedWrite, EngineError]] = field(default_factory=list)
    deferred: list[QueuedWrite] = field(default_factory=list)
    reruns: int = 0
