"""Pages of the state tree in their stored form, and the change of one leaf in them.

A packed page keeps its branches as the bytes that are stored, and the hashes of its two halves. A new leaf changes one
branch in each page on its path: the other branches are neither parsed nor rendered, and the other half is not hashed.
The stored pages are those of `state_tree.edit_bucket`, byte for byte and in the same order;
`tests/ledger/rules/test_packed_tree.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from hashlib import sha256
from struct import Struct
from typing import Final

from semel.surfaces.ledger.model import ZERO, LedgerPlace
from semel.surfaces.ledger.rules.state_tree import Slot, TreeLeaf, TreeNode, TreePage, entries_of

PackedPage = tuple[bytes, int, bytes, bytes, bytes, bytes, bytes, bytes]
"""The height that wrote the page, in eight bytes; the kinds of its branches; the stored bytes of each branch, empty if
there is nothing in it; the hashes of the first and of the last two branches, empty if there is nothing in them, or
`UNHASHED` until they are first needed.
"""
UNHASHED = b"?"
UnpackedPage = tuple[bytes, TreePage]
"""A page as the full rules have written it, with the height; it is packed when a leaf is first put below it."""
KnownPage = PackedPage | UnpackedPage

PLACE_BYTES = 16
NO_HEIGHT = bytes(8)
"""The height of the root page of an empty bucket."""
_PLACE = Struct(">QQ")
_ENTRY = Struct("<BI")
_NODES = Struct(">32sQ")
_LENGTH = Struct("<I")
_LEAF, _PAGE = 1, 2
_NODE = b"\1"
_HASH = 32
_LEAF_KEY = _HASH + 4
"""Where the key of a leaf begins: after the hash and the length of the key."""
_SHIFTS = (6, 4, 2, 0)
_UNPACKED: Final = 2
"""The length of a page that is not packed."""
_LONE_LEAVES = frozenset(_LEAF << shift for shift in _SHIFTS)
"""The kinds of a page with one leaf and nothing else; its hash is that of the leaf."""
_BYTES = tuple(bytes((number,)) for number in range(256))
_STEPS = tuple(bytes(number >> shift & 3 for shift in _SHIFTS) for number in range(256))
"""The branches that a byte of a digest stands for."""
_EMPTY: PackedPage = (b"", 0, b"", b"", b"", b"", b"", b"")
_DIGEST_BYTES = 4
"""The bytes of a digest that `way_of` reads: 16 levels, and few trees are deeper."""


def place_bytes(place: LedgerPlace) -> bytes:
    """The bytes before the paths of a place, so that the pages of all places have different names."""
    return _PLACE.pack(*place)


def way_of(place: bytes, bucket: int, key: bytes) -> bytes:
    """The name of a bucket's root page, and the branches of a key's path below it, as far as most trees are deep.

    The first bytes of it, up to a level, name the page of that level; the next byte is the branch that the path takes.
    """
    first, second, third, fourth = sha256(key).digest()[:_DIGEST_BYTES]
    return place + _BYTES[bucket] + _STEPS[first] + _STEPS[second] + _STEPS[third] + _STEPS[fourth]


def whole_way(way: bytes, key: bytes) -> bytes:
    """As `way_of` in the same bucket, with every level that a path can have."""
    return way[: PLACE_BYTES + 1] + b"".join(map(_STEPS.__getitem__, sha256(key).digest()))


def pack_page(height: bytes, page: TreePage) -> PackedPage:
    """A page in its packed form; `height` is the one that wrote it."""
    kinds = 0
    slots = []
    for slot in page:
        kinds <<= 2
        if slot is None:
            slots.append(b"")
        elif slot.__class__ is TreeNode:
            kinds |= _PAGE
            slots.append(_NODES.pack(*slot))
        else:
            digest, key = slot
            kinds |= _LEAF
            slots.append(digest + _LENGTH.pack(len(key)) + key)  # type: ignore[arg-type, operator]
    first, second, third, fourth = slots
    return height, kinds, first, second, third, fourth, UNHASHED, UNHASHED


def read_packed(stored: bytes, path: bytes, height: bytes) -> PackedPage | None:
    """The page of a path among the stored pages of one bucket; None if it is not there."""
    for found, start, _ in entries_of(stored):
        if found == path:
            return _read(stored, start, height)
    return None


def _read(stored: bytes, start: int, height: bytes) -> PackedPage:
    kinds = stored[start]
    place = start + 1
    slots = []
    for shift in _SHIFTS:
        kind = kinds >> shift & 3
        size = 0
        if kind == _PAGE:
            size = _HASH + 8
        elif kind == _LEAF:
            size = _LEAF_KEY + _LENGTH.unpack_from(stored, place + _HASH)[0]
        slots.append(stored[place : place + size])
        place += size
    first, second, third, fourth = slots
    return height, kinds, first, second, third, fourth, UNHASHED, UNHASHED


def unpack_page(page: KnownPage) -> TreePage:
    """A page as the full rules use it."""
    if len(page) == _UNPACKED:
        return page[1]
    _, kinds, first, second, third, fourth, _, _ = page
    return (
        _slot(kinds >> 6, first),
        _slot(kinds >> 4 & 3, second),
        _slot(kinds >> 2 & 3, third),
        _slot(kinds & 3, fourth),
    )


def _slot(kind: int, slot: bytes) -> Slot:
    if kind == _PAGE:
        return TreeNode._make(_NODES.unpack(slot))
    return TreeLeaf(slot[:_HASH], slot[_LEAF_KEY:]) if kind == _LEAF else None


def page_bytes(path: bytes, page: PackedPage) -> bytes:
    """A page as it is stored, with its path before it."""
    _, kinds, first, second, third, fourth, _, _ = page
    slots = first + second + third + fourth
    return _ENTRY.pack(len(path), 1 + len(slots)) + path + _BYTES[kinds] + slots


def below(page: KnownPage, branch: int) -> bytes | None:
    """The height of the page below a branch; None if the branch has no page."""
    if len(page) == _UNPACKED:
        node = page[1][branch]
        return node.height.to_bytes(8, "big") if isinstance(node, TreeNode) else None
    slot: bytes = page[2 + branch]  # type: ignore[assignment]
    return slot[_HASH:] if page[1] >> _SHIFTS[branch] & 3 == _PAGE else None


def is_known(known: Mapping[bytes, KnownPage], way: bytes, height: bytes) -> bool:
    """Whether `known` surely has all pages of a path, from the root page that was written at this height."""
    at = PLACE_BYTES + 1
    while at < len(way):
        page = known.get(way[:at])
        if page is None or page[0] != height or len(page) == _UNPACKED:
            return False
        branch = way[at]
        if page[1] >> _SHIFTS[branch] & 3 != _PAGE:
            return True
        height = page[2 + branch][_HASH:]  # type: ignore[index]
        at += 1
    return False


def _half(kinds: int, first: bytes, second: bytes) -> bytes:
    """The hash of two branches; a leaf alone moves up, and nothing has no hash."""
    if first and second:
        return sha256(_NODE + first[:_HASH] + second[:_HASH]).digest()
    if first:
        return first[:_HASH] if kinds >> 2 == _LEAF else sha256(_NODE + first[:_HASH] + ZERO).digest()
    if second:
        return second[:_HASH] if kinds == _LEAF else sha256(_NODE + ZERO + second[:_HASH]).digest()
    return b""


def _with_branch(page: PackedPage, branch: int, kind: int, slot: bytes, height: bytes) -> tuple[PackedPage, bytes]:
    """The page with another branch, and its hash."""
    _, kinds, first, second, third, fourth, left, right = page
    shift = 6 - 2 * branch
    kinds = kinds & ~(3 << shift) | kind << shift
    if branch < 2:
        if branch:
            second = slot
        else:
            first = slot
        left = UNHASHED
    else:
        if branch == 2:
            third = slot
        else:
            fourth = slot
        right = UNHASHED
    if left is UNHASHED:
        left = _half(kinds >> 4, first, second)
    if right is UNHASHED:
        right = _half(kinds & 15, third, fourth)
    if left and right:
        top = sha256(_NODE + left + right).digest()
    elif kinds in _LONE_LEAVES:
        top = left or right
    else:
        top = sha256(_NODE + (left or ZERO) + (right or ZERO)).digest()
    return (height, kinds, first, second, third, fourth, left, right), top


def _with_page(page: PackedPage, branch: int, slot: bytes, height: bytes) -> tuple[PackedPage, bytes]:
    """As `_with_branch`, for a branch that had a page below it before."""
    _, kinds, first, second, third, fourth, left, right = page
    if branch < 2:
        if branch:
            second = slot
        else:
            first = slot
        both = first and second
        left = sha256(_NODE + first[:_HASH] + second[:_HASH]).digest() if both else _half(kinds >> 4, first, second)
        if right is UNHASHED:
            right = _half(kinds & 15, third, fourth)
    else:
        if branch == 2:
            third = slot
        else:
            fourth = slot
        both = third and fourth
        right = sha256(_NODE + third[:_HASH] + fourth[:_HASH]).digest() if both else _half(kinds & 15, third, fourth)
        if left is UNHASHED:
            left = _half(kinds >> 4, first, second)
    top = sha256(_NODE + (left or ZERO) + (right or ZERO)).digest()
    return (height, kinds, first, second, third, fourth, left, right), top


class MissingPageError(Exception):
    """A page on the path is not among those that were given."""


LeafPut = tuple[bytes, bytes]
"""The change of a bucket by one leaf: its new root, and its new pages as they are stored."""


def put_leaf(
    pages: MutableMapping[bytes, KnownPage],
    known: Mapping[bytes, KnownPage],
    way: bytes,
    before: bytes,
    leaf: bytes,
    key: bytes,
    height: bytes,
) -> LeafPut:
    """Set the leaf of a key, given as its hash, in the tree of a bucket whose root page was written at `before`.

    Pages are looked up in `pages`, which takes the new ones, and then in `known`. `MissingPageError` if there is a page
    in neither of them; then nothing is changed.
    """
    at = PLACE_BYTES + 1
    above: list[tuple[PackedPage, int, bytes]] = []
    name, page = way[:at], _EMPTY
    if before != NO_HEIGHT:
        page = _found(pages.get(name) or known.get(name), before)
    while True:
        if at == len(way):
            way = whole_way(way, key)
        branch = way[at]
        kind = page[1] >> _SHIFTS[branch] & 3
        old: bytes = page[2 + branch]  # type: ignore[assignment]
        if kind != _PAGE:
            break
        above.append((page, branch, name))
        at += 1
        name = way[:at]
        page = _found(pages.get(name) or known.get(name), old[_HASH:])
    stored: list[bytes] = []
    slot = leaf + _LENGTH.pack(len(key)) + key
    if kind == _LEAF and old[_LEAF_KEY:] != key:
        top, split = _split(pages, at + 1, old, slot, way, height)
        kind, slot = _PAGE, top + height
        stored.append(split)
    else:
        kind = _LEAF
    page, top = _with_branch(page, branch, kind, slot, height)
    pages[name] = page
    stored.append(page_bytes(name[PLACE_BYTES:], page))
    while above:
        page, branch, name = above.pop()
        page, top = _with_page(page, branch, top + height, height)
        pages[name] = page
        stored.append(page_bytes(name[PLACE_BYTES:], page))
    return top, b"".join(stored)


def _found(page: KnownPage | None, height: bytes) -> PackedPage:
    """The page, if it was written at this height."""
    if page is None or page[0] != height:
        raise MissingPageError
    return pack_page(*page) if len(page) == _UNPACKED else page


def _split(
    pages: MutableMapping[bytes, KnownPage], first: int, old: bytes, new: bytes, way: bytes, height: bytes
) -> LeafPut:
    """The branch of two leaves where one was: a page for each level from `first` to the one that tells them apart."""
    other = way_of(way[:PLACE_BYTES], way[PLACE_BYTES], old[_LEAF_KEY:])
    if other.startswith(way) or way.startswith(other):
        way, other = whole_way(way, new[_LEAF_KEY:]), whole_way(way, old[_LEAF_KEY:])
    last = first
    while way[last] == other[last]:
        last += 1
    page, _ = _with_branch(_EMPTY, other[last], _LEAF, old, height)
    page, top = _with_branch(page, way[last], _LEAF, new, height)
    stored: list[bytes] = []
    while True:
        name = way[:last]
        pages[name] = page
        stored.append(page_bytes(name[PLACE_BYTES:], page))
        if last == first:
            return top, b"".join(stored)
        last -= 1
        page, top = _with_branch(_EMPTY, way[last], _PAGE, top + height, height)
