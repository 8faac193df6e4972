"""The state of a consumer group: where each partition is, and which delivered events are not acknowledged.

| event | is |
|---|---|
| above the cursor of its partitions | not delivered yet |
| pending, with a lease that has not ended | in flight: a member has it |
| pending, and due | to be delivered again: its lease has ended, or a member gave it back |
| pending, without a lease, and due later | given back with a delay |
| parked | delivered too often; it is in a list of its own, and blocks nothing |
| anything else at or below the cursors | acknowledged |

The state has no row for an event of the log: one number for each partition, and at most `max_in_flight` pending events,
36 bytes each, in the one row of the group. A change of it is one row in one transaction, so a crash leaves the state
before or after a fetch or an ack, and never half of it.

**Strict order.** An event is delivered only when no earlier event of any of its partitions is pending, but for those
that are delivered with it. So a partition is with one member at a time, and an event that is to be delivered again
holds back the events behind it. Without strict order, events are delivered for the first time in the order of the log,
and otherwise independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from hmac import digest
from struct import Struct
from typing import NamedTuple

import orjson

from semel.surfaces.events.tables import EventGroupRow

TOKEN_BYTES = 12
_CURSOR = Struct(">Q")
_PENDING = Struct(">QQQQI")


class GroupDefinition(NamedTuple):
    """What a group is created with; it never changes."""

    partitions: tuple[str, ...]
    is_strict: bool
    lease_ms: int
    max_deliveries: int
    """After this number of deliveries an event is parked; 0 never parks."""
    max_in_flight: int
    batch: int
    """The number of events of a fetch that names none."""
    max_parked: int
    start: str
    """`beginning`, `now`, or a position."""

    def dump(self) -> bytes:
        """The stored form."""
        return orjson.dumps(self._asdict())


@lru_cache(1_024)
def definition_of(stored: bytes) -> GroupDefinition:
    """The definition from its stored form."""
    members = orjson.loads(stored)
    return GroupDefinition(**{**members, "partitions": tuple(members["partitions"])})


class PendingEvent(NamedTuple):
    """An event that was delivered and is not acknowledged."""

    committed_id: int
    partitions: int
    """The partitions of the group that it is in, as bits."""
    due_at: int
    """The end of its lease, or the time at which it may be delivered again; lease time in milliseconds."""
    lease: int
    """The number of the lease; 0 if it was given back."""
    deliveries: int


class Fate(Enum):
    """What a fetch can do with an event that is due."""

    TAKE = "deliver it"
    GONE = "retention has deleted it"
    LEFT = "leave it for another fetch"


class GroupWalk(NamedTuple):
    """The pending events that a fetch moves, and the partitions that it may not take new events of."""

    taken: list[PendingEvent]
    parked: list[PendingEvent]
    gone: list[PendingEvent]
    blocked: int


@dataclass(slots=True)
class GroupState:
    """The state of one group, unpacked."""

    row: EventGroupRow
    definition: GroupDefinition
    cursors: list[int]
    pending: dict[int, PendingEvent] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        """The position up to which every event of the group is acknowledged or parked."""
        first = min(self.pending, default=None)
        lowest = min(self.cursors)
        return lowest if first is None else min(lowest, first - 1)

    def room(self) -> int:
        """The number of new events that may be delivered."""
        return max(0, self.definition.max_in_flight - len(self.pending))

    def held(self, lease: int, now_ms: int) -> list[PendingEvent]:
        """The events of a lease that has not ended, in order."""
        found = (event for event in self.pending.values() if event.lease == lease and event.due_at > now_ms)
        return sorted(found)

    def walk(self, now_ms: int, batch: int, offer: Callable[[int], Fate]) -> GroupWalk:
        """Go through the pending events in order: which are delivered again, which parked, which block others."""
        is_strict, most = self.definition.is_strict, self.definition.max_deliveries
        parks = max(0, self.definition.max_parked - self.row.parked)
        walk = GroupWalk([], [], [], 0)
        blocked = 0
        for event in sorted(self.pending.values()):
            fate = Fate.LEFT
            if event.due_at <= now_ms and not event.partitions & blocked:
                if 0 < most <= event.deliveries and len(walk.parked) < parks:
                    walk.parked.append(event)
                    continue
                if len(walk.taken) < batch:
                    fate = offer(event.committed_id)
            if fate is Fate.TAKE:
                walk.taken.append(event)
            elif fate is Fate.GONE:
                walk.gone.append(event)
            elif is_strict:
                blocked |= event.partitions
        return walk._replace(blocked=blocked)

    def adopt(self, epoch: int) -> None:
        """End every lease if the epoch of the log was raised: they may be of the lost history."""
        if self.row.epoch == epoch:
            return
        self.row = self.row._replace(epoch=epoch)
        self.pending = {one.committed_id: one._replace(lease=0, due_at=0) for one in self.pending.values()}

    def packed(self) -> EventGroupRow:
        """The row of this state."""
        return self.row._replace(
            cursors=b"".join(map(_CURSOR.pack, self.cursors)),
            pending=b"".join(_PENDING.pack(*event) for event in sorted(self.pending.values())),
        )


def state_of(row: EventGroupRow) -> GroupState:
    """The state in a row."""
    pending = (PendingEvent(*values) for values in _PENDING.iter_unpack(row.pending))
    return GroupState(
        row,
        definition_of(row.definition),
        [cursor for (cursor,) in _CURSOR.iter_unpack(row.cursors)],
        {event.committed_id: event for event in pending},
    )


def mask_of(partitions: Sequence[str], names: Sequence[str]) -> int:
    """The partitions of a group that are among the names of an event, as bits."""
    wanted = frozenset(names)
    return sum(1 << place for place, name in enumerate(partitions) if name in wanted)


def bits_of(mask: int) -> list[int]:
    """The places of the bits of a mask."""
    return [place for place in range(mask.bit_length()) if mask >> place & 1]


def lease_token(row: EventGroupRow, lease: int) -> bytes:
    """The token of a lease: its number, and a part that cannot be guessed. Derived, so that it is never stored.

    A restored backup counts its leases again from an earlier number. So the epoch of the log is a part of the token.
    """
    number = lease.to_bytes(8, "big")
    return number + digest(row.secret, number + row.epoch.to_bytes(8, "big"), sha256)[:TOKEN_BYTES]
