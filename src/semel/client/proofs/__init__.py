"""Offline verification of a ledger: proofs lead from a transaction or a value to a block hash.

Start from a block hash that you trust: one that you wrote down yourself when you watched the chain, or got from
a person who did. What is checked are the JSON documents that the HTTP interface answers with. Every function raises a
ProofError, with one sentence that names what failed, and otherwise returns what has been proved.

Nothing here is shared with the server's own hashing, and nothing but Python's own library is used: two programs that
were written apart must agree.
"""

from semel.client.proofs.answers import (
    ProvedRead,
    ProvedRelationship,
    ProvedWrite,
    anchor_of,
    relationship_in,
    verify_read,
    verify_relationship,
    verify_whole_block,
    verify_write,
)
from semel.client.proofs.blocks import (
    Trusted,
    block_hash,
    verify_block,
    verify_chain,
    verify_header_hash,
    verify_inclusion,
)
from semel.client.proofs.documents import load
from semel.client.proofs.encoding import relationship_key
from semel.client.proofs.errors import ProofError
from semel.client.proofs.shapes import Entry, Header, Transaction
from semel.client.proofs.state import verify_state

__all__ = [
    "Entry",
    "Header",
    "ProofError",
    "ProvedRead",
    "ProvedRelationship",
    "ProvedWrite",
    "Transaction",
    "Trusted",
    "anchor_of",
    "block_hash",
    "load",
    "relationship_in",
    "relationship_key",
    "verify_block",
    "verify_chain",
    "verify_header_hash",
    "verify_inclusion",
    "verify_read",
    "verify_relationship",
    "verify_state",
    "verify_whole_block",
    "verify_write",
]
