"""Typed members of a message: required members, and the type of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from semel.contracts.events.limits import (
    FRAME_LEVELS,
    MAX_COMMITTED_ID,
    MAX_INSTANCE_BYTES,
    PAGE_DEFAULT,
    PAGE_LEAST,
    PAGE_MOST,
)
from semel.contracts.events.rules.partitions import PartitionError, checked
from semel.contracts.events.wire.messages import VERSION, Identity, WireError, bad_request
from semel.kernel.canonical import Integers, Surrogates
from semel.kernel.json_error import JsonError
from semel.kernel.json_fragment import JsonObject, JsonOutline, is_object
from semel.kernel.json_marks import first_mark, parse_marked
from semel.kernel.json_outline import OutlinePlan, is_heavy, outline

_MAX_NAME_CHARACTERS = 1_024
_READ = """
    type msg_id msgId timestamp protocol_version protocolVersion payload token client_id clientId instance
    supported_profiles required_profile required_tree_policy partition partitions subscription_partitions
    since_committed_id sinceCommittedId limit log_epoch projectId events id event meta clientTs userId schemaVersion
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
    """Members of a message, and whether all in it is proved to print canonically."""

    members: JsonObject
    is_proved: bool


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


def text(members: JsonObject, name: str) -> str:
    """A string that must be there and not be empty."""
    value = members.get(name)
    if not isinstance(value, str) or not is_text(value):
        raise bad_request(f"payload.{name} must be a non-empty string")
    return value


def short_text(members: JsonObject, name: str) -> str:
    """The same for a name, which has a bound."""
    value = text(members, name)
    if len(value) > _MAX_NAME_CHARACTERS:
        raise bad_request(f"payload.{name} has more than {_MAX_NAME_CHARACTERS} characters")
    return value


def instance(members: JsonObject) -> str:
    """The name of one process among several that share a client; empty if it is not given."""
    value = members.get("instance", "")
    if value == "":
        return ""
    if not isinstance(value, str) or not is_text(value) or len(value.encode()) > MAX_INSTANCE_BYTES:
        raise bad_request(f"payload.instance must be a string of at most {MAX_INSTANCE_BYTES} bytes")
    return value


def names(members: JsonObject, name: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
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


def cursor(members: JsonObject, name: str) -> int:
    """A position; one beyond all positions is as good as the last."""
    value = members.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0 or value != int(value):
        raise bad_request(f"payload.{name} must be an integer of at least 0")
    return min(int(value), MAX_COMMITTED_ID)


def page_size(members: JsonObject) -> int:
    """How many events a page may have, brought within bounds."""
    value = members.get("limit", PAGE_DEFAULT)
    if not is_number(value):
        raise bad_request("payload.limit must be a number")
    return int(max(PAGE_LEAST, min(value, PAGE_MOST)))


def refuse_version(sent: Any, field: str) -> None:
    """Only the one version there is; every message says which it is."""
    if sent == VERSION:
        return
    if not isinstance(sent, str):
        raise bad_request(f"{field} must be a string")
    details = {"requested_version": sent[:64], "supported_versions": [VERSION]}
    raise WireError("protocol_version_unsupported", f"This server speaks version {VERSION}.", details, closes=True)


def refuse_unreadable(wanted: Iterable[str], who: Identity) -> None:
    """All or nothing: one name that is not allowed refuses the request."""
    for name in wanted:
        if not who.may_read(name):
            raise WireError("forbidden", f"This credential may not read {name}.", {"partition": name})


def parsed(raw: bytes, event_level: int) -> Payload:
    """The members of one JSON object. Items have a fault of their own; anywhere else it is the request's.

    `event_level` objects and lists are around an event. Events of a text whose values would take much memory stay
    texts.
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
    """Refuse a value that cannot be taken in any member but one."""
    mark = members.mark if isinstance(members, JsonOutline) else None
    mark = mark or first_mark([value for name, value in members.items() if name != but])
    if mark is not None:
        raise bad_request(str(mark))
