"""Queries of consumer groups and snapshots: the plan of a fetch, and lists in pages.

A fetch is planned outside of its transaction, in a snapshot: the log is read there, so that no lock is held meanwhile.
The transaction takes of the plan what still holds (`rules/delivery.py`). The plan reads each partition from its own
cursor, so a partition that is held back does not hold back the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson

from semel.engine.reading import Reading
from semel.store.protocol import Range
from semel.surfaces.epoch import epoch_of
from semel.surfaces.events.reading import Printed, head_of
from semel.surfaces.events.rules.delivery import lease_range, parked_range
from semel.surfaces.events.rules.group_commands import FetchPlan, GroupReach
from semel.surfaces.events.rules.group_state import Fate, GroupState, definition_of, mask_of, state_of
from semel.surfaces.events.rules.groups import denied_partition
from semel.surfaces.events.rules.snapshots import snapshots_range
from semel.surfaces.events.tables import (
    EVENT,
    EVENT_GROUP,
    EVENT_PLACE,
    EVENT_SNAPSHOT,
    EVENT_SNAPSHOT_BODY,
    EventGroupRow,
    EventParkedRow,
    EventRow,
    EventSnapshotRow,
)

ROWS_FIRST, ROWS_MOST = 4, 64
SMALL_BYTES = 512 * 1024
"""Events are read a few at a time; twice as many at the next read while they are together smaller than this."""
IDLE_LAG = 1_000
"""A group without new events stores its cursors again after this number of events of other partitions."""
FOREVER_MS = 3_600_000


class PlannedFetch(NamedTuple):
    """A plan, and the texts of its events."""

    state: GroupState
    plan: FetchPlan
    texts: dict[int, bytes]
    is_useful: bool
    """Whether the transaction is worth its commit: it delivers, parks or forgets events, or repeats a fetch."""
    rest_ms: int = FOREVER_MS
    """Milliseconds until an event is due without a commit."""


class EventTexts:
    """Reads and prints events one after another, up to a number of bytes; the first always fits."""

    def __init__(self, reading: Reading, budget: int, printed: Printed) -> None:
        self._reading = reading
        self._budget = budget
        self._printed = printed
        self._rows: dict[int, EventRow | None] = {}
        self._at_once = ROWS_FIRST
        self.texts: dict[int, bytes] = {}
        self.is_full = False

    def row(self, committed_id: int, next_ids: Iterable[int] = ()) -> EventRow | None:
        """One event; some of those that are likely to be next are read with it."""
        if committed_id not in self._rows:
            self._rows = {}  # the memory of the last ones is free before the next are read
            wanted = list(islice(dict.fromkeys((committed_id, *next_ids)), self._at_once))
            found = self._reading.find(EVENT, [(one,) for one in wanted])
            self._rows = {one: found.get((one,)) for one in wanted}
            if sum(len(row.event) for row in found.values()) < SMALL_BYTES:
                self._at_once = min(2 * self._at_once, ROWS_MOST)
        return self._rows[committed_id]

    def take(self, row: EventRow) -> bool:
        """Print an event; returns false if it does not fit any more."""
        text = self._printed(row)
        if self.texts and len(text) > self._budget:
            self.is_full = True
            return False
        self._budget -= len(text) + 1
        self.texts[row.committed_id] = text
        return True


def plan_fetch(
    reading: Reading, name: bytes, fetch_key: bytes, batch: int, budget: int, printed: Printed
) -> PlannedFetch | None:
    """What a fetch of this member could deliver now; None if there is no such group."""
    row = reading.get(EVENT_GROUP, (name,))
    if row is None:
        return None
    state = state_of(row)
    state.adopt(epoch_of(reading))
    if reading.range(lease_range(name, fetch_key)):
        return PlannedFetch(state, FetchPlan(row.secret, row.generation), {}, is_useful=True)
    batch = batch or state.definition.batch
    now_ms = reading.now.steady_ms
    texts = EventTexts(reading, budget, printed)
    gone: set[int] = set()
    due_ids = sorted(one.committed_id for one in state.pending.values() if one.due_at <= now_ms)

    def offer(committed_id: int) -> Fate:
        found = texts.row(committed_id, (one for one in due_ids if one > committed_id))
        if found is None:
            gone.add(committed_id)
            return Fate.GONE
        return Fate.TAKE if not texts.is_full and texts.take(found) else Fate.LEFT

    walk = state.walk(now_ms, batch, offer)
    due = frozenset(texts.texts)
    room = state.room() + len(walk.parked) + len(walk.gone)
    new, exhausted = _new_events(reading, state, texts, walk.blocked, min(batch - len(walk.taken), room))
    head = head_of(reading)
    is_behind = min(state.cursors) < head.pruned_to and row.pruned_to < head.pruned_to
    plan = FetchPlan(
        row.secret,
        row.generation,
        due,
        frozenset(gone),
        new,
        exhausted,
        head.last_id,
        head.pruned_to if is_behind else 0,
    )
    is_idle = exhausted and head.last_id - min(state.cursors) >= IDLE_LAG
    later = [one.due_at - now_ms for one in state.pending.values() if one.due_at > now_ms]
    is_useful = bool(due or new or gone or walk.parked or is_idle)
    return PlannedFetch(state, plan, texts.texts, is_useful, min(later, default=FOREVER_MS))


def _new_events(
    reading: Reading, state: GroupState, texts: EventTexts, blocked: int, most: int
) -> tuple[tuple[tuple[int, int], ...], int]:
    """The next events of the partitions that are not blocked, and the partitions that have no others.

    They are read in rounds: as many places of each open partition as are missing, up to the end of the first partition
    that was cut short. A round finds an event, blocks a partition or goes past a place, so there are few.
    """
    names, is_strict = state.definition.partitions, state.definition.is_strict
    since = list(state.cursors)
    new: list[tuple[int, int]] = []
    while len(new) < most and not texts.is_full:
        opened = [place for place in range(len(names)) if not blocked >> place & 1]
        masks, horizon = _next_places(reading, names, {place: since[place] for place in opened}, most - len(new))
        ids = sorted(masks)
        for number, committed_id in enumerate(ids):
            mask = masks[committed_id]
            row = None if mask & blocked else texts.row(committed_id, ids[number + 1 :])
            mask = mask if row is None else mask_of(names, orjson.loads(row.partitions))
            if row is None or mask & blocked:
                blocked |= mask if is_strict else 0
            elif len(new) >= most or not texts.take(row):
                return tuple(new), 0
            else:
                new.append((committed_id, mask))
        if horizon is None:
            return tuple(new), sum(1 << place for place in opened) & ~blocked
        for place in opened:
            since[place] = max(since[place], horizon)
    return tuple(new), 0


def _next_places(
    reading: Reading, names: Sequence[str], since: dict[int, int], limit: int
) -> tuple[dict[int, int], int | None]:
    """The next positions in some partitions, each with these partitions as bits, and the position up to which they are
    known; None if there are no others.
    """
    wanted = [
        Range(EVENT_PLACE, "", (names[place].encode(),), limit, start=(after + 1,)) for place, after in since.items()
    ]
    found = reading.keys_each(wanted) if wanted else ()
    horizon = min((keys[-1][1] for keys in found if len(keys) == limit), default=None)
    masks: dict[int, int] = {}
    for place, keys in zip(since, found, strict=True):
        for _, committed_id in keys:
            if horizon is None or committed_id <= horizon:
                masks[committed_id] = masks.get(committed_id, 0) | 1 << place
    return masks, horizon


def event_texts(reading: Reading, ids: Sequence[int], budget: int, printed: Printed) -> dict[int, bytes]:
    """The events at these positions as texts; those that are pruned are left out."""
    texts = EventTexts(reading, budget, printed)
    for number, committed_id in enumerate(ids):
        row = texts.row(committed_id, ids[number + 1 :])
        if row is not None and not texts.take(row):
            break
    return texts.texts


def group_state(reading: Reading, name: bytes) -> GroupState | None:
    """The state of a group; None if there is none of this name."""
    row = reading.get(EVENT_GROUP, (name,))
    if row is None:
        return None
    state = state_of(row)
    state.adopt(epoch_of(reading))
    return state


class GroupPage(NamedTuple):
    """Groups in the order of their names, as they are shown; `has_more` says whether there may be others."""

    groups: list[dict[str, Any]]
    next_after: bytes
    has_more: bool


def list_groups(
    reading: Reading, after: bytes, limit: int, reach: GroupReach, shown: Callable[[GroupState], dict[str, Any]]
) -> GroupPage:
    """The next groups by name; groups that the caller may not use are left out of the page, but not of its count.

    One state at a time is in memory: each may have a thousand pending events.
    """
    start = (after + b"\x00",) if after else ()
    rows: list[EventGroupRow] = list(reading.range(Range(EVENT_GROUP, "", (), limit, start=start)))
    groups = [
        shown(state_of(row))
        for row in rows
        if denied_partition(definition_of(row.definition).partitions, reach) is None
    ]
    return GroupPage(groups, rows[-1].name if rows else after, len(rows) == limit)


class ParkedPage(NamedTuple):
    """Parked events in the order of the log, with their texts as far as they are not pruned."""

    rows: list[EventParkedRow]
    texts: dict[int, bytes]
    has_more: bool


def list_parked(reading: Reading, name: bytes, after: int, limit: int, budget: int, printed: Printed) -> ParkedPage:
    """The next parked events of a group."""
    rows: list[EventParkedRow] = list(reading.range(parked_range(name, limit + 1, after)))
    texts = EventTexts(reading, budget, printed)
    shown: list[EventParkedRow] = []
    for number, parked in enumerate(rows[:limit]):
        row = texts.row(parked.committed_id, (one.committed_id for one in rows[number + 1 :]))
        if row is not None and not texts.take(row):
            break
        shown.append(parked)
    return ParkedPage(shown, texts.texts, len(shown) < len(rows))


class SnapshotFound(NamedTuple):
    """A snapshot with its content."""

    row: EventSnapshotRow
    body: bytes


def find_snapshot(reading: Reading, name: bytes, at_most: int, *, is_exact: bool = False) -> SnapshotFound | None:
    """The newest snapshot of a partition at or below a position, or exactly at it."""
    if is_exact:
        row = reading.get(EVENT_SNAPSHOT, (name, at_most))
    else:
        row = reading.latest(EVENT_SNAPSHOT, [(name,)], at_most + 1).get((name,))
    body = None if row is None else reading.get(EVENT_SNAPSHOT_BODY, (name, row.committed_id))
    return None if row is None or body is None else SnapshotFound(row, body.body)


def list_snapshots(reading: Reading, name: bytes, limit: int) -> list[EventSnapshotRow]:
    """The snapshots of a partition, newest first."""
    return list(reading.range(snapshots_range(name, limit)))
