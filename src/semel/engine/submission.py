"""A submitted write on its way through the engine, and the outcome of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from semel.engine.contract import EngineError, Order, Outcome, Write
from semel.engine.observer import Commit
from semel.store.protocol import Lock


class Submission:
    """A write on its way through the engine, with the data that its sender needs to recognise it."""

    __slots__ = ("deferrals", "locks", "order", "sender", "write")

    def __init__(self, write: Write, sender: Any = None) -> None:
        self.write = write
        self.sender = sender
        self.locks: Sequence[Lock] = write.contract.locks(write.command)
        self.order: Order | None = write.contract.order(write.command)
        self.deferrals = 0

    def part(self, command: Any) -> Submission:
        """A part of it, under the same locks."""
        part = Submission(self.write._replace(command=command))
        part.locks, part.deferrals = self.locks, self.deferrals
        return part


@dataclass(slots=True)
class BatchResult:
    """The outcome of each write; those in neither list go to the next batch."""

    commit: Commit
    decided: list[tuple[Submission, Outcome]] = field(default_factory=list)
    failed: list[tuple[Submission, EngineError]] = field(default_factory=list)
    deferred: list[Submission] = field(default_factory=list)
    reruns: int = 0
