"""The tables of events, and the migration that creates them.

There is one log for all partitions; a position in it is a `committed_id`. All writes take one lock, so positions
become visible in the order in which they are given. The row of an id outlives its event: pruning deletes bodies and
places in partitions, never the row of an id or of a partition.

Look-ups: an event by its position (EVENT), an id by its packed form (EVENT_ID), the events of a partition by
position (EVENT_PLACE), the end of a partition and all partitions by name (EVENT_PARTITION), the end of the log
(EVENT_HEAD), the ids that a new epoch has skipped (EVENT_GAP).
"""

from __future__ import annotations

from typing import NamedTuple

from semel.store.protocol import Lock
from semel.store.table import Table


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


EVENT = Table("event", EventRow, key=1, bulky=True, unsummed=("id", "committed_at", "partitions", "event"))
EVENT_ID = Table("event_id", EventIdRow, key=1, bulky=True, log=True)
EVENT_PLACE = Table("event_place", EventPlaceRow, key=2)
EVENT_PARTITION = Table("event_partition", EventPartitionRow, key=1, cached=True)
EVENT_HEAD = Table("event_head", EventHeadRow, key=1, cached=True)
EVENT_GAP = Table("event_gap", EventGapRow, key=1, indexes={"epoch": ("epoch",)})

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
)
