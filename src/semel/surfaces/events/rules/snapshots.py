"""Snapshots of partitions: the state of a partition after all of its events up to a position, as opaque bytes.

| there is at this position | the same content comes | other content comes |
|---|---|---|
| nothing, and it is among the newest that are kept | stored | stored |
| nothing, and all that are kept are newer | superseded: nothing is stored | the same |
| a snapshot | a repetition: nothing changes | refused, `snapshot_exists` |

Content is the bytes and the media type. The newest snapshots of a partition are kept; an older one is deleted in the
transaction that stores the newest. A position must be in the history of this log, at or below the watermark.
"""

from __future__ import annotations

from typing import NamedTuple

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.store.protocol import Range
from semel.surfaces.events.limits import SNAPSHOTS_KEPT_MOST
from semel.surfaces.events.rules.group_commands import GroupRefused
from semel.surfaces.events.rules.groups import over_limit, position_flaw, tally
from semel.surfaces.events.tables import (
    EMPTY_LOG,
    EVENT_HEAD,
    EVENT_SNAPSHOT,
    EVENT_SNAPSHOT_BODY,
    HEAD_KEY,
    EventSnapshotBodyRow,
    EventSnapshotRow,
)

SNAPSHOTS = b"snapshot"


class SnapshotLimits(NamedTuple):
    """The limits that a deployment may set."""

    kept: int = 3
    """Of one partition."""
    snapshots: int = 10_000
    snapshots_each: int = 1_000
    """Of one principal."""


class SnapshotPut(NamedTuple):
    """Store a snapshot."""

    name: bytes
    committed_id: int
    body: bytes
    digest: bytes
    media_type: bytes
    owner: bytes


class SnapshotDelete(NamedTuple):
    """Delete a snapshot."""

    name: bytes
    committed_id: int


SnapshotCommand = SnapshotPut | SnapshotDelete


class SnapshotStored(NamedTuple):
    """A snapshot is stored, was stored before (`is_replay`), or is older than all that are kept (`is_superseded`)."""

    committed_id: int
    is_replay: bool = False
    is_superseded: bool = False


class SnapshotDeleted(NamedTuple):
    """Whether there was a snapshot to delete."""

    was_there: bool


def snapshots_range(name: bytes, limit: int) -> Range:
    """The newest snapshots of a partition."""
    return Range(EVENT_SNAPSHOT, "", (name,), limit, reverse=True)


def put(view: View, command: SnapshotPut, limits: SnapshotLimits, now: Now) -> DecisionResult:
    """Store a snapshot, and delete the oldest if there are too many: several, if the setting was lowered."""
    last_id = (view.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG).last_id
    key = (command.name, command.committed_id)
    known = view.get(EVENT_SNAPSHOT, key)
    if known is not None:
        return DecisionResult(_put_again(known, command))
    flaw = position_flaw(view, command.committed_id, last_id)
    if flaw is not None:
        return DecisionResult(flaw)
    kept: list[EventSnapshotRow] = list(view.range(snapshots_range(command.name, SNAPSHOTS_KEPT_MOST)))
    if len(kept) >= limits.kept and kept[limits.kept - 1].committed_id > command.committed_id:
        return DecisionResult(SnapshotStored(command.committed_id, is_superseded=True))
    oldest = kept[limits.kept - 1 :]
    most = over_limit(view, SNAPSHOTS, command.owner, (limits.snapshots, limits.snapshots_each))
    if most is not None and all(row.owner != command.owner for row in oldest):
        facts = (("limit", most),)
        return DecisionResult(GroupRefused("limit_reached", f"There are {most} snapshots, which is the most.", facts))
    for row in oldest:
        _remove(view, row)
    stored = EventSnapshotRow(*key, command.owner, command.digest, command.media_type, len(command.body), now.ms)
    view.put(EVENT_SNAPSHOT, stored)
    view.insert(EVENT_SNAPSHOT_BODY, EventSnapshotBodyRow(*key, command.body))
    tally(view, SNAPSHOTS, command.owner, 1)
    return DecisionResult(SnapshotStored(command.committed_id))


def _put_again(known: EventSnapshotRow, command: SnapshotPut) -> SnapshotStored | GroupRefused:
    if (known.digest, known.media_type) == (command.digest, command.media_type):
        return SnapshotStored(command.committed_id, is_replay=True)
    return GroupRefused("snapshot_exists", "There is a snapshot at this position with other content.")


def delete(view: View, command: SnapshotDelete) -> DecisionResult:
    """Delete a snapshot."""
    row = view.get(EVENT_SNAPSHOT, (command.name, command.committed_id))
    if row is None:
        return DecisionResult(SnapshotDeleted(was_there=False))
    _remove(view, row)
    return DecisionResult(SnapshotDeleted(was_there=True))


def _remove(view: View, row: EventSnapshotRow) -> None:
    key = (row.name, row.committed_id)
    view.delete(EVENT_SNAPSHOT, key)
    view.forget(EVENT_SNAPSHOT_BODY, key)
    tally(view, SNAPSHOTS, row.owner, -1)
