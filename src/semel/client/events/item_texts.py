"""Events to submit from JSON text, which is sent as it is, so that no number changes.

What would make a server refuse a whole request is found here, so that the other events can be sent. The faults of one
event (no type, a number that a double cannot hold) are left to the server.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from semel.client.errors import SemelError
from semel.client.events.submission import EventItemText
from semel.client.json_text import members
from semel.kernel.json.parse import parse_marked
from semel.kernel.json.text import JsonError, depth_of, too_deep

ITEM_LEVELS = 68
"""Nesting that a request may have: 64 levels of an event, and those around it."""
NO_PARTITIONS = "It has no partitions: name them in the line or on the command line."


class EventTextError(SemelError, ValueError):
    """A text is not an event that can be sent."""


def event_item(raw: bytes, event_id: str, partitions: Sequence[str], if_watermark: int | None = None) -> EventItemText:
    """An event, a JSON object, as an item. Raises EventTextError."""
    _object(raw)
    return _item(event_id, json.dumps(partitions), raw.decode(), if_watermark)


def line_item(raw: bytes, event_id: str, partitions: Sequence[str]) -> EventItemText:
    """An event, or an item with its own id and partitions, as the server lists it. Raises EventTextError.

    An event has a type. So an object without a type and with an `event` is an item; its other members are dropped.
    """
    value = _object(raw)
    is_item = "type" not in value and "event" in value
    if is_item:
        _refuse_shape(value)
    if not partitions and not (is_item and "partitions" in value):
        raise EventTextError(NO_PARTITIONS)
    if not is_item:
        return _item(event_id, json.dumps(partitions), raw.decode())
    parts = members(raw.decode())
    return _item(value.get("id", event_id), parts.get("partitions", json.dumps(partitions)), parts["event"])


def _item(event_id: str, partitions: str, event: str, if_watermark: int | None = None) -> EventItemText:
    condition = "" if if_watermark is None else f',"if_watermark":{if_watermark}'
    text = f'{{"id":{json.dumps(event_id)},"partitions":{partitions},"event":{event}{condition}}}'
    return EventItemText(event_id, text.encode())


def _object(raw: bytes) -> dict[str, Any]:
    """The value of a text that is a JSON object, read as strictly as a server reads it."""
    if depth_of(raw) > ITEM_LEVELS:
        raise EventTextError(str(too_deep()))
    try:
        value = parse_marked(raw, ITEM_LEVELS).value
    except JsonError as error:
        raise EventTextError(str(error)) from None
    if not isinstance(value, dict):
        raise EventTextError("An event must be a JSON object.")
    return value


def _refuse_shape(item: dict[str, Any]) -> None:
    if not isinstance(item["event"], dict):
        raise EventTextError("The event of an item must be a JSON object.")
    if "id" in item and (not isinstance(item["id"], str) or not item["id"]):
        raise EventTextError("The id of an item must be a non-empty string.")
    if "partition" in item:
        raise EventTextError("An item must have partitions, a list of names, and not partition.")
    names = item.get("partitions", [])
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise EventTextError("The partitions of an item must be a list of strings.")
