"""The Merkle tree over the state of a place: its root, and how a block changes it.

A key belongs to one of 256 buckets by its SeaHash (the reference algorithm with its default seeds; it need not be hard
to invert) and has a path in the bucket by its SHA-256. A bucket is a binary tree in which a branch with one leaf is
that leaf: n leaves are about log2(n) deep, and the same leaves always make the same tree. The state root is the hash of
the 256 roots in order.

The tree is stored in pages of sixteen branches, four levels each. A block writes new pages along the paths that it
changes and keeps the old pages, so the tree of every height stays readable; a page names its children by the height
that wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from struct import Struct, unpack_from
from typing import NamedTuple, overload

from semel.surfaces.ledger.model import ZERO, Entity, Sibling, Side

_MASK = 2**64 - 1
_PRIME = 0x6EED0E9DA4D94A4F
_SEEDS = (0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381)


def seahash(data: bytes) -> int:
    """The 64-bit hash."""
    a, b, c, d = _SEEDS
    words = -(-len(data) // 8)
    padded = data.ljust(words * 8, b"\0")
    for word in unpack_from(f"<{words}Q", padded):
        a, b, c, d = b, c, d, _diffuse(a ^ word)
    return _diffuse(a ^ b ^ c ^ d ^ len(data))


def _diffuse(x: int) -> int:
    x = x * _PRIME & _MASK
    x ^= (x >> 32) >> (x >> 60)
    return x * _PRIME & _MASK


BUCKETS = 256
BRANCHES = 16
EMPTY_BUCKET = sha256(b"").digest()
EMPTY_STATE_ROOT = sha256(EMPTY_BUCKET * BUCKETS).digest()

_LENGTH = Struct("<I")
_TAIL = Struct(">QQ")
_KINDS = Struct(">I")
_PAGES = Struct(">32sQ")
_NONE, _LEAF, _PAGE = 0, 1, 2
_ALL_PAGES = 0xAAAA_AAAA
_HASHES = Struct("4x" + "32s8x" * BRANCHES)
_LEAVES = Struct("<32sI")
_SHIFTS = range(30, -2, -2)
_NODE = b"\1"
_OTHERS = tuple(
    tuple(
        ((branch ^ width) & -width, width, Side.LEFT if branch & width else Side.RIGHT)
        for width in (1, 2, 4, 8)  # of sixteen branches
    )
    for branch in range(BRANCHES)
)
"""The siblings on the way from each branch to the root of its page, bottom up: first branch, number of branches, and
side.
"""


class TreeLeaf(NamedTuple):
    """A branch with one key."""

    hash: bytes
    key: bytes


class TreeNode(NamedTuple):
    """A branch with several keys; its page was written at that height."""

    hash: bytes
    height: int


Slot = TreeLeaf | TreeNode | None


class FullTreePage(Sequence[Slot]):
    """A page with a child page for every branch, as most are in a large tree: it is changed in its stored form."""

    __slots__ = ("stored",)

    def __init__(self, stored: bytes) -> None:
        self.stored = stored

    def __len__(self) -> int:
        return BRANCHES

    @overload
    def __getitem__(self, branch: int) -> TreeNode: ...

    @overload
    def __getitem__(self, branch: slice) -> tuple[TreeNode, ...]: ...

    def __getitem__(self, branch: int | slice) -> TreeNode | tuple[TreeNode, ...]:
        if isinstance(branch, slice):
            return tuple(self[one] for one in range(*branch.indices(BRANCHES)))
        if not 0 <= branch < BRANCHES:
            raise IndexError(branch)
        return TreeNode._make(_PAGES.unpack_from(self.stored, 4 + _PAGES.size * branch))

    def hashes(self) -> tuple[bytes, ...]:
        """The hashes of its branches."""
        return _HASHES.unpack(self.stored)

    def changed(self, nodes: Mapping[int, TreeNode]) -> FullTreePage:
        """The page with other child pages for some branches."""
        stored = bytearray(self.stored)
        for branch, node in nodes.items():
            _PAGES.pack_into(stored, 4 + _PAGES.size * branch, *node)
        return FullTreePage(bytes(stored))


TreePage = tuple[Slot, ...] | FullTreePage
Load = Callable[[bytes, int], TreePage]
"""The page of a path, as a height wrote it."""


class LeafChange(NamedTuple):
    """The change of a key: its new leaf, or None if it is removed."""

    digest: bytes
    key: bytes
    hash: bytes | None


class BucketEdit(NamedTuple):
    """The change of one bucket by a block: its new root, the pages written, and the pages that they replace."""

    root: bytes
    pages: dict[bytes, TreePage]
    replaced: list[tuple[bytes, int]]


@lru_cache(maxsize=4_096)
def bucket_of(key: bytes) -> int:
    """The bucket of a key."""
    return seahash(key) % BUCKETS


def leaf_hash(entity: Entity) -> bytes:
    """The hash of the leaf of an entity."""
    key, value, expires_at, version = entity
    return sha256(
        b"".join(
            (
                b"\0",
                _LENGTH.pack(len(key)),
                key,
                _LENGTH.pack(len(value)),
                value,
                _TAIL.pack(expires_at, version),
            )
        )
    ).digest()


def change(key: bytes, entity: Entity | None) -> LeafChange:
    """The change of a key."""
    return LeafChange(sha256(key).digest(), key, None if entity is None else leaf_hash(entity))


def edit_bucket(bucket: int, before: int, changes: Sequence[LeafChange], height: int, load: Load) -> BucketEdit:
    """Apply changes to a bucket whose root page was written at height `before`; 0 if it is empty."""
    writer = _Writer(height, load)
    path = bytes((bucket,))
    slots = load(path, before) if before else (None,) * BRANCHES
    if before:
        writer.replaced.append((path, before))
    after = writer.branches(path, slots, changes)
    if not any(after):
        return BucketEdit(EMPTY_BUCKET, {}, writer.replaced)
    writer.pages[path] = after
    return BucketEdit(fold(after).hash, writer.pages, writer.replaced)


def nibble(digest: bytes, level: int) -> int:
    """The branch, 0 to 15, that a path takes on a level."""
    byte = digest[level >> 1]
    return byte & 15 if level & 1 else byte >> 4


def next_page(digest: bytes, page: TreePage, level: int) -> int | None:
    """The height of the next page on a path; None if the path ends in this page."""
    slot = page[nibble(digest, level)]
    return slot.height if isinstance(slot, TreeNode) else None


def fold(slots: Sequence[Slot]) -> TreeLeaf | TreeNode:
    """The hash over branches; a leaf if there is only one."""
    top = _folded(slots)
    assert top is not None, "an empty page is never stored"
    return top


def way_up(page: TreePage, branch: int) -> tuple[Slot, list[Sibling]]:
    """The end of a path in a page, and the siblings from there to the page's root, bottom up.

    A single leaf moves up as far as possible, so a path that ends in an empty branch may end at the leaf beside it.
    """
    spot: Slot = page[branch]
    if isinstance(page, FullTreePage):
        hashes = page.hashes()
        return spot, [Sibling(_over(hashes[start : start + width]), side) for start, width, side in _OTHERS[branch]]
    siblings = []
    is_alone = not isinstance(spot, TreeNode)
    for start, width, side in _OTHERS[branch]:
        other = _folded(page[start : start + width])
        if is_alone and spot is None and isinstance(other, TreeLeaf):
            spot = other
        elif other is not None or not is_alone:
            siblings.append(Sibling(ZERO if other is None else other.hash, side))
            is_alone = False
    return spot, siblings


def _folded(slots: Sequence[Slot]) -> Slot:
    """The hash of branches, with as few calls as possible, because this is most of the work of a block."""
    if isinstance(slots, FullTreePage):
        return TreeNode(_over(slots.hashes()), 0)
    while len(slots) > 1:
        if None not in slots:
            return TreeNode(_over([slot[0] for slot in slots]), 0)  # type: ignore[index]
        each = iter(slots)
        slots = [_join(left, right) for left, right in zip(each, each, strict=True)]
    return slots[0]


def _over(level: Sequence[bytes]) -> bytes:
    """The root over 1, 2, 4, 8 or 16 hashes."""
    while len(level) > 2:
        each = iter(level)
        level = [sha256(_NODE + left + right).digest() for left, right in zip(each, each, strict=True)]
    return level[0] if len(level) == 1 else sha256(_NODE + level[0] + level[1]).digest()


def write_page(page: TreePage) -> bytes:
    """The stored form of a page."""
    if isinstance(page, FullTreePage):
        return page.stored
    kinds = 0
    parts = [b""]
    for slot in page:
        kinds <<= 2
        if slot is None:
            continue
        digest, rest = slot
        if isinstance(rest, int):
            kinds |= _PAGE
            parts.append(digest + rest.to_bytes(8, "big"))
        else:
            kinds |= _LEAF
            parts.append(digest + _LENGTH.pack(len(rest)) + rest)
    parts[0] = _KINDS.pack(kinds)
    return b"".join(parts)


@lru_cache(maxsize=1_024)  # a write reads a page twice: to find the next one, and to change it
def read_page(stored: bytes) -> TreePage:
    """A page from the store."""
    kinds = _KINDS.unpack_from(stored)[0]
    if kinds == _ALL_PAGES:
        return FullTreePage(stored)
    place = 4
    slots: list[Slot] = []
    for shift in _SHIFTS:
        kind = kinds >> shift & 3
        if kind == _NONE:
            slots.append(None)
        elif kind == _PAGE:
            slots.append(TreeNode(*_PAGES.unpack_from(stored, place)))
            place += _PAGES.size
        else:
            digest, size = _LEAVES.unpack_from(stored, place)
            start = place + _LEAVES.size
            place = start + size
            slots.append(TreeLeaf(digest, stored[start:place]))
    return tuple(slots)


def _join(left: Slot, right: Slot) -> Slot:
    if right is None:
        if left is None or left.__class__ is TreeLeaf:
            return left
        return TreeNode(sha256(_NODE + left[0] + ZERO).digest(), 0)
    if left is None:
        if right.__class__ is TreeLeaf:
            return right
        return TreeNode(sha256(_NODE + ZERO + right[0]).digest(), 0)
    return TreeNode(sha256(_NODE + left[0] + right[0]).digest(), 0)


class _Writer:
    def __init__(self, height: int, load: Load) -> None:
        self._height = height
        self._load = load
        self.pages: dict[bytes, TreePage] = {}
        self.replaced: list[tuple[bytes, int]] = []

    def branches(self, path: bytes, slots: TreePage, changes: Iterable[LeafChange]) -> TreePage:
        """The branches of a page after some changes."""
        grouped: dict[int, list[LeafChange]] = {}
        for one in changes:
            grouped.setdefault(nibble(one.digest, len(path) - 1), []).append(one)
        changed = {
            branch: self._branch(path + bytes((branch,)), slots[branch], group) for branch, group in grouped.items()
        }
        nodes = {branch: slot for branch, slot in changed.items() if isinstance(slot, TreeNode)}
        if isinstance(slots, FullTreePage) and len(nodes) == len(changed):
            return slots.changed(nodes)
        after: list[Slot] = list(slots)
        for branch, slot in changed.items():
            after[branch] = slot
        return tuple(after)

    def _branch(self, path: bytes, slot: Slot, changes: list[LeafChange]) -> Slot:
        if isinstance(slot, TreeNode):
            self.replaced.append((path, slot.height))
            return self._keep(path, self.branches(path, self._load(path, slot.height), changes))
        leaves = {} if slot is None else {slot.key: LeafChange(sha256(slot.key).digest(), slot.key, slot.hash)}
        leaves.update((one.key, one) for one in changes)
        left = [one for one in leaves.values() if one.hash is not None]
        if len(left) > 1:
            return self._keep(path, self.branches(path, (None,) * BRANCHES, left))
        return TreeLeaf(left[0].hash, left[0].key) if left and left[0].hash is not None else None

    def _keep(self, path: bytes, page: TreePage) -> Slot:
        """A page is stored while there are two leaves below it; a single leaf moves up."""
        taken = BRANCHES if isinstance(page, FullTreePage) else BRANCHES - page.count(None)
        if not taken:
            return None
        if taken == 1:
            alone = next(slot for slot in page if slot is not None)
            if isinstance(alone, TreeLeaf):
                return alone
        self.pages[path] = page
        return TreeNode(fold(page).hash, self._height)
