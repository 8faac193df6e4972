"""The contract of deltas for the engine: one lock for each gateway, so that positions become visible in order."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock
from semel.surfaces.deltas.commands import (
    AdvanceCursor,
    DeltaCommand,
    FlushGateway,
    ForgetClients,
    GatewaySaved,
    InspectPush,
    PushDeltas,
    RecordDelivery,
    SaveSyncRules,
    SaveTableSchema,
    TrimLog,
)
from semel.surfaces.deltas.limits import DeltaPolicy
from semel.surfaces.deltas.rules.gateways import gateway_needs, lock_of, save_rules, save_schema, schema_needs
from semel.surfaces.deltas.rules.push import inspect, inspect_needs, push, push_needs
from semel.surfaces.deltas.rules.replicas import advance_cursor, delivery_needs, record_delivery
from semel.surfaces.deltas.rules.retention import CheckpointCoverage, chores, forget, forget_needs, trim, trim_needs


class DeltaContract:
    """The contract of deltas, under one policy."""

    name = "deltas"

    def __init__(self, policy: DeltaPolicy | None = None) -> None:
        self.policy = policy or DeltaPolicy()
        self._coverage = CheckpointCoverage()

    def locks(self, command: DeltaCommand) -> Sequence[Lock]:
        """The lock of the gateway."""
        if isinstance(command, InspectPush):
            command = command.push
        gateway = (
            command.replica.gateway
            if isinstance(command, PushDeltas | RecordDelivery | AdvanceCursor)
            else command.gateway
        )
        return (lock_of(gateway),)

    def needs(self, command: DeltaCommand) -> Generator[Stage, View, None]:
        """The rows that each command reads."""
        if isinstance(command, PushDeltas):
            return push_needs(command, self.policy)
        if isinstance(command, InspectPush):
            return inspect_needs(command, self.policy)
        if isinstance(command, RecordDelivery | AdvanceCursor):
            return delivery_needs(command)
        if isinstance(command, ForgetClients):
            return forget_needs(command)
        if isinstance(command, TrimLog):
            return trim_needs(command)
        return schema_needs(command) if isinstance(command, SaveTableSchema) else gateway_needs(command)

    def order(self, command: DeltaCommand) -> Order | None:
        """None: commands are decided in order of arrival."""
        return None

    def decide(self, view: View, command: DeltaCommand, now: Now) -> DecisionResult:
        """Decide one command."""
        if isinstance(command, PushDeltas):
            return push(view, command, self.policy, now)
        if isinstance(command, InspectPush):
            return inspect(view, command, self.policy, now)
        if isinstance(command, RecordDelivery):
            return record_delivery(view, command, self.policy, now)
        if isinstance(command, AdvanceCursor):
            return advance_cursor(view, command, now)
        if isinstance(command, SaveTableSchema):
            return save_schema(view, command, self.policy)
        if isinstance(command, SaveSyncRules):
            return save_rules(view, command, self.policy)
        if isinstance(command, ForgetClients):
            return forget(view, command, now)
        if isinstance(command, TrimLog):
            return trim(view, command)
        assert isinstance(command, FlushGateway)
        return DecisionResult(GatewaySaved())

    def chores(self, reading: Reading) -> Sequence[DeltaCommand]:
        """Clients to forget and logs to trim."""
        return chores(reading, self.policy, self._coverage)
