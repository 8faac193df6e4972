"""Blocks: their hash, their transaction root, and the genesis header of a new chain.

The hash covers 148 bytes of fixed layout, so that no two headers share them. Block 1 follows 32 zero bytes; the header
of height 0, told when a vault is made, is no part of the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct

from semel.contracts.ledger.model import ZERO, Header, Instant, Place
from semel.contracts.ledger.rules.state_tree import EMPTY_STATE_ROOT

EMPTY = sha256(b"").digest()
_HEADER = Struct(">QQQ32s32s32sqIQQ")


def block_hash(header: Header) -> bytes:
    """The one hash of a block."""
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


def genesis_header(place: Place, at: Instant, term: int, index: int, leader: bytes = b"") -> Header:
    """The genesis header: that of a place without blocks."""
    return Header(0, place, ZERO, EMPTY, EMPTY_STATE_ROOT, at, term, index, leader)
