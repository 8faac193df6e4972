"""The check of events: positions, ids against the log, partitions, consumer groups and snapshots.

The row of an id is never deleted, so every position below the end of the log has exactly one, but for the positions
that a new epoch has skipped. The digest of an id is computed again from the event while its body is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from struct import Struct
from typing import Any

import orjson

from semel.kernel.json.canonical import Integers, Surrogates, canonical
from semel.kernel.json.parse import parse
from semel.kernel.keys import pack
from semel.store.protocol import Range
from semel.store.table_check import Check, StoreFault, StoreWalk, fault, in_groups
from semel.surfaces.events.tables import (
    EMPTY_LOG,
    EVENT,
    EVENT_GAP,
    EVENT_GROUP,
    EVENT_HEAD,
    EVENT_ID,
    EVENT_LEASE,
    EVENT_PARKED,
    EVENT_PARTITION,
    EVENT_PLACE,
    EVENT_SNAPSHOT,
    EVENT_SNAPSHOT_BODY,
    EVENT_TALLY,
    HEAD_KEY,
    EventGapRow,
    EventGroupRow,
    EventHeadRow,
    EventRow,
)

_CURSOR = Struct(">Q")
_PENDING = Struct(">QQQQI")
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


def groups(walk: StoreWalk) -> Iterator[StoreFault]:
    """The cursors and deliveries of each group are within the log, and its parked events are counted."""
    last_id = _head(walk).last_id
    parked = 0
    for row in walk.rows(EVENT_GROUP):
        yield from _group(walk, row, last_id)
        parked += row.parked
    there = sum(1 for _ in walk.keys(EVENT_PARKED))
    if there != parked:
        yield fault(EVENT_PARKED, "", f"There are {there} parked events, and the groups count {parked}.")
    for page in walk.pages(EVENT_LEASE):
        found = walk.find(EVENT_GROUP, [(one.group_name,) for one in page])
        for one in page:
            group = found.get((one.group_name,))
            if group is None or not 0 < one.number < group.next_lease:
                yield fault(EVENT_LEASE, one[:2], "It belongs to no group, or was never given out.")
            if len(one.ids) != 8 * len(one.fates):
                yield fault(EVENT_LEASE, one[:2], "It does not have one outcome for each event.")


def _group(walk: StoreWalk, row: EventGroupRow, last_id: int) -> Iterator[StoreFault]:
    cursors = [cursor for (cursor,) in _CURSOR.iter_unpack(row.cursors)]
    names = orjson.loads(row.definition)["partitions"]
    if len(cursors) != len(names):
        yield fault(EVENT_GROUP, row[:1], f"It has {len(cursors)} cursors for {len(names)} partitions.")
    if any(cursor > last_id for cursor in cursors):
        yield fault(EVENT_GROUP, row[:1], f"A cursor is above the end of the log, which is {last_id}.")
    last = 0
    for committed_id, mask, _, lease, _ in _PENDING.iter_unpack(row.pending):
        reached = max((one for place, one in enumerate(cursors) if mask >> place & 1), default=-1)
        if not last < committed_id <= reached:
            yield fault(
                EVENT_GROUP, row[:1], f"The delivered event {committed_id} is above the cursor, or out of order."
            )
        if lease >= row.next_lease:
            yield fault(EVENT_GROUP, row[:1], f"The lease {lease} was never given out.")
        last = committed_id
    there = sum(1 for _ in walk.keys_below(EVENT_PARKED, row[:1]))
    if there != row.parked:
        yield fault(EVENT_GROUP, row[:1], f"It counts {row.parked} parked events and has {there}.")


def snapshots(walk: StoreWalk) -> Iterator[StoreFault]:
    """Each snapshot has the content of its digest, and groups and snapshots are counted."""
    last_id = _head(walk).last_id
    counts: Counter[bytes] = Counter()
    number = 0
    for row in walk.rows(EVENT_SNAPSHOT):
        number += 1
        counts[b"snapshot"] += 1
        counts[b"snapshot:" + row.owner] += 1
        found = walk.range(Range(EVENT_SNAPSHOT_BODY, "", row[:1], 1, start=(row.committed_id,), stop=(row[1] + 1,)))
        if not found or len(found[0].body) != row.size or sha256(found[0].body).digest() != row.digest:
            yield fault(EVENT_SNAPSHOT, row[:2], "Its content is not there, or not the one of its digest.")
        if row.committed_id > last_id:
            yield fault(EVENT_SNAPSHOT, row[:2], f"It is of a position above the end of the log, which is {last_id}.")
    if sum(1 for _ in walk.keys(EVENT_SNAPSHOT_BODY)) != number:
        yield fault(EVENT_SNAPSHOT_BODY, "", "There is content that belongs to no snapshot.")
    for group in walk.rows(EVENT_GROUP):
        counts[b"group"] += 1
        counts[b"group:" + group.owner] += 1
    for tally in walk.rows(EVENT_TALLY):
        if tally.total != counts.pop(tally.name, 0):
            yield fault(EVENT_TALLY, tally[:1], "The count of groups or snapshots is wrong.")
    for name in counts:
        yield fault(EVENT_TALLY, (name,), "The count of groups or snapshots is not there.")


CHECKS: tuple[Check, ...] = (log, ids, partitions, groups, snapshots)
