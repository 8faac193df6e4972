"""Queries over the event log: the events of some partitions between two positions, in limited pages (pagination).

A page holds positions and rows of one snapshot, and nothing can appear later at or below the watermark that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from semel.contracts.events.partition_merge import first_places
from semel.contracts.events.rules.epochs import Standing, standing
from semel.contracts.events.tables import (
    EMPTY_LOG,
    EVENT,
    EVENT_HEAD,
    EVENT_PLACE,
    HEAD_KEY,
    EventHeadRow,
    EventRow,
)
from semel.engine.reading import Reading
from semel.store.protocol import Range

AT_ONCE = 64
"""Number of rows that are fetched before their size is checked."""
ROW_BYTES = 256
"""About what an event takes in memory beside its own texts."""
TAIL_EVENTS = 1_000

Printed = Callable[[EventRow], bytes]
"""An event as a reader is sent it."""


class Page(NamedTuple):
    """Events after a cursor up to `sync_to`; `has_more` says exactly whether there are others."""

    events: Sequence[EventRow]
    next_since: int
    sync_to: int
    has_more: bool
    pruned_to: int = 0
    """Above the cursor: events between them may be gone."""
    log_epoch: int = 0
    """The epoch of the log, where the cursor is a client's."""
    texts: Sequence[bytes] = ()
    """The events as JSON text, on request."""


def head_of(reading: Reading) -> EventHeadRow:
    """Where the log ends."""
    return reading.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG


def history(
    reading: Reading,
    names: Iterable[str],
    since: int,
    to: int | None,
    limit: int,
    budget: int,
    printed: Printed | None = None,
) -> Page:
    """The next page of some partitions. Without `to` a cycle begins: its bound is the watermark of this instant.

    Its events have at most `budget` bytes, unless it is one alone: in print, with the commas between them, if they are
    to be printed; else in memory.
    """
    head = head_of(reading)
    sync_to = head.last_id if to is None else min(to, head.last_id)
    pruned_to = head.pruned_to if since < head.pruned_to else 0
    if since >= sync_to:
        return Page((), min(since, sync_to), sync_to, False, pruned_to)
    ids = first_places(reading, names, since, sync_to, limit + 1)
    texts: Sequence[bytes] = ()
    if printed is None:
        rows = _within(reading, ids[:limit], budget)
    else:
        rows, texts = _printed(reading, ids[:limit], budget, printed)
    next_since = rows[-1].committed_id if rows else since
    return Page(rows, next_since, sync_to, len(rows) < len(ids), pruned_to, texts=texts)


class HistoryQuery(NamedTuple):
    """The cursor of a client and its page limits. Without `to` a cycle begins."""

    names: tuple[str, ...]
    since: int
    log_epoch: int | None
    to: int | None
    limit: int


def judged_history(
    reading: Reading, asked: HistoryQuery, budget: int, printed: Printed | None = None
) -> tuple[Standing, Page]:
    """The next page for a client; an empty one when its cursor is of another history, and must not be served."""
    stands = standing(reading, asked.since, asked.log_epoch)
    if stands.reset is not None:
        return stands, Page((), asked.since, asked.since, False, log_epoch=stands.log_epoch)
    page = history(reading, asked.names, asked.since, asked.to, asked.limit, budget, printed)
    return stands, page._replace(log_epoch=stands.log_epoch)


def tail(reading: Reading, after: int, budget: int) -> Page:
    """Events behind a position, in all partitions; the cursor of an empty page is the watermark."""
    head = head_of(reading)
    pruned_to = head.pruned_to if after < head.pruned_to else 0
    if after >= head.last_id:
        return Page((), after, head.last_id, False)
    keys = reading.keys(Range(EVENT, "", (), TAIL_EVENTS, start=(after + 1,)))
    ids = [key[0] for key in keys]
    rows = _within(reading, ids, budget)
    is_all = len(rows) == len(ids) < TAIL_EVENTS
    return Page(rows, head.last_id if is_all else rows[-1].committed_id, head.last_id, not is_all, pruned_to)


def last_in(reading: Reading, name: str) -> int:
    """The watermark of one partition; 0 when it has no events."""
    found = reading.keys(Range(EVENT_PLACE, "", (name.encode(),), 1, reverse=True))
    return found[0][1] if found else 0


def oldest(reading: Reading, limit: int, budget: int) -> Sequence[EventRow]:
    """The first events of the log."""
    return _within(reading, [key[0] for key in reading.keys(Range(EVENT, "", (), limit))], budget)


def _within(reading: Reading, ids: Sequence[int], budget: int) -> list[EventRow]:
    """The events at these positions until their bytes are used up; at least one."""
    rows: list[EventRow] = []
    for row in _rows(reading, ids):
        budget -= len(row.event) + len(row.partitions) + len(row.client_id) + ROW_BYTES
        if rows and budget < 0:
            break
        rows.append(row)
    return rows


def _printed(reading: Reading, ids: Sequence[int], budget: int, printed: Printed) -> tuple[list[EventRow], list[bytes]]:
    """The same as JSON text, with a comma between two events."""
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
