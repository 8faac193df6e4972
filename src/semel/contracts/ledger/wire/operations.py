"""Operations and conditions: JSON in, values out, and the way back.

An operation is an object with exactly one member, and so is a condition, unless there is none. The two conditions that
are booleans mean their opposite when they are false.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from semel.contracts.ledger.model import (
    Check,
    Condition,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    Operation,
    SetEntity,
)
from semel.contracts.ledger.refusals import invalid
from semel.contracts.ledger.wire.members import Shape, data, flag, number, small, text

Json = dict[str, Any]

_SET = Shape("key", "value", "expiresAt", "condition")
_CONDITION = Shape("notExists", "version", "valueEquals", "mustExists")
_DELETE = Shape("key")
_EXPIRE = Shape("key", "expiredAt")
_RELATIONSHIP = Shape("resource", "relation", "subject")
_OPERATION = Shape("createRelationship", "deleteRelationship", "setEntity", "deleteEntity", "expireEntity")


def parse_operations(values: Iterable[Any], path: str) -> list[Operation]:
    """The operations of a list, in order."""
    return [_operation(small(value), f"{path}[{place}]") for place, value in enumerate(values)]


def operation_json(operation: Operation) -> Json:
    """An operation as JSON; default values are left out."""
    match operation:
        case SetEntity():
            return {"setEntity": _set_json(operation)}
        case DeleteEntity(key):
            return {"deleteEntity": {"key": key.decode()}}
        case ExpireEntity(key, expired_at):
            return {"expireEntity": {"key": key.decode(), "expiredAt": str(expired_at)}}
        case CreateRelationship():
            return {"createRelationship": relationship_json(*operation)}
        case DeleteRelationship():
            return {"deleteRelationship": relationship_json(*operation)}


def relationship_json(resource: bytes, relation: bytes, subject: bytes) -> Json:
    """A relationship."""
    return {"resource": resource.decode(), "relation": relation.decode(), "subject": subject.decode()}


def _operation(value: object, path: str) -> Operation:
    found = [pair for pair in _OPERATION.members(value, path).items() if pair[1] is not None]
    if len(found) != 1:
        raise invalid(f"{path} must have exactly one operation, and has {len(found)}.", path)
    name, inner = found[0]
    return _PARSERS[name](inner, f"{path}.{name}")


def _set(value: object, path: str) -> SetEntity:
    members = _SET.members(value, path)
    key, content = text(members, "key", path).encode(), data(members, "value", path)
    condition = members.get("condition")
    return SetEntity(
        key,
        content,
        number(members, "expiresAt", path) or 0,
        None if condition is None else _condition(condition, f"{path}.condition"),
    )


def _condition(value: object, path: str) -> Condition | None:
    members = _CONDITION.members(value, path)
    given = [name for name, member in members.items() if member is not None]
    if not given:
        return None
    if len(given) > 1:
        raise invalid(f"{path} must have one condition, and has {len(given)}.", path)
    return _CHECKS[given[0]](members, path)


def _not_exists(members: Mapping[str, Any], path: str) -> Condition:
    return Condition(Check.NOT_EXISTS if flag(members, "notExists", path) else Check.MUST_EXIST)


def _must_exist(members: Mapping[str, Any], path: str) -> Condition:
    return Condition(Check.MUST_EXIST if flag(members, "mustExists", path) else Check.NOT_EXISTS)


def _version(members: Mapping[str, Any], path: str) -> Condition:
    return Condition(Check.VERSION, version=number(members, "version", path) or 0)


def _value_equals(members: Mapping[str, Any], path: str) -> Condition:
    return Condition(Check.VALUE, value=data(members, "valueEquals", path))


def _delete(value: object, path: str) -> DeleteEntity:
    return DeleteEntity(text(_DELETE.members(value, path), "key", path).encode())


def _expire(value: object, path: str) -> ExpireEntity:
    members = _EXPIRE.members(value, path)
    return ExpireEntity(text(members, "key", path).encode(), number(members, "expiredAt", path) or 0)


def _create_relationship(value: object, path: str) -> CreateRelationship:
    return CreateRelationship(*_relationship(value, path))


def _delete_relationship(value: object, path: str) -> DeleteRelationship:
    return DeleteRelationship(*_relationship(value, path))


def _relationship(value: object, path: str) -> tuple[bytes, bytes, bytes]:
    members = _RELATIONSHIP.members(value, path)
    resource, relation, subject = (text(members, name, path).encode() for name in ("resource", "relation", "subject"))
    return resource, relation, subject


_PARSERS: Mapping[str, Callable[[object, str], Operation]] = {
    "setEntity": _set,
    "deleteEntity": _delete,
    "expireEntity": _expire,
    "createRelationship": _create_relationship,
    "deleteRelationship": _delete_relationship,
}
_CHECKS: Mapping[str, Callable[[Mapping[str, Any], str], Condition]] = {
    "notExists": _not_exists,
    "mustExists": _must_exist,
    "version": _version,
    "valueEquals": _value_equals,
}


def _set_json(operation: SetEntity) -> Json:
    key, value, expires_at, condition = operation
    told: Json = {"key": key.decode(), "value": b64encode(value).decode()}
    if expires_at:
        told["expiresAt"] = str(expires_at)
    if condition is not None:
        told["condition"] = _condition_json(condition)
    return told


def _condition_json(condition: Condition) -> Json:
    match condition.check:
        case Check.NOT_EXISTS:
            return {"notExists": True}
        case Check.MUST_EXIST:
            return {"mustExists": True}
        case Check.VERSION:
            return {"version": str(condition.version)}
        case Check.VALUE:
            return {"valueEquals": b64encode(condition.value).decode()}
