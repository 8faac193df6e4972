"""Verification of the state: a key has a value in a block, or has none."""

from __future__ import annotations

from hashlib import sha256

from semel.client.proofs.blocks import headed_state
from semel.client.proofs.documents import Document, ProofError, ProofPart
from semel.client.proofs.hashes import EMPTY, ZERO, bit_of, bucket_root_from, entry_hash, path_of, seahash
from semel.client.proofs.shapes import (
    BUCKETS,
    MAX_STATE_SIBLINGS,
    Entry,
    Header,
    MerkleProof,
    ProofOfState,
    read_merkle_proof,
    read_state_proof,
)


def verify_state(
    header: Document, merkle_proof: Document, state_proof: Document, key: str | bytes, value: bytes | None = None
) -> Entry | None:
    """The entry of a key after a block, or None if its absence is proved. With `value`, the entry must have it. An
    expired entry may still be in the state.
    """
    entry = proved(
        headed_state(ProofPart.of(header, "header")),
        read_merkle_proof(ProofPart.of(merkle_proof, "merkleProof"), MAX_STATE_SIBLINGS),
        read_state_proof(ProofPart.of(state_proof, "stateProof")),
        key_bytes(key),
    )
    if value is not None and (entry is None or entry.value != value):
        raise ProofError("The state has no such value under the key.")
    return entry


def key_bytes(key: str | bytes) -> bytes:
    """A key as UTF-8, the form that is hashed."""
    try:
        return key.encode("utf-8") if isinstance(key, str) else key
    except UnicodeEncodeError:
        raise ProofError("The requested key cannot be encoded as UTF-8.") from None


def proved(header: Header, way: MerkleProof, state: ProofOfState, key: bytes) -> Entry | None:
    """`verify_state` for parsed documents."""
    if state.entry.key != key:
        raise ProofError("The state proof is for another key.")
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


def _match_roots(state: ProofOfState) -> None:
    others = state.other_bucket_roots
    roots = (*others[: state.bucket_id], state.bucket_root, *others[state.bucket_id :])
    if sha256(b"".join(roots)).digest() != state.state_root:
        raise ProofError("The 256 bucket roots of the state proof do not give its stateRoot.")


def _is_bucket_empty(way: MerkleProof, state: ProofOfState) -> bool:
    return way.leaf_hash == ZERO and not way.siblings and not state.bucket_entries


def _match_present(header: Header, way: MerkleProof, state: ProofOfState) -> None:
    if state.bucket_entries:
        raise ProofError("A state proof of a present key must not name another entry.")
    if state.entry.version > header.height:
        raise ProofError("The version in the state proof is above the height of the block.")
    if entry_hash(state.entry) != way.leaf_hash:
        raise ProofError("The entry in the state proof does not have the hash of the proof's leaf.")


def _match_absent(header: Header, way: MerkleProof, state: ProofOfState) -> None:
    if state.entry.value or state.entry.expires_at:
        raise ProofError("A state proof of an absent key must not have a value or an expiry.")
    if not state.bucket_entries:
        if way.leaf_hash != ZERO:
            raise ProofError("The state proof does not say which entry is at the place of the absent key.")
        return
    found = state.bucket_entries[0]
    if found.key == state.entry.key or seahash(found.key) % BUCKETS != state.bucket_id:
        raise ProofError("The entry at the place of the absent key must be another key of the same bucket.")
    own, other = path_of(state.entry.key), path_of(found.key)
    if any(bit_of(own, depth) != bit_of(other, depth) for depth in range(len(way.siblings))):
        raise ProofError("The entry at the place of the absent key is not on its path.")
    if not 0 < found.version <= header.height:
        raise ProofError("The entry at the place of the absent key has a version that is impossible at this height.")
    if entry_hash(found) != way.leaf_hash:
        raise ProofError("The entry at the place of the absent key does not have the hash of the proof's leaf.")
