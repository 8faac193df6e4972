"""The check of events: positions, ids against the log, and partitions.

The row of an id is never deleted, so every position below the end of the log has exactly one, but for the positions
that a new epoch has skipped. The digest of an id is computed again from the event while its body is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import orjson

from semel.kernel.json.canonical import Integers, Surrogates, canonical
from semel.kernel.json.parse import parse
from semel.kernel.keys import pack
from semel.store.table_check import Check, StoreFault, StoreWalk, fault, in_groups
from semel.surfaces.events.tables import (
    EMPTY_LOG,
    EVENT,
    EVENT_GAP,
    EVENT_HEAD,
    EVENT_ID,
    EVENT_PARTITION,
    EVENT_PLACE,
    HEAD_KEY,
    EventGapRow,
    EventHeadRow,
    EventRow,
)

_EVENTS_AT_ONCE = 100


def _head(walk: StoreWalk) -> EventHeadRow:
    return walk.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG


def log(walk: StoreWalk) -> Iterator[StoreFault]:
    """Above what was pruned, the log has an event at every position that was given out, at rising times."""
    head = _head(walk)
    gaps = list(walk.rows(EVENT_GAP))
    yield from _gaps(gaps, head)
    if not 0 <= head.pruned_to <= head.last_id:
        yield fault(EVENT_HEAD, "", f"The log was pruned up to {head.pruned_to} of {head.last_id}.")
    position, last_at = 0, 0
    for row in walk.rows(EVENT):
        expected = _next(max(position, head.pruned_to), gaps)
        if row.committed_id > head.last_id:
            yield fault(EVENT, row[:1], f"It is above the end of the log, which is {head.last_id}.")
        elif row.committed_id > head.pruned_to and row.committed_id != expected:
            yield fault(EVENT, row[:1], f"The events from {expected} up to it are not there.")
        if row.committed_at < last_at:
            yield fault(EVENT, row[:1], "It was committed before the event in front of it.")
        position, last_at = row.committed_id, row.committed_at
    expected = _next(max(position, head.pruned_to), gaps)
    if expected <= head.last_id:
        yield fault(EVENT, "", f"The events from {expected} up to the end of the log at {head.last_id} are not there.")
    if last_at > head.updated_at:
        yield fault(EVENT_HEAD, "", "The last event is later than the last change of the log.")


def _gaps(gaps: list[EventGapRow], head: EventHeadRow) -> Iterator[StoreFault]:
    last, epoch = -1, -1
    for gap in gaps:
        if not (last <= gap.agreed_id < gap.first_id <= head.last_id and epoch < gap.epoch):
            yield fault(EVENT_GAP, gap[:1], "The ids that an epoch has skipped are not above those before it.")
        last, epoch = gap.first_id, gap.epoch


def _next(position: int, gaps: list[EventGapRow]) -> int:
    """The position after this one. A gap ends with an id that no event has."""
    for gap in gaps:
        if gap.agreed_id <= position < gap.first_id:
            position = gap.first_id
    return position + 1


def ids(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each position has one id, and the id and digest are those of the event that is there."""
    head, gaps = _head(walk), list(walk.rows(EVENT_GAP))
    count = total = kept = 0
    for page in walk.pages(EVENT_ID):
        for group in in_groups(page, _EVENTS_AT_ONCE):
            events = walk.find(EVENT, [(row.committed_id,) for row in group])
            for row in group:
                count, total = count + 1, total + row.committed_id
                event = events.get((row.committed_id,))
                if event is not None:
                    kept += 1
                    yield from _id(row, event)
                elif not head.pruned_to >= row.committed_id > 0:
                    yield fault(EVENT_ID, row[:1], f"There is no event at its position {row.committed_id}.")
    skipped = sum(gap.first_id - gap.agreed_id for gap in gaps)
    if count != head.last_id - skipped:
        yield fault(EVENT_ID, "", f"There are {count} ids for {head.last_id - skipped} positions.")
    else:
        sums = sum((gap.first_id + gap.agreed_id + 1) * (gap.first_id - gap.agreed_id) // 2 for gap in gaps)
        if total != head.last_id * (head.last_id + 1) // 2 - sums:
            yield fault(EVENT_ID, "", "Two ids have the same position.")
    events_there = sum(1 for _ in walk.keys(EVENT))
    if kept != events_there:
        yield fault(EVENT_ID, "", f"{events_there - kept} events have no id, or share one.")


def _id(row: Any, event: EventRow) -> Iterator[StoreFault]:
    if row.key != pack(event.id):
        yield fault(EVENT_ID, row[:1], f"The event at its position {row.committed_id} has another id.")
        return
    if row.committed_at != event.committed_at:
        yield fault(EVENT_ID, row[:1], "Its time is not that of the event.")
    text = canonical(parse(event.event), Integers.REFUSE, Surrogates.REFUSE)
    if sha256(b'{"event":%s,"partitions":%s}' % (text, event.partitions)).digest() != row.digest:
        yield fault(EVENT_ID, row[:1], f"The event at its position {row.committed_id} has other content.")


def partitions(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each event has a place in each of its partitions, and each partition counts its events."""
    places = 0
    for page in walk.pages(EVENT):
        for group in in_groups(page, _EVENTS_AT_ONCE):
            wanted = [(name.encode(), row.committed_id) for row in group for name in orjson.loads(row.partitions)]
            found = walk.find(EVENT_PLACE, wanted)
            places += len(wanted)
            for key in wanted:
                if key not in found:
                    yield fault(EVENT_PLACE, key, "The event has no place in this partition.")
    there = sum(1 for _ in walk.keys(EVENT_PLACE))
    if there != places:
        yield fault(EVENT_PLACE, "", f"There are {there} places, and the events name {places}.")
    yield from _ends(walk, there)


def _ends(walk: StoreWalk, there: int) -> Iterator[StoreFault]:
    """The count and the end of each partition; `there` is the number of all places."""
    head, total = _head(walk), 0
    for row in walk.rows(EVENT_PARTITION):
        count = last = 0
        for key in walk.keys_below(EVENT_PLACE, row[:1]):
            count, last = count + 1, key[1]
        total += count
        if count != row.kept:
            yield fault(EVENT_PARTITION, row[:1], f"It counts {row.kept} events and has {count}.")
        if row.last_id > head.last_id or (last != row.last_id and row.last_id > head.pruned_to):
            yield fault(EVENT_PARTITION, row[:1], f"Its end is {row.last_id}, and its last event is at {last}.")
    if there != total:
        yield fault(EVENT_PLACE, "", f"{there - total} places are in no partition.")


CHECKS: tuple[Check, ...] = (log, ids, partitions)
