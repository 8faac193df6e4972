"""Delivery to the members of a group: fetch, acknowledge, give back, extend.

| a member sends | the lease | answer |
|---|---|---|
| fetch with a new `fetch_id` | - | the next events under a new lease; no lease if there is none |
| fetch with the `fetch_id` of an earlier fetch | has not ended | the same events that are still held, the same token |
| the same | has ended | no events: the member takes a new `fetch_id` |
| ack or nack of events that it holds | has not ended | settled |
| the same ack, or the same nack, again | any | a repetition: nothing changes |
| ack or nack of an event that it does not hold any more | any | `lease_ended`, and nothing of the request is settled |
| extend | has not ended | the lease ends later |

A lease ends at its time, not when its events are delivered again: from then on no ack is accepted, so that an event is
never with two members that may both acknowledge it. In strict order an event cannot be acknowledged before an earlier
event of its partitions, and a nack gives back the events behind it in its partitions too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hmac import compare_digest
from struct import Struct

from semel.engine.contract import DecisionResult, View
from semel.kernel.clock import Now
from semel.store.protocol import Range
from semel.surfaces.events.limits import LEASES_KEPT, MAX_GROUP_PARKED
from semel.surfaces.events.rules.group_commands import (
    GroupBusy,
    GroupExtend,
    GroupExtended,
    GroupFetch,
    GroupFetched,
    GroupRefused,
    GroupSettle,
    GroupSettled,
)
from semel.surfaces.events.rules.group_state import (
    Fate,
    GroupState,
    GroupWalk,
    PendingEvent,
    bits_of,
    lease_token,
)
from semel.surfaces.events.tables import EVENT_GROUP, EVENT_LEASE, EVENT_PARKED, EventLeaseRow, EventParkedRow

HELD, ACKED, RETURNED = 0, 1, 2
_ID = Struct(">Q")
_EXPIRED = b"The lease of its last delivery ended without an acknowledgement."


def topic_of(group: bytes) -> bytes:
    """The topic of fetches that wait for events of a group."""
    return b"events:group:" + group


def lease_range(group: bytes, fetch_key: bytes) -> Range:
    """The lease of a fetch id, if there is one."""
    return Range(EVENT_LEASE, "fetch", (group, fetch_key), 1)


def parked_range(group: bytes, limit: int, after: int = 0) -> Range:
    """Parked events of a group, in order."""
    return Range(EVENT_PARKED, "", (group,), limit, start=(after + 1,))


def ids_in(lease: EventLeaseRow) -> list[int]:
    """The events of a lease."""
    return [committed_id for (committed_id,) in _ID.iter_unpack(lease.ids)]


def fetch(view: View, state: GroupState, command: GroupFetch, now: Now) -> DecisionResult:
    """Deliver what the plan found, as far as no other fetch has taken it meanwhile."""
    known: list[EventLeaseRow] = list(view.range(lease_range(command.name, command.fetch_key)))
    if known:
        return DecisionResult(_fetched_again(state, command, known[0], now))
    plan, row = command.plan, state.row
    if (plan.secret, plan.generation) != (row.secret, row.generation):
        return DecisionResult(GroupBusy())
    walk = state.walk(now.steady_ms, command.batch, lambda one: _fate(command, one))
    _settle_walk(view, state, walk, now)
    new = _take_new(state, command, walk)
    taken = sorted([*walk.taken, *new])
    has_moved = bool(walk.parked or walk.gone)
    if not taken and not has_moved and (plan.new or plan.due or not plan.exhausted):
        return DecisionResult(GroupBusy())
    pruned_to = plan.pruned_to if plan.pruned_to > row.pruned_to and taken else 0
    lease = row.next_lease
    if taken:
        _lend(view, state, command, taken, pruned_to, now)
    view.put(EVENT_GROUP, state.packed())
    events = tuple((one.committed_id, one.deliveries + 1) for one in taken)
    token = lease_token(row, lease) if taken else b""
    answer = GroupFetched(
        token, events, state.definition.lease_ms, pruned_to, state.floor, row.epoch, parked=len(walk.parked)
    )
    # A parked or pruned event may have been what other members wait for.
    return DecisionResult(answer, (topic_of(command.name),) if has_moved else ())


def _fate(command: GroupFetch, committed_id: int) -> Fate:
    if committed_id in command.plan.due:
        return Fate.TAKE
    return Fate.GONE if committed_id in command.plan.gone else Fate.LEFT


def _fetched_again(
    state: GroupState, command: GroupFetch, lease: EventLeaseRow, now: Now
) -> GroupFetched | GroupRefused:
    if lease.member != command.member:
        return GroupRefused("fetch_conflict", "This fetch_id was used by another member; take a new one.")
    held = state.held(lease.number, now.steady_ms)
    left = held[0].due_at - now.steady_ms if held else 0
    events = tuple((one.committed_id, one.deliveries) for one in held)
    token = lease_token(state.row, lease.number)
    return GroupFetched(token, events, left, lease.pruned_to, state.floor, state.row.epoch, is_replay=True)


def _settle_walk(view: View, state: GroupState, walk: GroupWalk, now: Now) -> None:
    _park(view, state, walk.parked, _EXPIRED, now)
    for event in walk.gone:
        del state.pending[event.committed_id]
    state.row = state.row._replace(pruned_events=state.row.pruned_events + len(walk.gone))


def _take_new(state: GroupState, command: GroupFetch, walk: GroupWalk) -> list[PendingEvent]:
    """The new events that are delivered; the cursors move over them, and to the watermark where there are no others."""
    plan, cursors, blocked = command.plan, state.cursors, walk.blocked
    room = min(state.room(), command.batch - len(walk.taken))
    left = blocked
    found: list[PendingEvent] = []
    for committed_id, partitions in plan.new:
        places = bits_of(partitions)
        if any(cursors[place] >= committed_id for place in places):
            continue  # another fetch has delivered it
        if partitions & blocked or len(found) >= room:
            left |= partitions
            blocked |= partitions  # what is behind it in its partitions must wait for it
            continue
        found.append(PendingEvent(committed_id, partitions, 0, 0, 0))
        for place in places:
            cursors[place] = committed_id
    for place in bits_of(plan.exhausted & ~left):
        cursors[place] = max(cursors[place], plan.watermark)
    return found


def _lend(
    view: View, state: GroupState, command: GroupFetch, taken: list[PendingEvent], pruned_to: int, now: Now
) -> None:
    row = state.row
    lease, due_at = row.next_lease, now.steady_ms + state.definition.lease_ms
    for one in taken:
        state.pending[one.committed_id] = one._replace(due_at=due_at, lease=lease, deliveries=one.deliveries + 1)
    ids = b"".join(_ID.pack(one.committed_id) for one in taken)
    receipt = EventLeaseRow(
        command.name, lease, command.fetch_key, command.member, pruned_to, ids, bytes([HELD]) * len(taken)
    )
    view.insert(EVENT_LEASE, receipt)
    if lease > LEASES_KEPT:
        view.forget(EVENT_LEASE, (command.name, lease - LEASES_KEPT))
    state.row = row._replace(
        next_lease=lease + 1, delivered=row.delivered + len(taken), pruned_to=max(row.pruned_to, pruned_to)
    )


def _listed(view: View, state: GroupState) -> frozenset[int]:
    """The parked events; empty if none of them can be pending, because the group was never reset."""
    if not (state.row.generation and state.row.parked):
        return frozenset()
    return frozenset(one.committed_id for one in view.range(parked_range(state.row.name, MAX_GROUP_PARKED)))


def _park(view: View, state: GroupState, events: Sequence[PendingEvent], reason: bytes, now: Now) -> None:
    """Move pending events to the list of parked events. After a reset they may be in it already."""
    row, known = state.row, _listed(view, state) if events else frozenset[int]()
    for event in events:
        del state.pending[event.committed_id]
        parked = EventParkedRow(row.name, event.committed_id, event.partitions, event.deliveries, now.ms, reason)
        (view.put if event.committed_id in known else view.insert)(EVENT_PARKED, parked)
    is_new = sum(event.committed_id not in known for event in events)
    state.row = row._replace(parked=row.parked + is_new)


def lease_number(state: GroupState, token: bytes) -> int | None:
    """The number of the lease of a token; None if the group never gave this token."""
    number = int.from_bytes(token[:8], "big")
    is_known = 0 < number < state.row.next_lease and compare_digest(token, lease_token(state.row, number))
    return number if is_known else None


def settle(view: View, state: GroupState, command: GroupSettle, now: Now) -> DecisionResult:
    """Acknowledge events of a lease, or give them back: all of the request, or nothing of it."""
    number = lease_number(state, command.token)
    if number is None:
        return DecisionResult(_ended(command.ids))
    receipt = view.get(EVENT_LEASE, (command.name, number))
    held = {one.committed_id: one for one in state.held(number, now.steady_ms)}
    fate = ACKED if command.is_ack else RETURNED
    fates = {} if receipt is None else dict(zip(ids_in(receipt), receipt.fates, strict=True))
    done = {one for one, had in fates.items() if had == fate}
    # What the member has settled otherwise is no part of "all up to a position".
    open_ids = held if receipt is None else {one for one, had in fates.items() if had in (HELD, fate)}
    wanted = sorted(set(command.ids) or {one for one in open_ids if one <= command.up_to})
    lost = [one for one in wanted if one not in held and one not in done]
    if lost or not wanted:
        return DecisionResult(_ended(lost))
    chosen = [held[one] for one in wanted if one in held]
    if not chosen:
        return DecisionResult(GroupSettled(0, 0, state.floor, is_replay=True))
    if command.is_ack:
        early = _first_early(state, held.values(), chosen)
        if early is not None:
            return DecisionResult(_out_of_order(early))
    else:
        chosen = _with_followers(state, held.values(), chosen)
    parked = _settle_events(view, state, command, chosen, frozenset(wanted), now)
    if receipt is not None:
        view.put(EVENT_LEASE, _marked(receipt, {one.committed_id for one in chosen}, fate))
    view.put(EVENT_GROUP, state.packed())
    answer = GroupSettled(len(chosen), parked, state.floor, is_replay=False)
    return DecisionResult(answer, (topic_of(command.name),))


def _ended(lost: Iterable[int]) -> GroupRefused:
    message = (
        "The lease has ended for these events, and nothing was settled: they are delivered again, or were settled."
    )
    return GroupRefused("lease_ended", message, (("committed_ids", list(lost)),))


def _out_of_order(early: PendingEvent) -> GroupRefused:
    message = f"The group is in strict order: acknowledge event {early.committed_id} first, or with the others."
    return GroupRefused("out_of_order", message, (("committed_id", early.committed_id),))


def _first_early(
    state: GroupState, held: Iterable[PendingEvent], chosen: Iterable[PendingEvent]
) -> PendingEvent | None:
    """The first held event that must be acknowledged before one of the chosen ones; None if there is none."""
    if not state.definition.is_strict:
        return None
    chosen = list(chosen)
    ids = {one.committed_id for one in chosen}
    for one in held:
        if one.committed_id not in ids and any(
            later.committed_id > one.committed_id and later.partitions & one.partitions for later in chosen
        ):
            return one
    return None


def _with_followers(
    state: GroupState, held: Iterable[PendingEvent], chosen: Iterable[PendingEvent]
) -> list[PendingEvent]:
    """The chosen events, and in strict order the events of the lease that have to come after them."""
    chosen = list(chosen)
    if not state.definition.is_strict:
        return chosen
    ids = {one.committed_id for one in chosen}
    found: list[PendingEvent] = []
    blocked = 0
    for one in held:
        if one.committed_id in ids or one.partitions & blocked:
            blocked |= one.partitions
            found.append(one)
    return found


def _settle_events(
    view: View,
    state: GroupState,
    command: GroupSettle,
    chosen: Iterable[PendingEvent],
    named: frozenset[int],
    now: Now,
) -> int:
    """Settle the events, and return the number of those that were parked."""
    spent: list[PendingEvent] = []
    listed = _listed(view, state) if command.is_ack else frozenset[int]()
    room = state.definition.max_parked - state.row.parked
    for one in chosen:
        if command.is_ack:
            del state.pending[one.committed_id]
            state.row = state.row._replace(acked=state.row.acked + 1)
            if one.committed_id in listed:  # parked before a reset, and handled now
                view.delete(EVENT_PARKED, (command.name, one.committed_id))
                state.row = state.row._replace(parked=state.row.parked - 1)
        elif one.committed_id not in named:
            # It was not tried: this delivery does not count.
            state.pending[one.committed_id] = one._replace(lease=0, due_at=0, deliveries=one.deliveries - 1)
        elif 0 < state.definition.max_deliveries <= one.deliveries and len(spent) < room:
            spent.append(one)
        else:
            state.pending[one.committed_id] = one._replace(lease=0, due_at=now.steady_ms + command.delay_ms)
    _park(view, state, spent, command.reason, now)
    return len(spent)


def _marked(receipt: EventLeaseRow, ids: set[int], fate: int) -> EventLeaseRow:
    fates = [fate if one in ids else had for one, had in zip(ids_in(receipt), receipt.fates, strict=True)]
    return receipt._replace(fates=bytes(fates))


def extend(view: View, state: GroupState, command: GroupExtend, now: Now) -> DecisionResult:
    """Let the lease end a whole lease time from now."""
    number = lease_number(state, command.token)
    held = [] if number is None else state.held(number, now.steady_ms)
    if not held:
        return DecisionResult(_ended(()))
    lease_ms = state.definition.lease_ms
    for one in held:
        state.pending[one.committed_id] = one._replace(due_at=max(one.due_at, now.steady_ms + lease_ms))
    view.put(EVENT_GROUP, state.packed())
    return DecisionResult(GroupExtended(lease_ms, len(held)))
