"""What submissions store for the quotas of a principal: events with their ids until they are pruned, and snapshots.

A container is 256 positions of the log, so pruning gives back in such steps. The row of an id outlives its event, and
is not counted then: a quota of ids that are kept for ever could never be used again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from types import MappingProxyType

from semel.engine.storage_meter import RowMeter, StorageCharge, StorageRelease
from semel.store.protocol import AnyTable
from semel.surfaces.events.tables import (
    EVENT,
    EVENT_HEAD,
    EVENT_SNAPSHOT,
    EventHeadRow,
    EventRow,
    EventSnapshotRow,
)

STEP_BITS = 8


def _step(number: int) -> bytes:
    return b"ev" + number.to_bytes(8, "big")


def event_items(before: EventRow | None, after: EventRow | None, now_ms: int) -> Iterator[StorageCharge]:
    """An event that was committed; the end of the log tells what was pruned."""
    if before is None and after is not None:
        yield StorageCharge(_step((after.committed_id - 1) >> STEP_BITS), 1, len(after.event))


def head_items(before: EventHeadRow | None, after: EventHeadRow | None, now_ms: int) -> Iterator[StorageRelease]:
    """Events that were pruned."""
    if before is None or after is None:
        return
    first, end = before.pruned_to >> STEP_BITS, after.pruned_to >> STEP_BITS
    if first < end:
        yield StorageRelease(_step(first), _step(end - 1))


def snapshot_items(
    before: EventSnapshotRow | None, after: EventSnapshotRow | None, now_ms: int
) -> Iterator[StorageCharge | StorageRelease]:
    """A snapshot; each is its own container."""
    row = after or before
    if row is None or (before is not None and after is not None):
        return
    container = b"es" + sha256(row.name).digest()[:16] + row.committed_id.to_bytes(8, "big")
    yield StorageRelease(container, container) if after is None else StorageCharge(container, 0, row.size)


STORAGE: Mapping[AnyTable, RowMeter] = MappingProxyType(
    {EVENT: event_items, EVENT_HEAD: head_items, EVENT_SNAPSHOT: snapshot_items}
)
