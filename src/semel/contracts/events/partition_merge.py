"""Merge of partition indexes: the first positions in any of several partitions, in order.

Each partition has places of its own. Reading a page of each would cost a page for every partition, so they are read in
rounds, all at once, each up to a common target:

1. Positions are given one by one, so as many positions as the page has events hold at most a page: all of that window
   is read. Where most of the log is asked for, this is all.
2. Then as many places as are still missing, each partition its share by how dense it was so far. A round ends where
   the first of them was cut short: up to there all places are known.
3. Once there are enough, nothing behind the last of them can belong to the page, so only what lies before it is read.

The shares are a guess, and a wrong one costs another round and never an answer; after a few rounds nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from semel.contracts.events.tables import EVENT_PLACE
from semel.engine.reading import Reading
from semel.store.protocol import Range

MAX_GUESSES = 8
"""Rounds after which a partition is read as far as the page may need."""


@dataclass(slots=True)
class _Run:
    """One partition, and the position up to which it was read."""

    name: bytes
    known_to: int
    """All its places up to here are known."""
    found: int = 0

    def density(self, since: int) -> float:
        """About how many of the positions are its own; never nothing, because it may begin late."""
        return (self.found + 1) / (self.known_to - since + 1)


def first_places(reading: Reading, names: Iterable[str], since: int, to: int, limit: int) -> list[int]:
    """The first positions after `since` and up to `to` in any of the partitions, each once, ascending."""
    runs = [_Run(name.encode(), since) for name in names]
    found: set[int] = set()
    target = to if len(runs) == 1 else min(to, since + limit)
    guesses, missing = 0, limit
    while True:
        behind = [run for run in runs if run.known_to < target]
        shares = [limit] * len(behind)
        if 0 < guesses <= MAX_GUESSES:
            # The first guess knows little, so it is a cautious one.
            shares = _shares(behind, since, target, missing // 2 if guesses == 1 else missing)
        _read(reading, behind, target, shares, found)
        places = sorted(found)
        known_to = min((run.known_to for run in runs), default=to)
        complete = bisect_right(places, known_to)
        if complete >= limit or known_to >= to:
            return places[: min(limit, complete)]
        target = places[limit - 1] if len(places) >= limit else to
        guesses, missing = guesses + 1, limit - complete


def _shares(behind: Sequence[_Run], since: int, target: int, missing: int) -> list[int]:
    """How many places to read of each: together about as many as are missing."""
    expected = [run.density(since) * (target - run.known_to) for run in behind]
    total = sum(expected)
    return [1 + int(missing * one / total) for one in expected]


def _read(reading: Reading, behind: Sequence[_Run], target: int, shares: Sequence[int], found: set[int]) -> None:
    wanted = [
        Range(EVENT_PLACE, "", (run.name,), share, start=(run.known_to + 1,), stop=(target + 1,))
        for run, share in zip(behind, shares, strict=True)
    ]
    for run, share, keys in zip(behind, shares, reading.keys_each(wanted), strict=True):
        found.update(key[1] for key in keys)
        run.found += len(keys)
        run.known_to = keys[-1][1] if len(keys) == share else target
