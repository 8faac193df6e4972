"""A failing history made short: steps are left out for as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tests.deltas.model.simulation import Verdict

MOST_RUNS = 400


class History(Protocol):
    """Something that is run step by step."""

    numbers: list[int]

    def run(self) -> Verdict:
        """From the beginning to the end."""


class Maker(Protocol):
    """Makes a history anew, with some of its steps."""

    def __call__(self, *, only: Sequence[int] | None = None) -> History:
        """All of them, unless told otherwise."""


def shrunk(make: Maker) -> str:
    """What happens in a failing history that was made short, and what is wrong with it."""
    kept = shrink(make().numbers, lambda some: bool(make(only=some).run().faults))
    verdict = make(only=kept).run()
    return "\n".join([f"steps {kept}", *verdict.trace, *verdict.faults])


def shrink(steps: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """As few of the steps as can be found with which it fails: halves are left out, then quarters, then single ones."""
    kept = list(steps)
    size, runs = max(1, len(kept) // 2), 0
    while runs < MOST_RUNS:
        has_shrunk = False
        start = 0
        while start < len(kept) and runs < MOST_RUNS:
            without = kept[:start] + kept[start + size :]
            runs += 1
            if fails(without):
                kept, has_shrunk = without, True
            else:
                start += size
        if size == 1 and not has_shrunk:
            break
        size = max(1, size // 2)
    return kept
