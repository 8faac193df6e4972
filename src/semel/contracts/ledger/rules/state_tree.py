"""The state tree of a place: what its root commits to, and how a block changes it.

A key belongs to one of 256 buckets by its SeaHash and has a path in it by its SHA-256. In a bucket stands a binary tree
in which a branch with a single leaf is that leaf: n leaves are about log2(n) deep, wherever they are, and the same
leaves always make the same tree. The state root is the hash of the 256 roots in order.

The tree is kept in pages of sixteen branches, four levels each. A block writes new pages along the paths that it
changes and leaves the old ones alone, so the tree of every height stays readable; a page names its children by the
height that wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import NamedTuple, overload

from semel.contracts.ledger.model import ZERO, Entity, Sibling, Side
from semel.contracts.ledger.rules.seahash import seahash

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
"""What stands beside the way from each branch to the root of its page, bottom up: where it begins, how many branches it
has, and on which side it is."""


class Leaf(NamedTuple):
    """A branch with one key in it."""

    hash: bytes
    key: bytes


class Node(NamedTuple):
    """A branch with more; its page was written at that height."""

    hash: bytes
    height: int


Slot = Leaf | Node | None


class FullPage(Sequence[Slot]):
    """A page with a page beneath every branch, as most are in a large tree: changed in its stored form, not read."""

    __slots__ = ("stored",)

    def __init__(self, stored: bytes) -> None:
        self.stored = stored

    def __len__(self) -> int:
        return BRANCHES

    @overload
    def __getitem__(self, branch: int) -> Node: ...

    @overload
    def __getitem__(self, branch: slice) -> tuple[Node, ...]: ...

    def __getitem__(self, branch: int | slice) -> Node | tuple[Node, ...]:
        if isinstance(branch, slice):
            return tuple(self[one] for one in range(*branch.indices(BRANCHES)))
        if not 0 <= branch < BRANCHES:
            raise IndexError(branch)
        return Node._make(_PAGES.unpack_from(self.stored, 4 + _PAGES.size * branch))

    def hashes(self) -> tuple[bytes, ...]:
        """The hashes of its branches."""
        return _HASHES.unpack(self.stored)

    def changed(self, nodes: Mapping[int, Node]) -> FullPage:
        """The page with other pages beneath some branches."""
        stored = bytearray(self.stored)
        for branch, node in nodes.items():
            _PAGES.pack_into(stored, 4 + _PAGES.size * branch, *node)
        return FullPage(bytes(stored))


Page = tuple[Slot, ...] | FullPage
Load = Callable[[bytes, int], Page]
"""The page of a path, as a height wrote it."""


class Change(NamedTuple):
    """The change of a key: its new leaf, or None when it is removed."""

    digest: bytes
    key: bytes
    hash: bytes | None


class Edit(NamedTuple):
    """The change of one bucket by a block: its new root, the pages written, and the pages that they replace."""

    root: bytes
    pages: dict[bytes, Page]
    replaced: list[tuple[bytes, int]]


@lru_cache(maxsize=4_096)
def bucket_of(key: bytes) -> int:
    """The bucket of a key."""
    return seahash(key) % BUCKETS


def leaf_hash(entity: Entity) -> bytes:
    """The leaf of an entity."""
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


def change(key: bytes, entity: Entity | None) -> Change:
    """The change of a key."""
    return Change(sha256(key).digest(), key, None if entity is None else leaf_hash(entity))


def edit_bucket(bucket: int, before: int, changes: Sequence[Change], height: int, load: Load) -> Edit:
    """Apply changes to a bucket whose root page was written at height `before`; 0 when it is empty."""
    writer = _Writer(height, load)
    path = bytes((bucket,))
    slots = load(path, before) if before else (None,) * BRANCHES
    if before:
        writer.replaced.append((path, before))
    after = writer.branches(path, slots, changes)
    if not any(after):
        return Edit(EMPTY_BUCKET, {}, writer.replaced)
    writer.pages[path] = after
    return Edit(fold(after).hash, writer.pages, writer.replaced)


def nibble(digest: bytes, level: int) -> int:
    """Which of the sixteen branches a path takes on a level."""
    byte = digest[level >> 1]
    return byte & 15 if level & 1 else byte >> 4


def next_page(digest: bytes, page: Page, level: int) -> int | None:
    """The height of the next page on a path, None when the path ends in this one."""
    slot = page[nibble(digest, level)]
    return slot.height if isinstance(slot, Node) else None


def fold(slots: Sequence[Slot]) -> Leaf | Node:
    """The hash over branches; a leaf when there is only one."""
    top = _folded(slots)
    assert top is not None, "an empty page is never kept"
    return top


def way_up(page: Page, branch: int) -> tuple[Slot, list[Sibling]]:
    """The end of a path in a page, and the siblings from there to the page's root, bottom up.

    A leaf that is alone stands as high as it can. So a path that ends in an empty branch may end at the leaf beside it.
    """
    spot: Slot = page[branch]
    if isinstance(page, FullPage):
        hashes = page.hashes()
        return spot, [Sibling(_over(hashes[start : start + width]), side) for start, width, side in _OTHERS[branch]]
    siblings = []
    is_alone = not isinstance(spot, Node)
    for start, width, side in _OTHERS[branch]:
        other = _folded(page[start : start + width])
        if is_alone and spot is None and isinstance(other, Leaf):
            spot = other
        elif other is not None or not is_alone:
            siblings.append(Sibling(ZERO if other is None else other.hash, side))
            is_alone = False
    return spot, siblings


def _folded(slots: Sequence[Slot]) -> Slot:
    """The hash of branches together, with as few calls as possible: this is most of the work of a block."""
    if isinstance(slots, FullPage):
        return Node(_over(slots.hashes()), 0)
    while len(slots) > 1:
        if None not in slots:
            return Node(_over([slot[0] for slot in slots]), 0)  # type: ignore[index]
        each = iter(slots)
        slots = [_join(left, right) for left, right in zip(each, each, strict=True)]
    return slots[0]


def _over(level: Sequence[bytes]) -> bytes:
    """The root over hashes, of which there are 1, 2, 4, 8 or 16."""
    while len(level) > 2:
        each = iter(level)
        level = [sha256(_NODE + left + right).digest() for left, right in zip(each, each, strict=True)]
    return level[0] if len(level) == 1 else sha256(_NODE + level[0] + level[1]).digest()


def write_page(page: Page) -> bytes:
    """A page as it is stored."""
    if isinstance(page, FullPage):
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


@lru_cache(maxsize=1_024)  # a write looks at a page twice: to find the next one, and to change it
def read_page(stored: bytes) -> Page:
    """A page from the store."""
    kinds = _KINDS.unpack_from(stored)[0]
    if kinds == _ALL_PAGES:
        return FullPage(stored)
    place = 4
    slots: list[Slot] = []
    for shift in _SHIFTS:
        kind = kinds >> shift & 3
        if kind == _NONE:
            slots.append(None)
        elif kind == _PAGE:
            slots.append(Node(*_PAGES.unpack_from(stored, place)))
            place += _PAGES.size
        else:
            digest, size = _LEAVES.unpack_from(stored, place)
            start = place + _LEAVES.size
            place = start + size
            slots.append(Leaf(digest, stored[start:place]))
    return tuple(slots)


def _join(left: Slot, right: Slot) -> Slot:
    if right is None:
        if left is None or left.__class__ is Leaf:
            return left
        return Node(sha256(_NODE + left[0] + ZERO).digest(), 0)
    if left is None:
        if right.__class__ is Leaf:
            return right
        return Node(sha256(_NODE + ZERO + right[0]).digest(), 0)
    return Node(sha256(_NODE + left[0] + right[0]).digest(), 0)


class _Writer:
    def __init__(self, height: int, load: Load) -> None:
        self._height = height
        self._load = load
        self.pages: dict[bytes, Page] = {}
        self.replaced: list[tuple[bytes, int]] = []

    def branches(self, path: bytes, slots: Page, changes: Iterable[Change]) -> Page:
        """The branches of a page after some changes."""
        grouped: dict[int, list[Change]] = {}
        for one in changes:
            grouped.setdefault(nibble(one.digest, len(path) - 1), []).append(one)
        changed = {
            branch: self._branch(path + bytes((branch,)), slots[branch], group) for branch, group in grouped.items()
        }
        nodes = {branch: slot for branch, slot in changed.items() if isinstance(slot, Node)}
        if isinstance(slots, FullPage) and len(nodes) == len(changed):
            return slots.changed(nodes)
        after: list[Slot] = list(slots)
        for branch, slot in changed.items():
            after[branch] = slot
        return tuple(after)

    def _branch(self, path: bytes, slot: Slot, changes: list[Change]) -> Slot:
        if isinstance(slot, Node):
            self.replaced.append((path, slot.height))
            return self._keep(path, self.branches(path, self._load(path, slot.height), changes))
        leaves = {} if slot is None else {slot.key: Change(sha256(slot.key).digest(), slot.key, slot.hash)}
        leaves.update((one.key, one) for one in changes)
        left = [one for one in leaves.values() if one.hash is not None]
        if len(left) > 1:
            return self._keep(path, self.branches(path, (None,) * BRANCHES, left))
        return Leaf(left[0].hash, left[0].key) if left and left[0].hash is not None else None

    def _keep(self, path: bytes, page: Page) -> Slot:
        """A page is kept while there are two leaves beneath it; a single one moves up."""
        taken = BRANCHES if isinstance(page, FullPage) else BRANCHES - page.count(None)
        if not taken:
            return None
        if taken == 1:
            alone = next(slot for slot in page if slot is not None)
            if isinstance(alone, Leaf):
                return alone
        self.pages[path] = page
        return Node(fold(page).hash, self._height)
