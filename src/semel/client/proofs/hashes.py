"""The hashed encodings, and two Merkle trees: the transactions of a block, and one bucket of the state.

Lengths and counts are little-endian, other numbers big-endian. The tree of transactions has no prefix for leaves and
nodes. The tree of a bucket has one: a leaf is hashed with a prefix byte 0 and a node with 1, so that neither can be
taken for the other. The path to a leaf is the SHA-256 of its key, from the first bit on. SeaHash selects one of the 256
buckets for a key; it is not cryptographic.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from semel.client.proofs.documents import ProofError, ProofInstant
from semel.client.proofs.shapes import (
    BUCKETS,
    Entry,
    Header,
    MerkleProof,
    Operation,
    ProofCheck,
    ProofCondition,
    ProofDeleteEntity,
    ProofRelationship,
    ProofSetEntity,
    ProofSibling,
    ProofSide,
    ProofTransaction,
)


def header_hash(header: Header) -> bytes:
    """The hash of a block: of the 148 bytes of its header, without the leader."""
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


def transaction_hash(transaction: ProofTransaction) -> bytes:
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
    """The encoding of operations: their number, then each of them."""
    return _length(len(operations)) + b"".join(map(_operation, operations))


def entry_bytes(entry: Entry) -> bytes:
    """The encoding of a leaf of the state."""
    return _sized(entry.key) + _sized(entry.value) + _u64(entry.expires_at) + _u64(entry.version)


def relationship_key(resource: str, relation: str, subject: str) -> bytes:
    """The key of a relationship in the state."""
    return b"\x00" + b"".join(_sized(part.encode("utf-8")) for part in (resource, relation, subject))


def split_relationship_key(key: bytes) -> tuple[str, str, str] | None:
    """The parts of a relationship's key, or None for another key."""
    parts: list[str] = []
    place = 1
    while key.startswith(b"\x00") and len(parts) < 3:
        end = place + 4 + int.from_bytes(key[place : place + 4], "little")
        try:
            parts.append(key[place + 4 : end].decode("utf-8"))
        except UnicodeDecodeError:
            return None
        place = end
    # Only one encoding: parts that exceed the key, or leave bytes over, encode to another key.
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and relationship_key(*parts) == key else None


def _operation(operation: Operation) -> bytes:
    if isinstance(operation, ProofRelationship):
        kind = b"\x01" if operation.is_created else b"\x02"
        return kind + _sized(operation.resource) + _sized(operation.relation) + _sized(operation.subject)
    if isinstance(operation, ProofSetEntity):
        entity = _sized(operation.key) + _sized(operation.value)
        return b"\x03" + entity + _condition(operation.condition) + _u64(operation.expires_at)
    if isinstance(operation, ProofDeleteEntity):
        return b"\x04" + _sized(operation.key)
    return b"\x05" + _sized(operation.key) + _u64(operation.expired_at)


def _condition(condition: ProofCondition) -> bytes:
    kind = bytes([condition.check.value])
    if condition.check is ProofCheck.VERSION:
        return kind + _u64(condition.version)
    return kind + _sized(condition.value) if condition.check is ProofCheck.VALUE_EQUALS else kind


def _instant(instant: ProofInstant) -> bytes:
    return instant.seconds.to_bytes(8, "big", signed=True) + instant.nanos.to_bytes(4, "big")


def _sized(content: bytes) -> bytes:
    return _length(len(content)) + content


def _length(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


ZERO = bytes(32)
EMPTY = sha256(b"").digest()
EMPTY_STATE = sha256(EMPTY * BUCKETS).digest()


def transactions_root(leaves: Sequence[bytes]) -> bytes:
    """The root of all transactions of a block, in order; a level of odd length repeats its last node."""
    level = list(leaves)
    if not level:
        return EMPTY
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        level = [sha256(left + right).digest() for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def transactions_root_from(leaf: bytes, siblings: Sequence[ProofSibling]) -> bytes:
    """The root computed from one transaction and its siblings."""
    current = leaf
    for sibling in siblings:
        is_left = sibling.side is ProofSide.LEFT
        current = sha256(sibling.hash + current if is_left else current + sibling.hash).digest()
    return current


def entry_hash(entry: Entry) -> bytes:
    """The hash of a leaf of the state."""
    return sha256(b"\x00" + entry_bytes(entry)).digest()


def bucket_root_from(key: bytes, proof: MerkleProof) -> bytes:
    """The root of a bucket, computed from the place of a key. Each sibling must be on the correct side."""
    path = path_of(key)
    current = proof.leaf_hash
    for depth, sibling in zip(reversed(range(len(proof.siblings))), proof.siblings, strict=True):
        is_right = bit_of(path, depth)
        if (sibling.side is ProofSide.LEFT) != is_right:
            raise ProofError(
                f"The sibling at depth {depth} of the state proof is not on the side that the key requires."
            )
        current = sha256(b"\x01" + (sibling.hash + current if is_right else current + sibling.hash)).digest()
    return current


def path_of(key: bytes) -> bytes:
    """The path of a key in its bucket."""
    return sha256(key).digest()


def bit_of(path: bytes, depth: int) -> bool:
    """Whether the path goes right at this depth."""
    return bool(path[depth // 8] >> (7 - depth % 8) & 1)


_SEEDS = (0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381)
_FACTOR = 0x6EED0E9DA4D94A4F
_MASK = 2**64 - 1


def seahash(content: bytes) -> int:
    """SeaHash, 64 bits, with the reference seeds."""
    first, second, third, fourth = _SEEDS
    for start in range(0, len(content), 8):
        word = int.from_bytes(content[start : start + 8], "little")
        first, second, third, fourth = second, third, fourth, _diffused(first ^ word)
    return _diffused(first ^ second ^ third ^ fourth ^ len(content))


def _diffused(word: int) -> int:
    word = word * _FACTOR & _MASK
    word ^= (word >> 32) >> (word >> 60)
    return word * _FACTOR & _MASK
