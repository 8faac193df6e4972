"""Every hash of the ledger once more, in the slowest and plainest way, sharing nothing with the server.

Values are the shapes of `semel.surfaces.ledger.model`; what is done with them is written here from the published
layouts. The model hashes with it, and so does the verdict of the crash harness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256

from semel.surfaces.ledger.model import (
    BlockHeader,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    ExpireEntity,
    LedgerTransaction,
    Operation,
    SetCondition,
    SetEntity,
    Side,
    StateProof,
)

ZERO = bytes(32)
EMPTY = sha256(b"").digest()
BUCKETS = 256


def _long(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "little") + value


def _condition(condition: SetCondition | None) -> bytes:
    if condition is None:
        return b"\x00"
    kind = condition.check.value
    return bytes([kind]) + {3: _long(condition.version), 4: _text(condition.value)}.get(kind, b"")


def _operation(operation: Operation) -> bytes:
    match operation:
        case CreateRelationship(resource, relation, subject):
            return b"\x01" + _text(resource) + _text(relation) + _text(subject)
        case DeleteRelationship(resource, relation, subject):
            return b"\x02" + _text(resource) + _text(relation) + _text(subject)
        case SetEntity(key, value, expires_at, condition):
            return b"\x03" + _text(key) + _text(value) + _condition(condition) + _long(expires_at)
        case DeleteEntity(key):
            return b"\x04" + _text(key)
        case ExpireEntity(key, expired_at):
            return b"\x05" + _text(key) + _long(expired_at)


def operations_bytes(operations: Sequence[Operation]) -> bytes:
    """How many, and then each."""
    return len(operations).to_bytes(4, "little") + b"".join(map(_operation, operations))


def request_hash(operations: Sequence[Operation]) -> bytes:
    """What two requests must have in common to be the same."""
    return sha256(operations_bytes(operations)).digest()


def transaction_hash(transaction: LedgerTransaction) -> bytes:
    """The leaf of a transaction."""
    return sha256(
        transaction.id
        + _text(transaction.client)
        + _long(transaction.sequence)
        + _text(transaction.actor)
        + operations_bytes(transaction.operations)
        + transaction.at.seconds.to_bytes(8, "big", signed=True)
        + transaction.at.nanos.to_bytes(4, "big")
    ).digest()


def block_hash(header: BlockHeader) -> bytes:
    """Of the 148 bytes that name a block."""
    hashed = (
        _long(header.height)
        + _long(header.place.org)
        + _long(header.place.vault)
        + header.previous_hash
        + header.tx_root
        + header.state_root
        + header.at.seconds.to_bytes(8, "big", signed=True)
        + header.at.nanos.to_bytes(4, "big")
        + _long(header.term)
        + _long(header.committed_index)
    )
    assert len(hashed) == 148
    return sha256(hashed).digest()


def relationship_key(resource: bytes, relation: bytes, subject: bytes) -> bytes:
    """Where a relationship stands among the entities."""
    return b"\x00" + _text(resource) + _text(relation) + _text(subject)


def _diffuse(value: int) -> int:
    value = value * 0x6EED0E9DA4D94A4F % 2**64
    value ^= (value >> 32) >> (value >> 60)
    return value * 0x6EED0E9DA4D94A4F % 2**64


@cache
def seahash(data: bytes) -> int:
    """SeaHash with its default seeds."""
    lanes = [0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381]
    for start in range(0, len(data), 8):
        word = int.from_bytes(data[start : start + 8], "little")
        lanes = [*lanes[1:], _diffuse(lanes[0] ^ word)]
    return _diffuse(lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ len(data))


def bucket_of(key: bytes) -> int:
    """One of 256."""
    return seahash(key) % BUCKETS


def leaf_hash(entity: Entity) -> bytes:
    """Of one entity or relationship."""
    leaf = _text(entity.key) + _text(entity.value) + _long(entity.expires_at) + _long(entity.version)
    return sha256(b"\x00" + leaf).digest()


@cache
def _path(key: bytes) -> str:
    """The bits of the hash of a key, most significant first."""
    return f"{int.from_bytes(sha256(key).digest(), 'big'):0256b}"


def _subtree(entities: Sequence[Entity], depth: int) -> bytes:
    if not entities:
        return ZERO
    if len(entities) == 1:
        return leaf_hash(entities[0])
    left = [entity for entity in entities if _path(entity.key)[depth] == "0"]
    right = [entity for entity in entities if _path(entity.key)[depth] == "1"]
    return sha256(b"\x01" + _subtree(left, depth + 1) + _subtree(right, depth + 1)).digest()


def state_root(entities: Iterable[Entity]) -> bytes:
    """Of everything that a place holds, from nothing but its entities."""
    buckets: Mapping[int, list[Entity]] = {number: [] for number in range(BUCKETS)}
    for entity in entities:
        buckets[bucket_of(entity.key)].append(entity)
    return sha256(b"".join(_subtree(some, 0) if some else EMPTY for some in buckets.values())).digest()


def proof_fault(proof: StateProof, root: bytes) -> str:
    """What keeps a proof from showing that its entity, or nothing, stands under its key in the state of this root."""
    path, depth = _path(proof.key), len(proof.siblings)
    reached = proof.leaf
    for bit, sibling in zip(reversed(path[:depth]), proof.siblings, strict=True):
        if (sibling.side is Side.LEFT) != (bit == "1"):
            return "a sibling stands on the wrong side"
        pair = sibling.hash + reached if bit == "1" else reached + sibling.hash
        reached = sha256(b"\x01" + pair).digest()
    if reached != (ZERO if proof.bucket_root == EMPTY else proof.bucket_root):
        return "the way up does not end at the root of the bucket"
    roots = [*proof.other_roots[: proof.bucket], proof.bucket_root, *proof.other_roots[proof.bucket :]]
    if proof.bucket != bucket_of(proof.key) or len(roots) != BUCKETS or sha256(b"".join(roots)).digest() != root:
        return "the roots of the buckets do not make the state root"
    there, witness = proof.entity, proof.witness
    if there is not None:
        return "" if witness is None and there.key == proof.key and leaf_hash(there) == proof.leaf else "another leaf"
    if witness is None:
        return "" if proof.leaf == ZERO else "somebody stands there"
    is_beside = bucket_of(witness.key) == proof.bucket and _path(witness.key)[:depth] == path[:depth]
    is_other = witness.key != proof.key and leaf_hash(witness) == proof.leaf
    return "" if is_beside and is_other else "no such witness"
