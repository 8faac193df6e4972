"""Whether a message from the server has one of the shapes that the contract gives it, in each dialect.

`misshape` says what is wrong with a message, or nothing. A member that the contract does not name is no fault: clients
ignore it. A member that has the wrong type, or is missing where the contract has it always, is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from tests.events.model.model import MOST_SAFE

Check = Callable[[object], bool]
Shape = dict[str, Check]

CODES = frozenset(
    {"bad_request", "validation_failed", "forbidden", "auth_failed", "rate_limited", "server_error"}
    | {"protocol_version_unsupported", "profile_unsupported"}
)
CAMEL_CODES = CODES - {"protocol_version_unsupported"} | {"protocolVersion_unsupported"}
REASONS = frozenset({"validation_failed", "forbidden", "watermark_mismatch"})
CAMEL_REASONS = REASONS | {"bad_request"}


class Dialect(Enum):
    """How a connection speaks."""

    SEED = "seed"
    PROJECT = "2.x"
    FLAT = "1.3"
    UNKNOWN = "not known yet"


def is_text(value: object) -> bool:
    """A string that is not empty."""
    return isinstance(value, str) and value != ""


def is_place(value: object) -> bool:
    """A committed id."""
    return type(value) is int and 1 <= value <= MOST_SAFE


def is_count(value: object) -> bool:
    """A watermark, a cursor or a time."""
    return type(value) is int and 0 <= value <= MOST_SAFE


def is_object(value: object) -> bool:
    """A JSON object."""
    return isinstance(value, dict)


def is_flag(value: object) -> bool:
    """True or false."""
    return type(value) is bool


def is_number(value: object) -> bool:
    """A JSON number."""
    return type(value) in (int, float)


def is_names(value: object) -> bool:
    """A normalized set of names: sorted by their bytes, none twice."""
    return isinstance(value, list) and all(map(is_text, value)) and value == sorted(set(value), key=str.encode)


def is_list_of(check: Check) -> Check:
    """A list whose members all pass."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def is_one_of(values: frozenset[str]) -> Check:
    """One of these strings."""
    return lambda value: isinstance(value, str) and value in values


def is_shaped(shape: Shape, optional: Shape | None = None) -> Check:
    """An object with these members, and these if they are there."""
    return lambda value: isinstance(value, dict) and _fault(value, shape, optional or {}) == ""


def _fault(value: Mapping[str, Any], shape: Shape, optional: Shape) -> str:
    for name, check in shape.items():
        if name not in value:
            return f"{name} is missing"
        if not check(value[name]):
            return f"{name} is {value[name]!r}"
    wrong = [name for name, check in optional.items() if name in value and not check(value[name])]
    return f"{wrong[0]} is {value[wrong[0]]!r}" if wrong else ""


def _is_result(place: str, time: str, rejection_time: str, reasons: frozenset[str]) -> Check:
    committed: Shape = {place: is_place, time: is_count}
    fault = is_shaped({"field": lambda value: isinstance(value, str), "message": is_text})
    rejected: Shape = {"reason": is_one_of(reasons), rejection_time: is_count}
    blocked = rejected | {"reason": is_one_of(frozenset({"prior_item_failed"})), "blockedById": is_text}
    shapes = {"committed": is_shaped(committed), "rejected": is_shaped(rejected, {"errors": is_list_of(fault)})}
    if reasons is CAMEL_REASONS:
        shapes["not_processed"] = is_shaped(blocked)

    def check(value: object) -> bool:
        if not isinstance(value, dict) or not isinstance(value.get("id"), str) or value.get("status") not in shapes:
            return False
        explained = value.get("reason") != "validation_failed" or bool(value.get("errors"))
        explained &= is_count(value.get("watermark")) or value.get("reason") != "watermark_mismatch"
        return explained and shapes[value["status"]](value)

    return check


_SEED_ERROR: Shape = {"code": is_one_of(CODES), "message": is_text, "details": is_object}
_CAMEL_ERROR: Shape = {"code": is_one_of(CAMEL_CODES), "message": is_text}


_SEED_EVENT: Shape = {
    "id": is_text,
    "client_id": is_text,
    "partitions": is_names,
    "committed_id": is_place,
    "event": is_object,
    "status_updated_at": is_count,
}
_META = is_shaped({"clientId": is_text, "clientTs": is_number})
_FLAT_EVENT: Shape = {"committedId": is_place, "id": is_text, "partitions": is_names, "type": is_text}
_PROJECT_EVENT: Shape = {
    "committedId": is_place,
    "id": is_text,
    "projectId": is_text,
    "partition": lambda value: isinstance(value, str),
    "type": is_text,
    "schemaVersion": is_place,
    "payload": is_object,
    "meta": _META,
    "serverTs": is_count,
}
_CAMEL_PAGE: Shape = {"nextSinceCommittedId": is_count, "syncToCommittedId": is_count, "hasMore": is_flag}

SEED: Mapping[str, Shape] = {
    "connected": {
        "client_id": is_text,
        "server_time": is_count,
        "server_last_committed_id": is_count,
        "global_last_committed_id": is_count,
        "capabilities": is_object,
        "limits": is_object,
    },
    "submit_events_result": {
        "results": is_list_of(_is_result("committed_id", "status_updated_at", "status_updated_at", REASONS))
    },
    "event_broadcast": _SEED_EVENT,
    "sync_response": {
        "partitions": is_names,
        "effective_subscriptions": is_names,
        "events": is_list_of(is_shaped(_SEED_EVENT)),
        "next_since_committed_id": is_count,
        "sync_to_committed_id": is_count,
        "has_more": is_flag,
    },
    "heartbeat_ack": {},
    "error": _SEED_ERROR,
}
PROJECT: Mapping[str, Shape] = {
    "connected": {"clientId": is_text, "projectId": is_text, "projectLastCommittedId": is_count},
    "submit_events_result": {"results": is_list_of(_is_result("committedId", "serverTs", "created", CAMEL_REASONS))},
    "event_broadcast": _PROJECT_EVENT,
    "sync_response": _CAMEL_PAGE | {"projectId": is_text, "events": is_list_of(is_shaped(_PROJECT_EVENT))},
    "error": _CAMEL_ERROR,
}
FLAT: Mapping[str, Shape] = {
    "connected": {"clientId": is_text, "globalLastCommittedId": is_count},
    "submit_events_result": {"results": is_list_of(_is_result("committedId", "created", "created", CAMEL_REASONS))},
    "event_broadcast": _FLAT_EVENT,
    "sync_response": _CAMEL_PAGE | {"partitions": is_names, "events": is_list_of(is_shaped(_FLAT_EVENT))},
    "error": _CAMEL_ERROR,
}
_SEED_ENVELOPE: Shape = {"msg_id": is_text, "timestamp": is_count, "protocol_version": is_one_of(frozenset({"1.0"}))}
_CAMEL_ENVELOPE: Shape = {"protocolVersion": is_one_of(frozenset({"1.0"}))}
_ENVELOPES = {
    Dialect.SEED: (_SEED_ENVELOPE, SEED),
    Dialect.PROJECT: (_CAMEL_ENVELOPE, PROJECT),
    Dialect.FLAT: (_CAMEL_ENVELOPE, FLAT),
    # Before the dialect is known an error speaks both.
    Dialect.UNKNOWN: (
        {"protocol_version": is_one_of(frozenset({"1.0"}))} | _CAMEL_ENVELOPE,
        {"error": _SEED_ERROR | {"code": is_one_of(CODES | CAMEL_CODES)}},
    ),
}


def misshape(message: object, dialect: Dialect) -> str:
    """What is wrong with a message; empty if nothing is."""
    envelope, kinds = _ENVELOPES[dialect]
    if not isinstance(message, dict):
        return "no object"
    kind, payload = message.get("type"), message.get("payload")
    if not isinstance(kind, str) or kind not in kinds:
        return f"no message of this dialect: {kind!r}"
    if not isinstance(payload, dict):
        return f"the payload is {payload!r}"
    return _fault(message, envelope, {}) or _fault(payload, kinds[kind], {})
