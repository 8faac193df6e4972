"""Schemas and sync rules of a gateway, as an administrator saves them.

A schema names the columns of a table: columns may be added, none removed or given another type, because clients that
know the old schema go on. Types are told to clients and never enforced here.
"""

from __future__ import annotations

from collections.abc import Generator

import orjson

from semel.contracts.deltas.commands import Flush, Saved, SaveRules, SaveSchema
from semel.contracts.deltas.limits import MAX_TABLES, Policy
from semel.contracts.deltas.refusals import Refusal
from semel.contracts.deltas.rules.buckets import rules_of
from semel.contracts.deltas.rules.gateways import gateway_of, new_gateway, save_gateway
from semel.contracts.deltas.tables import DELTA_GATEWAY, DELTA_SCHEMA, DeltaSchemaRow, gateway_key
from semel.contracts.epoch import EPOCH, EPOCH_KEY
from semel.engine.contract import Outcome, Stage, View


def schema_needs(command: SaveSchema) -> Generator[Stage, View, None]:
    """The gateway and the table."""
    gateway = gateway_key(command.gateway)
    schema = (DELTA_SCHEMA, (gateway, command.table.encode()))
    yield Stage(keys=[(DELTA_GATEWAY, (gateway,)), schema, (EPOCH, EPOCH_KEY)])


def gateway_needs(command: SaveRules | Flush) -> Generator[Stage, View, None]:
    """The gateway."""
    yield Stage(keys=[(DELTA_GATEWAY, (gateway_key(command.gateway),)), (EPOCH, EPOCH_KEY)])


def save_schema(view: View, command: SaveSchema, policy: Policy) -> Outcome:
    """Keep the columns of a table."""
    gateway = gateway_of(view, command.gateway) or new_gateway(view, command.gateway, policy)
    if isinstance(gateway, Refusal):
        return Outcome(gateway)
    key = (gateway.gateway, command.table.encode())
    row = view.get(DELTA_SCHEMA, key)
    before: dict[str, str] = {} if row is None else orjson.loads(row.columns)
    after = dict(command.columns)
    changed = next((name for name, kind in before.items() if after.get(name) != kind), None)
    if changed is not None:
        message = f"The column {changed} of {command.table} can be neither removed nor retyped."
        return Outcome(Refusal("SCHEMA_ERROR", message, 422))
    if row is None and gateway.schemas >= MAX_TABLES:
        return Outcome(Refusal("SCHEMA_ERROR", f"A gateway has schemas of at most {MAX_TABLES} tables.", 422))
    save_gateway(view, gateway._replace(schemas=gateway.schemas + (row is None)))
    view.put(DELTA_SCHEMA, DeltaSchemaRow(*key, orjson.dumps(after)))
    return Outcome(Saved())


def save_rules(view: View, command: SaveRules, policy: Policy) -> Outcome:
    """Save sync rules; the same rules again change nothing."""
    gateway = gateway_of(view, command.gateway) or new_gateway(view, command.gateway, policy)
    if isinstance(gateway, Refusal):
        return Outcome(gateway)
    rules = command.rules if rules_of(command.rules).buckets else b""
    if gateway.rules != rules:
        save_gateway(view, gateway._replace(rules=rules, rules_version=gateway.rules_version + 1))
    return Outcome(Saved())
