"""The tables of events, and the migration that creates them.

There is one log for all partitions; a position in it is a `committed_id`. All writes take one lock, so positions
become visible in the order in which they are given. The row of an id outlives its event: pruning deletes bodies and
places in partitions, never the row of an id or of a partition.

Look-ups: an event by its position (EVENT), an id by its packed form (EVENT_ID), the events of a partition by
position (EVENT_PLACE), the end of a partition and all partitions by name (EVENT_PARTITION), the end of the log
(EVENT_HEAD), the ids that a new epoch has skipped (EVENT_GAP), a consumer group by its name (EVENT_GROUP), a lease by
its number or its fetch id (EVENT_LEASE), a parked event (EVENT_PARKED), a snapshot by partition and position
(EVENT_SNAPSHOT), the numbers of groups and snapshots (EVENT_TALLY).
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.protocol import Lock
from semel.store.table import U64, Table


class EventRow(NamedTuple):
    """One committed event. `origin` names the connection that sent it; the event is not sent back to it."""

    committed_id: int
    id: bytes
    client_id: bytes
    origin: bytes
    committed_at: int
    partitions: bytes
    """The normalized names as a JSON array."""
    event: bytes
    """The event as JSON, as it is returned."""
    checksum: int = 0


class EventIdRow(NamedTuple):
    """The use of an event id; never deleted."""

    key: bytes
    committed_id: int
    committed_at: int
    digest: bytes


class EventPlaceRow(NamedTuple):
    """The position of an event in one of its partitions."""

    name: bytes
    committed_id: int


class EventPartitionRow(NamedTuple):
    """The end of one partition: the position of its last event, pruned or not. Never deleted."""

    name: bytes
    last_id: int
    kept: int
    """The number of its events that are kept."""


class EventHeadRow(NamedTuple):
    """The end of the log, and the position up to which it was pruned."""

    name: bytes
    last_id: int
    updated_at: int
    pruned_to: int
    checksum: int = 0


class EventGapRow(NamedTuple):
    """Ids that were skipped when an epoch began: above `agreed_id` and below `first_id`."""

    first_id: int
    agreed_id: int
    epoch: int
    checksum: int = 0


class EventGroupRow(NamedTuple):
    """A consumer group: its definition, and the whole state of its deliveries but for parked events."""

    name: bytes
    owner: bytes
    """The principal that created it, for the limit of groups."""
    definition: bytes
    """What it was created with, as JSON."""
    secret: bytes
    """The lease tokens are derived from it."""
    created_at: int
    generation: int
    """The number of resets: a fetch that was planned before a reset is planned again."""
    epoch: int
    """The epoch of the log at the last change."""
    next_lease: int
    reset_id: bytes
    """The id of the last reset, so that its repetition changes nothing."""
    reset_to: int
    pruned_to: int
    """The highest position of pruning that a member was told of."""
    pruned_events: int
    """Delivered events that were pruned before they were acknowledged."""
    parked: int
    delivered: int
    acked: int
    cursors: bytes
    """For each partition the position up to which its events were delivered: 8 bytes each."""
    pending: bytes
    """The events that were delivered and are not acknowledged, in order, as `rules/group_state.py` packs them."""
    checksum: int = 0


class EventLeaseRow(NamedTuple):
    """The receipt of one fetch: its events, and what became of each."""

    group_name: bytes
    number: int
    fetch_key: bytes
    member: bytes
    pruned_to: int
    """The position of pruning that the answer told; 0 if none."""
    ids: bytes
    """The positions of the events, 8 bytes each, in order."""
    fates: bytes
    """One byte for each event: held, acknowledged or given back."""
    checksum: int = 0


class EventParkedRow(NamedTuple):
    """An event that was delivered too often: out of the way until it is replayed or dropped."""

    group_name: bytes
    committed_id: int
    partitions: U64
    """The partitions of the group that the event is in, as bits."""
    deliveries: int
    parked_at: int
    reason: bytes
    checksum: int = 0


class EventSnapshotRow(NamedTuple):
    """A snapshot of a partition: the state after all of its events up to a position."""

    name: bytes
    committed_id: int
    owner: bytes
    digest: bytes
    media_type: bytes
    size: int
    created_at: int
    checksum: int = 0


class EventSnapshotBodyRow(NamedTuple):
    """The content of a snapshot."""

    name: bytes
    committed_id: int
    body: bytes


class EventTallyRow(NamedTuple):
    """A number of groups or snapshots, for a limit: of all, or of one principal."""

    name: bytes
    total: int


EVENT = Table("event", EventRow, key=1, bulky=True, unsummed=("id", "committed_at", "partitions", "event"))
EVENT_ID = Table("event_id", EventIdRow, key=1, bulky=True, log=True)
EVENT_PLACE = Table("event_place", EventPlaceRow, key=2)
EVENT_PARTITION = Table("event_partition", EventPartitionRow, key=1, cached=True)
EVENT_HEAD = Table("event_head", EventHeadRow, key=1, cached=True)
EVENT_GAP = Table("event_gap", EventGapRow, key=1, indexes={"epoch": ("epoch",)})
EVENT_GROUP = Table("event_group", EventGroupRow, key=1, bulky=True)
EVENT_LEASE = Table("event_lease", EventLeaseRow, key=2, indexes={"fetch": ("group_name", "fetch_key")})
EVENT_PARKED = Table("event_parked", EventParkedRow, key=2)
EVENT_SNAPSHOT = Table("event_snapshot", EventSnapshotRow, key=2)
EVENT_SNAPSHOT_BODY = Table("event_snapshot_body", EventSnapshotBodyRow, key=2, heavy=True)
EVENT_TALLY = Table("event_tally", EventTallyRow, key=1)

LOG = Lock(b"events")
"""The one lock of the log."""
HEAD_KEY = (b"",)
EMPTY_LOG = EventHeadRow(b"", 0, 0, 0)

TABLES = (
    EVENT,
    EVENT_ID,
    EVENT_PLACE,
    EVENT_PARTITION,
    EVENT_HEAD,
    EVENT_GAP,
    EVENT_GROUP,
    EVENT_LEASE,
    EVENT_PARKED,
    EVENT_SNAPSHOT,
    EVENT_SNAPSHOT_BODY,
    EVENT_TALLY,
)
