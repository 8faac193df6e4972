"""Proofs of presence and absence in the state, at any height that is kept.

The way from a key to the root of its bucket is as long as the tree is deep; beside it stand the roots of the other
buckets. At an older height both are found by the heights that wrote them, so the cost does not grow with the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from semel.contracts.ledger.model import ZERO, Entity, Header, Place, Sibling, StateProof
from semel.contracts.ledger.reading import block_row, entity_at, height_to_read, present, seconds_at, tip_of, tip_row
from semel.contracts.ledger.refusals import invalid
from semel.contracts.ledger.rules.encoding import relationship_key
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
from semel.contracts.ledger.tables import LEDGER_BUCKET, LEDGER_PAGE, LEDGER_ROOTS, LEDGER_TOPS, ROOTS_EVERY
from semel.engine.reading import Reading

_ROOTS = Struct("32s" * BUCKETS)
_HEIGHTS = Struct(f">{BUCKETS}Q")


class Proved(NamedTuple):
    """An entity, if it is visible, with the header whose state root the proof leads to."""

    entity: Entity | None
    header: Header
    proof: StateProof


class _Roots(NamedTuple):
    """The roots of the buckets at a height, and the height of each root page; 0 when it is empty."""

    roots: Sequence[bytes]
    page_height: int


_NOTHING = _Roots((EMPTY_BUCKET,) * BUCKETS, 0)
"""The roots of a place in which nothing was ever set."""


def prove_entity(reading: Reading, place: Place, key: bytes, at_height: int | None) -> Proved:
    """The value of a key, or its absence, with a proof."""
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
        other_roots=(*found.roots[:bucket], *found.roots[bucket + 1 :]),
        height=header.height,
        state_root=header.state_root,
        witness=witness,
    )
    return Proved(present(entity, seconds_at(reading, place, height)), header, proof)


def prove_relationship(
    reading: Reading, place: Place, resource: bytes, relation: bytes, subject: bytes, at_height: int | None
) -> Proved:
    """A relationship, or its absence, with a proof; it is an entity with a key of its own."""
    if place.vault == 0:
        raise invalid("Relationships stand in a vault: name one.", "vault")
    return prove_entity(reading, place, relationship_key(resource, relation, subject), at_height)


def _way(reading: Reading, place: Place, key: bytes, bucket: int, height: int) -> tuple[Leaf | None, list[Sibling]]:
    """The end of the path of a key, and the siblings from there to the bucket's root."""
    if height == 0:
        return None, []
    digest = sha256(key).digest()
    path = bytes((bucket,))
    above: list[list[Sibling]] = []
    while True:
        row = reading.get(LEDGER_PAGE, page_key(place, path, height))
        assert row is not None, "a page of the tree is missing"
        branch = nibble(digest, len(path) - 1)
        spot, siblings = way_up(read_page(row.slots), branch)
        above.append(siblings)
        if not isinstance(spot, Node):
            break
        path, height = path + bytes((branch,)), spot.height
    return spot, [sibling for siblings in reversed(above) for sibling in siblings]


def _roots_now(reading: Reading, place: Place, bucket: int) -> _Roots:
    tops = reading.get(LEDGER_TOPS, place)
    if tops is None:
        return _NOTHING
    return _Roots(_ROOTS.unpack(tops.roots), bucket_height(tops, bucket))


def _roots_at(reading: Reading, place: Place, bucket: int, height: int) -> _Roots:
    """The roots at a height: unchanged ones come from the next stored roots; the rest is read at once."""
    written = reading.get(LEDGER_ROOTS, (*place, -(-height // ROOTS_EVERY) * ROOTS_EVERY))
    tops = written or reading.get(LEDGER_TOPS, place)
    if tops is None:
        return _NOTHING
    roots, heights = list(_ROOTS.unpack(tops.roots)), list(_HEIGHTS.unpack(tops.heights))
    changed = [one for one, since in enumerate(heights) if not 0 < since <= height]
    for one in changed:
        roots[one], heights[one] = EMPTY_BUCKET, 0
    for row in reading.latest(LEDGER_BUCKET, [(*place, one) for one in changed], height + 1).values():
        roots[row.bucket], heights[row.bucket] = row.root, row.height
    return _Roots(roots, 0 if roots[bucket] == EMPTY_BUCKET else heights[bucket])
