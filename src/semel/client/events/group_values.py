"""Immutable results of calls to consumer groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from semel.client.events.values import Event, event_of
from semel.client.json_answer import Facts


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group."""

    name: str
    partitions: tuple[str, ...]
    order: str
    lease_seconds: float
    floor_committed_id: int
    """Every event of the group up to here is acknowledged or parked."""
    pending: int
    """Events behind the floor that are not acknowledged."""
    leased: int
    parked: int
    delivered: int
    acked: int
    pruned_events: int
    """Events that retention deleted before they were acknowledged."""
    replayed: bool = False
    """Whether an earlier call had created or reset it."""
    facts: Facts = field(default_factory=dict, repr=False)
    """All members of the server's answer."""


@dataclass(frozen=True, slots=True)
class GroupList:
    """A page of the list of groups."""

    groups: list[GroupInfo]
    next_after: str | None
    """Pass it as `after` for the next page; None at the end."""


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """An event that a member has leased."""

    event: Event
    deliveries: int
    """How often it was handed over, including this time: above 1, an earlier member may have handled it."""

    @property
    def committed_id(self) -> int:
        """Its position in the order of all events."""
        return self.event.committed_id


@dataclass(frozen=True, slots=True)
class EventLease:
    """The events of one fetch; no other member gets them until the lease ends."""

    group: str
    token: str | None
    """None if there were no events."""
    seconds: float
    """How long the lease lasts, from the answer on."""
    events: list[GroupEvent]
    replayed: bool
    """Whether an earlier attempt of the same fetch had leased them."""
    pruned_to: int | None
    """If set, retention deleted events of the group up to this position before they were delivered."""
    pruned_ids: tuple[int, ...] = ()
    """Events of this lease that retention has deleted since."""


@dataclass(frozen=True, slots=True)
class ParkedEvent:
    """An event that was delivered too often."""

    committed_id: int
    deliveries: int
    parked_at: datetime
    reason: str
    event: Event | None
    """None if retention has deleted it."""
    facts: Facts = field(default_factory=dict, repr=False, compare=False)
    """All members of the server's answer."""


@dataclass(frozen=True, slots=True)
class ParkedList:
    """A page of the parked events of a group."""

    events: list[ParkedEvent]
    next_after: int | None
    """Pass it as `after` for the next page; None at the end."""


def group_of(facts: Facts) -> GroupInfo:
    """The group in an answer. Raises KeyError, TypeError or ValueError if it is incomplete."""
    return GroupInfo(
        name=str(facts["group"]),
        partitions=tuple(facts["partitions"]),
        order=str(facts["order"]),
        lease_seconds=int(facts["lease_ms"]) / 1_000,
        floor_committed_id=int(facts["floor_committed_id"]),
        pending=int(facts["pending"]),
        leased=int(facts["leased"]),
        parked=int(facts["parked"]),
        delivered=int(facts["delivered"]),
        acked=int(facts["acked"]),
        pruned_events=int(facts["pruned_events"]),
        replayed=facts.get("replayed") is True,
        facts=facts,
    )


def lease_of(facts: Facts, group: str) -> EventLease:
    """The lease in an answer. Raises KeyError, TypeError or ValueError if it is incomplete."""
    epoch, pruned = int(facts["log_epoch"]), facts.get("pruned_to_committed_id")
    return EventLease(
        group=group,
        token=facts["lease"],
        seconds=int(facts["lease_ms"]) / 1_000,
        events=[GroupEvent(event_of(one, epoch), int(one["deliveries"])) for one in facts["events"]],
        replayed=facts["replayed"] is True,
        pruned_to=None if pruned is None else int(pruned),
        pruned_ids=tuple(facts.get("pruned_committed_ids", ())),
    )


def parked_of(facts: Facts) -> ParkedList:
    """The parked events in an answer. Raises KeyError, TypeError or ValueError if it is incomplete."""
    found = [_parked(one) for one in facts["parked"]]
    return ParkedList(found, int(facts["next_after"]) if facts["has_more"] else None)


def _parked(facts: dict[str, Any]) -> ParkedEvent:
    event = facts["event"]
    return ParkedEvent(
        committed_id=int(facts["committed_id"]),
        deliveries=int(facts["deliveries"]),
        parked_at=datetime.fromisoformat(facts["parked_at"]),
        reason=str(facts["reason"]),
        event=None if event is None else event_of(event, 0),
        facts=facts,
    )
