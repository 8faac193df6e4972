"""What operations do to the state of a place: conditions are checked and changes gathered, in order.

The first condition that fails decides for all of them; then nothing has been changed. An entity that has expired by the
transaction's own logged time counts as absent for conditions, never by any other clock: a replay of the log agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from semel.contracts.ledger.commands import Code, Declined
from semel.contracts.ledger.limits import MAX_TOLD_VALUE_BYTES
from semel.contracts.ledger.model import (
    Check,
    Condition,
    CreateRelationship,
    Entity,
    Operation,
    SetEntity,
)
from semel.contracts.ledger.rules.encoding import state_key

State = dict[bytes, Entity | None]
"""Entities by key, absent ones as None."""


class ConditionFailedError(Exception):
    """Carries the answer out of the operations."""

    def __init__(self, declined: Declined) -> None:
        super().__init__(declined.message)
        self.declined = declined


def carry_out(operations: Iterable[Operation], state: State, height: int, now_seconds: int) -> None:
    """Change the state; `ConditionFailedError` when a condition does not hold."""
    for operation in operations:
        key = state_key(operation)
        if isinstance(operation, SetEntity):
            if operation.condition is not None:
                check(operation.condition, key, present(state[key], now_seconds))
            state[key] = Entity(key, operation.value, operation.expires_at, height)
        elif isinstance(operation, CreateRelationship):
            state[key] = state[key] or Entity(key, b"", 0, height)
        else:
            state[key] = None


def present(entity: Entity | None, now_seconds: int) -> Entity | None:
    """The entity, unless it has expired."""
    return None if entity is None or 0 < entity.expires_at <= now_seconds else entity


_HOLDS: dict[Check, Callable[[Condition, Entity | None], bool]] = {
    Check.NOT_EXISTS: lambda condition, entity: entity is None,
    Check.MUST_EXIST: lambda condition, entity: entity is not None,
    Check.VERSION: lambda condition, entity: entity is not None and entity.version == condition.version,
    Check.VALUE: lambda condition, entity: entity is not None and entity.value == condition.value,
}
_IF_PRESENT = {
    Check.NOT_EXISTS: (Code.KEY_EXISTS, "There is an entity under this key."),
    Check.VERSION: (Code.VERSION_MISMATCH, "The entity has another version."),
    Check.VALUE: (Code.VALUE_MISMATCH, "The entity has another value."),
}
_IF_ABSENT = (Code.KEY_NOT_FOUND, "There is no entity under this key.")


def check(condition: Condition, key: bytes, entity: Entity | None) -> None:
    """Hold an entity against a condition."""
    if _HOLDS[condition.check](condition, entity):
        return
    code, message = _IF_ABSENT if entity is None else _IF_PRESENT[condition.check]
    if entity is None:
        raise ConditionFailedError(Declined(code, message, key=key))
    value = entity.value if len(entity.value) <= MAX_TOLD_VALUE_BYTES else None
    raise ConditionFailedError(Declined(code, message, key=key, current_version=entity.version, current_value=value))
