"""Creation, reset and deletion of consumer groups, and the list of parked events.

A group belongs to a set of partitions, and its definition never changes. Creating it again with the same definition is
answered as a repetition, with another one it is refused. A reset sets every cursor to a position: every lease ends, and
pending events are forgotten; parked events stay, until a new delivery of them is acknowledged. A caller may use a group
if it may use each of its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.store.protocol import Range
from semel.surfaces.epoch import epoch_of
from semel.surfaces.events.limits import LEASES_KEPT, MAX_GROUP_PARKED
from semel.surfaces.events.rules.delivery import parked_range, topic_of
from semel.surfaces.events.rules.epochs import gap_range
from semel.surfaces.events.rules.group_commands import (
    GroupCreate,
    GroupDelete,
    GroupDeleted,
    GroupLimits,
    GroupReach,
    GroupRefused,
    GroupReset,
    GroupShown,
    ParkedMove,
    ParkedMoved,
)
from semel.surfaces.events.rules.group_state import GroupDefinition, GroupState, PendingEvent, bits_of, state_of
from semel.surfaces.events.tables import (
    EMPTY_LOG,
    EVENT_GROUP,
    EVENT_HEAD,
    EVENT_LEASE,
    EVENT_PARKED,
    EVENT_TALLY,
    HEAD_KEY,
    EventGapRow,
    EventGroupRow,
    EventParkedRow,
    EventTallyRow,
)

BEGINNING, NOW = "beginning", "now"
GROUPS = b"group"
_CURSOR = Struct(">Q")


def tally_keys(kind: bytes, owner: bytes) -> tuple[bytes, bytes]:
    """The names of the counts of all, and of one principal."""
    return kind, kind + b":" + owner


def tally(view: View, kind: bytes, owner: bytes, change: int) -> None:
    """Count things that were created or deleted."""
    for name in tally_keys(kind, owner):
        row = view.get(EVENT_TALLY, (name,))
        view.put(EVENT_TALLY, EventTallyRow(name, max(0, (0 if row is None else row.total) + change)))


def over_limit(view: View, kind: bytes, owner: bytes, limits: Sequence[int]) -> int | None:
    """The limit that one more would exceed, of all or of one principal; None if there is room."""
    for name, limit in zip(tally_keys(kind, owner), limits, strict=True):
        row = view.get(EVENT_TALLY, (name,))
        if row is not None and row.total >= limit:
            return limit
    return None


def denied_partition(partitions: Iterable[str], reach: GroupReach) -> str | None:
    """The first partition that a caller may not use; None if it may use all."""
    if reach is None:
        return None
    for name in partitions:
        key = name.encode()
        if not any(key.startswith(one) if is_prefix else key == one for one, is_prefix in reach):
            return name
    return None


def denial(partitions: Iterable[str], reach: GroupReach) -> GroupRefused | None:
    """The refusal of a caller that may not use one of the partitions of a group; None if it may."""
    name = denied_partition(partitions, reach)
    if name is None:
        return None
    return GroupRefused("forbidden", f"This credential may not use {name}.", (("partition", name),))


def start_range(start: str) -> Range | None:
    """The row of a gap that may lie around a start position; None for a start that needs none."""
    return gap_range(int(start)) if start not in (BEGINNING, NOW) else None


def position_of(view: View, start: str) -> int | GroupRefused:
    """The position of a start, which must be in the history of this log."""
    last_id = (view.get(EVENT_HEAD, HEAD_KEY) or EMPTY_LOG).last_id
    if start == BEGINNING:
        return 0
    if start == NOW:
        return last_id
    flaw = position_flaw(view, int(start), last_id)
    return int(start) if flaw is None else flaw


def position_flaw(view: View, position: int, last_id: int) -> GroupRefused | None:
    """Why a position is not one of this log: above its end, or lost with an epoch. None if it is one."""
    if position > last_id:
        message = f"The log ends at {last_id}, before {position}."
        return GroupRefused("bad_request", message, (("watermark", last_id),))
    found: list[EventGapRow] = list(view.range(gap_range(position)))
    if found and found[0].agreed_id < position:
        message = f"This position is of events that were lost when a backup was restored; take {found[0].agreed_id}."
        facts = (("log_epoch", epoch_of(view)), ("agreed_committed_id", found[0].agreed_id))
        return GroupRefused("reset", message, facts)
    return None


def create(view: View, command: GroupCreate, limits: GroupLimits, now: Now) -> DecisionResult:
    """Create a group, or answer that it is there."""
    definition = command.definition
    refusal = denial(definition.partitions, command.reach)
    if refusal is not None:
        return DecisionResult(refusal)
    row = view.get(EVENT_GROUP, (command.name,))
    if row is not None:
        return DecisionResult(_created_again(row, definition, command.reach))
    most = over_limit(view, GROUPS, command.owner, (limits.groups, limits.groups_each))
    if most is not None:
        facts = (("limit", most),)
        return DecisionResult(GroupRefused("limit_reached", f"There are {most} groups, which is the most.", facts))
    start = position_of(view, definition.start)
    if isinstance(start, GroupRefused):
        return DecisionResult(start)
    cursors = _CURSOR.pack(start) * len(definition.partitions)
    row = EventGroupRow(
        name=command.name,
        owner=command.owner,
        definition=definition.dump(),
        secret=command.secret,
        created_at=now.ms,
        generation=0,
        epoch=epoch_of(view),
        next_lease=1,
        reset_id=b"",
        reset_to=start,
        pruned_to=0,
        pruned_events=0,
        parked=0,
        delivered=0,
        acked=0,
        cursors=cursors,
        pending=b"",
    )
    view.put(EVENT_GROUP, row)
    tally(view, GROUPS, command.owner, 1)
    return DecisionResult(GroupShown(state_of(row)))


def _created_again(row: EventGroupRow, definition: GroupDefinition, reach: GroupReach) -> GroupShown | GroupRefused:
    state = state_of(row)
    refusal = denial(state.definition.partitions, reach)
    if refusal is not None:
        return refusal
    if state.definition != definition:
        return GroupRefused("group_exists", "There is a group of this name with another definition.")
    return GroupShown(state, is_new=False)


def reset(view: View, state: GroupState, command: GroupReset) -> DecisionResult:
    """Continue at another position; the same `reset_id` again changes nothing."""
    row = state.row
    if command.reset_id and command.reset_id == row.reset_id:
        return DecisionResult(GroupShown(state, is_new=False))
    start = position_of(view, command.start)
    if isinstance(start, GroupRefused):
        return DecisionResult(start)
    state.cursors = [start] * len(state.cursors)
    state.pending = {}
    # A lower start meets pruned events again, and its members are told again.
    state.row = row._replace(
        generation=row.generation + 1, reset_id=command.reset_id, reset_to=start, pruned_to=min(row.pruned_to, start)
    )
    view.put(EVENT_GROUP, state.packed())
    return DecisionResult(GroupShown(state), (topic_of(command.name),))


def delete(view: View, state: GroupState, command: GroupDelete) -> DecisionResult:
    """Delete the group, its leases and its parked events."""
    row = state.row
    for parked in view.range(parked_range(command.name, MAX_GROUP_PARKED)):
        view.delete(EVENT_PARKED, EVENT_PARKED.key_of(parked))
    for number in range(max(1, row.next_lease - LEASES_KEPT), row.next_lease):
        view.forget(EVENT_LEASE, (command.name, number))
    view.delete(EVENT_GROUP, (command.name,))
    tally(view, GROUPS, row.owner, -1)
    return DecisionResult(GroupDeleted(was_there=True), (topic_of(command.name),))


def move_parked(view: View, state: GroupState, command: ParkedMove) -> DecisionResult:
    """Deliver parked events again, as far as there is room for pending events, or drop them.

    After a reset a parked event may be pending, or not delivered yet. Then it only leaves the list.
    """
    rows = _chosen(view, command)
    if command.is_replay:
        rows = rows[: state.room()]
    for parked in rows:
        view.delete(EVENT_PARKED, EVENT_PARKED.key_of(parked))
        if command.is_replay and _is_settled(state, parked):
            again = PendingEvent(parked.committed_id, parked.partitions, 0, 0, 0)
            state.pending[parked.committed_id] = again
    left = state.row.parked - len(rows)
    if rows:
        state.row = state.row._replace(parked=left)
        view.put(EVENT_GROUP, state.packed())
    return DecisionResult(ParkedMoved(len(rows), left), (topic_of(command.name),) if rows else ())


def _is_settled(state: GroupState, parked: EventParkedRow) -> bool:
    """Whether a parked event was delivered since the last reset, and is not pending."""
    is_past = all(state.cursors[place] >= parked.committed_id for place in bits_of(parked.partitions))
    return is_past and parked.committed_id not in state.pending


def _chosen(view: View, command: ParkedMove) -> list[EventParkedRow]:
    if not command.ids:
        return list(view.range(parked_range(command.name, command.limit)))
    found = (view.get(EVENT_PARKED, (command.name, one)) for one in sorted(set(command.ids)))
    return [row for row in found if row is not None]
