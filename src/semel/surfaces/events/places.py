"""Positions of several partitions, merged: the first or the last ones between two positions, each once.

`first_places` reads about as many positions as it returns. Reading a page of each partition would cost a page for every
partition, so they are read in rounds, all at once, each up to a common target:

1. Positions are consecutive, so a window of as many positions as the page has events holds at most a page: the whole
   window is read. If most of the log is requested, this is enough.
2. Then as many positions as are still missing are read, each partition by its density so far. A round ends where the
   first partition was cut short: up to there all positions are known.
3. Once there are enough, no position after the last of them can belong to the page, so only positions before it are
   read.

The shares are estimates. A wrong estimate costs another round and never changes the result; after MAX_GUESSES rounds
nothing is estimated.

`last_places` is the same on the mirrored log: the position p between `since` and `to` counts as `since + to + 1 - p`,
so that the last position is the first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from semel.engine.reading import Reading
from semel.store.protocol import Range
from semel.surfaces.events.tables import EVENT_PLACE

MAX_GUESSES = 8
"""The number of rounds after which each partition is read as far as the page may need."""


@dataclass(slots=True)
class _PartitionScan:
    """One partition, and the position up to which it was read."""

    name: bytes
    known_to: int
    """All positions of the partition up to here are known."""
    found: int = 0

    def density(self, since: int) -> float:
        """The estimated fraction of positions that belong to the partition; never 0, because it may begin late."""
        return (self.found + 1) / (self.known_to - since + 1)


def first_places(reading: Reading, names: Iterable[str], since: int, to: int, limit: int) -> list[int]:
    """The first positions after `since` and up to `to` in any of the partitions, each once, ascending."""
    return _merged(reading, names, since, to, limit, None)


def last_places(reading: Reading, names: Iterable[str], since: int, to: int, limit: int) -> list[int]:
    """The last positions after `since` and up to `to` in any of the partitions, each once, descending."""
    mirror = since + to + 1
    return [mirror - place for place in _merged(reading, names, since, to, limit, mirror)]


def _merged(reading: Reading, names: Iterable[str], since: int, to: int, limit: int, mirror: int | None) -> list[int]:
    """The first positions, of the mirrored log if `mirror` is given: a position and its mirror image add up to it."""
    runs = [_PartitionScan(name.encode(), since) for name in names]
    found: set[int] = set()
    target = to if len(runs) == 1 else min(to, since + limit)
    guesses, missing = 0, limit
    while True:
        behind = [run for run in runs if run.known_to < target]
        shares = [limit] * len(behind)
        if 0 < guesses <= MAX_GUESSES:
            # The first estimate has little data, so it is a low one.
            shares = _place_shares(behind, since, target, missing // 2 if guesses == 1 else missing)
        _read_places(reading, behind, target, shares, found, mirror)
        places = sorted(found)
        known_to = min((run.known_to for run in runs), default=to)
        complete = bisect_right(places, known_to)
        if complete >= limit or known_to >= to:
            return places[: min(limit, complete)]
        target = places[limit - 1] if len(places) >= limit else to
        guesses, missing = guesses + 1, limit - complete


def _place_shares(behind: Sequence[_PartitionScan], since: int, target: int, missing: int) -> list[int]:
    """The number of positions to read of each partition: together about as many as are missing."""
    expected = [run.density(since) * (target - run.known_to) for run in behind]
    total = sum(expected)
    return [1 + int(missing * one / total) for one in expected]


def _read_places(
    reading: Reading,
    behind: Sequence[_PartitionScan],
    target: int,
    shares: Sequence[int],
    found: set[int],
    mirror: int | None,
) -> None:
    wanted = [_range_of(run, share, target, mirror) for run, share in zip(behind, shares, strict=True)]
    for run, share, keys in zip(behind, shares, reading.keys_each(wanted), strict=True):
        places = [key[1] if mirror is None else mirror - key[1] for key in keys]
        found.update(places)
        run.found += len(places)
        run.known_to = places[-1] if len(places) == share else target


def _range_of(run: _PartitionScan, share: int, target: int, mirror: int | None) -> Range:
    """The next positions of a partition up to the target."""
    if mirror is None:
        return Range(EVENT_PLACE, "", (run.name,), share, start=(run.known_to + 1,), stop=(target + 1,))
    start, stop = mirror - target, mirror - run.known_to
    return Range(EVENT_PLACE, "", (run.name,), share, start=(start,), stop=(stop,), reverse=True)
