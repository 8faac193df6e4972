"""Operations and conditions of a transaction as values, and the request body that is made of them.

A body is made once and sent unchanged in every retry. Its form is the one that the server parses fastest.
"""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from semel.client.errors import InvalidArgumentError

MAX_U64 = 2**64 - 1
KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """The key has no value."""


@dataclass(frozen=True, slots=True)
class IfExists:
    """The key has a value."""


@dataclass(frozen=True, slots=True)
class IfVersion:
    """The value was last set by the block of this height."""

    version: int


@dataclass(frozen=True, slots=True)
class IfValue:
    """The key has exactly this value."""

    value: bytes | str


SetKeyCondition = IfAbsent | IfExists | IfVersion | IfValue


@dataclass(frozen=True, slots=True)
class SetKey:
    """Set the value of a key: bytes, or text as UTF-8."""

    key: str
    value: bytes | str
    condition: SetKeyCondition | None = None
    """If it does not hold, nothing of the transaction is executed."""
    expires_at: int = 0
    """Seconds since 1970; 0 means never."""


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Remove a key; without a value nothing changes."""

    key: str


@dataclass(frozen=True, slots=True)
class ExpireKey:
    """Remove a key after its expiry. The server accepts it only from actors `system:*`."""

    key: str
    expired_at: int


@dataclass(frozen=True, slots=True)
class Relate:
    """Create a relationship, such as `doc:readme` `viewer` `user:ada`; in a vault only."""

    resource: str
    relation: str
    subject: str


@dataclass(frozen=True, slots=True)
class Unrelate:
    """Remove a relationship; in a vault only."""

    resource: str
    relation: str
    subject: str


@dataclass(frozen=True, slots=True)
class JsonOperation:
    """An operation in the server's own JSON, which is sent as it is."""

    text: bytes


LedgerOperation = SetKey | DeleteKey | ExpireKey | Relate | Unrelate | JsonOperation


@dataclass(frozen=True, slots=True)
class BulkTransaction:
    """One transaction of `write_many`: its operations, and its identity.

    Without a sequence and a key, `write_many` gives it a new key.
    """

    operations: tuple[LedgerOperation, ...]
    client: str
    sequence: int | None = None
    key: str | bytes | uuid.UUID | None = None


def octets(value: bytes | str) -> bytes:
    """Bytes as they are, text as UTF-8. Raises InvalidArgumentError for text that is not valid Unicode."""
    try:
        return value.encode() if isinstance(value, str) else bytes(memoryview(value))  # `bytes(5)` is five zeros
    except (UnicodeEncodeError, TypeError):
        raise InvalidArgumentError("A value must be bytes or valid Unicode text.") from None


def operations_text(operations: Iterable[LedgerOperation]) -> bytes:
    """The operations as a JSON array. Raises InvalidArgumentError."""
    texts = [_text(one) for one in operations]
    if not texts:
        raise InvalidArgumentError("A transaction needs at least one operation.")
    return b"[%s]" % b",".join(texts)


def write_body(client: str, sequence: int | None, key: str | None, operations: bytes, *, proof: bool = False) -> bytes:
    """The body of a write; `operations` is a JSON array, `key` is the text of a UUID."""
    members = [b'"clientId":%s' % _dumped(client)]
    if sequence is not None:
        members.append(b'"sequence":"%d"' % sequence)
    if key is not None:
        members.append(b'"idempotencyKey":"%s"' % b64encode(uuid.UUID(key).bytes))
    members.append(b'"operations":%s' % operations)
    if proof:
        members.append(b'"includeTxProof":true')
    return b"{%s}" % b",".join(members)


def checked_sequence(sequence: int | None) -> int | None:
    """A sequence that can be sent. Raises InvalidArgumentError."""
    if sequence is not None and (isinstance(sequence, bool) or not 1 <= sequence <= MAX_U64):
        raise InvalidArgumentError("A sequence must be a whole number from 1 to 2^64-1.")
    return sequence


def key_text(key: str | bytes | uuid.UUID | None) -> str | None:
    """An idempotency key as the text of a UUID: given as such, as 16 bytes, or as base64 of them."""
    if key is None:
        return None
    try:
        number = key if isinstance(key, uuid.UUID) else _key_number(key)
    except (ValueError, Base64Error):
        raise InvalidArgumentError("A key must be a UUID or 16 bytes.") from None
    if not number.int:
        raise InvalidArgumentError("A key of zero bytes only is no key: use another one.")
    return str(number)


def _key_number(key: str | bytes) -> uuid.UUID:
    if isinstance(key, bytes):
        return uuid.UUID(bytes=key)
    try:
        return uuid.UUID(key)
    except ValueError:
        plain = key.replace("-", "+").replace("_", "/").rstrip("=")
        return uuid.UUID(bytes=b64decode(plain + "=" * (-len(plain) % 4), validate=True))


def _text(operation: LedgerOperation) -> bytes:
    if isinstance(operation, JsonOperation):
        return _checked_json(operation.text)
    if isinstance(operation, SetKey):
        members: dict[str, Any] = {"key": operation.key, "value": _base64(operation.value)}
        if operation.expires_at:
            members["expiresAt"] = str(_number(operation.expires_at, "An expiry"))
        if operation.condition is not None:
            members["condition"] = _condition(operation.condition)
        return _dumped({"setEntity": members})
    if isinstance(operation, DeleteKey):
        return _dumped({"deleteEntity": {"key": operation.key}})
    if isinstance(operation, ExpireKey):
        return _dumped({"expireEntity": {"key": operation.key, "expiredAt": str(operation.expired_at)}})
    if isinstance(operation, Relate | Unrelate):
        names = {"resource": operation.resource, "relation": operation.relation, "subject": operation.subject}
        return _dumped({"createRelationship" if isinstance(operation, Relate) else "deleteRelationship": names})
    raise InvalidArgumentError("An operation must be SetKey, DeleteKey, ExpireKey, Relate, Unrelate or JsonOperation.")


def _checked_json(text: bytes) -> bytes:
    """Refuse a text that would break the request around it."""
    try:
        is_object = isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise InvalidArgumentError("A JsonOperation must be the text of one JSON object.")
    return text


def _condition(condition: SetKeyCondition) -> dict[str, Any]:
    if isinstance(condition, IfAbsent):
        return {"notExists": True}
    if isinstance(condition, IfExists):
        return {"mustExists": True}
    if isinstance(condition, IfVersion):
        return {"version": str(_number(condition.version, "A version"))}
    if isinstance(condition, IfValue):
        return {"valueEquals": _base64(condition.value)}
    raise InvalidArgumentError("A condition must be IfAbsent(), IfExists(), IfVersion(n) or IfValue(value).")


def _number(number: int, what: str) -> int:
    if isinstance(number, bool) or not 0 <= number <= MAX_U64:
        raise InvalidArgumentError(f"{what} must be a whole number from 0 to 2^64-1.")
    return number


def _base64(value: bytes | str) -> str:
    return b64encode(octets(value)).decode()


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except (UnicodeEncodeError, TypeError):
        raise InvalidArgumentError("Keys, names and client ids must be valid Unicode text.") from None
