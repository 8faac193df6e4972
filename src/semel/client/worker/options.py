"""The options of a job function: where its jobs wait, how often and how long they run, and the pause between runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from semel.client.errors import ConfigurationError
from semel.client.jobs.values import Debounce, Unique

Backoff = float | Sequence[float] | Callable[[int], float]
"""Seconds between a failed run and the next: always the same, one value a run (the last one repeats), or a function of
the number of the failed run, from 1."""
Priority = int | Literal["critical", "high", "normal", "low"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of a job function. None leaves a value to the queue or to the server."""

    queue: str | None = None
    priority: Priority | None = None
    attempts: int | None = None
    lease: int | None = None
    """Seconds that a worker may send no heartbeat before another one gets the job."""
    timeout: float | None = None
    """Time limit of one run, in seconds."""
    backoff: Backoff | None = None
    """The pause after a failed run; None means the server's exponential backoff."""
    process: bool = False
    """Whether it runs in a process of its own instead of a thread."""
    key: str | None = None
    """The idempotency key of a submission."""
    delay: float | None = None
    """Seconds before it may run."""
    run_at: datetime | None = None
    on_failed: Literal["return", "retry"] | None = None
    unique: Unique | None = None
    debounce: Debounce | None = None
    on_member_failure: Literal["wait", "cancel"] = "wait"
    """Whether the first member of its group that fails cancels the others."""

    def pause(self, attempt: int) -> float | None:
        """Seconds until the next run after the failed run of this number; None means that the server decides."""
        if self.backoff is None:
            return None
        if callable(self.backoff):
            return self.backoff(attempt)
        if isinstance(self.backoff, Sequence):
            return self.backoff[min(attempt, len(self.backoff)) - 1]
        return self.backoff

    def check(self) -> None:
        """Refuse options that no run could use."""
        if isinstance(self.backoff, Sequence) and not self.backoff:
            raise ConfigurationError("backoff must have at least one pause in seconds.")
        if self.timeout is not None and self.timeout < 0:
            raise ConfigurationError("timeout must not be negative: 0 means no limit.")
