"""Profiles of the seed dialect: the event types that a client declares to send.

They are negotiated and reported. Any type of event is taken, except `init`, unless the server is set to be strict:
then only the types of the profile are.
"""

from __future__ import annotations

from typing import Any

from semel.contracts.events.wire.messages import PROFILES, WireError, bad_request
from semel.kernel.json_fragment import JsonObject

ACCEPTED: dict[str, tuple[str, ...]] = {
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
        raise WireError(
            "profile_unsupported",
            f"This server speaks the profiles {' and '.join(PROFILES)}.",
            {"supported_profiles": list(PROFILES)},
            closes=True,
        )
    return profile


def capabilities(profile: str) -> dict[str, Any]:
    """The capabilities of a profile, for `connected`."""
    found: dict[str, Any] = {"profile": profile, "accepted_event_types": list(ACCEPTED[profile])}
    if profile == "compatibility":
        found["tree_policy"] = TREE_POLICY
    return found
