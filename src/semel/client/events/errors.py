"""Errors of events: a rejected event, and a history that cannot be handed over without a gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.errors import GoneError, RefusedError, SemelError
from semel.client.events.values import Cursor

UNPROCESSABLE = 422


class EventFault(NamedTuple):
    """One reason of a rejection."""

    field: str
    """A dot path inside the item, such as `event.payload.qty`."""
    message: str


class EventRejectedError(RefusedError):
    """The server rejected an event: it is not stored, and uses no position. The other events of a call are unaffected.

    `code` is the server's reason: `validation_failed`, `forbidden`, `payload_too_large`, `watermark_mismatch`.
    """

    def __init__(self, event_id: str, facts: Mapping[str, Any]) -> None:
        self.event_id = event_id
        self.faults = tuple(EventFault(str(one["field"]), str(one["message"])) for one in facts.get("errors", ()))
        reason = str(facts["reason"])
        told = "; ".join(f"{fault.field}: {fault.message}" for fault in self.faults) or "rejected"
        super().__init__(UNPROCESSABLE, reason, f"The event {event_id} was rejected: {told} [{reason}]", facts, 0.0)


class EventConflictError(EventRejectedError):
    """The id is that of a committed event with other content. That one is kept."""


class WatermarkMismatchError(EventRejectedError):
    """The last event of the partitions is another than `if_watermark` says: read on, decide again, and submit again."""

    def __init__(self, event_id: str, facts: Mapping[str, Any]) -> None:
        super().__init__(event_id, facts)
        self.watermark = int(facts["watermark"])
        """The `committed_id` of the last event in any of the partitions."""


def rejection(event_id: str, facts: Mapping[str, Any]) -> EventRejectedError:
    """The error of a rejected item."""
    if facts["reason"] == "watermark_mismatch":
        return WatermarkMismatchError(event_id, facts)
    # The server has no reason of its own for a taken id.
    taken = {"field": "event", "message": f"id {event_id} is already committed with other content"}
    return (EventConflictError if facts.get("errors") == [taken] else EventRejectedError)(event_id, facts)


class HistoryGapError(SemelError):
    """Events between a cursor and `next_cursor` cannot be handed over. Nothing is skipped before this is accepted.

    Bring your data to the state at `next_cursor`, from a copy of yours or by deleting what is above it, and then call
    `accept(error)` of the follower. Until then the follower raises it again, also after a restart.
    """

    def __init__(self, message: str, cursor: Cursor, next_cursor: Cursor) -> None:
        super().__init__(message)
        self.cursor = cursor
        """The last position that was handed over."""
        self.next_cursor = next_cursor
        """Where the follower goes on once this is accepted."""


class EventsPrunedError(HistoryGapError):
    """Retention deleted events after the cursor: those up to `next_cursor` may be missing."""

    def __init__(self, cursor: Cursor, epoch: int, pruned_to: int) -> None:
        message = f"Retention deleted events up to {pruned_to}; this reader has read up to {cursor.committed_id}."
        super().__init__(message, cursor, Cursor(epoch, pruned_to))


class EventsResetError(HistoryGapError):
    """The server's log was restored from an older backup: it and this reader agree up to `next_cursor`.

    Events above it that this reader has handled are not in the log any more. Undo what they did, then accept.
    """

    def __init__(self, cursor: Cursor, epoch: int, agreed: int) -> None:
        message = (
            f"An older backup of the log was restored: it agrees with this reader up to {agreed}, "
            f"and this reader has read up to {cursor.committed_id}."
        )
        super().__init__(message, cursor, Cursor(epoch, agreed))


class LogBehindError(SemelError):
    """This reader has passed the end of the server's log: an older backup was restored without a new epoch
    (`semel epoch raise`). What this reader holds and the server's log are two histories.
    """

    def __init__(self, cursor: Cursor, committed_id: int) -> None:
        super().__init__(
            f"The server's log is at {committed_id}, and this reader has read up to {cursor.committed_id}: "
            "an older backup was restored without `semel epoch raise`, or this is another server. "
            "Delete what this reader has made of events before you read again from the start."
        )
        self.cursor = cursor


class EventReplacedError(SemelError):
    """Another event has the place of one that was handed over: what this reader holds and the server's log are two
    histories. An event that comes twice is skipped, and is no error.
    """

    def __init__(self, cursor: Cursor, committed_id: int, event_id: str, known_id: str | None) -> None:
        known = "no event" if known_id is None else f"the event {known_id!r}"
        super().__init__(
            f"The server sends the event {event_id!r} at {committed_id}, and this reader has read {known} there: an "
            "older backup was restored without `semel epoch raise`, or another server answers. "
            "Delete what this reader has made of events before you read again from the start."
        )
        self.cursor = cursor
        """The last position that was handed over."""
        self.committed_id = committed_id
        self.event_id = event_id
        """The id of the event that the server sends there now."""
        self.known_id = known_id
        """The id of the event that was handed over there; None if there was none."""


class CursorMovedError(SemelError):
    """The stored cursor is not where this reader left it. Nothing was stored: roll back, and follow again.

    Another process follows with the same cursor, or the transaction of an earlier event was rolled back.
    """


def reset_of(error: GoneError, cursor: Cursor) -> SemelError:
    """The reset in a refusal; any other refusal as it is."""
    details = error.facts.get("details")
    if error.code != "reset" or not isinstance(details, Mapping):
        return error
    return EventsResetError(cursor, int(details["log_epoch"]), int(details["agreed_committed_id"]))
