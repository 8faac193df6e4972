"""Canonical encoding for hashes. Lengths and counts are little-endian, all other numbers big-endian."""

from __future__ import annotations

from hashlib import sha256

from semel.client.proofs.documents import Instant
from semel.client.proofs.shapes import (
    Check,
    Condition,
    DeleteEntity,
    Entry,
    Header,
    Operation,
    Relationship,
    SetEntity,
    Transaction,
)


def header_hash(header: Header) -> bytes:
    """The hash of a block: of the 148 bytes of its header, the leader left out."""
    content = (
        _u64(header.height)
        + _u64(header.organization)
        + _u64(header.vault)
        + header.previous_hash
        + header.tx_merkle_root
        + header.state_root
        + _instant(header.timestamp)
        + _u64(header.term)
        + _u64(header.committed_index)
    )
    return sha256(content).digest()


def transaction_hash(transaction: Transaction) -> bytes:
    """The leaf of a transaction in its block's tree."""
    content = (
        transaction.id
        + _sized(transaction.client_id)
        + _u64(transaction.sequence)
        + _sized(transaction.actor)
        + operations_bytes(transaction.operations)
        + _instant(transaction.timestamp)
    )
    return sha256(content).digest()


def operations_bytes(operations: tuple[Operation, ...]) -> bytes:
    """Their number, and each of them."""
    return _length(len(operations)) + b"".join(map(_operation, operations))


def entry_bytes(entry: Entry) -> bytes:
    """A leaf of the state."""
    return _sized(entry.key) + _sized(entry.value) + _u64(entry.expires_at) + _u64(entry.version)


def relationship_key(resource: str, relation: str, subject: str) -> bytes:
    """The key of a relationship in the state."""
    return b"\x00" + b"".join(_sized(part.encode("utf-8")) for part in (resource, relation, subject))


def split_relationship_key(key: bytes) -> tuple[str, str, str] | None:
    """The parts of such a key; None for any other."""
    parts: list[str] = []
    place = 1
    while key.startswith(b"\x00") and len(parts) < 3:
        end = place + 4 + int.from_bytes(key[place : place + 4], "little")
        try:
            parts.append(key[place + 4 : end].decode("utf-8"))
        except UnicodeDecodeError:
            return None
        place = end
    # The one spelling: parts that reach behind the end, or leave bytes over, give another key.
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and relationship_key(*parts) == key else None


def _operation(operation: Operation) -> bytes:
    if isinstance(operation, Relationship):
        kind = b"\x01" if operation.is_created else b"\x02"
        return kind + _sized(operation.resource) + _sized(operation.relation) + _sized(operation.subject)
    if isinstance(operation, SetEntity):
        entity = _sized(operation.key) + _sized(operation.value)
        return b"\x03" + entity + _condition(operation.condition) + _u64(operation.expires_at)
    if isinstance(operation, DeleteEntity):
        return b"\x04" + _sized(operation.key)
    return b"\x05" + _sized(operation.key) + _u64(operation.expired_at)


def _condition(condition: Condition) -> bytes:
    kind = bytes([condition.check.value])
    if condition.check is Check.VERSION:
        return kind + _u64(condition.version)
    return kind + _sized(condition.value) if condition.check is Check.VALUE_EQUALS else kind


def _instant(instant: Instant) -> bytes:
    return instant.seconds.to_bytes(8, "big", signed=True) + instant.nanos.to_bytes(4, "big")


def _sized(content: bytes) -> bytes:
    return _length(len(content)) + content


def _length(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")
