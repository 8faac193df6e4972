"""Verification of the state: that a key has a value in a block, or that it has none."""

from __future__ import annotations

from hashlib import sha256

from semel.client.proofs.blocks import headed
from semel.client.proofs.documents import Document, Part
from semel.client.proofs.errors import ProofError
from semel.client.proofs.seahash import seahash
from semel.client.proofs.shapes import (
    BUCKETS,
    MAX_STATE_SIBLINGS,
    Entry,
    Header,
    MerkleProof,
    StateProof,
    read_merkle_proof,
    read_state_proof,
)
from semel.client.proofs.trees import EMPTY, ZERO, bit_of, bucket_root_from, entry_hash, path_of


def verify_state(
    header: Document, merkle_proof: Document, state_proof: Document, key: str | bytes, value: bytes | None = None
) -> Entry | None:
    """The entry of a key after a block, or None when its absence is proved.

    With a value, that it is this one. An entry may have expired and still stand in the state.
    """
    entry = proved(
        headed(Part.of(header, "header")),
        read_merkle_proof(Part.of(merkle_proof, "merkleProof"), MAX_STATE_SIBLINGS),
        read_state_proof(Part.of(state_proof, "stateProof")),
        key_bytes(key),
    )
    if value is not None and (entry is None or entry.value != value):
        raise ProofError("The state has no such value under the key.")
    return entry


def key_bytes(key: str | bytes) -> bytes:
    """A key as it is hashed."""
    try:
        return key.encode("utf-8") if isinstance(key, str) else key
    except UnicodeEncodeError:
        raise ProofError("The key that was asked for is not text that UTF-8 can carry.") from None


def proved(header: Header, way: MerkleProof, state: StateProof, key: bytes) -> Entry | None:
    """The same, of documents that have been read."""
    if state.entry.key != key:
        raise ProofError("The state proof is about another key.")
    if state.block_height != header.height:
        raise ProofError(f"The state proof is of height {state.block_height}, and the header of {header.height}.")
    if state.state_root != header.state_root:
        raise ProofError("The state proof and the header do not have the same stateRoot.")
    if state.bucket_id != seahash(key) % BUCKETS:
        raise ProofError(f"The key does not belong to bucket {state.bucket_id}.")
    _match_roots(state)
    is_present = state.entry.version > 0
    (_match_present if is_present else _match_absent)(header, way, state)
    root = EMPTY if _is_bucket_empty(way, state) else bucket_root_from(key, way)
    if root != state.bucket_root:
        raise ProofError("The state proof does not lead to its bucketRoot.")
    return state.entry if is_present else None


def _match_roots(state: StateProof) -> None:
    others = state.other_bucket_roots
    roots = (*others[: state.bucket_id], state.bucket_root, *others[state.bucket_id :])
    if sha256(b"".join(roots)).digest() != state.state_root:
        raise ProofError("The 256 bucket roots of the state proof do not give its stateRoot.")


def _is_bucket_empty(way: MerkleProof, state: StateProof) -> bool:
    return way.leaf_hash == ZERO and not way.siblings and not state.bucket_entries


def _match_present(header: Header, way: MerkleProof, state: StateProof) -> None:
    if state.bucket_entries:
        raise ProofError("A state proof of a key that is there names no other entry.")
    if state.entry.version > header.height:
        raise ProofError("The version in the state proof is above the height of the block.")
    if entry_hash(state.entry) != way.leaf_hash:
        raise ProofError("The entry in the state proof does not have the hash that is the leaf of its way.")


def _match_absent(header: Header, way: MerkleProof, state: StateProof) -> None:
    if state.entry.value or state.entry.expires_at:
        raise ProofError("A state proof of a key that is not there has neither a value nor an end.")
    if not state.bucket_entries:
        if way.leaf_hash != ZERO:
            raise ProofError("The state proof does not say what stands in the place of the absent key.")
        return
    found = state.bucket_entries[0]
    if found.key == state.entry.key or seahash(found.key) % BUCKETS != state.bucket_id:
        raise ProofError("The entry in the place of the absent key is not another one of the same bucket.")
    own, other = path_of(state.entry.key), path_of(found.key)
    if any(bit_of(own, depth) != bit_of(other, depth) for depth in range(len(way.siblings))):
        raise ProofError("The entry in the place of the absent key does not stand on the way to it.")
    if not 0 < found.version <= header.height:
        raise ProofError("The entry in the place of the absent key has no version that is possible at this height.")
    if entry_hash(found) != way.leaf_hash:
        raise ProofError("The entry in the place of the absent key does not have the hash that is the leaf of its way.")
