"""Members of a message: present, and of the type they must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel.contracts.events.limits import MAX_COMMITTED_ID, PAGE_DEFAULT, PAGE_LEAST, PAGE_MOST
from semel.contracts.events.rules.partitions import PartitionError, checked
from semel.contracts.events.wire.messages import bad_request

_MAX_NAME_CHARACTERS = 1_024


def is_number(value: Any) -> bool:
    """Whether a value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: Any) -> bool:
    """Whether a value is a string that is not empty and can be written as UTF-8."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def text(members: Mapping[str, Any], name: str) -> str:
    """A string that must be there and not be empty."""
    value = members.get(name)
    if not isinstance(value, str) or not is_text(value):
        raise bad_request(f"payload.{name} must be a non-empty string")
    return value


def short_text(members: Mapping[str, Any], name: str) -> str:
    """The same for a name, which has a bound."""
    value = text(members, name)
    if len(value) > _MAX_NAME_CHARACTERS:
        raise bad_request(f"payload.{name} has more than {_MAX_NAME_CHARACTERS} characters")
    return value


def names(members: Mapping[str, Any], name: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    """A list of partitions, normalized."""
    value = members.get(name)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise bad_request(f"payload.{name} must be an array of strings")
    if may_be_empty and not value:
        return ()
    try:
        return checked(tuple(value)).names
    except PartitionError as error:
        raise bad_request(f"payload.{name}: {error}") from None


def cursor(members: Mapping[str, Any], name: str) -> int:
    """A position; one beyond all positions is as good as the last."""
    value = members.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0 or value != int(value):
        raise bad_request(f"payload.{name} must be an integer of at least 0")
    return min(int(value), MAX_COMMITTED_ID)


def page_size(members: Mapping[str, Any]) -> int:
    """How many events a page may have, brought within bounds."""
    value = members.get("limit", PAGE_DEFAULT)
    if not is_number(value):
        raise bad_request("payload.limit must be a number")
    return int(max(PAGE_LEAST, min(value, PAGE_MOST)))
