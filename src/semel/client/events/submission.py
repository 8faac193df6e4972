"""Events on their way to the server: their JSON, their split into requests, and the verdict on each.

The bytes of an event are made once, so that every attempt sends the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from secrets import token_bytes
from typing import Any, NamedTuple

from semel.client.errors import InvalidArgumentError, RefusedError, TooLargeError
from semel.client.events.errors import EventRejectedError, rejection
from semel.client.events.values import CommittedEvent, EventDraft, Names, instant
from semel.client.json_answer import Facts, facts_of, read
from semel.client.transport.http_transport import ClientAnswer
from semel.kernel.keys import time_ordered_uuid

REPLAYED_HEADER = "events-replayed"
ITEMS, BYTES = 100, 1_048_576
"""Limits of one request, unless the server tells others."""
AROUND_BYTES = 16
"""Bytes of a body around its items."""


class EventItemText(NamedTuple):
    """One event as it is sent."""

    id: str
    text: bytes


class SubmissionLimits(NamedTuple):
    """The limits of one request."""

    items: int = ITEMS
    size: int = BYTES


def new_event_id() -> str:
    """A unique id; ids sort by creation time."""
    return time_ordered_uuid(time.time_ns() // 1_000_000, token_bytes(10))


def names_of(given: Names, what: str = "a partition") -> list[str]:
    """The names of partitions or types; a string is one name. Raises InvalidArgumentError for none."""
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        raise InvalidArgumentError(f"Name at least one: the name of {what} is missing.")
    return [_text(name, f"The name of {what}") for name in names]


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgumentError(f"{what} must be a string that is not empty.")
    return value


def item_of(draft: EventDraft) -> dict[str, Any]:
    """An event as the protocol has it. Raises InvalidArgumentError for a name that cannot be sent."""
    event_id = new_event_id() if draft.id is None else _text(draft.id, "The id of an event")
    event = {**(draft.members or {}), "type": _text(draft.type, "The type of an event")}
    if draft.data is not None:
        event["payload"] = draft.data
    item: dict[str, Any] = {"id": event_id, "partitions": names_of(draft.partitions), "event": event}
    if draft.if_watermark is not None:
        item["if_watermark"] = draft.if_watermark
    return item


def item_text(draft: EventDraft) -> EventItemText:
    """The JSON of an event. Raises InvalidArgumentError if it cannot be sent."""
    item = item_of(draft)
    try:
        return EventItemText(item["id"], json.dumps(item, allow_nan=False, separators=(",", ":")).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The event {item['id']} cannot be written as JSON: {error}.") from None


def item_texts(drafts: Iterable[EventDraft]) -> list[EventItemText]:
    """The JSON of events. Raises InvalidArgumentError if two have one id: nothing is sent then."""
    items = [item_text(draft) for draft in drafts]
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise InvalidArgumentError(f"The id {item.id} is given twice: give each event its own.")
        seen.add(item.id)
    return items


def body_of(items: Sequence[EventItemText], client_id: str | None = None) -> bytes:
    """The body of a request."""
    sender = b"" if client_id is None else b'"client_id":%s,' % json.dumps(client_id).encode()
    return b'{%s"events":[%s]}' % (sender, b",".join(item.text for item in items))


def first_batch(items: Sequence[EventItemText], limits: SubmissionLimits) -> Sequence[EventItemText]:
    """As many of the first items as one request may have; at least one."""
    size = AROUND_BYTES
    for place, item in enumerate(items[: limits.items]):
        size += len(item.text) + 1
        if size > limits.size and place:
            return items[:place]
    return items[: limits.items]


def smaller_limits(error: RefusedError, sent: int, limits: SubmissionLimits) -> SubmissionLimits | None:
    """The limits of the next request after a refusal of this one; None if it was not refused for its size.

    Nothing of a refused request is stored, so its items may be sent in other requests.
    """
    told = _told(error)
    if sent == 1 or not (told or isinstance(error, TooLargeError)):
        return None
    items = told.get("max_batch_size", sent)
    return learned_limits(error, limits)._replace(items=items if 1 <= items < sent else max(1, sent // 2))


def learned_limits(error: RefusedError, limits: SubmissionLimits) -> SubmissionLimits:
    """The limits, with those that the server told in a refusal."""
    told = _told(error)
    items, size = told.get("max_batch_size", limits.items), told.get("max_message_bytes", limits.size)
    return SubmissionLimits(max(1, min(items, limits.items)), max(1, min(size, limits.size)))


def _told(error: RefusedError) -> dict[str, int]:
    details = error.facts.get("details")
    names = ("max_batch_size", "max_message_bytes")
    found = details if isinstance(details, dict) else {}
    return {name: found[name] for name in names if isinstance(found.get(name), int)}


def verdicts_of(items: Sequence[EventItemText], answer: ClientAnswer) -> list[CommittedEvent | EventRejectedError]:
    """The verdict on each item of a request, in order. Raises BadAnswerError or ValueError for another answer."""
    facts = facts_of(answer.body)
    return read(lambda: _verdicts(items, facts, answer))


def _verdicts(
    items: Sequence[EventItemText], facts: Facts, answer: ClientAnswer
) -> list[CommittedEvent | EventRejectedError]:
    results: Any = facts["results"]
    places = answer.headers.get(REPLAYED_HEADER, "")
    replayed = {int(place) for place in places.split(",")} if places else set[int]()
    if [one["id"] for one in results] != [item.id for item in items]:
        raise ValueError("it is not about these events")
    return [_verdict(one, place in replayed) for place, one in enumerate(results)]


def _verdict(facts: dict[str, Any], is_replayed: bool) -> CommittedEvent | EventRejectedError:
    if facts["status"] != "committed":
        return rejection(facts["id"], facts)
    at = instant(int(facts["status_updated_at"]))
    return CommittedEvent(facts["id"], int(facts["committed_id"]), at, is_replayed)
