"""Merkle trees: that of a block's transactions, and that of one bucket of the state.

The first has no marks on leaves and nodes. The second has: a leaf is hashed behind a zero byte and a node behind a one,
so that neither passes for the other; and the way to a leaf is the SHA-256 of its key, bit by bit from the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from semel.client.proofs.encoding import entry_bytes
from semel.client.proofs.errors import ProofError
from semel.client.proofs.shapes import Entry, MerkleProof, Sibling, Side

ZERO = bytes(32)
EMPTY = sha256(b"").digest()


def transactions_root(leaves: Sequence[bytes]) -> bytes:
    """The root over all transactions of a block, in their order; a level of odd length repeats its last node."""
    level = list(leaves)
    if not level:
        return EMPTY
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        level = [sha256(left + right).digest() for left, right in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def transactions_root_from(leaf: bytes, siblings: Sequence[Sibling]) -> bytes:
    """The same root, from one transaction upwards."""
    current = leaf
    for sibling in siblings:
        is_left = sibling.side is Side.LEFT
        current = sha256(sibling.hash + current if is_left else current + sibling.hash).digest()
    return current


def entry_hash(entry: Entry) -> bytes:
    """A leaf of the state's tree."""
    return sha256(b"\x00" + entry_bytes(entry)).digest()


def bucket_root_from(key: bytes, proof: MerkleProof) -> bytes:
    """The root of a bucket, from the place of a key, present or absent; each step must be on its own side."""
    path = path_of(key)
    current = proof.leaf_hash
    for depth, sibling in zip(reversed(range(len(proof.siblings))), proof.siblings, strict=True):
        is_right = bit_of(path, depth)
        if (sibling.side is Side.LEFT) != is_right:
            raise ProofError(f"The sibling at depth {depth} of the state proof is not on the side that the key says.")
        current = sha256(b"\x01" + (sibling.hash + current if is_right else current + sibling.hash)).digest()
    return current


def path_of(key: bytes) -> bytes:
    """Which way to go for a key."""
    return sha256(key).digest()


def bit_of(path: bytes, depth: int) -> bool:
    """Whether it goes to the right at this depth."""
    return bool(path[depth // 8] >> (7 - depth % 8) & 1)
