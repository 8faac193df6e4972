"""Operations and conditions: parsed from JSON, and written as JSON.

An operation is an object with exactly one member, and so is a condition, if there is one. The two boolean conditions
mean the opposite if they are false.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    Operation,
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.wire.members import LedgerMembers, ObjectMembers, small

Json = dict[str, Any]

_SET = ObjectMembers("key", "value", "expiresAt", "condition")
_CONDITION = ObjectMembers("notExists", "version", "valueEquals", "mustExists")
_DELETE = ObjectMembers("key")
_EXPIRE = ObjectMembers("key", "expiredAt")
_RELATIONSHIP = ObjectMembers("resource", "relation", "subject")
_OPERATION = ObjectMembers("createRelationship", "deleteRelationship", "setEntity", "deleteEntity", "expireEntity")


def parse_operations(values: Iterable[Any], path: str) -> list[Operation]:
    """Parse the operations of a list, in order."""
    return [_operation(small(value), f"{path}[{place}]") for place, value in enumerate(values)]


def operation_json(operation: Operation) -> Json:
    """An operation as JSON; default values are omitted."""
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
    """A relationship as JSON."""
    return {"resource": resource.decode(), "relation": relation.decode(), "subject": subject.decode()}


def _operation(value: object, path: str) -> Operation:
    found = [pair for pair in _OPERATION.members(value, path).values.items() if pair[1] is not None]
    if len(found) != 1:
        raise invalid(f"{path} must have exactly one operation, and has {len(found)}.", path)
    name, inner = found[0]
    return _PARSERS[name](inner, f"{path}.{name}")


def _set(value: object, path: str) -> SetEntity:
    members = _SET.members(value, path)
    key, content = members.text("key").encode(), members.data("value")
    condition = members.values.get("condition")
    return SetEntity(
        key,
        content,
        members.number("expiresAt") or 0,
        None if condition is None else _condition(condition, members.path("condition")),
    )


def _condition(value: object, path: str) -> SetCondition | None:
    members = _CONDITION.members(value, path)
    given = [name for name, member in members.values.items() if member is not None]
    if not given:
        return None
    if len(given) > 1:
        raise invalid(f"{path} must have one condition, and has {len(given)}.", path)
    return _CHECKS[given[0]](members)


def _not_exists(members: LedgerMembers) -> SetCondition:
    return SetCondition(ConditionKind.NOT_EXISTS if members.flag("notExists") else ConditionKind.MUST_EXIST)


def _must_exist(members: LedgerMembers) -> SetCondition:
    return SetCondition(ConditionKind.MUST_EXIST if members.flag("mustExists") else ConditionKind.NOT_EXISTS)


def _version(members: LedgerMembers) -> SetCondition:
    return SetCondition(ConditionKind.VERSION, version=members.number("version") or 0)


def _value_equals(members: LedgerMembers) -> SetCondition:
    return SetCondition(ConditionKind.VALUE, value=members.data("valueEquals"))


def _delete(value: object, path: str) -> DeleteEntity:
    return DeleteEntity(_DELETE.members(value, path).text("key").encode())


def _expire(value: object, path: str) -> ExpireEntity:
    members = _EXPIRE.members(value, path)
    return ExpireEntity(members.text("key").encode(), members.number("expiredAt") or 0)


def _create_relationship(value: object, path: str) -> CreateRelationship:
    return CreateRelationship(*_relationship(value, path))


def _delete_relationship(value: object, path: str) -> DeleteRelationship:
    return DeleteRelationship(*_relationship(value, path))


def _relationship(value: object, path: str) -> tuple[bytes, bytes, bytes]:
    members = _RELATIONSHIP.members(value, path)
    resource, relation, subject = (members.text(name).encode() for name in ("resource", "relation", "subject"))
    return resource, relation, subject


_PARSERS: Mapping[str, Callable[[object, str], Operation]] = {
    "setEntity": _set,
    "deleteEntity": _delete,
    "expireEntity": _expire,
    "createRelationship": _create_relationship,
    "deleteRelationship": _delete_relationship,
}
_CHECKS: Mapping[str, Callable[[LedgerMembers], SetCondition]] = {
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


def _condition_json(condition: SetCondition) -> Json:
    match condition.check:
        case ConditionKind.NOT_EXISTS:
            return {"notExists": True}
        case ConditionKind.MUST_EXIST:
            return {"mustExists": True}
        case ConditionKind.VERSION:
            return {"version": str(condition.version)}
        case ConditionKind.VALUE:
            return {"valueEquals": b64encode(condition.value).decode()}
