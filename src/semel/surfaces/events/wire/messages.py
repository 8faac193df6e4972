"""Requests of clients in any dialect, resets, and the profiles of the snake_case dialect.

A cursor of another epoch is answered with a reset: a `reset` message, a problem document, or an event of an event
stream. A profile says which types of events a client will send; it is negotiated and reported. The server accepts any
type except `init`; in strict mode it accepts only the types of the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.json.fragment import JsonObject, dump
from semel.surfaces.events.commands import EventSubmit
from semel.surfaces.events.rules.epochs import CursorReset
from semel.surfaces.events.rules.event_types import EventTypes

VERSION = "1.0"
PROFILES = ("canonical", "compatibility")

PartitionCheck = Callable[[str], bool]
"""Whether the caller may write to, or read from, a partition."""


def bad_request(message: str, **details: Any) -> Refused:
    """The refusal of a malformed request; the connection stays open."""
    return Refused("bad_request", message, details)


class EventIdentity(NamedTuple):
    """An authenticated client, and its rights."""

    client_id: str
    may_write: PartitionCheck
    may_read: PartitionCheck
    users: frozenset[str] | None = None
    """The user ids that the client may use; None allows any."""


class Connect(NamedTuple):
    """The first request of a connection."""

    token: str
    client_id: str
    project: str | None = None
    instance: str = ""
    """The name of one process of the client. A new connection of the same instance replaces the older one."""


class Sync(NamedTuple):
    """Read the history of partitions after a cursor; `subscription` replaces the partitions sent live."""

    names: tuple[str, ...]
    since: int
    limit: int
    subscription: tuple[str, ...] | None
    log_epoch: int | None = None
    """The epoch of the cursor, if the client sent it."""
    types: EventTypes = None
    """The types of the events of the page."""
    subscription_types: EventTypes = None
    """The types of the events that are sent live, if `subscription` is given."""


class Heartbeat(NamedTuple):
    """A heartbeat."""


class Disconnect(NamedTuple):
    """The client closes its session."""


Request = Connect | EventSubmit | Sync | Heartbeat | Disconnect


def reset_detail(reset: CursorReset) -> str:
    """The reason for a reset, as a sentence."""
    agreed = reset.agreed_id
    return f"This cursor is of events that were lost when a backup was restored; go on from {agreed}, in the new epoch."


def reset_payload(reset: CursorReset) -> bytes:
    """The payload of a `reset` message, and the data of a `reset` event in an event stream."""
    return dump(_reset_members(reset))


def reset_frame(reset: CursorReset) -> bytes:
    """The `reset` event that ends an event stream. Its id is the position from which a client resumes."""
    return b"id: %d\nevent: reset\ndata: %s\n\n" % (reset.agreed_id, reset_payload(reset))


def reset_error(reset: CursorReset) -> Refused:
    """A reset for dialects without a `reset` message: refuse the request, keep the connection open."""
    return Refused("reset", reset_detail(reset), _reset_members(reset))


def reset_error_camel(reset: CursorReset) -> Refused:
    """A reset as a refusal for clients of the camelCase dialects."""
    details = {"logEpoch": reset.log_epoch, "agreedCommittedId": reset.agreed_id}
    return Refused("reset", reset_detail(reset), details)


def _reset_members(reset: CursorReset) -> dict[str, int]:
    return {"log_epoch": reset.log_epoch, "agreed_committed_id": reset.agreed_id}


ACCEPTED_TYPES: dict[str, tuple[str, ...]] = {
    "canonical": ("event",),
    "compatibility": ("set", "unset", "treePush", "treeDelete", "treeUpdate", "treeMove", "event"),
}
TREE_POLICY = "strict"
RETIRED_TYPE = "init"
_WITH_POLICY = ("compatibility",)


def negotiate(payload: JsonObject) -> str:
    """The profile of a connection: the first one in the server's list that the client supports."""
    supported = payload.get("supported_profiles", ["compatibility"])
    required = payload.get("required_profile")
    policy = payload.get("required_tree_policy")
    if not isinstance(supported, list) or not all(isinstance(one, str) for one in supported):
        raise bad_request("payload.supported_profiles must be an array of strings")
    if not all(value is None or isinstance(value, str) for value in (required, policy)):
        raise bad_request("payload.required_profile and payload.required_tree_policy must be strings")
    wanted = supported if required is None else [required]
    able = PROFILES if policy is None else _WITH_POLICY if policy == TREE_POLICY else ()
    profile = next((one for one in able if one in wanted), None)
    if profile is None:
        raise Refused(
            "profile_unsupported",
            f"This server speaks the profiles {' and '.join(PROFILES)}.",
            {"supported_profiles": list(PROFILES)},
            closes=True,
        )
    return profile


def capabilities(profile: str) -> dict[str, Any]:
    """The capabilities of a profile, for `connected`."""
    found: dict[str, Any] = {"profile": profile, "accepted_event_types": list(ACCEPTED_TYPES[profile])}
    if profile == "compatibility":
        found["tree_policy"] = TREE_POLICY
    return found
