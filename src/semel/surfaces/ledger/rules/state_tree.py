"""The Merkle tree over the state of a place: its root, and how a block changes it.

A key belongs to one of 256 buckets by its SeaHash (the reference algorithm with its default seeds; it need not be hard
to invert) and has a path in the bucket by its SHA-256. A bucket is a binary tree in which a branch with one leaf is
that leaf: n leaves are about log2(n) deep, and the same leaves always make the same tree. The state root is the hash of
the 256 roots in order.

The tree is stored in pages of four branches, two levels each. A block writes new pages along the paths that it changes
and keeps the old pages, so the tree of every height stays readable; a page names its children by the height that wrote
them. The pages that a block writes in one bucket are stored together, each with its path.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from struct import Struct, unpack_from
from typing import NamedTuple

from semel.surfaces.ledger.model import ZERO, Entity, Sibling, Side

_MASK = 2**64 - 1
_WORDS = tuple(Struct(f"<{count}Q") for count in range(17))
"""Readers of the words of short keys."""
_PRIME = 0x6EED0E9DA4D94A4F
_SEEDS = (0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381)


def seahash(data: bytes) -> int:
    """The 64-bit hash."""
    a, b, c, d = _SEEDS
    words = -(-len(data) // 8)
    padded = data.ljust(words * 8, b"\0")
    for word in _WORDS[words].unpack(padded) if words < len(_WORDS) else unpack_from(f"<{words}Q", padded):
        x = (a ^ word) * _PRIME & _MASK
        x = (x ^ x >> 32 >> (x >> 60)) * _PRIME & _MASK
        a, b, c, d = b, c, d, x
    x = (a ^ b ^ c ^ d ^ len(data)) * _PRIME & _MASK
    return (x ^ x >> 32 >> (x >> 60)) * _PRIME & _MASK


BUCKETS = 256
KEPT_KEY_BYTES, KEPT_PAGES_BYTES = 256, 4_096
"""Buckets of longer keys, and pages of longer texts, are not kept in memory."""
BRANCHES = 4
EMPTY_BUCKET = sha256(b"").digest()
EMPTY_STATE_ROOT = sha256(EMPTY_BUCKET * BUCKETS).digest()

_LENGTH = Struct("<I")
_TAIL = Struct(">QQ")
_NODES = Struct(">32sQ")
_LEAVES = Struct("<32sI")
_ENTRY = Struct("<BI")
"""Before each stored page: the length of its path, and the length of the page."""
_NONE, _LEAF, _PAGE = 0, 1, 2
_NODE = b"\1"
_EMPTY_PAGE = (None,) * BRANCHES
STEPS = tuple(bytes((branch,)) for branch in range(BRANCHES))
"""What each branch adds to a path."""
_OTHERS = tuple(
    tuple(((branch ^ width) & -width, width, Side.LEFT if branch & width else Side.RIGHT) for width in (1, 2))
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


TreePage = tuple[Slot, ...]
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


def bucket_of(key: bytes) -> int:
    """The bucket of a key."""
    return _known_bucket(key) if len(key) <= KEPT_KEY_BYTES else seahash(key) % BUCKETS


@lru_cache(maxsize=4_096)
def _known_bucket(key: bytes) -> int:
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
    path = bytes((bucket,))
    slots = load(path, before) if before else _EMPTY_PAGE
    writer = _Writer(height, load)
    if before:
        writer.replaced.append((path, before))
    after = writer.changed(path, slots, changes[0]) if len(changes) == 1 else writer.branches(path, slots, changes)
    if after == _EMPTY_PAGE:
        return BucketEdit(EMPTY_BUCKET, {}, writer.replaced)
    writer.pages[path] = after
    return BucketEdit(fold(after).hash, writer.pages, writer.replaced)


def branch_of(digest: bytes, level: int) -> int:
    """The branch, 0 to 3, that a path takes on a level."""
    return digest[level >> 2] >> (6 - 2 * (level & 3)) & 3


def next_page(digest: bytes, page: TreePage, level: int) -> int | None:
    """The height of the next page on a path; None if the path ends in this page."""
    slot = page[branch_of(digest, level)]
    return slot.height if slot.__class__ is TreeNode else None


def fold(slots: TreePage) -> TreeLeaf | TreeNode:
    """The hash over branches; a leaf if there is only one."""
    first, second, third, fourth = slots
    if first and second and third and fourth:
        left, right = sha256(_NODE + first[0] + second[0]).digest(), sha256(_NODE + third[0] + fourth[0]).digest()
        return TreeNode(sha256(_NODE + left + right).digest(), 0)
    top = _join(_join(first, second), _join(third, fourth))
    assert top is not None, "an empty page is never stored"
    return top


def way_up(page: TreePage, branch: int) -> tuple[Slot, list[Sibling]]:
    """The end of a path in a page, and the siblings from there to the page's root, bottom up.

    A single leaf moves up as far as possible, so a path that ends in an empty branch may end at the leaf beside it.
    """
    spot: Slot = page[branch]
    siblings = []
    is_alone = not isinstance(spot, TreeNode)
    for start, width, side in _OTHERS[branch]:
        other = page[start] if width == 1 else _join(page[start], page[start + 1])
        if is_alone and spot is None and isinstance(other, TreeLeaf):
            spot = other
        elif other is not None or not is_alone:
            siblings.append(Sibling(ZERO if other is None else other.hash, side))
            is_alone = False
    return spot, siblings


def read_page(stored: bytes, path: bytes) -> TreePage | None:
    """The page of a path among the stored pages of one bucket; None if it is not there."""
    return (_known_page if len(stored) <= KEPT_PAGES_BYTES else _find_page)(stored, path)


def _find_page(stored: bytes, path: bytes) -> TreePage | None:
    for found, start, end in entries_of(stored):
        if found == path:
            return _read_page(stored, start, end)
    return None


_known_page = lru_cache(maxsize=4_096)(_find_page)  # a write reads a page twice: to find the next one, and to change it


def without_pages(stored: bytes, paths: Container[bytes]) -> bytes:
    """Stored pages without those of some paths."""
    return b"".join(
        stored[start - len(path) - _ENTRY.size : end] for path, start, end in entries_of(stored) if path not in paths
    )


def paths_of(stored: bytes) -> list[bytes]:
    """The paths of stored pages."""
    return [path for path, _, _ in entries_of(stored)]


def entries_of(stored: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The path of each stored page, and where the page begins and ends."""
    end = 0
    while end < len(stored):
        length, size = _ENTRY.unpack_from(stored, end)
        start = end + _ENTRY.size + length
        path, end = stored[start - length : start], start + size
        yield path, start, end


def _read_page(stored: bytes, start: int, end: int) -> TreePage:
    kinds = stored[start]
    place = start + 1
    slots: list[Slot] = []
    for shift in (6, 4, 2, 0):
        kind = kinds >> shift & 3
        if kind == _NONE:
            slots.append(None)
        elif kind == _PAGE:
            slots.append(TreeNode._make(_NODES.unpack_from(stored, place)))
            place += 40
        else:
            digest, size = _LEAVES.unpack_from(stored, place)
            place += 36 + size
            slots.append(TreeLeaf(digest, stored[place - size : place]))
    assert place == end, "a stored page has another length"
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

    def changed(self, path: bytes, page: TreePage, one: LeafChange) -> TreePage:
        """The branches of the root page after one change: as `branches`, without its groups."""
        digest = one.digest
        above: list[tuple[bytes, TreePage, int]] = []
        while True:
            branch = branch_of(digest, len(path) - 1)
            slot = page[branch]
            if slot.__class__ is not TreeNode:
                break
            above.append((path, page, branch))
            path += STEPS[branch]
            self.replaced.append((path, slot[1]))
            page = self._load(path, slot[1])
        new = None if one.hash is None else TreeLeaf(one.hash, one.key)
        after: Slot = new
        if isinstance(slot, TreeLeaf) and slot.key != one.key:
            after = slot if new is None else self._split(path + STEPS[branch], slot, new, digest)
        page = (*page[:branch], after, *page[branch + 1 :])
        while above:
            slot = self._keep(path, page)
            path, page, branch = above.pop()
            page = (*page[:branch], slot, *page[branch + 1 :])
        return page

    def _split(self, path: bytes, old: TreeLeaf, new: TreeLeaf, digest: bytes) -> TreeNode:
        """The branch of two leaves where one was: a page for each level down to the one that tells them apart."""
        other = sha256(old.key).digest()
        first = last = len(path) - 1
        while (branch := branch_of(digest, last)) == (beside := branch_of(other, last)):
            path += STEPS[branch]
            last += 1
        page: list[Slot] = [None] * BRANCHES
        page[branch], page[beside] = new, old
        for level in range(last - 1, first - 1, -1):
            node = self._stored(path, tuple(page))
            path = path[:-1]
            page = [None] * BRANCHES
            page[branch_of(digest, level)] = node
        return self._stored(path, tuple(page))

    def _stored(self, path: bytes, page: TreePage) -> TreeNode:
        self.pages[path] = page
        return TreeNode(fold(page).hash, self._height)

    def branches(self, path: bytes, slots: TreePage, changes: Iterable[LeafChange]) -> TreePage:
        """The branches of a page after some changes."""
        grouped: dict[int, list[LeafChange]] = {}
        for one in changes:
            grouped.setdefault(branch_of(one.digest, len(path) - 1), []).append(one)
        after: list[Slot] = list(slots)
        for branch, group in grouped.items():
            after[branch] = self._branch(path + STEPS[branch], slots[branch], group)
        return tuple(after)

    def _branch(self, path: bytes, slot: Slot, changes: list[LeafChange]) -> Slot:
        if isinstance(slot, TreeNode):
            self.replaced.append((path, slot.height))
            return self._keep(path, self.branches(path, self._load(path, slot.height), changes))
        leaves = {} if slot is None else {slot.key: LeafChange(sha256(slot.key).digest(), slot.key, slot.hash)}
        leaves.update((one.key, one) for one in changes)
        left = [one for one in leaves.values() if one.hash is not None]
        if len(left) > 1:
            return self._keep(path, self.branches(path, _EMPTY_PAGE, left))
        return TreeLeaf(left[0].hash, left[0].key) if left and left[0].hash is not None else None

    def _keep(self, path: bytes, page: TreePage) -> Slot:
        """A page is stored while there are two leaves below it; a single leaf moves up."""
        taken = BRANCHES - page.count(None)
        if not taken:
            return None
        if taken == 1:
            alone = next(slot for slot in page if slot is not None)
            if isinstance(alone, TreeLeaf):
                return alone
        return self._stored(path, page)
