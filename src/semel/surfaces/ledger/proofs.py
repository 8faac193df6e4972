"""Merkle proofs that a key is in the state, or is absent from it, at any height that is kept.

A proof holds the path from the key to the root of its bucket, as long as the tree is deep, and the roots of the other
buckets. At an older height both are found by the heights that wrote them, so the cost does not grow with the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from struct import Struct
from typing import NamedTuple

from semel.engine.reading import Reading
from semel.store.protocol import Range
from semel.surfaces.ledger.commands import invalid
from semel.surfaces.ledger.model import ZERO, BlockHeader, Entity, LedgerPlace, Sibling, StateProof
from semel.surfaces.ledger.reading import block_row, entity_at, height_to_read, present, seconds_at, tip_of, tip_row
from semel.surfaces.ledger.rules.chain import header_of, relationship_key
from semel.surfaces.ledger.rules.state import bucket_height, stored_page, tree_key
from semel.surfaces.ledger.rules.state_tree import (
    BUCKETS,
    EMPTY_BUCKET,
    TreeLeaf,
    TreeNode,
    branch_of,
    bucket_of,
    way_up,
)
from semel.surfaces.ledger.tables import LEDGER_ROOTS, LEDGER_TOPS, LEDGER_TREE, ROOTS_EVERY

_ROOTS = Struct("32s" * BUCKETS)
_HEIGHTS = Struct(f">{BUCKETS}Q")


class ProvedEntity(NamedTuple):
    """An entity, if it is visible, with the header whose state root the proof leads to."""

    entity: Entity | None
    header: BlockHeader
    proof: StateProof


class _BucketRoots(NamedTuple):
    """The roots of the buckets at a height, and the height of the root page of the key's bucket; 0 if it is empty."""

    roots: Sequence[bytes]
    page_height: int


_NO_BUCKETS = _BucketRoots((EMPTY_BUCKET,) * BUCKETS, 0)
"""The roots of a place in which nothing was ever set."""


def prove_entity(reading: Reading, place: LedgerPlace, key: bytes, at_height: int | None) -> ProvedEntity:
    """Read a key, or its absence, with a proof."""
    row = tip_row(reading, place)
    height = height_to_read(row, at_height)
    header = tip_of(reading, place, row).header if height is None else header_of(block_row(reading, place, height))
    entity = entity_at(reading, place, key, height)
    bucket = bucket_of(key)
    found = _roots_now(reading, place, bucket) if height is None else _roots_at(reading, place, bucket, height)
    spot, siblings = _path_to_root(reading, place, key, bucket, found.page_height)
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
    return ProvedEntity(present(entity, seconds_at(reading, place, height)), header, proof)


def prove_relationship(
    reading: Reading, place: LedgerPlace, resource: bytes, relation: bytes, subject: bytes, at_height: int | None
) -> ProvedEntity:
    """Read a relationship, or its absence, with a proof; a relationship is an entity with its own kind of key."""
    if place.vault == 0:
        raise invalid("Relationships stand in a vault: name one.", "vault")
    return prove_entity(reading, place, relationship_key(resource, relation, subject), at_height)


def _path_to_root(
    reading: Reading, place: LedgerPlace, key: bytes, bucket: int, height: int
) -> tuple[TreeLeaf | None, list[Sibling]]:
    """The node where the path of a key ends, and the siblings from there to the root of the bucket."""
    if height == 0:
        return None, []
    digest = sha256(key).digest()
    path = bytes((bucket,))
    above: list[list[Sibling]] = []
    while True:
        row = reading.get(LEDGER_TREE, tree_key(place, path, height))
        branch = branch_of(digest, len(path) - 1)
        spot, siblings = way_up(stored_page(row, path), branch)
        above.append(siblings)
        if not isinstance(spot, TreeNode):
            break
        path, height = path + bytes((branch,)), spot.height
    return spot, [sibling for siblings in reversed(above) for sibling in siblings]


def _roots_now(reading: Reading, place: LedgerPlace, bucket: int) -> _BucketRoots:
    tops = reading.get(LEDGER_TOPS, place)
    if tops is None:
        return _NO_BUCKETS
    return _BucketRoots(_ROOTS.unpack(tops.roots), bucket_height(tops, bucket))


def _roots_at(reading: Reading, place: LedgerPlace, bucket: int, height: int) -> _BucketRoots:
    """The roots at a height: the last stored roots at or below it, and the changes of the blocks since then."""
    base = height - height % ROOTS_EVERY
    tops = reading.get(LEDGER_ROOTS, (*place, base)) if base else None
    roots, heights = list(_NO_BUCKETS.roots), [0] * BUCKETS
    if tops is not None:
        roots, heights = list(_ROOTS.unpack(tops.roots)), list(_HEIGHTS.unpack(tops.heights))
    since = Range(LEDGER_TREE, "", place, ROOTS_EVERY * BUCKETS, start=(base + 1,), stop=(height + 1,))
    last = {one: written for *_, written, one in reading.keys(since)}
    for row in reading.find(LEDGER_TREE, [(*place, written, one) for one, written in last.items()]).values():
        roots[row.bucket], heights[row.bucket] = row.root, row.height
    return _BucketRoots(roots, 0 if roots[bucket] == EMPTY_BUCKET else heights[bucket])
