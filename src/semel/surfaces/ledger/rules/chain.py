"""The hash chain: the encoding of operations and transactions, block hashes, Merkle roots, and rows as headers.

Encoded lengths and counts are 32-bit little-endian, all other numbers big-endian. Operations are stored in this
encoding too, so the stored bytes are the hashed bytes. Only bytes that were encoded here are decoded.

The hash of a block covers 148 bytes of fixed layout, so no two headers have the same bytes. Block 1 follows 32 zero
bytes; the header of height 0, sent when a vault is created, is not part of the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from io import BytesIO
from struct import Struct

from semel.surfaces.ledger.commands import CommittedTransaction, Org, OrgQuota, Vault
from semel.surfaces.ledger.model import (
    ZERO,
    BlockHeader,
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    LedgerPlace,
    LedgerStatus,
    LedgerTime,
    LedgerTransaction,
    Operation,
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.rules.state_tree import EMPTY_STATE_ROOT
from semel.surfaces.ledger.tables import BlockRow, OrgRow, PlaceRow

_LENGTH = Struct("<I")
_U64 = Struct(">Q")
_TIME = Struct(">qI")
_CREATE, _DELETE_RELATION, _SET, _DELETE, _EXPIRE = 1, 2, 3, 4, 5
_ONE = _LENGTH.pack(1)
_JOINED_BYTES = 4_096
"""Operations of up to this many bytes are joined with the rest of what is hashed."""
_RELATIONSHIP = b"\0"
"""The first byte of the key of a relationship; no key of an entity may begin with it."""


def encode_operations(operations: tuple[Operation, ...]) -> bytes:
    """The count, then the operations one after another."""
    if len(operations) == 1:
        return b"".join((_ONE, *_parts(operations[0])))
    encoded = BytesIO()  # unlike a list of parts, it does not hold everything twice
    encoded.write(_LENGTH.pack(len(operations)))
    for operation in operations:
        encoded.writelines(_parts(operation))
    return encoded.getvalue()


def request_hash(encoded: bytes) -> bytes:
    """The hash that tells two requests apart."""
    return sha256(encoded).digest()


def transaction_hash(transaction: LedgerTransaction, encoded: bytes) -> bytes:
    """The leaf of a transaction; `encoded` are its operations."""
    head = b"".join(
        (
            transaction.id,
            _field(transaction.client),
            _U64.pack(transaction.sequence),
            _field(transaction.actor),
        )
    )
    if len(encoded) <= _JOINED_BYTES:
        return sha256(head + encoded + _TIME.pack(*transaction.at)).digest()
    hashed = sha256(head)
    hashed.update(encoded)  # not copied
    hashed.update(_TIME.pack(*transaction.at))
    return hashed.digest()


def relationship_key(resource: bytes, relation: bytes, subject: bytes) -> bytes:
    """The key of the state for a relationship."""
    return _RELATIONSHIP + _field(resource) + _field(relation) + _field(subject)


def relationship_prefix(*parts: bytes) -> bytes:
    """The prefix of the keys of all relationships with these first parts."""
    return _RELATIONSHIP + b"".join(map(_field, parts))


def split_relationship(key: bytes) -> tuple[bytes, bytes, bytes]:
    """The parts of the key of a relationship."""
    reader = _Reader(key, 1)
    return reader.field(), reader.field(), reader.field()


def subject_of(key: bytes) -> bytes:
    """The subject in the key of a relationship; empty for the key of an entity."""
    return split_relationship(key)[2] if key.startswith(_RELATIONSHIP) else b""


def decode_operations(encoded: bytes) -> tuple[Operation, ...]:
    """The operations from their encoded bytes."""
    reader = _Reader(encoded, 0)
    return tuple(reader.operation() for _ in range(reader.length()))


def state_key(operation: Operation) -> bytes:
    """The key of the state that an operation changes."""
    if isinstance(operation, CreateRelationship | DeleteRelationship):
        return relationship_key(*operation)
    return operation.key


def state_keys(operations: Iterable[Operation]) -> list[bytes]:
    """The keys of all operations, each once, in the order of the operations."""
    return list(dict.fromkeys(map(state_key, operations)))


def _field(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _parts(operation: Operation) -> tuple[bytes, ...]:
    """The encoded parts of an operation, in order."""
    if operation.__class__ is SetEntity and operation.condition is None:  # most are
        key, value, expires_at, _ = operation
        return b"\x03", _LENGTH.pack(len(key)), key, _LENGTH.pack(len(value)), value, b"\0", _U64.pack(expires_at)
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


def _condition(condition: SetCondition | None) -> tuple[bytes, ...]:
    if condition is None:
        return (b"\0",)
    kind = bytes((condition.check.value,))
    if condition.check is ConditionKind.VERSION:
        return kind, _U64.pack(condition.version)
    return (
        (kind, _LENGTH.pack(len(condition.value)), condition.value)
        if condition.check is ConditionKind.VALUE
        else (kind,)
    )


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
        raise ValueError(f"a stored operation has the unknown kind {kind}")

    def condition(self) -> SetCondition | None:
        kind = self.take(1)[0]
        if kind == 0:
            return None
        check = ConditionKind(kind)
        if check is ConditionKind.VERSION:
            return SetCondition(check, version=self.number())
        return SetCondition(check, value=self.field()) if check is ConditionKind.VALUE else SetCondition(check)


EMPTY = sha256(b"").digest()
_HEADER = Struct(">QQQ32s32s32sqIQQ")


def block_hash(header: BlockHeader) -> bytes:
    """The hash of a block header."""
    return sha256(
        _HEADER.pack(
            header.height,
            header.place.org,
            header.place.vault,
            header.previous_hash,
            header.tx_root,
            header.state_root,
            header.at.seconds,
            header.at.nanos,
            header.term,
            header.committed_index,
        )
    ).digest()


def _hash_of_row(block: BlockRow) -> bytes:
    """As `block_hash`, of a stored block."""
    org, vault, height, previous_hash, tx_root, state_root, seconds, nanos, term, index = block[:10]
    return sha256(
        _HEADER.pack(height, org, vault, previous_hash, tx_root, state_root, seconds, nanos, term, index)
    ).digest()


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The root over leaves in order; an odd level repeats its last node."""
    if not leaves:
        return EMPTY
    level = list(leaves)
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        level = [sha256(level[place] + level[place + 1]).digest() for place in range(0, len(level), 2)]
    return level[0]


def genesis_header(place: LedgerPlace, at: LedgerTime, term: int, index: int, leader: bytes = b"") -> BlockHeader:
    """The header of a place without blocks."""
    return BlockHeader(0, place, ZERO, EMPTY, EMPTY_STATE_ROOT, at, term, index, leader)


def header_of(block: BlockRow) -> BlockHeader:
    """The header from a row."""
    return BlockHeader(
        block.height,
        LedgerPlace(block.org, block.vault),
        block.previous_hash,
        block.tx_root,
        block.state_root,
        LedgerTime(block.at_seconds, block.at_nanos),
        block.term,
        block.committed_index,
        block.leader,
    )


def transaction_of(block: BlockRow, operations: bytes) -> LedgerTransaction:
    """The transaction of a block, with its encoded operations."""
    at = LedgerTime(block.at_seconds, block.at_nanos)
    return LedgerTransaction(block.id, block.client, block.sequence, decode_operations(operations), at, block.actor)


def committed_of(block: BlockRow, operations: bytes) -> CommittedTransaction:
    """Header and transaction of a block, with its encoded operations."""
    return CommittedTransaction(transaction_of(block, operations), header_of(block))


def genesis_of(place: PlaceRow) -> BlockHeader:
    """The genesis header of a place."""
    at = LedgerTime(place.created_seconds, place.created_nanos)
    return genesis_header(LedgerPlace(place.org, place.vault), at, place.created_term, place.created_index)


def is_head(place: PlaceRow, block: BlockRow | None) -> bool:
    """Whether this block is the one that the tip of a place names; None fits a place without blocks."""
    if place.height == 0:
        return block is None
    if block is None or (block.height, block.state_root) != (place.height, place.state_root):
        return False
    return _hash_of_row(block) == place.tip_hash


def org_of(row: OrgRow) -> Org:
    """An organization from its row."""
    return Org(
        row.org,
        row.name,
        LedgerStatus(row.status),
        LedgerTime(row.created_seconds, row.created_nanos),
        row.entries,
        row.interval,
        row.ttl_seconds,
        bool(row.fence),
        row.vaults,
        OrgQuota(row.quota_bytes, row.quota_vaults, row.quota_writes),
    )


def vault_of(row: PlaceRow) -> Vault:
    """A vault from its row."""
    created = LedgerTime(row.created_seconds, row.created_nanos)
    place = LedgerPlace(row.org, row.vault)
    return Vault(place, LedgerStatus(row.status), row.height, row.state_root, row.retain, created)
