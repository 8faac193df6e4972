"""Items of a submission: each is parsed alone and has its own error, before the log is read.

The checks run in the order of the contract: first the item's values, then the sender's right to write to each of its
partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.kernel.json.fragment import JsonObject, dump, is_object, is_plain
from semel.kernel.json.members import MemberReader
from semel.kernel.json.parse import first_mark
from semel.kernel.json.text import JsonError
from semel.kernel.keys import pack
from semel.surfaces.events.commands import (
    FORBIDDEN,
    VALIDATION_FAILED,
    EventCommitted,
    EventItem,
    EventRejection,
    EventSubmit,
    EventSubmitted,
)
from semel.surfaces.events.limits import MAX_COMMITTED_ID, MAX_ID_BYTES
from semel.surfaces.events.rules.event_log import digest_of
from semel.surfaces.events.rules.partitions import NO_PARTITIONS, PartitionError, checked
from semel.surfaces.events.wire.fields import POSITION_RULE
from semel.surfaces.events.wire.messages import EventIdentity, bad_request


class ItemError(Exception):
    """An item is rejected."""

    def __init__(self, reason: str, field: str, message: str) -> None:
        super().__init__(message)
        self.rejection = EventRejection(reason, ((field, message),))


def invalid(field: str, message: str) -> ItemError:
    """The error for an invalid value in an item."""
    return ItemError(VALIDATION_FAILED, field, message)


def flawed(sent_id: str, flaw: ItemError) -> EventItem:
    """An item that is rejected without reading the log."""
    return EventItem(sent_id, b"", b"", b"", NO_PARTITIONS, None, b"", flaw.rejection)


def item_of(
    sent_id: str,
    names: Sequence[str],
    event: JsonObject,
    who: EventIdentity,
    is_proved: bool,
    if_watermark: int | None = None,
) -> EventItem:
    """An item to commit; if `is_proved`, numbers and strings of the event need no check."""
    name = _name(sent_id)
    try:
        partitions = checked(tuple(names))
    except PartitionError as error:
        raise invalid("partitions", str(error)) from None
    content = _digest(partitions.text, event, is_proved)
    for partition in partitions.names:
        if not who.may_write(partition):
            raise ItemError(FORBIDDEN, "partitions", f"this credential may not write to {partition}")
        if if_watermark is not None and not who.may_read(partition):  # the answer tells the watermark
            raise ItemError(FORBIDDEN, "partitions", f"an expected watermark needs the right to read {partition}")
    kept = event if is_plain(event) else None
    return EventItem(sent_id, name, pack(name), content, partitions, kept, dump(event), if_watermark=if_watermark)


def watermark_of(item: JsonObject, name: str) -> int | None:
    """The watermark that an item expects of its partitions; None if it expects none."""
    return MemberReader(item, invalid).integer(name, 0, MAX_COMMITTED_ID, POSITION_RULE)


def refuse_item_marks(item: JsonObject) -> None:
    """Refuse an item that holds an invalid value, even in a member that would be ignored."""
    mark = first_mark(item)
    if mark is not None:
        raise invalid("event", str(mark))


def raw_items(payload: JsonObject, most: int) -> list[JsonObject]:
    """The items of a request. Each must be an object with an id, so that it can have its own answer."""
    items = payload.get("events")
    if not isinstance(items, list):
        raise bad_request("payload.events must be an array")
    if not items:
        raise bad_request("payload.events must not be empty")
    if len(items) > most:
        raise bad_request(f"payload.events has {len(items)} items, and {most} is the most", max_batch_size=most)
    seen = set()
    for place, item in enumerate(items):
        if not is_object(item):
            raise bad_request(f"payload.events.{place} must be an object")
        sent_id = item.get("id")
        if not isinstance(sent_id, str) or not sent_id:
            raise bad_request(f"payload.events.{place}.id must be a non-empty string")
        if sent_id in seen:
            raise bad_request(f"payload.events.{place}.id occurs twice in this request")
        seen.add(sent_id)
    return items


def committed_payload(command: EventSubmit, answer: EventSubmitted, template: bytes) -> bytes:
    """The results of a submission whose items were all committed; `template` takes an id, a position and a time."""
    results = [
        template % (dump(item.id), result.committed_id, result.committed_at)
        for item, result in zip(command.items, answer.results, strict=True)
        if isinstance(result, EventCommitted)
    ]
    return b'{"results":[%b]}' % b",".join(results)


def event_type(event: JsonObject) -> str:
    """The type of an event, which must have one."""
    value = event.get("type")
    if not isinstance(value, str) or not value:
        raise invalid("event.type", "must be a non-empty string")
    return value


def _name(sent_id: str) -> bytes:
    try:
        name = sent_id.encode()
    except UnicodeEncodeError:
        raise invalid("id", "holds half of a surrogate pair") from None
    if len(name) > MAX_ID_BYTES:
        raise invalid("id", f"has {len(name)} bytes, and {MAX_ID_BYTES} is the most")
    return name


def _digest(partitions: bytes, event: JsonObject, is_proved: bool) -> bytes:
    try:
        return digest_of(partitions, event, is_proved=is_proved)
    except JsonError as error:
        raise invalid("event", str(error)) from None
