"""Proofs of what the state holds, and of what it does not, at any height that is kept.

The way from a key to the root of its bucket is as long as the tree is deep; beside it stand the roots of the other
buckets. At an older height both are found by the heights that wrote them, so the cost does not grow with the chain.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from semel.contracts.ledger.model import ZERO, Entity, Header, Place, Sibling, StateProof
from semel.contracts.ledger.reading import block_row, entity_at, height_to_read, present, seconds_at, tip_of, tip_row
from semel.contracts.ledger.rules.records import header_of
from semel.contracts.ledger.rules.state import bucket_height, page_key
from semel.contracts.ledger.rules.state_tree import (
    BUCKETS,
    EMPTY_BUCKET,
    Leaf,
    Node,
    bucket_of,
    nibble,
    read_page,
    way_up,
)
from semel.contracts.ledger.tables import LEDGER_BUCKET, LEDGER_PAGE, LEDGER_TOPS
from semel.engine.reading import Reading
from semel.store.protocol import Range

_ROOTS = Struct("32s" * BUCKETS)


class Proved(NamedTuple):
    """An entity, if it is visible, with the header whose state root the proof leads to."""

    entity: Entity | None
    header: Header
    proof: StateProof


class _Roots(NamedTuple):
    """The roots of the buckets at a height, and where the page of one of them stands; 0 when it is empty."""

    roots: list[bytes]
    page_height: int


def prove_entity(reading: Reading, place: Place, key: bytes, at_height: int | None) -> Proved:
    """What stands under a key, or that nothing does, with its proof."""
    row = tip_row(reading, place)
    height = height_to_read(row, at_height)
    header = tip_of(reading, place, row).header if height is None else header_of(block_row(reading, place, height))
    entity = entity_at(reading, place, key, height)
    bucket = bucket_of(key)
    found = _roots_now(reading, place, bucket) if height is None else _roots_at(reading, place, bucket, height)
    spot, siblings = _way(reading, place, key, bucket, found.page_height)
    witness = None
    if entity is None and spot is not None:
        witness = entity_at(reading, place, spot.key, height)
    proof = StateProof(
        key=key,
        entity=entity,
        leaf=ZERO if spot is None else spot.hash,
        siblings=tuple(siblings),
        bucket=bucket,
        bucket_root=found.roots[bucket],
        other_roots=tuple(found.roots[:bucket] + found.roots[bucket + 1 :]),
        height=header.height,
        state_root=header.state_root,
        witness=witness,
    )
    return Proved(present(entity, seconds_at(reading, place, height)), header, proof)


def _way(reading: Reading, place: Place, key: bytes, bucket: int, height: int) -> tuple[Leaf | None, list[Sibling]]:
    """What stands where the path of a key ends, and the siblings from there to the bucket's root."""
    if height == 0:
        return None, []
    digest = sha256(key).digest()
    path = bytes((bucket,))
    above: list[list[Sibling]] = []
    while True:
        row = reading.get(LEDGER_PAGE, page_key(place, path, height))
        assert row is not None, "a page of the tree is missing"
        page = read_page(row.slots)
        branch = nibble(digest, len(path) - 1)
        slot = page[branch]
        spot, siblings = way_up(page, branch)
        above.append(siblings)
        if not isinstance(slot, Node):
            break
        path, height = path + bytes((branch,)), slot.height
    assert not isinstance(spot, Node), "a path ends at a leaf or at nothing"
    return spot, [sibling for siblings in reversed(above) for sibling in siblings]


def _roots_now(reading: Reading, place: Place, bucket: int) -> _Roots:
    tops = reading.get(LEDGER_TOPS, place)
    if tops is None:
        return _Roots([EMPTY_BUCKET] * BUCKETS, 0)
    return _Roots(list(_ROOTS.unpack(tops.roots)), bucket_height(tops, bucket))


def _roots_at(reading: Reading, place: Place, bucket: int, height: int) -> _Roots:
    roots, page_height = [], 0
    for one in range(BUCKETS):
        rows = reading.range(Range(LEDGER_BUCKET, "", (*place, one), 1, stop=(height + 1,), reverse=True))
        roots.append(rows[0].root if rows else EMPTY_BUCKET)
        if one == bucket and rows and rows[0].root != EMPTY_BUCKET:
            page_height = rows[0].height
    return _Roots(roots, page_height)
