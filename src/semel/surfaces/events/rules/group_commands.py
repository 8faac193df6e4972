"""The commands of consumer groups and their results."""

from __future__ import annotations

from typing import NamedTuple

from semel.surfaces.events.rules.group_state import GroupDefinition, GroupState

GroupReach = tuple[tuple[bytes, bool], ...] | None
"""The partitions that a caller may use: pairs of a name and whether it is a prefix; None allows all."""


class GroupLimits(NamedTuple):
    """The limits that a deployment may set."""

    groups: int = 1_000
    groups_each: int = 100
    """Of one principal."""


class GroupCreate(NamedTuple):
    """Create a group."""

    name: bytes
    definition: GroupDefinition
    owner: bytes
    secret: bytes
    reach: GroupReach = None


class GroupDelete(NamedTuple):
    """Delete a group with its state and its parked events."""

    name: bytes
    reach: GroupReach = None


class GroupReset(NamedTuple):
    """Continue at another position: every lease ends, and what was pending is forgotten."""

    name: bytes
    start: str
    reset_id: bytes
    reach: GroupReach = None


class FetchPlan(NamedTuple):
    """What a fetch found in the log before its transaction.

    It holds for any later state of the same group and generation: the log only grows, so that the events of a partition
    behind its cursor stay the next ones.
    """

    secret: bytes
    """The secret of the group: a new group of the same name has another."""
    generation: int
    due: frozenset[int] = frozenset()
    """Pending events that were read to be delivered again."""
    gone: frozenset[int] = frozenset()
    """Pending events that retention has deleted."""
    new: tuple[tuple[int, int], ...] = ()
    """Events behind the cursors with their partitions as bits: without a hole in any of these partitions."""
    exhausted: int = 0
    """The partitions, as bits, that have no events up to the watermark besides those in `new`."""
    watermark: int = 0
    pruned_to: int = 0
    """Events up to here may have been pruned before they were delivered; 0 if none."""


class GroupFetch(NamedTuple):
    """Deliver a batch of events to a member under a lease."""

    name: bytes
    member: bytes
    fetch_key: bytes
    batch: int
    plan: FetchPlan
    reach: GroupReach = None


class GroupSettle(NamedTuple):
    """Acknowledge events of a lease (`is_ack`), or give them back."""

    name: bytes
    token: bytes
    ids: tuple[int, ...]
    """The events; without any, all of the lease up to `up_to`."""
    up_to: int
    is_ack: bool
    delay_ms: int = 0
    reason: bytes = b""
    reach: GroupReach = None


class GroupExtend(NamedTuple):
    """Let a lease end later."""

    name: bytes
    token: bytes
    reach: GroupReach = None


class ParkedMove(NamedTuple):
    """Deliver parked events again (`is_replay`), or drop them; without ids, the first of the list."""

    name: bytes
    ids: tuple[int, ...]
    is_replay: bool
    limit: int
    reach: GroupReach = None


GroupCommand = GroupCreate | GroupDelete | GroupReset | GroupFetch | GroupSettle | GroupExtend | ParkedMove


class GroupRefused(NamedTuple):
    """The command changed nothing; the code is of the registry of errors."""

    code: str
    message: str
    facts: tuple[tuple[str, object], ...] = ()


class GroupShown(NamedTuple):
    """The state of a group after a command."""

    state: GroupState
    is_new: bool = True
    """Whether the command changed something; otherwise it repeats an earlier one."""


class GroupDeleted(NamedTuple):
    """Whether there was a group to delete."""

    was_there: bool


class GroupBusy(NamedTuple):
    """Other fetches were faster: the fetch is to be planned again."""


class GroupFetched(NamedTuple):
    """The events of a lease that the member holds, with the number of deliveries of each."""

    token: bytes
    """Empty if there is no event, and so no lease."""
    events: tuple[tuple[int, int], ...]
    lease_ms: int
    """Milliseconds until the lease ends."""
    pruned_to: int
    floor: int
    epoch: int
    is_replay: bool = False
    parked: int = 0
    """Events that this fetch parked."""


class GroupSettled(NamedTuple):
    """The number of events that were settled now; 0 for a repetition."""

    settled: int
    parked: int
    floor: int
    is_replay: bool


class GroupExtended(NamedTuple):
    """Milliseconds until the lease ends."""

    lease_ms: int
    events: int


class ParkedMoved(NamedTuple):
    """The number of parked events that were replayed or dropped, and of those that are left."""

    moved: int
    left: int
