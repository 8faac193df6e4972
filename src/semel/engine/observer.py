"""Engine events for metrics, logs and tests: the observer interface."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol


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
