"""Operations on the state of a place: conditions are checked and changes collected, in order.

The first condition that fails decides for all of them; then nothing has been changed. An entity that has expired by the
transaction's own logged time counts as absent for conditions, never by any other clock: a replay of the log agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import NamedTuple

from semel.contracts.ledger.commands import Code, Declined
from semel.contracts.ledger.limits import MAX_TOLD_VALUE_BYTES
from semel.contracts.ledger.model import (
    Check,
    Condition,
    CreateRelationship,
    Operation,
    SetEntity,
)
from semel.contracts.ledger.rules.encoding import state_key


class Held(NamedTuple):
    """An entity as far as conditions need it: the value of a large one that was there before is only known by hash."""

    key: bytes
    value: bytes | None
    size: int
    digest: bytes
    expires_at: int
    version: int

    def equals(self, value: bytes) -> bool:
        """Whether it has this value."""
        if self.value is not None:
            return self.value == value
        return self.size == len(value) and self.digest == sha256(value).digest()


State = dict[bytes, Held | None]
"""Entities by key, absent ones as None."""


class ConditionFailedError(Exception):
    """Carries the answer of a failed condition."""

    def __init__(self, declined: Declined) -> None:
        super().__init__(declined.message)
        self.declined = declined


def carry_out(operations: Iterable[Operation], state: State, height: int, now_seconds: int) -> None:
    """Change the state; `ConditionFailedError` when a condition does not hold."""
    for operation in operations:
        key = state_key(operation)
        if isinstance(operation, SetEntity):
            if operation.condition is not None:
                check(operation.condition, key, _present(state[key], now_seconds))
            value = operation.value
            state[key] = Held(key, value, len(value), b"", operation.expires_at, height)
        elif isinstance(operation, CreateRelationship):
            state[key] = state[key] or Held(key, b"", 0, b"", 0, height)
        else:
            state[key] = None


def is_expired(expires_at: int, now_seconds: int) -> bool:
    """Whether an entity has expired; 0 is never."""
    return 0 < expires_at <= now_seconds


def _present(entity: Held | None, now_seconds: int) -> Held | None:
    return None if entity is None or is_expired(entity.expires_at, now_seconds) else entity


_HOLDS: dict[Check, Callable[[Condition, Held | None], bool]] = {
    Check.NOT_EXISTS: lambda condition, entity: entity is None,
    Check.MUST_EXIST: lambda condition, entity: entity is not None,
    Check.VERSION: lambda condition, entity: entity is not None and entity.version == condition.version,
    Check.VALUE: lambda condition, entity: entity is not None and entity.equals(condition.value),
}
_IF_PRESENT = {
    Check.NOT_EXISTS: (Code.KEY_EXISTS, "There is an entity under this key."),
    Check.VERSION: (Code.VERSION_MISMATCH, "The entity has another version."),
    Check.VALUE: (Code.VALUE_MISMATCH, "The entity has another value."),
}
_IF_ABSENT = (Code.KEY_NOT_FOUND, "There is no entity under this key.")


def check(condition: Condition, key: bytes, entity: Held | None) -> None:
    """Hold an entity against a condition."""
    if _HOLDS[condition.check](condition, entity):
        return
    code, message = _IF_ABSENT if entity is None else _IF_PRESENT[condition.check]
    if entity is None:
        raise ConditionFailedError(Declined(code, message, key=key))
    value = entity.value if entity.size <= MAX_TOLD_VALUE_BYTES else None
    raise ConditionFailedError(Declined(code, message, key=key, current_version=entity.version, current_value=value))
