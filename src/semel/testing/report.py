"""The report of a test: the schedule, the place, the number of effects, and how to reproduce a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_TEXT = 2_000
"""Maximum characters of an answer or error in a report."""


@dataclass(frozen=True)
class CallOutcome:
    """How one call ended, as its caller sees it."""

    kind: str
    """`answer`, `unknown` (the outcome is unknown), `again` (asks for a retry), `error` or `cut off`."""
    value: Any = None
    """The value of an answer that is compared."""
    text: str = ""

    def __str__(self) -> str:
        return self.text[:MAX_TEXT]


@dataclass(frozen=True)
class ScheduleRun:
    """One run of a schedule: calls with one key, and the number of their effects."""

    schedule: str
    number: int
    """Number of the run; `at=` repeats it."""
    story: str
    """How and where the call was interrupted."""
    outcomes: Sequence[tuple[str, CallOutcome]]
    """The name and outcome of each call that ended."""
    effects: int
    is_cut: bool = False
    """Whether a call was cut off, so that `unknown` is a valid outcome."""

    def fault(self) -> str | None:
        """The fault of the run, or None."""
        for name, outcome in self.outcomes:
            if outcome.kind == "error":
                return f"{name} failed"
            if outcome.kind == "again":
                return f"{name} was refused until the test gave up"
            if outcome.kind == "unknown" and not self.is_cut:
                return f"{name} does not know its outcome, although no call was cut off"
        is_unknown = any(outcome.kind == "unknown" for _, outcome in self.outcomes)
        if self.effects != 1 and not (is_unknown and self.effects == 0):
            return f"{self.effects} effects instead of 1"
        answers = [outcome.value for _, outcome in self.outcomes if outcome.kind == "answer"]
        return "the answers differ" if any(one != answers[0] for one in answers[1:]) else None

    def told(self, fault: str, name: str) -> str:
        """The report of this run."""
        lines = [f"{self.schedule}, run {self.number}: {fault}.", f"  {self.story}", f"  effects: {self.effects}"]
        lines += [f"  {who}: {_indented(str(outcome))}" for who, outcome in self.outcomes]
        again = f"assert_idempotent({name}, ..., schedules=[{self.schedule!r}], at={self.number})"
        return "\n".join([*lines, f"  reproduce: {again}"])


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


@dataclass
class IdempotencyReport:
    """What `assert_idempotent` did if it found no fault."""

    runs: dict[str, int] = field(default_factory=dict)
    """Number of runs by schedule."""
    places: dict[str, list[str]] = field(default_factory=dict)
    """Places where the call was interrupted, by schedule."""

    def add(self, run: ScheduleRun) -> None:
        """Count a run."""
        self.runs[run.schedule] = self.runs.get(run.schedule, 0) + 1
        self.places.setdefault(run.schedule, []).append(run.story)


class NotIdempotentError(AssertionError):
    """The effect did not happen exactly once, or the answers differ."""

    def __init__(self, name: str, faults: Sequence[tuple[ScheduleRun, str]], schedules: int) -> None:
        head = f"{name} is not idempotent: {len(faults)} of {schedules} schedules found a fault."
        super().__init__("\n\n".join([head, *(run.told(fault, name) for run, fault in faults)]))
        self.runs = [run for run, _ in faults]
        """The first faulty run of each schedule."""
