"""Consumer groups and snapshots as a contract of the engine: one lock for each group and each partition's snapshots.

Neither takes the lock of the log: an ack does not wait for a submission. The end of the log is read without its lock;
it only grows, so that a position that was at or below it stays so. Creations and deletions share a lock for the counts.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import AnyTable, Lock, Range
from semel.store.table import Key
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, epoch_of
from semel.surfaces.events.limits import MAX_GROUP_PARKED, SNAPSHOTS_KEPT_MOST
from semel.surfaces.events.rules import delivery, groups, snapshots
from semel.surfaces.events.rules.epochs import gap_range
from semel.surfaces.events.rules.group_commands import (
    GroupCommand,
    GroupCreate,
    GroupDelete,
    GroupDeleted,
    GroupExtend,
    GroupFetch,
    GroupLimits,
    GroupRefused,
    GroupReset,
    GroupSettle,
    ParkedMove,
)
from semel.surfaces.events.rules.group_state import GroupState, state_of
from semel.surfaces.events.rules.snapshots import SnapshotCommand, SnapshotDelete, SnapshotLimits, SnapshotPut
from semel.surfaces.events.tables import (
    EVENT_GROUP,
    EVENT_HEAD,
    EVENT_LEASE,
    EVENT_PARKED,
    EVENT_SNAPSHOT,
    EVENT_TALLY,
    HEAD_KEY,
)

COUNTS = Lock(b"events:counts")
MISSING = GroupRefused("group_not_found", "There is no group of this name.")


class EventConsumers:
    """The contract of consumer groups and snapshots."""

    name = "events"

    def __init__(self, group_limits: GroupLimits, snapshot_limits: SnapshotLimits) -> None:
        self._group_limits = group_limits
        self._snapshot_limits = snapshot_limits

    def locks(self, command: GroupCommand | SnapshotCommand) -> Sequence[Lock]:
        """The lock of the group or of the partition's snapshots, and that of the counts if they may change."""
        if isinstance(command, SnapshotPut | SnapshotDelete):
            return COUNTS, Lock(b"events:snapshot:" + command.name)
        own = Lock(b"events:group:" + command.name)
        return (COUNTS, own) if isinstance(command, GroupCreate | GroupDelete) else (own,)

    def needs(self, command: GroupCommand | SnapshotCommand) -> Generator[Stage, View, None]:
        """The row of the group, then what the command needs besides it."""
        if isinstance(command, SnapshotPut | SnapshotDelete):
            yield from self._snapshot_needs(command)
            return
        keys: list[tuple[AnyTable, Key]] = [(EVENT_GROUP, (command.name,)), (EPOCH, EPOCH_KEY)]
        ranges: list[Range] = []
        if isinstance(command, GroupCreate | GroupReset):
            keys.append((EVENT_HEAD, HEAD_KEY))
            start = command.definition.start if isinstance(command, GroupCreate) else command.start
            gap = groups.start_range(start)
            ranges += [] if gap is None else [gap]
        if isinstance(command, GroupFetch):
            ranges.append(delivery.lease_range(command.name, command.fetch_key))
        elif isinstance(command, GroupSettle):
            keys.append((EVENT_LEASE, (command.name, _number(command.token))))
        elif isinstance(command, ParkedMove):
            keys += [(EVENT_PARKED, (command.name, one)) for one in command.ids]
            ranges += [] if command.ids else [delivery.parked_range(command.name, command.limit)]
        elif isinstance(command, GroupCreate):
            keys += [(EVENT_TALLY, (name,)) for name in groups.tally_keys(groups.GROUPS, command.owner)]
        elif isinstance(command, GroupDelete):
            ranges.append(delivery.parked_range(command.name, MAX_GROUP_PARKED))
        view = yield Stage(keys=keys, ranges=ranges)
        row = view.get(EVENT_GROUP, (command.name,))
        if isinstance(command, GroupDelete) and row is not None:
            yield Stage(keys=[(EVENT_TALLY, (name,)) for name in groups.tally_keys(groups.GROUPS, row.owner)])

    def _snapshot_needs(self, command: SnapshotCommand) -> Generator[Stage, View, None]:
        keys: list[tuple[AnyTable, Key]] = [(EVENT_SNAPSHOT, (command.name, command.committed_id))]
        if isinstance(command, SnapshotDelete):
            view = yield Stage(keys=keys)
            row = view.get(EVENT_SNAPSHOT, (command.name, command.committed_id))
            owners = set() if row is None else {row.owner}
        else:
            keys += [(EVENT_HEAD, HEAD_KEY), (EPOCH, EPOCH_KEY)]
            kept = snapshots.snapshots_range(command.name, SNAPSHOTS_KEPT_MOST)
            view = yield Stage(keys=keys, ranges=[kept, gap_range(command.committed_id)])
            owners = {command.owner, *(row.owner for row in view.range(kept))}
        names = {name for owner in owners for name in groups.tally_keys(snapshots.SNAPSHOTS, owner)}
        yield Stage(keys=[(EVENT_TALLY, (name,)) for name in sorted(names)])

    def order(self, command: GroupCommand | SnapshotCommand) -> Order | None:
        """None: commands are decided in order of arrival."""
        return None

    def decide(self, view: View, command: GroupCommand | SnapshotCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        if isinstance(command, SnapshotPut):
            return snapshots.put(view, command, self._snapshot_limits, now)
        if isinstance(command, SnapshotDelete):
            return snapshots.delete(view, command)
        if isinstance(command, GroupCreate):
            return groups.create(view, command, self._group_limits, now)
        row = view.get(EVENT_GROUP, (command.name,))
        if row is None:
            return DecisionResult(GroupDeleted(was_there=False) if isinstance(command, GroupDelete) else MISSING)
        state = state_of(row)
        refusal = groups.denial(state.definition.partitions, command.reach)
        if refusal is not None:
            return DecisionResult(refusal)
        state.adopt(epoch_of(view))
        return _decide(view, state, command, now)

    def chores(self, reading: Reading) -> Sequence[GroupCommand]:
        """No chores: a fetch itself ends leases, parks events and forgets old receipts."""
        return ()


def _decide(view: View, state: GroupState, command: GroupCommand, now: Now) -> DecisionResult:
    if isinstance(command, GroupFetch):
        return delivery.fetch(view, state, command, now)
    if isinstance(command, GroupSettle):
        return delivery.settle(view, state, command, now)
    if isinstance(command, GroupExtend):
        return delivery.extend(view, state, command, now)
    if isinstance(command, GroupReset):
        return groups.reset(view, state, command)
    if isinstance(command, GroupDelete):
        return groups.delete(view, state, command)
    assert isinstance(command, ParkedMove)
    return groups.move_parked(view, state, command)


def _number(token: bytes) -> int:
    """The number in a lease token; the rules check the rest of it."""
    return min(int.from_bytes(token[:8], "big"), 2**63 - 1)
