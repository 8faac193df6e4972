"""Typed members of a message: required members, and the type of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeGuard

from semel.kernel.errors import Refused
from semel.kernel.json.canonical import Integers, Surrogates
from semel.kernel.json.fragment import JsonObject, JsonOutline, is_object
from semel.kernel.json.members import SOME_STRING_RULE, MemberReader, is_utf8
from semel.kernel.json.outline import OutlinePlan, is_heavy, outline
from semel.kernel.json.parse import first_mark, parse_marked
from semel.kernel.json.text import JsonError
from semel.surfaces.events.limits import (
    FRAME_LEVELS,
    MAX_COMMITTED_ID,
    MAX_INSTANCE_BYTES,
    PAGE_DEFAULT,
    PAGE_LEAST,
    PAGE_MOST,
)
from semel.surfaces.events.rules.event_types import EventTypes, TypeFilterError, checked_types
from semel.surfaces.events.rules.partitions import PartitionError, checked
from semel.surfaces.events.wire.messages import VERSION, EventIdentity, bad_request

STRINGS_RULE = "must be an array of strings"
NUMBER_RULE = "must be a number"
POSITION_RULE = "must be an integer of at least 0"
_MAX_NAME_CHARACTERS = 1_024
_READ = """
    type msg_id msgId timestamp protocol_version protocolVersion payload token client_id clientId instance
    supported_profiles required_profile required_tree_policy partition partitions subscription_partitions
    since_committed_id sinceCommittedId limit log_epoch projectId events id event meta clientTs userId schemaVersion
    if_watermark ifWatermark types subscription_types
"""
_OUTLINE = OutlinePlan(
    levels=FRAME_LEVELS,
    kept=0,
    names=frozenset(_READ.split()),
    lists=frozenset({"partitions"}),
    integers=Integers.REFUSE,
    surrogates=Surrogates.REFUSE,
    left_out={"meta": frozenset({"clientId"})},
)
"""Every member that a dialect reads, of messages, items and their `meta`."""


class Payload(NamedTuple):
    """The members of a message, and whether all values are proved to have canonical JSON."""

    members: JsonObject
    is_proved: bool


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a value is a string that is not empty and can be written as UTF-8."""
    return isinstance(value, str) and bool(value) and is_utf8(value)


def utf8_text(value: Any) -> str | None:
    """The value if `is_text` accepts it, otherwise None."""
    return value if is_text(value) else None


def number(value: Any) -> int | float | None:
    """The value if it is a JSON number, otherwise None."""
    return value if is_number(value) else None


def strings(value: Any) -> list[str] | None:
    """The value if it is a list of strings, otherwise None."""
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


def envelope_members(message: JsonObject) -> MemberReader[Refused]:
    """A reader of the members of a message."""
    return MemberReader(message, _refused)


def payload_members(payload: JsonObject, where: str = "payload") -> MemberReader[Refused]:
    """A reader of the members of a payload, or of the object at `where`."""
    return MemberReader(payload, _refused, where)


def _refused(path: str, rule: str) -> Refused:
    return bad_request(f"{path} {rule}")


def text(members: JsonObject, name: str) -> str:
    """A required string that is not empty."""
    return payload_members(members).required(name, utf8_text, SOME_STRING_RULE)


def short_text(members: JsonObject, name: str) -> str:
    """A required name, which has a limit in length."""
    value = text(members, name)
    if len(value) > _MAX_NAME_CHARACTERS:
        raise payload_members(members).refuse(name, f"has more than {_MAX_NAME_CHARACTERS} characters")
    return value


def instance(members: JsonObject) -> str:
    """The name of one process among several that share a client; empty if it is not given."""
    if members.get("instance", "") == "":
        return ""
    rule = f"must be a string of at most {MAX_INSTANCE_BYTES} bytes"
    return payload_members(members).required("instance", _instance, rule)


def _instance(value: Any) -> str | None:
    return value if is_text(value) and len(value.encode()) <= MAX_INSTANCE_BYTES else None


def names(members: JsonObject, name: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
    """A list of partitions, normalized."""
    value = payload_members(members).required(name, strings, STRINGS_RULE)
    if may_be_empty and not value:
        return ()
    try:
        return checked(tuple(value)).names
    except PartitionError as error:
        raise bad_request(f"payload.{name}: {error}") from None


def event_types(members: JsonObject, name: str) -> EventTypes:
    """A filter by type; None, for all types, if it is not given."""
    value = payload_members(members).optional(name, strings, STRINGS_RULE)
    if value is None:
        return None
    try:
        return checked_types(value)
    except TypeFilterError as error:
        raise bad_request(f"payload.{name}: {error}") from None


def cursor(members: JsonObject, name: str) -> int:
    """A position; a value above the highest possible position counts as that position."""
    return payload_members(members).required(name, _position, POSITION_RULE)


def _position(value: Any) -> int | None:
    return min(int(value), MAX_COMMITTED_ID) if is_number(value) and value >= 0 and value == int(value) else None


def log_epoch(members: JsonObject) -> int | None:
    """The epoch of a cursor, if the client sent it."""
    return payload_members(members).integer("log_epoch", 0, MAX_COMMITTED_ID, POSITION_RULE)


def page_size(members: JsonObject) -> int:
    """The number of events that a page may have, clamped to the limits."""
    if "limit" not in members:
        return PAGE_DEFAULT
    value = payload_members(members).required("limit", number, NUMBER_RULE)
    return int(max(PAGE_LEAST, min(value, PAGE_MOST)))


def refuse_version(sent: Any, field: str) -> None:
    """Refuse a message whose protocol version is not the supported one."""
    if sent == VERSION:
        return
    if not isinstance(sent, str):
        raise bad_request(f"{field} must be a string")
    details = {"requested_version": sent[:64], "supported_versions": [VERSION]}
    raise Refused("protocol_version_unsupported", f"This server speaks version {VERSION}.", details, closes=True)


def refuse_unreadable(wanted: Iterable[str], who: EventIdentity) -> None:
    """Refuse the request if the client may not read one of the partitions."""
    for name in wanted:
        if not who.may_read(name):
            raise Refused("forbidden", f"This credential may not read {name}.", {"partition": name})


def parsed(raw: bytes, event_level: int) -> Payload:
    """Parse one JSON object. An invalid value in an item is marked, and becomes an error of that item.

    `event_level` is the number of objects and lists around an event. If the parsed values would take too much memory,
    events stay text.
    """
    try:
        if is_heavy(raw):
            value, is_proved = outline(raw, _OUTLINE._replace(kept=event_level + 1)), False
        else:
            value, is_proved = parse_marked(raw, FRAME_LEVELS)
    except JsonError as error:
        raise bad_request(str(error)) from None
    if not is_object(value):
        raise bad_request("a message must be a JSON object")
    return Payload(value, is_proved)


def refuse_marks(members: JsonObject, but: str) -> None:
    """Refuse an invalid value in any member except `but`."""
    mark = members.mark if isinstance(members, JsonOutline) else None
    mark = mark or first_mark([value for name, value in members.items() if name != but])
    if mark is not None:
        raise bad_request(str(mark))
