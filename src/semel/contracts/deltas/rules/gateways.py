"""Gateways: created by their first write, and counted."""

from __future__ import annotations

from semel.contracts.deltas.limits import Policy
from semel.contracts.deltas.refusals import Refusal
from semel.contracts.deltas.rules.epochs import leapt, present_gateway
from semel.contracts.deltas.tables import DELTA_GATEWAY, DeltaGatewayRow, gateway_key
from semel.contracts.epoch import epoch_of
from semel.engine.contract import MissingLocksError, View
from semel.store.protocol import Lock

MAKING = Lock(b"deltas")
"""The lock that the creation of a gateway holds besides."""
COUNT_KEY = (b"",)
"""The row that counts gateways; no name is stored under an empty key."""


def lock_of(gateway: str) -> Lock:
    """The lock that guards everything of a gateway."""
    return Lock(b"deltas:" + gateway_key(gateway))


def gateway_of(view: View, name: str) -> DeltaGatewayRow | None:
    """The gateway of a name, if it has been used."""
    return present_gateway(view, name)


def new_gateway(view: View, name: str, policy: Policy) -> DeltaGatewayRow | Refusal:
    """A gateway of a name that has not been used, unless there are as many as there may be."""
    if not view.holds(MAKING):
        raise MissingLocksError([MAKING])
    count = view.get(DELTA_GATEWAY, COUNT_KEY)
    if policy.max_gateways and count is not None and count.entries >= policy.max_gateways:
        message = f"There are {policy.max_gateways} gateways already, which is as many as this server takes."
        return Refusal("RATE_LIMITED", message, retry_after=60)
    return leapt(empty_gateway(gateway_key(name), name.encode()), epoch_of(view))


def save_gateway(view: View, gateway: DeltaGatewayRow) -> None:
    """Write a gateway; a new one is counted."""
    if view.get(DELTA_GATEWAY, (gateway.gateway,)) is None:
        count = view.get(DELTA_GATEWAY, COUNT_KEY) or empty_gateway(b"", b"")
        view.put(DELTA_GATEWAY, count._replace(entries=count.entries + 1))
    view.put(DELTA_GATEWAY, gateway)


def empty_gateway(key: bytes, name: bytes) -> DeltaGatewayRow:
    """A gateway that nothing has happened in."""
    return DeltaGatewayRow(
        key,
        name,
        0,
        0,
        0,
        0,
        0,
        authors=b"[]",
        rules=b"",
        rules_version=0,
        schemas=0,
        replicas=0,
        forgotten_at=0,
        cut=0,
    )
