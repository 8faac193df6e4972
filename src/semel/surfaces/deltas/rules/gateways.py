"""Gateways: their creation and count, their epochs, and their schemas and sync rules.

A gateway is created by the first write to it.

A cursor of this dialect is a number of the gateway's clock, and clients send it back unchanged, so it cannot name an
epoch. But no number is ahead of the time by more than the allowed drift. In a new epoch the gateway therefore continues
above the time of the raise plus that drift, and the skipped numbers are a gap: a cursor in the gap belongs to changes
that a restore has lost, and is refused. A raise changes no gateway. Each gateway jumps when it is next read, always
with the same result, and stores the result with its next change.

A schema names the columns of a table: columns may be added, but not removed or given another type, because clients with
the old schema continue to work. Clients are told the types; the server does not enforce them.
"""

from __future__ import annotations

from collections.abc import Generator

import orjson

from semel.engine.contract import DecisionResult, MissingLocksError, Stage, View
from semel.kernel.errors import Refusal, Refused
from semel.kernel.hlc import MAX_DRIFT_MS, join
from semel.store.protocol import Lock
from semel.surfaces.deltas.commands import (
    FlushGateway,
    GatewaySaved,
    SaveSyncRules,
    SaveTableSchema,
)
from semel.surfaces.deltas.limits import MAX_TABLES, DeltaPolicy
from semel.surfaces.deltas.rules.sync_rules import rules_of
from semel.surfaces.deltas.tables import DELTA_GATEWAY, DELTA_SCHEMA, DeltaGatewayRow, DeltaSchemaRow, gateway_key
from semel.surfaces.epoch import EPOCH, EPOCH_KEY, Pair, Rows, dump_pairs, epoch_of, load_pairs

KEPT_GAPS = 64
"""Limit on the gaps that a gateway stores; the oldest are merged, with the numbers between them."""

LOST = Refusal(
    "deltas:CURSOR_EXPIRED",
    "This cursor is of changes that a restore has lost; take the checkpoint, or pull from 0.",
)


def first_position(epoch: int) -> int:
    """The first number above every number that any history of a gateway has given out before that epoch."""
    return join(epoch + MAX_DRIFT_MS + 1, 0)


def leapt(gateway: DeltaGatewayRow, epoch: int) -> DeltaGatewayRow:
    """The gateway as it is in that epoch."""
    if gateway.epoch == epoch:
        return gateway
    first = max(first_position(epoch), gateway.high_water + 1)
    gaps = (*load_pairs(gateway.gaps), Pair(gateway.high_water, first))
    if len(gaps) > KEPT_GAPS:
        gaps = (Pair(gaps[0].first, gaps[1].second), *gaps[2:])
    return gateway._replace(high_water=first, epoch=epoch, gaps=dump_pairs(gaps))


def present_gateway(rows: Rows, name: str) -> DeltaGatewayRow | None:
    """The gateway of a name in the epoch of the store; None if it was never used."""
    gateway = rows.get(DELTA_GATEWAY, (gateway_key(name),))
    return None if gateway is None else leapt(gateway, epoch_of(rows))


def refuse_lost(rows: Rows, gateway: DeltaGatewayRow | None, since: int) -> None:
    """Refuse a cursor of another history; 0 is the beginning of every history.

    A gateway that does not exist here may have been created in the lost future.
    """
    if gateway is None:
        epoch = epoch_of(rows)
        gaps: tuple[Pair, ...] = (Pair(0, first_position(epoch)),) if epoch else ()
    else:
        gaps = load_pairs(gateway.gaps)
    if any(agreed < since < first for agreed, first in gaps):
        raise Refused.of(LOST)


MAKING = Lock(b"deltas")
"""The lock that the creation of a gateway takes in addition."""
COUNT_KEY = (b"",)
"""The row that counts gateways; no name is stored under an empty key."""


def lock_of(gateway: str) -> Lock:
    """The lock that protects all rows of a gateway."""
    return Lock(b"deltas:" + gateway_key(gateway))


def gateway_of(view: View, name: str) -> DeltaGatewayRow | None:
    """The gateway of a name; None if it was never used."""
    return present_gateway(view, name)


def new_gateway(view: View, name: str, policy: DeltaPolicy) -> DeltaGatewayRow | Refusal:
    """A gateway for a name that was never used; refused at the limit on gateways."""
    if not view.holds(MAKING):
        raise MissingLocksError([MAKING])
    count = view.get(DELTA_GATEWAY, COUNT_KEY)
    if policy.max_gateways and count is not None and count.entries >= policy.max_gateways:
        message = f"There are {policy.max_gateways} gateways already, which is the limit of this server."
        return Refusal("deltas:RATE_LIMITED", message, retry_after_ms=60_000)
    return leapt(empty_gateway(gateway_key(name), name.encode()), epoch_of(view))


def save_gateway(view: View, gateway: DeltaGatewayRow) -> None:
    """Write a gateway; a new one is counted."""
    if view.get(DELTA_GATEWAY, (gateway.gateway,)) is None:
        count = view.get(DELTA_GATEWAY, COUNT_KEY) or empty_gateway(b"", b"")
        view.put(DELTA_GATEWAY, count._replace(entries=count.entries + 1))
    view.put(DELTA_GATEWAY, gateway)


def empty_gateway(key: bytes, name: bytes) -> DeltaGatewayRow:
    """A gateway without deltas."""
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


def schema_needs(command: SaveTableSchema) -> Generator[Stage, View, None]:
    """The gateway and the table."""
    gateway = gateway_key(command.gateway)
    schema = (DELTA_SCHEMA, (gateway, command.table.encode()))
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), schema, (EPOCH, EPOCH_KEY)])


def gateway_needs(command: SaveSyncRules | FlushGateway) -> Generator[Stage, View, None]:
    """The gateway."""
    yield Stage(keys=[(DELTA_GATEWAY, (gateway_key(command.gateway),)), (EPOCH, EPOCH_KEY)])


def save_schema(view: View, command: SaveTableSchema, policy: DeltaPolicy) -> DecisionResult:
    """Save the columns of a table."""
    gateway = gateway_of(view, command.gateway) or new_gateway(view, command.gateway, policy)
    if isinstance(gateway, Refusal):
        return DecisionResult(gateway)
    key = (gateway.gateway, command.table.encode())
    row = view.get(DELTA_SCHEMA, key)
    before: dict[str, str] = {} if row is None else orjson.loads(row.columns)
    after = dict(command.columns)
    changed = next((name for name, kind in before.items() if after.get(name) != kind), None)
    if changed is not None:
        message = f"The column {changed} of {command.table} can be neither removed nor retyped."
        return DecisionResult(Refusal("deltas:SCHEMA_ERROR", message, own_status=422))
    if row is None and gateway.schemas >= MAX_TABLES:
        return DecisionResult(
            Refusal("deltas:SCHEMA_ERROR", f"A gateway has schemas of at most {MAX_TABLES} tables.", own_status=422)
        )
    save_gateway(view, gateway._replace(schemas=gateway.schemas + (row is None)))
    view.put(DELTA_SCHEMA, DeltaSchemaRow(*key, orjson.dumps(after)))
    return DecisionResult(GatewaySaved())


def save_rules(view: View, command: SaveSyncRules, policy: DeltaPolicy) -> DecisionResult:
    """Save sync rules; the same rules again change nothing."""
    gateway = gateway_of(view, command.gateway) or new_gateway(view, command.gateway, policy)
    if isinstance(gateway, Refusal):
        return DecisionResult(gateway)
    rules = command.rules if rules_of(command.rules).buckets else b""
    if gateway.rules != rules:
        save_gateway(view, gateway._replace(rules=rules, rules_version=gateway.rules_version + 1))
    return DecisionResult(GatewaySaved())
