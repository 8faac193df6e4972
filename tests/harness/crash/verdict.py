"""What a run is judged by: faults, of which there must be none, and what they were looked for in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

MOST_FAULTS = 50


class Verdict:
    """The faults, and how much of each thing there was."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()

    def blame(self, what: str) -> None:
        """Write a fault down, unless it is known."""
        if len(self.faults) < MOST_FAULTS and what not in self.faults:
            self.faults.append(what)

    def require(self, truth: bool, what: str) -> None:
        """A fault unless it is true."""
        if not truth:
            self.blame(what)

    def count(self, what: str, number: int = 1) -> None:
        """There was more of it; 0 so that it is told of."""
        self.counts[what] += number

    def require_shown(self, names: Iterable[str]) -> None:
        """A fault for each thing of which there was none: the run has shown nothing about it."""
        for name in names:
            self.require(self.counts[name] > 0, f"{name}: none, so the run has shown nothing about them")

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in self.counts.items())
        return f"{counts or 'nothing'}: {len(self.faults)} faults"
