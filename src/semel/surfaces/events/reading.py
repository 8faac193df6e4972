"""Queries over the log: the events of some partitions between two positions, in one snapshot, in bounded pages.

A page holds positions and rows of one snapshot, and no event can appear later at or below the watermark that it names.
Pages are read forwards from a cursor, or backwards from a position.

A page may be limited to some types of events. Types are not indexed: the events of the partitions are read and
compared, at most SCANNED_EVENTS and about SCANNED_BYTES for one page. The page then ends, perhaps without an event, and
its cursor is behind the last event that was compared, so that a reader that goes on always makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.store.protocol import Range
from semel.surfaces.events.places import first_places, last_places
from semel.surfaces.events.rules.epochs import CursorStatus, cursor_status
from semel.surfaces.events.rules.event_types import EventTypes, type_of
from semel.surfaces.events.tables import (
    EMPTY_LOG,
    EVENT,
    EVENT_HEAD,
    EVENT_PARTITION,
    HEAD_KEY,
    EventHeadRow,
    EventRow,
)

AT_ONCE = 64
"""Number of rows that are read before their size is checked."""
COMPARED_AT_ONCE = 8
"""The same for a page of some types: most of its rows may be large, and its answer small."""
ROW_BYTES = 256
"""The approximate bytes of an event in memory besides its own texts."""
TAIL_EVENTS = 1_000
SCANNED_EVENTS = 1_000
"""The most events that a page of some types compares."""
SCANNED_BYTES = 1024 * 1024
"""The bytes of events after which a page of some types ends."""

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
    """The events as JSON texts, if requested; otherwise empty texts."""
    next_before: int | None = None
    """The position to read backwards from, if the page was read backwards."""


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
    types: EventTypes = None,
) -> EventPage:
    """The next page of some partitions. Without `to` a new cycle begins, which ends at the watermark of this snapshot.

    Its events have at most `budget` bytes, unless it has a single event: printed and with commas, if they are printed;
    otherwise in memory. If only some types are wanted, `has_more` says whether there are events to compare.
    """
    head = head_of(reading)
    sync_to = head.last_id if to is None else min(to, head.last_id)
    pruned_to = head.pruned_to if since < head.pruned_to else 0
    if since >= sync_to:
        return EventPage((), min(since, sync_to), sync_to, False, pruned_to)
    most = limit if types is None else SCANNED_EVENTS
    ids = first_places(reading, names, since, sync_to, most + 1)
    rows, texts, used = _filled(reading, ids[:most], limit, budget, printed, types)
    next_since = ids[used - 1] if used else since
    has_more = used < len(ids)
    return EventPage(rows, next_since, sync_to, has_more, pruned_to, texts=texts)


class HistoryQuery(NamedTuple):
    """The cursor of a client and its page limits. Without `to` a new cycle begins."""

    names: tuple[str, ...]
    since: int
    log_epoch: int | None
    to: int | None
    limit: int
    types: EventTypes = None


def checked_history(
    reading: Reading, asked: HistoryQuery, budget: int, printed: Printed | None = None
) -> tuple[CursorStatus, EventPage]:
    """The next page for a client; an empty one if its cursor belongs to another history and must not be served."""
    status = cursor_status(reading, asked.since, asked.log_epoch)
    if status.reset is not None:
        return status, EventPage((), asked.since, asked.since, False, log_epoch=status.log_epoch)
    page = history(reading, asked.names, asked.since, asked.to, asked.limit, budget, printed, asked.types)
    return status, page._replace(log_epoch=status.log_epoch)


class BackwardQuery(NamedTuple):
    """The events after `since` and before a position, or before the end of the log, newest first."""

    names: tuple[str, ...]
    since: int
    before: int | None
    log_epoch: int | None
    limit: int
    types: EventTypes = None


def checked_backward(
    reading: Reading, asked: BackwardQuery, budget: int, printed: Printed
) -> tuple[CursorStatus, EventPage]:
    """The next page backwards; an empty one if its position belongs to another history and must not be served."""
    cursor = asked.since if asked.before is None else max(asked.before - 1, 0)
    status = cursor_status(reading, cursor, asked.log_epoch)
    if status.reset is not None:
        return status, EventPage((), cursor, cursor, False, log_epoch=status.log_epoch)
    return status, _backward(reading, asked, budget, printed)._replace(log_epoch=status.log_epoch)


def _backward(reading: Reading, asked: BackwardQuery, budget: int, printed: Printed) -> EventPage:
    """A page that is read backwards. It reports pruning if it has reached the pruned part."""
    names, since, before, _, limit, types = asked
    head = head_of(reading)
    upper = head.last_id if before is None else max(0, min(before - 1, head.last_id))
    most = limit if types is None else SCANNED_EVENTS
    ids = last_places(reading, names, since, upper, most + 1) if since < upper else []
    rows, texts, used = _filled(reading, ids[:most], limit, budget, printed, types)
    has_more = used < len(ids)
    pruned_to = 0 if has_more or since >= head.pruned_to else head.pruned_to
    next_before = ids[used - 1] if used else upper + 1
    return EventPage(rows, upper, head.last_id, has_more, pruned_to, texts=texts, next_before=next_before)


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
    """The watermark of one partition; 0 if it never had an event."""
    end = reading.get(EVENT_PARTITION, (name.encode(),))
    return 0 if end is None else end.last_id


def oldest(reading: Reading, limit: int, budget: int) -> Sequence[EventRow]:
    """The first events of the log."""
    return _within(reading, [key[0] for key in reading.keys(Range(EVENT, "", (), limit))], budget)


def _within(reading: Reading, ids: Sequence[int], budget: int) -> list[EventRow]:
    """The events at these positions until the byte limit is reached; at least one."""
    rows: list[EventRow] = []
    for row in _rows(reading, ids):
        budget -= _size(row)
        if rows and budget < 0:
            break
        rows.append(row)
    return rows


def _filled(
    reading: Reading, ids: Sequence[int], limit: int, budget: int, printed: Printed | None, types: EventTypes
) -> tuple[list[EventRow], list[bytes], int]:
    """The events of these types at these positions, up to the limits; their texts; and the number of positions used."""
    rows: list[EventRow] = []
    texts: list[bytes] = []
    scanned = 0
    for number, row in enumerate(_rows(reading, ids, AT_ONCE if types is None else COMPARED_AT_ONCE)):
        if types is not None:
            scanned += len(row.event)
            if number and scanned > SCANNED_BYTES:
                return rows, texts, number
            if type_of(row.event) not in types:
                continue
        text = b"" if printed is None else printed(row)
        budget -= _size(row) if printed is None else len(text) + bool(rows)
        if rows and budget < 0:
            return rows, texts, number
        rows.append(row)
        texts.append(text)
        if len(rows) == limit:
            return rows, texts, number + 1
    return rows, texts, len(ids)


def _size(row: EventRow) -> int:
    """The approximate bytes of an event in memory."""
    return len(row.event) + len(row.partitions) + len(row.client_id) + ROW_BYTES


def _rows(reading: Reading, ids: Sequence[int], at_once: int = AT_ONCE) -> Iterator[EventRow]:
    for start in range(0, len(ids), at_once):
        found = reading.find(EVENT, [(one,) for one in ids[start : start + at_once]])
        for committed_id in ids[start : start + at_once]:
            yield found[(committed_id,)]
