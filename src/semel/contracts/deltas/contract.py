"""Deltas as a contract of the engine: one lock for each gateway, so that positions become visible in order."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from semel.contracts.deltas.commands import (
    Command,
    Flush,
    Forget,
    Give,
    Inspect,
    Push,
    Rest,
    Saved,
    SaveRules,
    SaveSchema,
    Trim,
)
from semel.contracts.deltas.limits import Policy
from semel.contracts.deltas.rules.gateways import lock_of
from semel.contracts.deltas.rules.give import give, give_needs, rest
from semel.contracts.deltas.rules.push import inspect, inspect_needs, push, push_needs
from semel.contracts.deltas.rules.retention import Coverage, chores, forget, forget_needs, trim, trim_needs
from semel.contracts.deltas.rules.schemas import gateway_needs, save_rules, save_schema, schema_needs
from semel.engine.contract import Order, Outcome, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.protocol import Lock


class Deltas:
    """The contract of deltas, under one policy."""

    name = "deltas"

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._coverage = Coverage()

    def locks(self, command: Command) -> Sequence[Lock]:
        """The lock of the gateway."""
        if isinstance(command, Inspect):
            command = command.push
        gateway = command.replica.gateway if isinstance(command, Push | Give | Rest) else command.gateway
        return (lock_of(gateway),)

    def needs(self, command: Command) -> Generator[Stage, View, None]:
        """The rows that each command reads."""
        if isinstance(command, Push):
            return push_needs(command, self.policy)
        if isinstance(command, Inspect):
            return inspect_needs(command, self.policy)
        if isinstance(command, Give | Rest):
            return give_needs(command)
        if isinstance(command, Forget):
            return forget_needs(command)
        if isinstance(command, Trim):
            return trim_needs(command)
        return schema_needs(command) if isinstance(command, SaveSchema) else gateway_needs(command)

    def order(self, command: Command) -> Order | None:
        """Arrival is the order."""
        return None

    def decide(self, view: View, command: Command, now: Now) -> Outcome:
        """Judge one command."""
        if isinstance(command, Push):
            return push(view, command, self.policy, now)
        if isinstance(command, Inspect):
            return inspect(view, command, self.policy, now)
        if isinstance(command, Give):
            return give(view, command, self.policy, now)
        if isinstance(command, Rest):
            return rest(view, command, now)
        if isinstance(command, SaveSchema):
            return save_schema(view, command, self.policy)
        if isinstance(command, SaveRules):
            return save_rules(view, command, self.policy)
        if isinstance(command, Forget):
            return forget(view, command, now)
        if isinstance(command, Trim):
            return trim(view, command)
        assert isinstance(command, Flush)
        return Outcome(Saved())

    def chores(self, reading: Reading) -> Sequence[Command]:
        """Clients to forget and logs to cut."""
        return chores(reading, self.policy, self._coverage)
