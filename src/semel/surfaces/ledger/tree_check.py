"""The check of the state of the ledger: the tree of each place is walked from its root to its leaves.

Every page is hashed again and compared with its parent, every leaf with its entity, and the 256 roots with the header
of the last block. The encodings are written out here once more, so that an error in the rules is found too. A walk
holds one path of pages in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from struct import Struct
from typing import Any, NamedTuple

from semel.store.protocol import Range
from semel.store.table_check import StoreFault, StoreWalk, fault, in_groups
from semel.surfaces.ledger.tables import (
    INLINE_BYTES,
    LEDGER_BLOCK,
    LEDGER_ENTITY,
    LEDGER_PAST,
    LEDGER_PLACE,
    LEDGER_ROOTS,
    LEDGER_TOPS,
    LEDGER_TREE,
    LEDGER_VALUE,
    EntityRow,
    PastRow,
    PlaceRow,
)

_BUCKETS = 256
_HASH = 32
_ZERO = bytes(_HASH)
_EMPTY = sha256(b"").digest()
_LENGTH = Struct("<I")
_PAGE_HEAD = Struct("<BI")
_NUMBERS = Struct(">QQ")
_NODE = Struct(">32sQ")
_LEAF_KIND, _PAGE_KIND = 1, 2
_VALUES_AT_ONCE = 16


class _Leaf(NamedTuple):
    hash: bytes
    key: bytes


class _Branch(NamedTuple):
    hash: bytes
    height: int


_Slot = _Leaf | _Branch | None


def state(walk: StoreWalk) -> Iterator[StoreFault]:
    """The tree of each place leads from the state root of its last block to its entities."""
    for place in walk.rows(LEDGER_PLACE):
        yield from _place(walk, place)
    yield from _roots(walk)


def _place(walk: StoreWalk, place: PlaceRow) -> Iterator[StoreFault]:
    where = (place.org, place.vault)
    tops = walk.get(LEDGER_TOPS, where)
    roots = _EMPTY * _BUCKETS if tops is None else tops.roots
    heights = bytes(8 * _BUCKETS) if tops is None else tops.heights
    if len(roots) != _HASH * _BUCKETS or len(heights) != 8 * _BUCKETS:
        yield fault(LEDGER_TOPS, where, "It does not have the roots and heights of 256 buckets.")
        return
    if sha256(roots).digest() != place.state_root:
        yield fault(LEDGER_PLACE, where, "Its state root is not the hash of the roots of its buckets.")
    leaves = 0
    for bucket in range(_BUCKETS):
        root = roots[_HASH * bucket : _HASH * (bucket + 1)]
        height = int.from_bytes(heights[8 * bucket : 8 * (bucket + 1)], "big")
        if not height:
            if root != _EMPTY:
                yield fault(LEDGER_TOPS, (*where, bucket), "The bucket has a root and no page.")
            continue
        for found in _bucket(walk, place, bucket, _Branch(root, height)):
            if isinstance(found, int):
                leaves += found
            else:
                yield found
    entities = sum(1 for _ in walk.keys_below(LEDGER_ENTITY, where))
    if entities != leaves:
        yield fault(LEDGER_ENTITY, where, f"There are {entities} entities, and the tree has {leaves} leaves.")


def _bucket(walk: StoreWalk, place: PlaceRow, bucket: int, root: _Branch) -> Iterator[StoreFault | int]:
    """The faults of one bucket, and the number of leaves of each page."""
    waiting = [(bytes((bucket,)), root)]
    while waiting:
        path, branch = waiting.pop()
        key = (place.org, place.vault, branch.height, bucket)
        page = _page_of(walk.get(LEDGER_TREE, key), path)
        if page is None:
            yield fault(LEDGER_TREE, key, f"The page of the tree at {path.hex()} is not there.")
            continue
        top = _top(page)
        if top is None or top.hash != branch.hash:
            yield fault(LEDGER_TREE, key, f"The page of the tree at {path.hex()} does not have the hash that it must.")
        waiting += ((path + bytes((number,)), slot) for number, slot in enumerate(page) if isinstance(slot, _Branch))
        leaves = [slot for slot in page if isinstance(slot, _Leaf)]
        yield len(leaves)
        found = walk.find(LEDGER_ENTITY, [(place.org, place.vault, leaf.key) for leaf in leaves])
        for leaf in leaves:
            row = found.get((place.org, place.vault, leaf.key))
            if row is None:
                yield fault(LEDGER_ENTITY, (place.org, place.vault, leaf.key), "A leaf of the tree has no entity.")
            elif _leaf_hash(walk, row) != leaf.hash:
                said = "Its key, value, expiry and version do not have the hash of its leaf in the tree."
                yield fault(LEDGER_ENTITY, (place.org, place.vault, leaf.key), said)


def _page_of(row: Any, path: bytes) -> list[_Slot] | None:
    """The page of a path among the pages of a row."""
    stored = b"" if row is None else row.pages
    at = 0
    while at < len(stored):
        length, size = _PAGE_HEAD.unpack_from(stored, at)
        start = at + _PAGE_HEAD.size + length
        if stored[start - length : start] == path:
            return _slots(stored[start : start + size])
        at = start + size
    return None


def _slots(page: bytes) -> list[_Slot]:
    slots: list[_Slot] = []
    at = 1
    for shift in (6, 4, 2, 0):
        kind = page[0] >> shift & 3
        if kind == _PAGE_KIND:
            slots.append(_Branch(*_NODE.unpack_from(page, at)))
            at += _NODE.size
        elif kind == _LEAF_KIND:
            size = int.from_bytes(page[at + _HASH : at + _HASH + 4], "little")
            slots.append(_Leaf(page[at : at + _HASH], page[at + _HASH + 4 : at + _HASH + 4 + size]))
            at += _HASH + 4 + size
        else:
            slots.append(None)
    return slots


def _top(slots: list[_Slot]) -> _Slot:
    first, second, third, fourth = slots
    return _joined(_joined(first, second), _joined(third, fourth))


def _joined(left: _Slot, right: _Slot) -> _Slot:
    """The node over two branches; a leaf alone moves up."""
    if left is None and (right is None or isinstance(right, _Leaf)):
        return right
    if right is None and isinstance(left, _Leaf):
        return left
    hashes = [_ZERO if one is None else one.hash for one in (left, right)]
    return _Branch(sha256(b"\x01" + hashes[0] + hashes[1]).digest(), 0)


def _leaf_hash(walk: StoreWalk, row: EntityRow) -> bytes | None:
    value = row.value
    if row.size > INLINE_BYTES:
        large = walk.get(LEDGER_VALUE, (row.org, row.vault, row.version, row.key))
        if large is None or sha256(large.value).digest() != row.value:
            return None
        value = large.value
    if len(value) != row.size:
        return None
    sized = (_LENGTH.pack(len(row.key)), row.key, _LENGTH.pack(len(value)), value)
    return sha256(b"\x00" + b"".join(sized) + _NUMBERS.pack(row.expires_at, row.version)).digest()


def _roots(walk: StoreWalk) -> Iterator[StoreFault]:
    """The stored roots of a height have the hash that the block of the height names."""
    for page in walk.pages(LEDGER_ROOTS):
        for group in in_groups(page, 64):
            blocks = walk.find(LEDGER_BLOCK, [row[:3] for row in group])
            for row in group:
                block = blocks.get(row[:3])
                if block is None or sha256(row.roots).digest() != block.state_root:
                    yield fault(LEDGER_ROOTS, row[:3], "The roots do not have the hash of the block of their height.")


def past(walk: StoreWalk) -> Iterator[StoreFault]:
    """Earlier values begin and end at heights of their place, and large values are there; large values are used."""
    heights = {(place.org, place.vault): place.height for place in _few(walk)}
    for page in walk.pages(LEDGER_PAST):
        for row in page:
            height = heights.get((row.org, row.vault), -1)
            if height >= 0 and not 0 < row.version < row.until <= height:
                yield fault(LEDGER_PAST, row[:4], f"It is of the heights {row.version} to {row.until} of {height}.")
            if row.size > INLINE_BYTES and not _has_value(walk, row):
                yield fault(LEDGER_PAST, row[:4], "Its large value is not there, or another one.")
            elif row.size <= INLINE_BYTES and len(row.value) != row.size:
                yield fault(LEDGER_PAST, row[:4], f"Its value has {len(row.value)} bytes instead of {row.size}.")
    for value in walk.rows(LEDGER_VALUE):
        if not _is_used(walk, value):
            yield fault(LEDGER_VALUE, value[:4], "The large value belongs to no entity.")


_MOST_PLACES = 100_000


def _few(walk: StoreWalk) -> Iterator[PlaceRow]:
    """The places, as far as memory allows."""
    for number, place in enumerate(walk.rows(LEDGER_PLACE)):
        if number < _MOST_PLACES:
            yield place


def _has_value(walk: StoreWalk, row: PastRow) -> bool:
    large = walk.get(LEDGER_VALUE, (row.org, row.vault, row.version, row.key))
    return large is not None and len(large.value) == row.size and sha256(large.value).digest() == row.value


def _is_used(walk: StoreWalk, row: Any) -> bool:
    entity = walk.get(LEDGER_ENTITY, (row.org, row.vault, row.key))
    if entity is not None and entity.version == row.version:
        return True
    wanted = Range(LEDGER_PAST, "", (row.org, row.vault, row.key), 1, start=(row.version + 1,))
    found = walk.range(wanted)
    return bool(found) and found[0].version == row.version
