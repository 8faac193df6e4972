"""Verification of blocks: their hashes, their transactions, and their chain.

A chain is verified from a trusted block hash. Upwards it proves that a block was built on the trusted one; downwards it
proves that the trusted hash covers an older block.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from semel.client.proofs.documents import HASH_BYTES, MAX_U64, Document, ProofError, ProofPart
from semel.client.proofs.hashes import (
    EMPTY,
    EMPTY_STATE,
    ZERO,
    header_hash,
    transaction_hash,
    transactions_root,
    transactions_root_from,
)
from semel.client.proofs.shapes import (
    MAX_TX_SIBLINGS,
    Header,
    MerkleProof,
    ProofTransaction,
    read_header,
    read_merkle_proof,
    read_transaction,
)


class Trusted(NamedTuple):
    """A trusted block, whose hash came from another source than the proof."""

    height: int
    hash: bytes
    organization: int | None = None
    """The scope of the block, if known: then a proof from another scope is refused."""
    vault: int | None = None


BEFORE_BLOCKS = Trusted(0, ZERO)
"""A place before its first block: its state is empty, so its hash needs no other source.

Answers of this height are checked against it. They say nothing about a later time: refuse them once a block is trusted.
"""


def block_hash(header: Document) -> bytes:
    """The hash of a block, from its header."""
    return header_hash(headed(ProofPart.of(header, "header")))


def verify_header_hash(header: Document, expected: bytes) -> None:
    """Verify that a header has this hash."""
    match_hash(headed(ProofPart.of(header, "header")), expected)


def verify_inclusion(transaction: Document, tx_proof: Document, header: Document) -> None:
    """Verify that a transaction is in the block with this header."""
    included(
        read_transaction(ProofPart.of(transaction, "transaction")),
        read_merkle_proof(ProofPart.of(tx_proof, "txProof"), MAX_TX_SIBLINGS),
        headed(ProofPart.of(header, "header")),
    )


def verify_block(block: Document) -> None:
    """Verify that these are all transactions of a block, in order."""
    part = ProofPart.of(block, "block").only(("header",), ("transactions",))
    whole(headed(part.part("header")), [read_transaction(one) for one in part.parts("transactions")])


def verify_chain(trusted_hash: bytes, trusted_height: int, headers: Sequence[Any], header: Document) -> None:
    """Verify that a block is linked with the trusted one by the headers between them, in ascending order.

    The headers end with the higher of the two blocks and do not contain the lower one.
    """
    proved = headed(ProofPart.of(header, "header"))
    links = [headed(ProofPart.of(one, f"headers[{at}]")) for at, one in enumerate(headers)]
    linked(Trusted(trusted_height, trusted_hash), links, proved)


def headed(part: ProofPart) -> Header:
    """The header of a document. Refuses one that no block can have."""
    header = read_header(part)
    if header.height == 0:
        raise ProofError(f"{part.path('height')} is 0, but the first block has height 1.")
    if (header.height == 1) != (header.previous_hash == ZERO):
        raise ProofError(f"{part.path('previousHash')} must be zero in the first block and only there.")
    return header


def headed_state(part: ProofPart) -> Header:
    """The header of a state: that of its block, or that of a place before its first block, whose state is empty."""
    if part.number("height") != 0:
        return headed(part)
    header = read_header(part)
    if (header.previous_hash, header.tx_merkle_root, header.state_root) != (ZERO, EMPTY, EMPTY_STATE):
        raise ProofError(f"{part.path('height')} is 0, but the header is not that of an empty place.")
    return header


def match_hash(header: Header, expected: bytes) -> None:
    """Check the hash of a header."""
    found = header_hash(header)
    if found != expected:
        raise ProofError(
            f"The header at height {header.height} has the hash {found.hex()} instead of {expected.hex()}."
        )


def included(transaction: ProofTransaction, proof: MerkleProof, header: Header) -> None:
    """`verify_inclusion` for parsed documents."""
    if transaction_hash(transaction) != proof.leaf_hash:
        raise ProofError("The transaction does not have the hash of its proof's leaf.")
    if transactions_root_from(proof.leaf_hash, proof.siblings) != header.tx_merkle_root:
        raise ProofError("The proof of the transaction does not lead to the header's txMerkleRoot.")
    _same_time(transaction, header)


def _same_time(transaction: ProofTransaction, header: Header) -> None:
    if transaction.timestamp != header.timestamp:
        raise ProofError("The transaction and the header of its block do not have the same timestamp.")


def whole(header: Header, transactions: Sequence[ProofTransaction]) -> None:
    """`verify_block` for parsed documents."""
    if not transactions:
        raise ProofError(f"The block at height {header.height} came without its transactions.")
    if len({transaction.id for transaction in transactions}) != len(transactions):
        raise ProofError(f"A transaction id occurs twice in the block at height {header.height}.")
    last: dict[bytes, int] = {}
    for transaction in transactions:
        _same_time(transaction, header)
        before = last.get(transaction.client_id)
        if before is not None and transaction.sequence != before + 1:
            raise ProofError(f"The sequences of a client in the block at height {header.height} are not consecutive.")
        last[transaction.client_id] = transaction.sequence
    if transactions_root([transaction_hash(one) for one in transactions]) != header.tx_merkle_root:
        raise ProofError(f"The transactions of the block at height {header.height} do not give its txMerkleRoot.")


def linked(trusted: Trusted, links: Sequence[Header], header: Header) -> None:
    """`verify_chain` for parsed documents."""
    _same_scope(trusted, header)
    if header.height == 0:  # the header was compared with that of an empty place when it was read
        if links or trusted[:2] != BEFORE_BLOCKS[:2]:
            raise ProofError(f"The place has no block by this answer, but block {trusted.height} is trusted.")
        return
    _usable(trusted)
    if not links and header.height != trusted.height:
        raise ProofError(
            f"No header links the trusted block at height {trusted.height} to the block at {header.height}."
        )
    if header.height > trusted.height:
        _ascending(trusted.height, trusted.hash, links)
        if links[-1] != header:
            raise ProofError("The chain does not end with the header to prove.")
        return
    _ascending(header.height, header_hash(header), links)
    newest = links[-1] if links else header
    if links:
        _after(header, links[0])
    if newest.height != trusted.height:
        raise ProofError(f"The chain ends at height {newest.height}, below the trusted block at {trusted.height}.")
    match_hash(newest, trusted.hash)


def _usable(trusted: Trusted) -> None:
    if trusted.height == 0:
        raise ProofError("Height 0 cannot be trusted: the first block has height 1.")
    if not 0 < trusted.height <= MAX_U64 or len(trusted.hash) != HASH_BYTES:
        raise ProofError(f"A trusted block must be a height and a hash of {HASH_BYTES} bytes.")


def _same_scope(trusted: Trusted, header: Header) -> None:
    wanted = (trusted.organization, trusted.vault)
    for name, known, found in zip(("organization", "vault"), wanted, (header.organization, header.vault), strict=True):
        if known is not None and known != found:
            raise ProofError(f"The header is of {name} {found}, and the trusted block of {name} {known}.")


def _ascending(height: int, previous_hash: bytes, links: Sequence[Header]) -> None:
    """Check that headers are consecutive, from the block after this height and hash."""
    for number, link in enumerate(links, start=1):
        if link.height != height + number:
            raise ProofError(f"The chain has height {link.height} where {height + number} should be.")
        if link.previous_hash != previous_hash:
            raise ProofError(f"The header at height {link.height} does not have the hash of the block before it.")
        previous_hash = header_hash(link)
    for lower, upper in pairwise(links):
        _after(lower, upper)


def _after(lower: Header, upper: Header) -> None:
    """Check the members that must not decrease from one block to the next."""
    if (lower.organization, lower.vault) != (upper.organization, upper.vault):
        raise ProofError(f"The header at height {upper.height} has another scope than the one before it.")
    if upper.timestamp < lower.timestamp or upper.term < lower.term or upper.committed_index <= lower.committed_index:
        raise ProofError(f"The time, term or index of the header at height {upper.height} goes back.")
