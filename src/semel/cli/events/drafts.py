"""A submission: an id, partitions and an event, whose text stays as it was written.

What would make a server refuse the whole request is found here, so that one bad line is named and spoils no others.
What concerns the item alone (an event without a type, a number that no double holds) is for the server to judge.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from semel.cli.events.members import members
from semel.contracts.events.limits import FRAME_LEVELS
from semel.kernel.json_error import JsonError
from semel.kernel.json_marks import parse_marked
from semel.kernel.json_text import depth_of, too_deep


class DraftError(Exception):
    """The text cannot be submitted; the message says why."""


class Draft(NamedTuple):
    """One item of a submission, as JSON."""

    id: str
    text: bytes


def draft_event(raw: bytes, name: str, partitions: Sequence[str]) -> Draft:
    """An event under an id of ours."""
    _object(raw)
    return _draft(name, json.dumps(partitions), raw.decode())


def draft_line(raw: bytes, name: str, partitions: Sequence[str]) -> Draft:
    """An event, or an item with an id and partitions of its own, such as `semel events read` prints.

    An event has a type. So an object without one that has an `event` is an item; what else stands in it is left out.
    """
    value = _object(raw)
    if "type" in value or "event" not in value:
        _refuse_nowhere(partitions)
        return draft_event(raw, name, partitions)
    _refuse_shape(value)
    parts = members(raw.decode())
    if "partitions" not in parts:
        _refuse_nowhere(partitions)
    return _draft(value.get("id", name), parts.get("partitions", json.dumps(partitions)), parts["event"])


def _draft(name: str, partitions: str, event: str) -> Draft:
    return Draft(name, f'{{"id":{json.dumps(name)},"partitions":{partitions},"event":{event}}}'.encode())


def _object(raw: bytes) -> dict[str, Any]:
    """The value of a text that is a JSON object, read as strictly as a server reads it."""
    if depth_of(raw) > FRAME_LEVELS:
        raise DraftError(str(too_deep()))
    try:
        value = parse_marked(raw, FRAME_LEVELS).value
    except JsonError as error:
        raise DraftError(str(error)) from None
    if not isinstance(value, dict):
        raise DraftError("An event is a JSON object.")
    return value


def _refuse_shape(item: dict[str, Any]) -> None:
    if not isinstance(item["event"], dict):
        raise DraftError("The event of an item is a JSON object.")
    if "id" in item and (not isinstance(item["id"], str) or not item["id"]):
        raise DraftError("The id of an item is a string that is not empty.")
    if "partition" in item:
        raise DraftError("An item has partitions, a list of names, and no partition.")
    names = item.get("partitions", [])
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise DraftError("The partitions of an item are a list of strings.")


def _refuse_nowhere(partitions: Sequence[str]) -> None:
    if not partitions:
        raise DraftError("It has no partitions: name them in it or on the command line.")
