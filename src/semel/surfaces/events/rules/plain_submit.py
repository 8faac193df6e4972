"""The express decision on plain submissions, for a whole batch: the result of `submit` without a view.

A submission is plain if none of its items has a flaw, no validator is set, and each item has either an id that was
never used, and expects no watermark, or the id and the content of a committed event. The first submission of a batch
that is not plain, and all submissions after it, are left to `submit`: the submissions of a connection are decided in
the order of their arrival.
Both give the same rows and answers; `tests/events/rules/test_plain_submit.py` compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from semel.engine.contract import Write
from semel.engine.plain_write import LoadedByKey, PlainContract, PlainResult, PlainWrite
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Row
from semel.store.table import Key
from semel.surfaces.events.commands import EventCommitted, EventItem, EventSubmit, EventSubmitted
from semel.surfaces.events.limits import MAX_COMMITTED_ID
from semel.surfaces.events.rules.event_log import TOPIC
from semel.surfaces.events.tables import (
    EMPTY_LOG,
    EVENT,
    EVENT_HEAD,
    EVENT_ID,
    EVENT_PARTITION,
    EVENT_PLACE,
    HEAD_KEY,
    LOG,
    EventHeadRow,
    EventIdRow,
    EventPartitionRow,
    EventPlaceRow,
    EventRow,
)


class PlainSubmit(PlainWrite):
    """A submission that may be plain, and its caller."""

    __slots__ = ("command", "cost")

    def __init__(self, contract: PlainContract, command: EventSubmit, size: int, principal: str = "") -> None:
        super().__init__(contract, LOG.name, size, principal)
        self.command = command
        self.cost = len(command.items)

    def full(self) -> Write:
        """The same submission for the full rules."""
        return Write(self.contract, self.command, self.size, self.cost)


def plain_keys(writes: Sequence[PlainSubmit]) -> Mapping[AnyTable, Iterable[Key]]:
    """The end of the log and of each partition, and the row of each event id."""
    items = [item for one in writes for item in one.command.items]
    return {
        EVENT_HEAD: (HEAD_KEY,),
        EVENT_ID: {(item.key,): None for item in items},
        EVENT_PARTITION: {(name,): None for item in items for name in item.partitions.keys},
    }


def decide_plain(rows: LoadedByKey, writes: Sequence[PlainSubmit], now: Now) -> PlainResult:
    """Decide the submissions in their order, up to the first that is not plain."""
    known = rows[EVENT_ID]
    head = rows[EVENT_HEAD].get(HEAD_KEY) or EMPTY_LOG
    now_ms = now.not_before(head[2]).ms
    last = head[1]
    seen: set[bytes] = set()
    decided: list[tuple[PlainWrite, Any]] = []
    events: list[EventRow] = []
    ids: list[EventIdRow] = []
    places: list[EventPlaceRow] = []
    left: Sequence[PlainSubmit] = ()
    for number, one in enumerate(writes):
        items, client_id, origin, _ = one.command
        if not _is_plain(items, known, seen):
            left = writes[number:]
            break
        sender = client_id.encode()
        results: list[EventCommitted] = []
        for item in items:
            key = item.key
            row = known.get((key,))
            if row is not None:
                results.append(EventCommitted(row.committed_id, row.committed_at, False))
                continue
            seen.add(key)
            last += 1
            partitions = item.partitions
            events.append(EventRow(last, item.name, sender, origin, now_ms, partitions.text, item.text))
            ids.append(EventIdRow(key, last, now_ms, item.digest))
            places += [EventPlaceRow(name, last) for name in partitions.keys]
            results.append(EventCommitted(last, now_ms, True))
        decided.append((one, EventSubmitted(tuple(results), now_ms)))
    if not events:
        return PlainResult(decided, left, {}, {}, ())
    assert last <= MAX_COMMITTED_ID
    changed = [EventHeadRow(b"", last, now_ms, head[3])]
    new, grown = _ends(rows[EVENT_PARTITION], places)
    inserts: dict[AnyTable, Sequence[Row]] = {EVENT: events, EVENT_ID: ids, EVENT_PLACE: places}
    steady: dict[AnyTable, Sequence[Row]] = {}
    if new:
        inserts[EVENT_PARTITION] = new
    if grown:
        steady[EVENT_PARTITION] = grown
    (inserts if head is EMPTY_LOG else steady)[EVENT_HEAD] = changed
    return PlainResult(decided, left, inserts, steady, (TOPIC,))


def _ends(
    known: Mapping[Key, Any], places: Sequence[EventPlaceRow]
) -> tuple[list[EventPartitionRow], list[EventPartitionRow]]:
    """The ends of the partitions behind these places, which ascend: those of new partitions, and of others."""
    counts: dict[bytes, int] = {}
    lasts: dict[bytes, int] = {}
    for name, committed_id in places:
        counts[name] = counts.get(name, 0) + 1
        lasts[name] = committed_id
    new: list[EventPartitionRow] = []
    grown: list[EventPartitionRow] = []
    for name, last in lasts.items():
        end = known.get((name,))
        if end is None:
            new.append(EventPartitionRow(name, last, counts[name]))
        else:
            grown.append(EventPartitionRow(name, last, end[2] + counts[name]))
    return new, grown


def _is_plain(items: Sequence[EventItem], known: Mapping[Key, Any], seen: set[bytes]) -> bool:
    """Whether each item is new, or repeats an event that was committed in an earlier batch."""
    for item in items:
        if item.flaw is not None or item.key in seen:
            return False
        row = known.get((item.key,))
        if row is None:
            if item.excess is not None or item.if_watermark is not None:
                return False
        elif row.digest != item.digest:
            return False
    return True
