"""Offline verification of a ledger: proofs lead from a transaction or a value to a block hash.

Start from a block hash that you trust: one that you recorded when you watched the chain, or that a trusted person gave
you. The input is the JSON of the HTTP interface. Each function returns what is proved, or raises a `ProofError` that
names the failed check.

This package shares no code with the server and uses only the standard library, so that two independent implementations
must agree.
"""

from semel.client.proofs.answers import (
    ProvedRead,
    ProvedRelationship,
    ProvedWrite,
    anchor_of,
    relationship_in,
    verify_answer,
    verify_read,
    verify_relationship,
    verify_whole_block,
    verify_write,
)
from semel.client.proofs.blocks import (
    BEFORE_BLOCKS,
    Trusted,
    block_hash,
    verify_block,
    verify_chain,
    verify_header_hash,
    verify_inclusion,
)
from semel.client.proofs.documents import ProofError, load
from semel.client.proofs.findings import ProofFinding, finding_of
from semel.client.proofs.hashes import relationship_key
from semel.client.proofs.shapes import Entry, Header
from semel.client.proofs.shapes import ProofTransaction as Transaction
from semel.client.proofs.state import verify_state

__all__ = [
    "BEFORE_BLOCKS",
    "Entry",
    "Header",
    "ProofError",
    "ProofFinding",
    "ProvedRead",
    "ProvedRelationship",
    "ProvedWrite",
    "Transaction",
    "Trusted",
    "anchor_of",
    "block_hash",
    "finding_of",
    "load",
    "relationship_in",
    "relationship_key",
    "verify_answer",
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
