"""Requests of clients in any dialect, resets, and the profiles of the snake_case dialect.

A cursor of another history is answered with a reset: a message of its own, a problem document, or an event of an
event stream. Profiles say which types of events a client means to send; they are negotiated and reported. Any type
except `init` is taken, unless the server is set to be strict: then only the types of the profile are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.json.fragment import JsonObject, dump
from semel.surfaces.events.commands import EventSubmit
from semel.surfaces.events.rules.epochs import CursorReset

VERSION = "1.0"
PROFILES = ("canonical", "compatibility")

PartitionCheck = Callable[[str], bool]
"""Whether the caller may write to, or read from, a partition."""


def bad_request(message: str, **details: Any) -> Refused:
    """The request cannot be understood; the connection stays."""
    return Refused("bad_request", message, details)


class EventIdentity(NamedTuple):
    """An authenticated client, and its rights."""

    client_id: str
    may_write: PartitionCheck
    may_read: PartitionCheck
    users: frozenset[str] | None = None
    """Names under which it may act as a user; None is any."""


class Connect(NamedTuple):
    """The first request of a connection."""

    token: str
    client_id: str
    project: str | None = None
    instance: str = ""
    """The instance of a client that has several connections; the newest of the same name stays."""


class Sync(NamedTuple):
    """History of some partitions after a cursor; `subscription` replaces what the connection is sent live."""

    names: tuple[str, ...]
    since: int
    limit: int
    subscription: tuple[str, ...] | None
    log_epoch: int | None = None
    """The epoch that the cursor is of, if the client says."""


class Heartbeat(NamedTuple):
    """A heartbeat."""


class Disconnect(NamedTuple):
    """The client closes its session."""


Request = Connect | EventSubmit | Sync | Heartbeat | Disconnect


def reset_detail(reset: CursorReset) -> str:
    """For people."""
    agreed = reset.agreed_id
    return f"This cursor is of events that were lost when a backup was restored; go on from {agreed}, in the new epoch."


def reset_payload(reset: CursorReset) -> bytes:
    """The payload of `reset`, and the data of an event of that name."""
    return dump(_reset_members(reset))


def reset_frame(reset: CursorReset) -> bytes:
    """The last event of a stream. Its id is the position from which a client resumes by itself."""
    return b"id: %d\nevent: reset\ndata: %s\n\n" % (reset.agreed_id, reset_payload(reset))


def reset_error(reset: CursorReset) -> Refused:
    """The same where no message of that name is known: the request is refused, and the connection stays."""
    return Refused("reset", reset_detail(reset), _reset_members(reset))


def reset_error_camel(reset: CursorReset) -> Refused:
    """The same for clients of the camelCase dialects."""
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
    """The profile of a connection: the first of the server's that the client supports."""
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
