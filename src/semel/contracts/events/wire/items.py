"""Items of a submission: parsed one by one, each with an error of its own, before anything is read.

The order is the contract's: the item's values first, then whether its sender may write to every one of its partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel.contracts.events.commands import FORBIDDEN, VALIDATION_FAILED, Item, Rejection
from semel.contracts.events.limits import MAX_ID_BYTES
from semel.contracts.events.rules.equality import digest_of
from semel.contracts.events.rules.partitions import NO_PARTITIONS, PartitionError, checked
from semel.contracts.events.wire.messages import Identity, bad_request
from semel.kernel.json_error import JsonError
from semel.kernel.json_fragment import JsonObject, is_object, is_plain
from semel.kernel.json_marks import first_mark
from semel.kernel.json_print import dump
from semel.kernel.keys import pack


class FlawError(Exception):
    """An item is rejected."""

    def __init__(self, reason: str, field: str, message: str) -> None:
        super().__init__(message)
        self.rejection = Rejection(reason, ((field, message),))


def invalid(field: str, message: str) -> FlawError:
    """A value of the item cannot be taken."""
    return FlawError(VALIDATION_FAILED, field, message)


def flawed(sent_id: str, flaw: FlawError) -> Item:
    """An item that is rejected whatever the log holds."""
    return Item(sent_id, b"", b"", b"", NO_PARTITIONS, None, b"", flaw.rejection)


def item_of(sent_id: str, names: Sequence[str], event: JsonObject, who: Identity, is_proved: bool) -> Item:
    """An item that may be committed; a proved event needs no check of its numbers and strings."""
    name = _name(sent_id)
    try:
        partitions = checked(tuple(names))
    except PartitionError as error:
        raise invalid("partitions", str(error)) from None
    content = _digest(partitions.text, event, is_proved)
    for partition in partitions.names:
        if not who.may_write(partition):
            raise FlawError(FORBIDDEN, "partitions", f"this credential may not write to {partition}")
    kept = event if is_plain(event) else None
    return Item(sent_id, name, pack(name), content, partitions, kept, dump(event))


def refuse_marks(item: JsonObject) -> None:
    """Refuse an item that holds a value which cannot be taken, even where it would be ignored."""
    mark = first_mark(item)
    if mark is not None:
        raise invalid("event", str(mark))


def raw_items(payload: JsonObject, most: int) -> list[JsonObject]:
    """The items of a request that can be answered one by one: objects, each with an id of its own."""
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
