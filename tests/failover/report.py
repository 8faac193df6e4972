"""What a run of failovers prints in the end."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from tests.failover.run import Outcome

SHOWN = 10


def lines(outcome: Outcome[Any], order: Sequence[Any]) -> Iterator[str]:
    """The verdict, the pauses of each kind of failover, and the first of each list that must be empty."""
    yield f"{len(outcome.pauses)} rounds; {outcome.verdict}"
    yield from _pauses("all", [seconds for _, seconds in outcome.pauses])
    for what in dict.fromkeys(order):
        yield from _pauses(str(what), [seconds for one, seconds in outcome.pauses if one == what])
    for kind in ("lost", "doubled", "differing", "stale"):
        for name in getattr(outcome.verdict, kind)[:SHOWN]:
            yield f"  {kind}: {name}"


def _pauses(what: str, seconds: Sequence[float]) -> Iterator[str]:
    if seconds:
        told = f"median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s"
        yield f"nothing acknowledged, {what} ({len(seconds)}): {told}"
