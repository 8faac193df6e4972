"""Queries over the log: the events of some partitions between two positions, in one snapshot, in bounded pages.

A page holds positions and rows of one snapshot, and no event can appear later at or below the watermark that it names.

`first_places` merges the positions of several partitions and reads about as many as it returns. Reading a page of each
partition would cost a page for every partition, so they are read in rounds, all at once, each up to a common target:

1. Positions are consecutive, so a window of as many positions as the page has events holds at most a page: the whole
   window is read. If most of the log is requested, this is enough.
2. Then as many positions as are still missing are read, each partition by its density so far. A round ends where the
   first partition was cut short: up to there all positions are known.
3. Once there are enough, no position after the last of them can belong to the page, so only positions before it are
   read.

The shares are estimates. A wrong estimate costs another round and never changes the result; after MAX_GUESSES rounds
nothing is estimated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.store.protocol import Range
from semel.surfaces.events.rules.epochs import CursorStatus, cursor_status
from semel.surfaces.events.tables import EMPTY_LOG, EVENT, EVENT_HEAD, EVENT_PLACE, HEAD_KEY, EventHeadRow, EventRow

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
        _read_places(reading, behind, target, shares, found)
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
    reading: Reading, behind: Sequence[_PartitionScan], target: int, shares: Sequence[int], found: set[int]
) -> None:
    wanted = [
        Range(EVENT_PLACE, "", (run.name,), share, start=(run.known_to + 1,), stop=(target + 1,))
        for run, share in zip(behind, shares, strict=True)
    ]
    for run, share, keys in zip(behind, shares, reading.keys_each(wanted), strict=True):
        found.update(key[1] for key in keys)
        run.found += len(keys)
        run.known_to = keys[-1][1] if len(keys) == share else target


AT_ONCE = 64
"""Number of rows that are read before their size is checked."""
ROW_BYTES = 256
"""The approximate bytes of an event in memory besides its own texts."""
TAIL_EVENTS = 1_000

Printed = Callable[[EventRow], bytes]
"""Prints an event as it is sent to a reader."""


class EventPage(NamedTuple):
    """Events after a cursor up to `sync_to`; `has_more` says exactly whether there are others."""

    events: Sequence[EventRow]
    next_since: int
    sync_to: int
    has_more: bool
    pruned_to: int = 0
    """Events between the cursor and this position may have been pruned."""
    log_epoch: int = 0
    """The epoch of the log, if the cursor came from a client."""
    texts: Sequence[bytes] = ()
    """The events as JSON texts, if requested."""


def head_of(reading: Reading) -> EventHeadRow:
    """The end of the log."""
    return reading.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG


def history(
    reading: Reading,
    names: Iterable[str],
    since: int,
    to: int | None,
    limit: int,
    budget: int,
    printed: Printed | None = None,
) -> EventPage:
    """The next page of some partitions. Without `to` a new cycle begins, which ends at the watermark of this snapshot.

    Its events have at most `budget` bytes, unless it has a single event: printed and with commas, if they are printed;
    otherwise in memory.
    """
    head = head_of(reading)
    sync_to = head.last_id if to is None else min(to, head.last_id)
    pruned_to = head.pruned_to if since < head.pruned_to else 0
    if since >= sync_to:
        return EventPage((), min(since, sync_to), sync_to, False, pruned_to)
    ids = first_places(reading, names, since, sync_to, limit + 1)
    texts: Sequence[bytes] = ()
    if printed is None:
        rows = _within(reading, ids[:limit], budget)
    else:
        rows, texts = _printed(reading, ids[:limit], budget, printed)
    next_since = rows[-1].committed_id if rows else since
    return EventPage(rows, next_since, sync_to, len(rows) < len(ids), pruned_to, texts=texts)


class HistoryQuery(NamedTuple):
    """The cursor of a client and its page limits. Without `to` a new cycle begins."""

    names: tuple[str, ...]
    since: int
    log_epoch: int | None
    to: int | None
    limit: int


def checked_history(
    reading: Reading, asked: HistoryQuery, budget: int, printed: Printed | None = None
) -> tuple[CursorStatus, EventPage]:
    """The next page for a client; an empty one if its cursor belongs to another history and must not be served."""
    status = cursor_status(reading, asked.since, asked.log_epoch)
    if status.reset is not None:
        return status, EventPage((), asked.since, asked.since, False, log_epoch=status.log_epoch)
    page = history(reading, asked.names, asked.since, asked.to, asked.limit, budget, printed)
    return status, page._replace(log_epoch=status.log_epoch)


def tail(reading: Reading, after: int, budget: int) -> EventPage:
    """Events after a position, in all partitions; the cursor of an empty page is the watermark."""
    head = head_of(reading)
    pruned_to = head.pruned_to if after < head.pruned_to else 0
    if after >= head.last_id:
        return EventPage((), after, head.last_id, False)
    keys = reading.keys(Range(EVENT, "", (), TAIL_EVENTS, start=(after + 1,)))
    ids = [key[0] for key in keys]
    rows = _within(reading, ids, budget)
    is_all = len(rows) == len(ids) < TAIL_EVENTS
    return EventPage(rows, head.last_id if is_all else rows[-1].committed_id, head.last_id, not is_all, pruned_to)


def last_in(reading: Reading, name: str) -> int:
    """The watermark of one partition; 0 if it has no events."""
    found = reading.keys(Range(EVENT_PLACE, "", (name.encode(),), 1, reverse=True))
    return found[0][1] if found else 0


def oldest(reading: Reading, limit: int, budget: int) -> Sequence[EventRow]:
    """The first events of the log."""
    return _within(reading, [key[0] for key in reading.keys(Range(EVENT, "", (), limit))], budget)


def _within(reading: Reading, ids: Sequence[int], budget: int) -> list[EventRow]:
    """The events at these positions until the byte limit is reached; at least one."""
    rows: list[EventRow] = []
    for row in _rows(reading, ids):
        budget -= len(row.event) + len(row.partitions) + len(row.client_id) + ROW_BYTES
        if rows and budget < 0:
            break
        rows.append(row)
    return rows


def _printed(reading: Reading, ids: Sequence[int], budget: int, printed: Printed) -> tuple[list[EventRow], list[bytes]]:
    """As `_within`, printed as JSON texts and joined by commas."""
    rows: list[EventRow] = []
    texts: list[bytes] = []
    for row in _rows(reading, ids):
        text = printed(row)
        budget -= len(text) + bool(rows)
        if rows and budget < 0:
            break
        rows.append(row)
        texts.append(text)
    return rows, texts


def _rows(reading: Reading, ids: Sequence[int]) -> Iterator[EventRow]:
    for start in range(0, len(ids), AT_ONCE):
        found = reading.find(EVENT, [(one,) for one in ids[start : start + AT_ONCE]])
        for committed_id in ids[start : start + AT_ONCE]:
            yield found[(committed_id,)]
