"""Immutable arguments and results of calls to events."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from semel.client.errors import InvalidArgumentError
from semel.client.json_answer import Facts

_CURSOR = re.compile(r"([0-9]{1,16}):([0-9]{1,16})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Names = str | Sequence[str]
"""One name, or several: of partitions, or of types of events."""


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A position in the log: behind the event `committed_id` of this epoch of the log.

    It belongs to the partitions with which it was made: the events of others before it were never handed over.
    """

    epoch: int
    committed_id: int

    def __post_init__(self) -> None:
        if not (0 <= self.epoch < 1 << 53 and 0 <= self.committed_id < 1 << 53):
            raise InvalidArgumentError("A cursor has an epoch and a committed_id from 0 to 2**53 - 1.")

    def text(self) -> str:
        """The cursor as a short string, to be stored."""
        return f"{self.epoch}:{self.committed_id}"

    @classmethod
    def of_text(cls, text: str) -> Self:
        """The cursor of such a string. Raises InvalidArgumentError for any other."""
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise InvalidArgumentError(f"{text[:40]!r} is not a cursor: it is written as 0:57.")
        return cls(int(match[1]), int(match[2]))


START = Cursor(0, 0)
"""Before the first event."""


@dataclass(frozen=True, slots=True)
class Event:
    """A committed event."""

    id: str
    type: str
    data: Any
    """The `payload` of the event; None if it has none."""
    partitions: tuple[str, ...]
    committed_id: int
    """Its position in the order of all events."""
    committed_at: datetime
    client_id: str
    cursor: Cursor
    """Where to go on after this event."""
    event: Mapping[str, Any] = field(repr=False)
    """The whole object as it was submitted: `type`, `payload` and any other members."""
    facts: Facts = field(default_factory=dict, repr=False, compare=False)
    """All members of the server's answer."""


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event to submit. `id` is its identity: the same id with the same content is one event, however often sent."""

    type: str
    data: Any = None
    """The `payload`, as JSON; None for an event without one."""
    partitions: Names = ()
    id: str | None = None
    """A new time-ordered UUID if None."""
    if_watermark: int | None = None
    """Commit it only if the last event in any of its partitions has this `committed_id`; 0 if there is none yet."""
    members: Mapping[str, Any] | None = None
    """Other members of the event, beside `type` and `payload`."""


@dataclass(frozen=True, slots=True)
class CommittedEvent:
    """The answer to a submitted event: it is on disk."""

    id: str
    committed_id: int
    status_updated_at: datetime
    """When it was committed; for a replay, the time of the first commit."""
    replayed: bool
    """Whether it had been committed before this request, for example by an attempt whose answer was lost."""


@dataclass(frozen=True, slots=True)
class EventsPage:
    """A page of history."""

    events: list[Event]
    cursor: Cursor
    """Where the next page begins."""
    has_more: bool
    """Whether more events up to `sync_to` remain."""
    sync_to: int
    """The last position when the first page was read: pass it as `to` with the cursor for the next page."""
    pruned_to: int | None
    """If set, events up to this position were deleted by retention, and some that were asked for may be gone."""
    next_before: int | None = None
    """Of a page that was read from the end: pass it as `before` for the events before these; None for other pages."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition."""

    name: str
    watermark: int
    """The `committed_id` of its last event, for `if_watermark`."""
    first_committed_id: int | None
    """Its oldest event that is kept; None if retention has deleted all."""
    events: int
    """The number of events that are kept."""
    facts: Facts = field(default_factory=dict, repr=False, compare=False)
    """The whole answer about it."""


@dataclass(frozen=True, slots=True)
class PartitionList:
    """A page of the list of partitions."""

    partitions: list[PartitionInfo]
    next_after: str | None
    """Pass it as `after` for the next page; None at the end."""


def instant(milliseconds: int) -> datetime:
    """A time of the server."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def event_of(facts: Facts, epoch: int) -> Event:
    """The event in an answer. Raises KeyError, TypeError or ValueError if it is incomplete."""
    event = facts["event"]
    committed_id = int(facts["committed_id"])
    return Event(
        id=str(facts["id"]),
        type=str(event["type"]),
        data=event.get("payload"),
        partitions=tuple(facts["partitions"]),
        committed_id=committed_id,
        committed_at=instant(int(facts["status_updated_at"])),
        client_id=str(facts["client_id"]),
        cursor=Cursor(epoch, committed_id),
        event=event,
        facts=facts,
    )


def page_of(facts: Facts) -> EventsPage:
    """The page in an answer. Raises KeyError, TypeError or ValueError if it is incomplete."""
    epoch, pruned = int(facts["log_epoch"]), facts.get("pruned_to_committed_id")
    return EventsPage(
        events=[event_of(one, epoch) for one in facts["events"]],
        cursor=Cursor(epoch, int(facts["next_since_committed_id"])),
        has_more=facts["has_more"] is True,
        sync_to=int(facts["sync_to_committed_id"]),
        pruned_to=None if pruned is None else int(pruned),
        next_before=facts.get("next_before_committed_id"),
    )


def partitions_of(facts: Facts) -> PartitionList:
    """The list in an answer. Raises KeyError, TypeError or ValueError if it is incomplete."""
    found = [
        PartitionInfo(one["partition"], int(one["watermark"]), one["first_committed_id"], int(one["events"]), one)
        for one in facts["partitions"]
    ]
    return PartitionList(found, facts["next_after"] if facts["has_more"] else None)
