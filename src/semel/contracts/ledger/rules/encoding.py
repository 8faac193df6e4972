"""Canonical encoding for hashes: operations, transactions, relationship keys.

Lengths and counts are 32 bits, little end first; other numbers big end first. Operations are stored in this encoding
too, so that what is kept is what was hashed. Decoding is only ever done to bytes that were encoded here.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from io import BytesIO
from struct import Struct

from semel.contracts.ledger.model import (
    Check,
    Condition,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    Operation,
    SetEntity,
    Transaction,
)

_LENGTH = Struct("<I")
_U64 = Struct(">Q")
_TIME = Struct(">qI")
_CREATE, _DELETE_RELATION, _SET, _DELETE, _EXPIRE = 1, 2, 3, 4, 5
_RELATIONSHIP = b"\0"
"""The first byte of the key of a relationship; no key of an entity may begin with it."""


def encode_operations(operations: tuple[Operation, ...]) -> bytes:
    """The count, then one after another."""
    encoded = BytesIO()  # unlike a list of parts it does not hold everything twice
    encoded.write(_LENGTH.pack(len(operations)))
    for operation in operations:
        encoded.writelines(_parts(operation))
    return encoded.getvalue()


def request_hash(encoded: bytes) -> bytes:
    """The hash that tells two requests apart."""
    return sha256(encoded).digest()


def transaction_hash(transaction: Transaction, encoded: bytes) -> bytes:
    """The leaf of a transaction; `encoded` are its operations."""
    seconds, nanos = transaction.at
    hashed = sha256(transaction.id + _field(transaction.client) + _U64.pack(transaction.sequence))
    hashed.update(_field(transaction.actor))
    hashed.update(encoded)
    hashed.update(_TIME.pack(seconds, nanos))
    return hashed.digest()


def relationship_key(resource: bytes, relation: bytes, subject: bytes) -> bytes:
    """A relationship as a key of the state."""
    return _RELATIONSHIP + _field(resource) + _field(relation) + _field(subject)


def relationship_prefix(*parts: bytes) -> bytes:
    """How the keys of all relationships with these first parts begin."""
    return _RELATIONSHIP + b"".join(map(_field, parts))


def split_relationship(key: bytes) -> tuple[bytes, bytes, bytes]:
    """The parts of such a key."""
    reader = _Reader(key, 1)
    return reader.field(), reader.field(), reader.field()


def subject_of(key: bytes) -> bytes:
    """The subject of a relationship's key; empty for that of an entity."""
    return split_relationship(key)[2] if key.startswith(_RELATIONSHIP) else b""


def decode_operations(encoded: bytes) -> tuple[Operation, ...]:
    """The operations behind their bytes."""
    reader = _Reader(encoded, 0)
    return tuple(reader.operation() for _ in range(reader.length()))


def state_key(operation: Operation) -> bytes:
    """The key of the state that an operation is about."""
    if isinstance(operation, CreateRelationship | DeleteRelationship):
        return relationship_key(*operation)
    return operation.key


def state_keys(operations: Iterable[Operation]) -> list[bytes]:
    """Those of all of them, each once, in the order of the operations."""
    return list(dict.fromkeys(map(state_key, operations)))


def _field(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _parts(operation: Operation) -> tuple[bytes, ...]:
    """The encoded parts of an operation, in order."""
    match operation:
        case SetEntity(key, value, expires_at, condition):
            length = _LENGTH.pack(len(value))
            return b"\x03", _field(key), length, value, *_condition(condition), _U64.pack(expires_at)
        case DeleteEntity(key):
            return b"\x04", _field(key)
        case ExpireEntity(key, expired_at):
            return b"\x05", _field(key), _U64.pack(expired_at)
        case CreateRelationship():
            return b"\x01", *map(_field, operation)
        case DeleteRelationship():
            return b"\x02", *map(_field, operation)


def _condition(condition: Condition | None) -> tuple[bytes, ...]:
    if condition is None:
        return (b"\0",)
    kind = bytes((condition.check.value,))
    if condition.check is Check.VERSION:
        return kind, _U64.pack(condition.version)
    return (kind, _LENGTH.pack(len(condition.value)), condition.value) if condition.check is Check.VALUE else (kind,)


class _Reader:
    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def take(self, size: int) -> bytes:
        self._place += size
        return self._data[self._place - size : self._place]

    def length(self) -> int:
        return int(_LENGTH.unpack(self.take(4))[0])

    def number(self) -> int:
        return int(_U64.unpack(self.take(8))[0])

    def field(self) -> bytes:
        return self.take(self.length())

    def operation(self) -> Operation:
        kind = self.take(1)[0]
        if kind == _SET:
            key, value = self.field(), self.field()
            condition = self.condition()
            return SetEntity(key, value, self.number(), condition)
        if kind == _DELETE:
            return DeleteEntity(self.field())
        if kind == _EXPIRE:
            return ExpireEntity(self.field(), self.number())
        parts = self.field(), self.field(), self.field()
        if kind == _CREATE:
            return CreateRelationship(*parts)
        if kind == _DELETE_RELATION:
            return DeleteRelationship(*parts)
        raise ValueError(f"a stored operation is of the unknown kind {kind}")

    def condition(self) -> Condition | None:
        kind = self.take(1)[0]
        if kind == 0:
            return None
        check = Check(kind)
        if check is Check.VERSION:
            return Condition(check, version=self.number())
        return Condition(check, value=self.field()) if check is Check.VALUE else Condition(check)
